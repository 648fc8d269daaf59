r"""Residuals of a system, with more digits than float64 where these are needed.

With ``lam`` times its scale :math:`\mu`, :math:`t = \mu v` and :math:`s = 1 + \mu a`
(:mod:`pyg_glif.laplacian`), row :math:`i` of the system reads in two ways,

.. math::
    s_i f_i - \sum_j t_{ij} f_j = y_i \qquad\text{or}\qquad
    f_i + g_i f_i + \sum_j t_{ij} (f_i - f_j) = y_i ,

where the surplus :math:`g_i = \mu (a_i - \sum_j v_{ij})` is zero for Laplacians that
keep constants. The first form is one sparse product. It subtracts numbers of size
:math:`s_i |f_i|`, and the rounded :math:`s_i` is not exactly one plus the sum of the
rounded :math:`t_{ij}`: what is lost grows with :math:`\lambda` and the length of the
row. The second form costs a pass over edges times columns, and its losses do not grow
with :math:`\lambda`. :doc:`/maths` derives the bounds used here, in terms of
:math:`\gamma_n = n u / (1 - n u)` with :math:`u = 2^{-53}`.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.sparse import Pattern

if TYPE_CHECKING:
    from pyg_glif.solvers.system import System

_UNIT = 2.0**-53  # largest relative error of one float64 operation
_TINY = 5e-324  # no product below the normal range errs by more
# Smaller entries are lost to a norm, which squares them. Right-hand sides are scaled
# to be far above.
_LOST = 2e-154
# Share of the tolerance that rounding may take before a residual is evaluated by
# differences, and before a solver works with those throughout.
_NEGLIGIBLE, _TOLERABLE = 0.005, 0.1


def gamma(count: int | Tensor) -> Tensor:
    """Relative error of ``count`` float64 operations in a row."""
    total = torch.as_tensor(count, dtype=torch.float64) * _UNIT
    return total / (1.0 - total)


class Residual(NamedTuple):
    """A computed residual, and what its computation may hide.

    The error of the point it belongs to is at most ``(|value| + noise) / e`` plus
    ``entries / min(e, 1)`` in each column, for the smallest eigenvalue ``e``. ``noise``
    comes from the computation of the residual, ``entries`` from that of the matrix,
    which no solver can help.
    """

    value: Tensor  # [N, C]
    norm: Tensor  # [C], of each column
    noise: Tensor  # [C]
    entries: Tensor | float = 0.0  # [C]


def residual_of(
    system: "System",
    y: Tensor,  # [N, C]
    x: Tensor,  # [N, C]
    low: Tensor | None = None,  # [N, C]
    limit: Tensor | None = None,  # [C]
) -> Residual:
    """Residual of ``x + low``, by differences unless a product is exact enough.

    A product will do where its rounding is negligible beside ``limit`` (beside the
    residual itself without one).
    """
    if low is None:
        residual = _by_product(system, y, x)
        scale = residual.norm if limit is None else limit
        if bool((residual.noise <= _NEGLIGIBLE * scale).all()):
            return residual
    return _by_differences(system, y, x, low)


def is_delicate(system: "System", y: Tensor, limit: Tensor | None) -> bool:
    """Whether rounding in a product could use up the tolerance of a solve."""
    if limit is None or y.numel() == 0:
        return False
    # No output exceeds the largest input, where constants are kept.
    noise = 2.0 * system.norm(system.row_noise) * system.peak(y)
    return not bool((noise <= _TOLERABLE * limit).all())


def total_bound(system: "System", *parts: Tensor) -> Tensor:
    """Sum of bounds, rounded up, with what underflow may have taken."""
    total = sum(parts[1:], parts[0])
    if system.op.longest_row and system.lam > 0:
        longest = float(system.op.longest_row + 8)
        lost = longest * _TINY * (1.0 + system.largest_diagonal) + 8.0 * _LOST
        total = total + math.sqrt(system.num_nodes) * lost
    return _slack(system) * total


def _slack(system: "System") -> float:
    """Factor above 1 that covers rounding in norms and products of errors."""
    longest = system.op.longest_row
    return 1.0 + 8.0 * float(gamma(system.num_nodes + longest + 128))


def _by_product(system: "System", y: Tensor, x: Tensor) -> Residual:
    """The residual as ``y`` minus a matrix product, and a bound on its rounding."""
    noise = system.row_noise
    # No sum over a row exceeds its diagonal times the largest entry.
    bound = system.norm(noise.unsqueeze(1) * x.abs())
    bound = bound + system.norm(noise) * system.peak(x)
    value = y - system.matmul(x)
    return Residual(value, system.norm(value), _slack(system) * bound)


def _by_differences(
    system: "System", y: Tensor, x: Tensor, low: Tensor | None
) -> Residual:
    """The residual of ``x + low`` from differences along edges, with bounds."""
    op, surplus = system.op, system.row_surplus
    gap = y - x
    size = gap.abs()
    if low is not None:
        gap, size = gap - low, size + low.abs()
    away, flow = torch.zeros_like(y), torch.zeros_like(y)
    energy = y.new_zeros(y.size(1))
    all_x = system.with_halo(x)
    all_low = None if low is None else system.with_halo(low)
    for part in op.pattern.chunks():
        row, t = op.pattern.row[part], system.off_diagonal[part].unsqueeze(1)
        step = _along(op.pattern, all_x, part)
        reach = step.abs()
        if all_low is not None:
            small = _along(op.pattern, all_low, part)
            step, reach = step + small, reach.add_(small.abs())
        away.index_add_(0, row, step.mul_(t))
        flow.index_add_(0, row, reach * t)
        energy += (t * reach.square_()).sum(0)
    value = gap - away
    size = size + flow
    if surplus is not None:
        own = x if low is None else x + low
        value = value - surplus.unsqueeze(1) * own
        size += system.surplus_size.unsqueeze(1) * x.abs()
    scale = gamma(system.row_length + 8).to(size).unsqueeze(1)
    noise = system.norm(scale * size)
    error = float(gamma(op.roundings + 4))
    if op.is_psd:
        # Errors that are equal and opposite at the two ends of an edge. A surplus is
        # an edge to a node whose output is zero.
        energy = 0.5 * energy
        if surplus is not None:
            energy += surplus @ x.square()
        entries = 0.5 * error * system.sum(energy).sqrt()
    else:
        flow += system.surplus_size.unsqueeze(1) * x.abs()
        entries = error * system.norm(flow)
    slack = _slack(system)
    return Residual(value, system.norm(value), slack * noise, slack * entries)


def add_exactly(x: Tensor, low: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of three as two numbers per entry, the second below the first's digits.

    Knuth's two-sum: ``total`` and ``lost`` are exactly ``x + step``.
    """
    total = x + step
    moved = total - x
    lost = (x - (total - moved)) + (step - moved)
    low = low + lost
    x = total + low
    return x, low - (x - total)


def _along(pattern: Pattern, x: Tensor, part: slice) -> Tensor:  # [K, C]
    """Differences of ``x`` along some edges."""
    out = x.index_select(0, pattern.row[part])
    return out.sub_(x.index_select(0, pattern.col[part]))
