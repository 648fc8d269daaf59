r"""Bounds that hold for certain, from a fit: outputs nearby, influence of one sample.

The output of a new sample is an average (:doc:`/guarantees` has the proofs),

.. math::
    F(q, y, u) = \frac{q y + \sum_j u_j f_j}{q + \sum_j u_j} ,

of its own output :math:`y` with weight :math:`q` and of outputs :math:`f_j` of fitted
samples with weights :math:`u_j`. Within fair distance :math:`\delta` of a known place,
each distance is known up to :math:`\delta` (triangle inequality), so each weight lies
in an interval. :mod:`pyg_glif.guarantees._weight_box` finds the extreme averages.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice, check_scalar
from pyg_glif.fit.fit import Fit
from pyg_glif.fit.queries import (
    read_features,
    read_groups,
    read_outputs,
    read_std,
)
from pyg_glif.fit.transform_info import beside, own_weight
from pyg_glif.guarantees._weight_box import weight_box
from pyg_glif.links import Identity, Link
from pyg_glif.methods.smoothing_std import own_shares


@dataclass(frozen=True, eq=False)
class NearbyBound:
    r"""Bounds on the output of any other new sample within a fair distance.

    Args:
        delta (float): The fair distance :math:`\delta`.
        low (Tensor): Smallest output of any sample within :math:`\delta`.
        high (Tensor): Largest such output.
        gap (Tensor): Bound on the difference between the output of the new sample and
            that of any sample within :math:`\delta`.
        dual_gap (Tensor): The same in the coordinates in which outputs are averaged,
            where a link has clamped them.
        num_shared (Tensor): Neighbors that all samples within :math:`\delta` have.
        num_possible (Tensor): Neighbors that any sample within :math:`\delta` can have.

    Shapes:
        - **low**, **high**, **gap**, **dual_gap:** like the outputs, :math:`(M)` or
          :math:`(M, C)`, float64
        - **num_shared**, **num_possible:** :math:`(M)`
    """

    delta: float
    low: Tensor = field(repr=False)
    high: Tensor = field(repr=False)
    gap: Tensor = field(repr=False)
    dual_gap: Tensor = field(repr=False)
    num_shared: Tensor = field(repr=False)
    num_possible: Tensor = field(repr=False)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    r"""Bounds on the influence of each fitted sample on the outputs of all.

    All are in the coordinates in which outputs are averaged.

    Args:
        own (Tensor): If the output of this sample before smoothing changes by
            :math:`\Delta`, no output after, its own included, moves by more than
            ``own`` times :math:`\Delta`.
        own_low (Tensor): Its own output moves by at least ``own_low`` times
            :math:`\Delta`.
        others (Tensor): No other output moves by more than ``others`` times
            :math:`\Delta`.
        leaving (Tensor, optional): No output moves by more if this sample is removed;
            :obj:`None` where weights of others change as well: for ``"density"``, for
            balanced groups, and with ``k``, where another sample becomes one of the
            nearest.

    Shares of balanced groups are taken as given. They depend on the outputs, so that
    for a balanced fit the bounds are about outputs that change while shares do not.

    Shapes:
        - **own**, **own_low**, **others:** :math:`(N)`
        - **leaving:** like the outputs, :math:`(N)` or :math:`(N, C)`
    """

    own: Tensor = field(repr=False)
    own_low: Tensor = field(repr=False)
    others: Tensor = field(repr=False)
    leaving: Tensor | None = field(repr=False)

    def __repr__(self) -> str:
        own = float(self.own.max()) if self.own.numel() else 0.0
        return f"{type(self).__name__}(num_samples={self.own.numel()}, own={own:.3g})"


@dataclass(frozen=True, eq=False)
class _Range:
    """Possible outputs before smoothing, in dual coordinates or as the model's."""

    low: Tensor  # [M, C] or [1, C]
    high: Tensor  # the same


def certify(
    fit: Fit,
    x_new: Any,
    delta: float,
    y_hat_new: Any = None,
    *,
    dy: float | None = None,
    y_range: tuple[float, float] | None = None,
    y_std: Any = None,
    groups: Any = None,
) -> NearbyBound:
    r"""Bounds on outputs of samples at most ``delta`` from each new sample.

    Another sample within fair distance :math:`\delta` has every neighbor within
    :math:`\tau - \delta`, may have any within :math:`\tau + \delta`, and each weight is
    known up to what :math:`\delta` does to a distance. The bound is the worst case over
    all weights in these intervals, and so over all places, also those without samples
    (:doc:`/guarantees`).

    Args:
        fit (Fit): A fit, such as ``post.fit_``.
        x_new (array-like): Features :math:`(M, F)`.
        delta (float): Fair distance, in units of the distance.
        y_hat_new (array-like, optional): Outputs of the model for them.
            (default: :obj:`None`, anything in the range)
        dy (float, optional): Largest difference between the model's outputs for both.
            Zero bounds the effect of the place only.
            (default: :obj:`None`, anything in the range)
        y_range (tuple, optional): Smallest and largest output that the model gives.
            (default: those of the fitted samples and of ``y_hat_new``, column by
            column)
        y_std (float or array-like, optional): As in
            :meth:`~pyg_glif.postprocessing.GLIFPostProcessor.transform`; the output of
            the other has the same standard deviation.
        groups (sequence, optional): Likewise; the other may be of any group.

    Refuses ``"nrw"``, whose outputs are no averages, and distances without an
    embedding, which may violate the triangle inequality.

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.tensor([[0.0], [1.0], [2.0]])
        >>> y = torch.tensor([0.0, 0.5, 1.0])
        >>> post = GLIFPostProcessor(tau=1.5, lam=2.0).fit(x, y)
        >>> bound = certify(post.fit_, x[:1], 0.1, y[:1], dy=0.0)
        >>> bound.num_shared, bound.num_possible
        (tensor([2]), tensor([2]))
        >>> bound.gap.round(decimals=3)
        tensor([0.0110], dtype=torch.float64)
    """
    delta = check_scalar("delta", delta, minimum=0.0)
    if dy is not None:
        dy = check_scalar("dy", dy, minimum=0.0)
    x, outputs = read_features(fit, x_new), None
    if y_hat_new is not None:
        outputs = read_outputs(fit, y_hat_new, x)
    y = None if outputs is None else outputs.value
    std, code = read_std(fit, y_std, x), read_groups(fit, groups, x)
    everything = _everything(fit, y, y_range)
    mine = other = everything
    raw = raw_mine = _raw_range(fit, y, y_range)
    if y is not None:
        eta = fit.settings.smoother.to_dual(y).double()
        mine, raw_mine = _Range(eta, eta), _raw_around(y, 0.0, raw)
        if dy is not None:
            other = _around(fit, y, dy, everything)
            raw = _raw_around(y, dy, raw)
    precision = own_weight(fit, std, len(x))
    box, pairs = weight_box(fit, x, delta, precision)
    lap, f = beside(fit, x, code, pairs=pairs), fit.f
    total = precision + fit.mu * lap.diagonal
    pull, share = fit.mu * lap.pull(f) / total.unsqueeze(1), precision / total

    def here(y: Tensor) -> Tensor:
        """Outputs of the new samples, from these before."""
        return share.unsqueeze(1) * y + pull

    largest = max(_size(f), _size(other.low), _size(other.high))
    pad = 16.0 * torch.finfo(fit.y_hat.dtype).eps * largest

    def nearby(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest and largest outputs nearby, from outputs between these."""
        least, most = box.extremes(low.expand_as(pull), high.expand_as(pull), f)
        return least - pad, most + pad

    low, high = nearby(other.low, other.high)
    own = here(mine.low), here(mine.high)
    link = fit.settings.link
    ends = _outputs(link, low, high, fit.y_hat)
    shared, possible = (
        torch.bincount(box.row[end > 0], minlength=len(x))
        for end in (box.low, box.high)
    )
    # Isolated samples keep their output as it was, not as the link clamps it.
    nothing = fit.mu == 0
    isolated = ((shared == 0) | nothing).unsqueeze(1)
    kept = _outputs(None, raw.low, raw.high, fit.y_hat)
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
        known = _outputs(link, *own, fit.y_hat)
        isolated = ((lap.deg == 0) | nothing).unsqueeze(1)
        kept = _outputs(None, raw_mine.low, raw_mine.high, fit.y_hat)
        known = (
            torch.where(isolated, kept[0], known[0]),
            torch.where(isolated, kept[1], known[1]),
        )
        gap = torch.maximum(ends[1] - known[0], known[1] - ends[0])
    shape = (len(x), *fit.y_hat.shape[1:])
    bounds = [part.reshape(shape).cpu() for part in (*ends, gap, dual)]
    if outputs is not None:
        bounds = [outputs.restore(part) for part in bounds]
    low, high, gap, dual = bounds
    return NearbyBound(delta, low, high, gap, dual, shared.cpu(), possible.cpu())


def _everything(
    fit: Fit, y: Tensor | None, y_range: tuple[float, float] | None
) -> _Range:
    """All outputs that the model is taken to give."""
    settings = fit.settings
    if y_range is None:
        eta = settings.smoother.to_dual(fit.y_hat).double()
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
    like = fit.y_hat[:1].double()
    low, high = (
        settings.smoother.to_dual(torch.full_like(like, end)) for end in (first, last)
    )
    return _Range(low, high)


def _raw_range(
    fit: Fit, y: Tensor | None, y_range: tuple[float, float] | None
) -> _Range:
    """All outputs, before a link clamps them."""
    given = fit.y_hat if y is None else torch.cat([fit.y_hat, y])
    given = given.double().reshape(len(given), -1)
    if y_range is None:
        return _Range(*torch.aminmax(given, dim=0, keepdim=True))
    return _Range(*(torch.full_like(given[:1], end) for end in y_range))


def _raw_around(y: Tensor, dy: float, within: _Range) -> _Range:
    """Outputs at most ``dy`` from known ones, as the model gives them."""
    y = y.double().reshape(len(y), -1)
    low, high = torch.maximum(y - dy, within.low), torch.minimum(y + dy, within.high)
    return _Range(low, high)


def _around(fit: Fit, y: Tensor, dy: float, within: _Range) -> _Range:
    """Outputs that differ by at most ``dy`` from known ones."""
    settings = fit.settings
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


def sensitivity(fit: Fit) -> Sensitivity:
    r"""Bounds on the influence of each fitted sample, in one pass over the edges.

    The exact influence of one sample is a row of ``explain``, that of its removal is
    ``forget``.

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0.0, 3.0])
        >>> post = GLIFPostProcessor(tau=1.5, theta=0.0).fit(x, y)
        >>> bound = sensitivity(post.fit_)
        >>> bound.own.round(decimals=4)
        tensor([0.6667, 0.6667], dtype=torch.float64)
        >>> bound.leaving.round(decimals=4)
        tensor([1., 1.], dtype=torch.float64)
    """
    lap, pattern = fit.lap, fit.lap.pattern
    check_choice("normalization", lap.normalization, (None, "density"))
    precision = fit.precision
    if precision is None:
        precision = torch.ones_like(lap.deg)
    own_low, own = own_shares(lap, fit.mu, precision)
    # The output of a neighbor is an average in which the sample is one of several.
    passed = (1.0 - own_low)[pattern.col]
    most = torch.zeros_like(own).scatter_reduce_(0, pattern.row, passed, "amax")
    others = own * most
    if fit.precision is None:  # weights of one output in all add up to one
        others = torch.minimum(others, 1.0 - own_low)
    leaving = None
    # The nearest, and the scale of weights, depend on all samples.
    fixed = lap.normalization is None and fit.shares is None
    if fixed and fit.settings.k is None:
        leaving = _leaving(fit, precision).reshape(fit.y_hat.shape)
    return Sensitivity(own, own_low, others, leaving)


def _leaving(fit: Fit, precision: Tensor) -> Tensor:  # [N] -> [N, C]
    """Bounds on the change of any output when a sample is removed."""
    f, pattern = fit.f, fit.lap.pattern
    t = fit.mu * fit.lap.off_diagonal
    theirs = precision[pattern.col]
    through = t * theirs / (theirs + t)
    # Diagonal entries of the inverse without the sample at the other end.
    others = pattern.row_sum(through)[pattern.col] - through[pattern.reverse]
    rest = theirs + others.clamp(min=0.0)
    worst, total = torch.zeros_like(f), torch.zeros_like(f)
    for part in pattern.chunks():
        i, j = pattern.row[part], pattern.col[part]
        force = (f[i] - f[j]).abs_() * t[part].unsqueeze(1)
        each = force / theirs[part].unsqueeze(1)
        worst.scatter_reduce_(0, i.unsqueeze(1).expand_as(each), each, "amax")
        total.index_add_(0, i, force / rest[part].unsqueeze(1))
    # Plus the residual of the solve behind 'f'.
    return torch.minimum(worst, total) + fit.solution.residual
