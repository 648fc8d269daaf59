r"""Bounds on outputs of people whose place is known up to a fair distance.

A newcomer's output is an average (:doc:`/guarantees` has the proofs),

.. math::
    F(q, y, u) = \frac{q y + \sum_j u_j f_j}{q + \sum_j u_j} ,

of their own output :math:`y` with weight :math:`q` and of outputs :math:`f_j` of fitted
people with weights :math:`u_j`. Within fair distance :math:`\delta` of a known place,
each distance is known up to :math:`\delta` (triangle inequality), so each weight lies
in an interval. The largest average over a box of weights is the root of the decreasing

.. math::
    t \mapsto \max_{q, u} \; q (y - t) + \sum_j u_j (f_j - t) ,

in which every weight is at its upper end where its value exceeds :math:`t`, and at its
lower end elsewhere. Newton's method (here: Dinkelbach's) finds it in finitely many
steps, each the average for the weights that the last one picks.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice, check_scalar
from pyg_glif.fit.certificate import NearbyBound, Sensitivity
from pyg_glif.graph import edge_weights
from pyg_glif.links import Identity, Link
from pyg_glif.methods.smoothing_std import own_shares

if TYPE_CHECKING:
    from pyg_glif.fit.fit import Fit

# Pairs times columns that are worked on at once: stays in cache.
_ENTRIES = 1 << 18
# Newcomers whose distances to everybody are held at once.
_ROWS = 128


@dataclass(frozen=True, eq=False)
class Box:
    """Weights of fitted people in averages, each in an interval, by newcomer."""

    row: Tensor  # [P] int64, ascending
    col: Tensor  # [P] int64
    low: Tensor  # [P] float64
    high: Tensor  # [P] float64
    own_low: Tensor  # [M] float64
    own_high: Tensor  # [M] float64

    def extremes(
        self, low: Tensor, high: Tensor, f: Tensor
    ) -> tuple[Tensor, Tensor]:  # [M, C] twice, [N, C] -> [M, C] twice
        """Smallest averages of ``low``, largest of ``high``, with the rows of ``f``."""
        smallest, largest = torch.empty_like(low), torch.empty_like(high)
        count = torch.bincount(self.row, minlength=len(low))
        first = count.cumsum(0) - count
        # Newcomers with as many peers side by side: little is padded.
        order, start = count.argsort(descending=True), 0
        while start < len(low):
            width = int(count[order[start]])
            size = max(1, _ENTRIES // max(1, width * f.size(1)))
            rows = order[start : start + size]
            place = torch.arange(width, device=count.device)
            real = place < count[rows].unsqueeze(1)
            pair = torch.where(real, first[rows].unsqueeze(1) + place, 0)
            value = f[self.col[pair]] if width else f.new_zeros(len(rows), 0, f.size(1))
            base = self._ends(rows, pair, real)
            largest[rows] = _largest_average(high[rows], value, *base)
            smallest[rows] = -_largest_average(-low[rows], -value, *base)
            start += size
        return smallest, largest

    def _ends(
        self, rows: Tensor, pair: Tensor, real: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lower ends of weights and lengths of their intervals, own and others'."""
        own = self.own_low[rows].unsqueeze(1)
        own_more = self.own_high[rows].unsqueeze(1) - own
        if pair.size(1) == 0:
            return own, own_more, real.double(), real.double()
        low = torch.where(real, self.low[pair], 0.0)
        return own, own_more, low, torch.where(real, self.high[pair], 0.0) - low


def _largest_average(
    y: Tensor,  # [M, C]
    value: Tensor,  # [M, K, C]
    own: Tensor,  # [M, 1]
    own_more: Tensor,  # [M, 1]
    weight: Tensor,  # [M, K]
    more: Tensor,  # [M, K]
) -> Tensor:  # [M, C]
    """Dinkelbach's iteration, from below."""
    weight, more = weight.unsqueeze(1), more.unsqueeze(1)
    above = own * y + torch.bmm(weight, value).squeeze(1)
    below = own + weight.sum(2)
    out, raised = above / below, torch.empty_like(value)
    while True:
        # One where a weight is at its upper end: products then sum over people.
        torch.gt(value, out.unsqueeze(1), out=raised)
        own_extra = own_more * (y > out)
        total = below + own_extra + torch.bmm(more, raised).squeeze(1)
        extra = torch.bmm(more, raised.mul_(value)).squeeze(1)
        found = (above + own_extra * y + extra) / total
        if not bool((found > out).any()):
            return out
        out = torch.maximum(out, found)


def weight_box(
    fitted: "Fit", x: Tensor, delta: float, precision: Tensor
) -> tuple[Box, tuple[Tensor, ...] | None]:
    """The weights that people within ``delta`` of each row may have.

    ``precision`` multiplies the weight of their own outputs, ``[M]``. Also returns the
    pairs with neighbours of the rows themselves, where the search has found them.
    """
    settings, lap = fitted.settings, fitted.lap
    check_choice("normalization", settings.normalization, (None, "density"))
    if settings.distance is not None and not settings.distance.is_embedding:
        name = type(settings.distance).__name__
        msg = "'distance' must be an embedding for a bound within 'delta', because"
        msg = f"{msg} nothing else is known to obey the triangle inequality"
        raise ValueError(f"{msg} (got {name})")
    peers = None
    if settings.k is None:
        index = fitted.wider_index(delta)
        wider = index.query(x, settings.progress)
        peers = index.within(x, wider, settings.tau)
        row, col = wider[:2]
        low, high = _radius_box(fitted, wider[2], delta, index.sq_dist_error)
    else:
        row, col, low, high = _nearest_box(fitted, x, delta)
    low, high = _rounded_outwards(low, high, x.dtype)
    one = torch.ones(len(x), dtype=torch.float64, device=x.device)
    own_low, own_high = one, one
    if settings.normalization == "density":
        # Everything times the root of the newcomer's own degree, which is in 'own'.
        own_low, own_high = (
            one.index_add(0, row, weight).sqrt_() for weight in (low, high)
        )
        scale = (lap.deg[col] + 1.0).rsqrt()
        low, high = low * scale, high * scale
    if fitted.shares is not None and fitted.people.groups is not None:
        # Somebody else within 'delta' may be of any group, or of none that is known.
        theirs = fitted.shares[fitted.people.groups.code[col]]
        low = low * 0.5 * (fitted.shares.min() + theirs)
        high = high * 0.5 * (fitted.shares.max() + theirs)
    mu = fitted.mu
    own = precision * own_low, precision * own_high
    return Box(row, col, mu * low, mu * high, *own), peers


def _radius_box(
    fitted: "Fit", sq_dist: Tensor, delta: float, slack: float
) -> tuple[Tensor, Tensor]:
    """Intervals of weights where neighbours are within a radius."""
    settings = fitted.settings
    assert settings.theta is not None
    near, far = _ends(sq_dist.double().sqrt(), delta, slack)
    low = torch.where(
        far <= settings.tau, edge_weights(far.square(), settings.theta), 0
    )
    high = edge_weights(near.square(), settings.theta)
    return low, torch.where(near <= settings.tau, high, 0.0)


def _nearest_box(
    fitted: "Fit", x: Tensor, delta: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pairs and intervals of weights where the nearest are neighbours.

    The distance to the k-th nearest changes no faster than the place.
    """
    settings, theirs = fitted.settings, fitted.graph.scale
    assert settings.k is not None
    assert theirs is not None
    distance = settings.distance
    z, z_new = fitted.x.double(), x.double()
    if distance is not None:
        z, z_new = (distance.embed(part).detach().double() for part in (fitted.x, x))
    centre = z.mean(0)
    z, z_new = z - centre, z_new - centre
    limit = torch.minimum if settings.mutual else torch.maximum
    slack = 1e-5 if x.dtype == torch.float32 else 1e-12
    parts = []
    for start in range(0, len(x), _ROWS):
        dist = torch.cdist(z_new[start : start + _ROWS], z)
        mine = dist.new_full((len(dist), 1), math.inf)
        if settings.k <= len(z):
            mine = dist.kthvalue(settings.k, dim=1, keepdim=True).values
        near, far = _ends(dist, delta, slack)
        least, most = (end.clamp(max=settings.tau) for end in _ends(mine, delta, slack))
        sure = (far <= limit(least, theirs)) & (far <= settings.tau)
        maybe = near <= limit(most, theirs) * (1.0 + slack)
        maybe &= near <= settings.tau
        r, c = maybe.nonzero(as_tuple=True)
        low, high = (
            settings.weights(end[r, c].square(), torch.maximum(own[r, 0], theirs[c]))
            for end, own in ((far, least), (near, most))
        )
        low = torch.where(sure[r, c], low, 0.0)
        parts.append((r + start, c, low, high))
    row, col, low, high = (torch.cat(part) for part in zip(*parts, strict=True))
    return row, col, low, high


def _ends(dist: Tensor, delta: float, slack: float) -> tuple[Tensor, Tensor]:
    """What a distance can become within ``delta``, its own rounding included."""
    return (dist - delta).clamp(min=0.0) * (1.0 - slack), (dist + delta) * (1.0 + slack)


def _rounded_outwards(
    low: Tensor, high: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Weights, and what rounding in the type of the features may make of them."""
    slack = 1024.0 * torch.finfo(dtype).eps  # exponents lose as much as they are large
    return low * (1.0 - slack), high * (1.0 + slack)


@dataclass(frozen=True, eq=False)
class _Range:
    """Outputs that people may have before smoothing, in dual coordinates."""

    low: Tensor  # [M, C] or [1, C]
    high: Tensor  # the same


def certify(
    fitted: "Fit",
    x: Tensor,
    delta: float,
    y: Tensor | None,
    dy: float | None,
    y_range: tuple[float, float] | None,
    y_std: Tensor | None,
    groups: Tensor | None = None,
) -> NearbyBound:
    """Bounds for anybody within ``delta`` of each row; see the post-processor."""
    everything = _everything(fitted, y, y_range)
    mine = other = everything
    raw = raw_mine = _raw_range(fitted, y, y_range)
    if y is not None:
        eta = fitted.settings.smoother.to_dual(y).double()
        mine, raw_mine = _Range(eta, eta), _raw_around(y, 0.0, raw)
        if dy is not None:
            other = _around(fitted, y, dy, everything)
            raw = _raw_around(y, dy, raw)
    precision = fitted.own_weight(y_std, len(x))
    box, peers = weight_box(fitted, x, delta, precision)
    lap, f = fitted.beside(x, groups=groups, found=peers), fitted.f
    total = precision + fitted.mu * lap.diagonal
    pull, share = fitted.mu * lap.pull(f) / total.unsqueeze(1), precision / total

    def here(y: Tensor) -> Tensor:
        """What newcomers with these outputs get."""
        return share.unsqueeze(1) * y + pull

    largest = max(_size(f), _size(other.low), _size(other.high))
    pad = 16.0 * torch.finfo(fitted.y_hat.dtype).eps * largest

    def nearby(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the most that others get, from outputs between these."""
        least, most = box.extremes(low.expand_as(pull), high.expand_as(pull), f)
        return least - pad, most + pad

    low, high = nearby(other.low, other.high)
    own = here(mine.low), here(mine.high)
    link = fitted.settings.link
    ends = _outputs(link, low, high, fitted.y_hat)
    shared, possible = (
        torch.bincount(box.row[end > 0], minlength=len(x))
        for end in (box.low, box.high)
    )
    # Whoever has no neighbor keeps the output as it was, not as the link clamps it.
    nothing = fitted.mu == 0
    isolated = ((shared == 0) | nothing).unsqueeze(1)
    kept = _outputs(None, raw.low, raw.high, fitted.y_hat)
    ends = (
        torch.where(isolated, torch.minimum(ends[0], kept[0]), ends[0]),
        torch.where(isolated, torch.maximum(ends[1], kept[1]), ends[1]),
    )
    if y is None and dy is not None:
        _refuse_links(link, "'y_hat_new' must be given with 'dy' and a link")
        # Largest differences are at corners of the pairs of outputs there may be.
        step = (mine.high - mine.low).clamp(max=dy)
        up, down = mine.low + step, mine.high - step
        least, most = nearby(down, up)
        corners = [most - own[0], high - here(down), own[1] - least, here(up) - low]
        dual = gap = torch.stack(corners).amax(0)
    else:
        dual = torch.maximum(high - own[0], own[1] - low)
        known = _outputs(link, *own, fitted.y_hat)
        isolated = ((lap.deg == 0) | nothing).unsqueeze(1)
        kept = _outputs(None, raw_mine.low, raw_mine.high, fitted.y_hat)
        known = (
            torch.where(isolated, kept[0], known[0]),
            torch.where(isolated, kept[1], known[1]),
        )
        gap = torch.maximum(ends[1] - known[0], known[1] - ends[0])
    shape = (len(x), *fitted.y_hat.shape[1:])
    low, high, gap, dual = (part.reshape(shape).cpu() for part in (*ends, gap, dual))
    counts = shared.cpu(), possible.cpu()
    return NearbyBound(delta, low, high, gap, dual, *counts)


def _everything(
    fitted: "Fit", y: Tensor | None, y_range: tuple[float, float] | None
) -> _Range:
    """All outputs that the model is taken to give to anybody."""
    settings = fitted.settings
    if y_range is None:
        eta = settings.smoother.to_dual(fitted.y_hat).double()
        if y is not None:
            eta = torch.cat([eta, settings.smoother.to_dual(y).double()])
        low, high = torch.aminmax(eta, dim=0, keepdim=True)
        return _Range(low, high)
    if settings.link is not None and settings.link.by_row:
        name = type(settings.link).__name__
        raise ValueError(f"'y_range' must be None with the link '{name}'")
    first, last = (check_scalar("y_range", end) for end in y_range)
    if first > last:
        raise ValueError(f"'y_range' must be in ascending order (got {y_range})")
    if (
        y is not None
        and y.numel()
        and not first <= float(y.min()) <= float(y.max()) <= last
    ):
        got = (float(y.min()), float(y.max()))
        raise ValueError(f"'y_hat_new' must be within 'y_range', {y_range} (got {got})")
    like = fitted.y_hat[:1].double()
    low, high = (
        settings.smoother.to_dual(torch.full_like(like, end)) for end in (first, last)
    )
    return _Range(low, high)


def _raw_range(
    fitted: "Fit", y: Tensor | None, y_range: tuple[float, float] | None
) -> _Range:
    """The same as the model gives them, before a link clamps them."""
    given = fitted.y_hat if y is None else torch.cat([fitted.y_hat, y])
    given = given.double().reshape(len(given), -1)
    if y_range is None:
        return _Range(*torch.aminmax(given, dim=0, keepdim=True))
    return _Range(*(torch.full_like(given[:1], end) for end in y_range))


def _raw_around(y: Tensor, dy: float, within: _Range) -> _Range:
    """Outputs at most ``dy`` from known ones, as the model gives them."""
    y = y.double().reshape(len(y), -1)
    low, high = torch.maximum(y - dy, within.low), torch.minimum(y + dy, within.high)
    return _Range(low, high)


def _around(fitted: "Fit", y: Tensor, dy: float, within: _Range) -> _Range:
    """Outputs that differ by at most ``dy`` from known ones."""
    settings = fitted.settings
    if settings.link is not None and settings.link.by_row and dy > 0:
        name = type(settings.link).__name__
        raise ValueError(f"'dy' must be None or 0 with the link '{name}' (got {dy})")
    if dy == 0.0:
        eta = settings.smoother.to_dual(y).double()
        return _Range(eta, eta)
    ends = within.low, within.high
    if settings.link is not None:
        ends = settings.link.interval(*ends)
    shape = (len(y), -1)
    low, high = y.double().reshape(shape) - dy, y.double().reshape(shape) + dy
    low, high = torch.maximum(low, ends[0]), torch.minimum(high, ends[1])
    return _Range(settings.smoother.to_dual(low), settings.smoother.to_dual(high))


def _refuse_links(link: Link | None, message: str) -> None:
    """Raises unless outputs are averaged as they are."""
    if link is not None and not isinstance(link, Identity):
        raise ValueError(f"{message} (got '{type(link).__name__}')")


def _size(value: Tensor) -> float:
    """Largest absolute value."""
    return float(value.abs().max()) if value.numel() else 0.0


def _outputs(
    link: Link | None, low: Tensor, high: Tensor, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Bounds on outputs, rounding to the type of ``like`` included."""
    if link is not None:
        low, high = link.interval(low, high)
    slack = 4.0 * torch.finfo(like.dtype).eps
    return low - slack * low.abs(), high + slack * high.abs()


def sensitivity(fitted: "Fit") -> Sensitivity:
    """Bounds on what one fitted person does to all, in one pass over the edges."""
    lap, pattern = fitted.lap, fitted.lap.pattern
    check_choice("normalization", lap.normalization, (None, "density"))
    precision = fitted.precision
    if precision is None:
        precision = torch.ones_like(lap.deg)
    own_low, own = own_shares(lap, fitted.mu, precision)
    # A neighbour gets an average in which the person is one of several.
    passed = (1.0 - own_low)[pattern.col]
    most = torch.zeros_like(own).scatter_reduce_(0, pattern.row, passed, "amax")
    others = own * most
    if fitted.precision is None:  # what everybody gets of a person adds up to one
        others = torch.minimum(others, 1.0 - own_low)
    leaving = None
    # Who is among the nearest, and the scale of weights, depend on everybody.
    fixed = lap.normalization is None and fitted.shares is None
    if fixed and fitted.settings.k is None:
        leaving = _leaving(fitted, precision).reshape(fitted.y_hat.shape)
    return Sensitivity(own, own_low, others, leaving)


def _leaving(fitted: "Fit", precision: Tensor) -> Tensor:  # [N] -> [N, C]
    """Bounds on how far anybody moves when a person leaves."""
    f, pattern = fitted.f, fitted.lap.pattern
    t = fitted.mu * fitted.lap.off_diagonal
    theirs = precision[pattern.col]
    through = t * theirs / (theirs + t)
    # Diagonal entries of the inverse without the person at the other end.
    others = pattern.row_sum(through)[pattern.col] - through[pattern.reverse]
    rest = theirs + others.clamp(min=0.0)
    worst, total = torch.zeros_like(f), torch.zeros_like(f)
    for part in pattern.chunks():
        i, j = pattern.row[part], pattern.col[part]
        force = (f[i] - f[j]).abs_() * t[part].unsqueeze(1)
        each = force / theirs[part].unsqueeze(1)
        worst.scatter_reduce_(0, i.unsqueeze(1).expand_as(each), each, "amax")
        total.index_add_(0, i, force / rest[part].unsqueeze(1))
    # What the solve behind 'f' has left open.
    return torch.minimum(worst, total) + fitted.solution.residual
