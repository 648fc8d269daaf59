r"""Weights that samples within a fair distance of a query may have.

The largest average over a box of weights is the root of the decreasing

.. math::
    t \mapsto \max_{q, u} \; q (y - t) + \sum_j u_j (f_j - t) ,

in which every weight is at its upper end where its value exceeds :math:`t`, and at its
lower end elsewhere. Newton's method (here: Dinkelbach's) finds it in finitely many
steps, each the average for the weights that the last one picks.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice
from pyg_glif.fit.fit import Fit
from pyg_glif.graph import edge_weights

# Pairs times columns that are worked on at once: stays in cache.
_ENTRIES = 1 << 18
# Queries whose distances to all samples are held at once.
_ROWS = 128


@dataclass(frozen=True, eq=False)
class Box:
    """Weights of fitted samples in averages, each in an interval, by query."""

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
        # Queries with as many neighbors side by side: little is padded.
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
        """Lower ends and lengths of intervals of weights, own and of neighbors."""
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
        # One where a weight is at its upper end: products then sum over samples.
        torch.gt(value, out.unsqueeze(1), out=raised)
        own_extra = own_more * (y > out)
        total = below + own_extra + torch.bmm(more, raised).squeeze(1)
        extra = torch.bmm(more, raised.mul_(value)).squeeze(1)
        average = (above + own_extra * y + extra) / total
        if not bool((average > out).any()):
            return out
        out = torch.maximum(out, average)


def weight_box(
    fit: Fit, x: Tensor, delta: float, precision: Tensor
) -> tuple[Box, tuple[Tensor, ...] | None]:
    """Weights that samples within ``delta`` of each row may have.

    ``precision`` multiplies the weight of their own outputs, ``[M]``. Also returns the
    pairs of the rows themselves with their neighbors, if the search has found them.
    """
    settings, lap = fit.settings, fit.lap
    check_choice("normalization", settings.normalization, (None, "density"))
    if settings.distance is not None and not settings.distance.is_embedding:
        name = type(settings.distance).__name__
        msg = "'distance' must be an embedding for a bound within 'delta', because"
        msg = f"{msg} nothing else is known to obey the triangle inequality"
        raise ValueError(f"{msg} (got {name})")
    pairs = None
    if settings.k is None:
        index = fit.wider_index(delta)
        wider = index.query(x, settings.progress)
        pairs = index.within(x, wider, settings.tau)
        row, col = wider[:2]
        low, high = _radius_box(fit, wider[2], delta, index.sq_dist_error)
    else:
        row, col, low, high = _nearest_box(fit, x, delta)
    low, high = _rounded_outwards(low, high, x.dtype)
    one = torch.ones(len(x), dtype=torch.float64, device=x.device)
    own_low, own_high = one, one
    if settings.normalization == "density":
        # All times the root of the query's own degree, which is in 'own'.
        own_low, own_high = (
            one.index_add(0, row, weight).sqrt_() for weight in (low, high)
        )
        scale = (lap.deg[col] + 1.0).rsqrt()
        low, high = low * scale, high * scale
    if fit.shares is not None and fit.sample_info.groups is not None:
        # Another sample within 'delta' may be of any group, or of none that is known.
        neighbor = fit.shares[fit.sample_info.groups.code[col]]
        low = low * 0.5 * (fit.shares.min() + neighbor)
        high = high * 0.5 * (fit.shares.max() + neighbor)
    mu = fit.mu
    own = precision * own_low, precision * own_high
    return Box(row, col, mu * low, mu * high, *own), pairs


def _radius_box(
    fit: Fit, sq_dist: Tensor, delta: float, slack: float
) -> tuple[Tensor, Tensor]:
    """Intervals of weights where neighbors are within a radius."""
    settings = fit.settings
    assert settings.theta is not None
    near, far = _ends(sq_dist.double().sqrt(), delta, slack)
    low = torch.where(
        far <= settings.tau, edge_weights(far.square(), settings.theta), 0
    )
    high = edge_weights(near.square(), settings.theta)
    return low, torch.where(near <= settings.tau, high, 0.0)


def _nearest_box(
    fit: Fit, x: Tensor, delta: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Pairs and intervals of weights where the nearest are neighbors.

    The distance to the k-th nearest changes no faster than the place.
    """
    settings, scale = fit.settings, fit.graph.scale
    assert settings.k is not None
    assert scale is not None
    distance = settings.distance
    z, z_new = fit.x.double(), x.double()
    if distance is not None:
        z, z_new = (distance.embed(part).detach().double() for part in (fit.x, x))
    centre = z.mean(0)
    z, z_new = z - centre, z_new - centre
    limit = torch.minimum if settings.mutual else torch.maximum
    slack = 1e-5 if x.dtype == torch.float32 else 1e-12
    parts = []
    for start in range(0, len(x), _ROWS):
        dist = torch.cdist(z_new[start : start + _ROWS], z)
        own = dist.new_full((len(dist), 1), math.inf)
        if settings.k <= len(z):
            own = dist.kthvalue(settings.k, dim=1, keepdim=True).values
        near, far = _ends(dist, delta, slack)
        least, most = (end.clamp(max=settings.tau) for end in _ends(own, delta, slack))
        sure = (far <= limit(least, scale)) & (far <= settings.tau)
        maybe = near <= limit(most, scale) * (1.0 + slack)
        maybe &= near <= settings.tau
        r, c = maybe.nonzero(as_tuple=True)
        low, high = (
            settings.weights(end[r, c].square(), torch.maximum(width[r, 0], scale[c]))
            for end, width in ((far, least), (near, most))
        )
        low = torch.where(sure[r, c], low, 0.0)
        parts.append((r + start, c, low, high))
    row, col, low, high = (torch.cat(part) for part in zip(*parts, strict=True))
    return row, col, low, high


def _ends(dist: Tensor, delta: float, slack: float) -> tuple[Tensor, Tensor]:
    """Least and largest distance within ``delta``, rounding included."""
    return (dist - delta).clamp(min=0.0) * (1.0 - slack), (dist + delta) * (1.0 + slack)


def _rounded_outwards(
    low: Tensor, high: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Weights, widened by rounding in the type of the features."""
    slack = 1024.0 * torch.finfo(dtype).eps  # exponents lose as much as they are large
    return low * (1.0 - slack), high * (1.0 + slack)
