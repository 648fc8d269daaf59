r"""The system of one smoothing step, and how exactly its residual can be known.

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
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.collectives import Collectives, once
from pyg_glif._utils.lanczos import smallest_eigenvalue
from pyg_glif._utils.sparse import Pattern, unwrapped
from pyg_glif.laplacian import LaplacianOperator

_UNIT = 2.0**-53  # largest relative error of one float64 operation
_TINY = 5e-324  # no product below the normal range errs by more
# Smaller entries are lost to a norm, which squares them. Right-hand sides are scaled
# to be far above.
_LOST = 2e-154
#: Largest entry of a system: its products with scaled outputs stay finite.
LARGEST_ENTRY = 1e150
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


@dataclass(frozen=True, eq=False)
class System:
    r"""The system :math:`(\mathrm{diag}(s) - \mathbf{T}) f = y` of one smoothing step.

    Both parts are in float64: in float32 the one in :math:`s = 1 + \mu a` is lost from
    about :math:`\lambda d = 10^7`.
    """

    op: LaplacianOperator
    diagonal: Tensor  # [N]
    off_diagonal: Tensor  # [E]
    lam: float
    surplus: Tensor | None = None  # [N] of a PSD system that keeps no constants

    @property
    def num_nodes(self) -> int:
        """Number of people, here and elsewhere."""
        return self.op.num_nodes

    @property
    def whole(self) -> Collectives:
        """Sums over all people."""
        return self.op.whole

    @once
    def largest_diagonal(self) -> float:
        """The largest entry on the diagonal."""
        return float(self.whole.max(self.diagonal.max()))

    @once
    def mean_diagonal(self) -> float:
        """The average entry on the diagonal: how stiff the system is."""
        return float(self.whole.sum(self.diagonal.sum())) / self.num_nodes

    @property
    def pattern(self) -> Pattern:
        """Where the off-diagonal entries are."""
        return self.op.pattern

    @property
    def keeps_constants(self) -> bool:
        """Whether what is constant on every component solves its own system."""
        return self.op.keeps_constants and self.surplus is None

    def matmul(self, x: Tensor) -> Tensor:  # [N, C] float64
        """Product with a block of columns."""
        out = self.diagonal.unsqueeze(1) * x
        if self.pattern.num_edges and x.numel():
            matrix = self.pattern.csr(self.off_diagonal)
            out.addmm_(matrix, self.whole.seen(x), alpha=-1.0)
        return out

    def alone(self) -> Tensor:  # [N] bool
        """Rows of the identity: people who are returned exactly as they came."""
        out = self.diagonal == 1.0
        if bool(out.any()) and self.pattern.num_edges:
            # The one may have swallowed weights that are there.
            out &= self.pattern.row_sum(self.off_diagonal) == 0.0
        return out

    def residual(
        self,
        y: Tensor,
        x: Tensor,
        low: Tensor | None = None,
        limit: Tensor | None = None,
    ) -> Residual:
        """Residual of ``x + low``, by differences unless a product is exact enough.

        A product will do where its rounding is negligible beside ``limit`` (beside the
        residual itself without one).
        """
        if low is None:
            found = self._by_product(y, x)
            scale = found.norm if limit is None else limit
            if bool((found.noise <= _NEGLIGIBLE * scale).all()):
                return found
        return self._by_differences(y, x, low)

    def is_delicate(self, y: Tensor, limit: Tensor | None) -> bool:
        """Whether rounding in a product could use up the tolerance of a solve."""
        if limit is None or y.numel() == 0:
            return False
        # No output exceeds the largest input, where constants are kept.
        noise = 2.0 * self.whole.norm(self._row_noise) * self._peak(y)
        return not bool((noise <= _TOLERABLE * limit).all())

    @once
    def _surplus(self) -> Tensor | None:  # [N], or None for zeros
        """What the diagonal has beyond one and the rest of its row."""
        if self.keeps_constants:
            return None
        if self.surplus is not None:
            return self.surplus
        return self.diagonal - 1.0 - self.pattern.row_sum(self.off_diagonal)

    @once
    def _surplus_size(self) -> Tensor:  # [N]
        """How large the numbers are whose sum or difference the surplus is."""
        if self.op.is_psd:
            assert self._surplus is not None
            return self._surplus
        return self.diagonal + 1.0 + self.pattern.row_sum(self.off_diagonal)

    @once
    def _row_length(self) -> Tensor:  # [N] int64
        """Entries of each row beside the diagonal."""
        return self.pattern.rowptr.diff().long()

    @once
    def _row_noise(self) -> Tensor:  # [N]
        """What rounding can make of a row's product, per unit of the largest entry.

        Entries of the row are off by ``roundings`` operations, its diagonal by as
        many as the row is long in addition, and the product adds up the row again.
        """
        size = self.diagonal
        if self.lam == 0.0:  # the identity, exactly
            return torch.zeros_like(size)
        if self._surplus is not None:
            size = size + self._surplus.abs()
        return gamma(self.op.roundings + 2 * self._row_length + 16).to(size) * size

    def _by_product(self, y: Tensor, x: Tensor) -> Residual:
        """The residual as ``y`` minus a matrix product, and a bound on its rounding."""
        noise = self._row_noise
        # No sum over a row exceeds its diagonal times the largest entry.
        each = noise.unsqueeze(1) * x.abs()
        bound = self.whole.norm(each)
        bound = bound + self.whole.norm(noise) * self._peak(x)
        value = y - self.matmul(x)
        return Residual(value, self.whole.norm(value), self._slack * bound)

    def _by_differences(self, y: Tensor, x: Tensor, low: Tensor | None) -> Residual:
        """The residual of ``x + low`` from differences along edges, with bounds."""
        gap = y - x
        size = gap.abs()
        if low is not None:
            gap, size = gap - low, size + low.abs()
        away, flow = torch.zeros_like(y), torch.zeros_like(y)
        energy = y.new_zeros(y.size(1))
        x_seen, low_seen = self.whole.seen(x), None
        if low is not None:
            low_seen = self.whole.seen(low)
        for part in self.pattern.chunks():
            row, t = self.pattern.row[part], self.off_diagonal[part].unsqueeze(1)
            step = _along(self.pattern, x_seen, part)
            reach = step.abs()
            if low_seen is not None:
                small = _along(self.pattern, low_seen, part)
                step, reach = step + small, reach.add_(small.abs())
            away.index_add_(0, row, step.mul_(t))
            flow.index_add_(0, row, reach * t)
            energy += (t * reach.square_()).sum(0)
        value = gap - away
        size = size + flow
        if self._surplus is not None:
            own = x if low is None else x + low
            value = value - self._surplus.unsqueeze(1) * own
            size += self._surplus_size.unsqueeze(1) * x.abs()
        scale = gamma(self._row_length + 8).to(size).unsqueeze(1)
        noise = self.whole.norm(scale * size)
        error = float(gamma(self.op.roundings + 4))
        if self.op.is_psd:
            # Errors that are equal and opposite at the two ends of an edge. A surplus
            # is an edge to somebody whose output is zero.
            energy = 0.5 * energy
            if self._surplus is not None:
                energy += self._surplus @ x.square()
            entries = 0.5 * error * self.whole.sum(energy).sqrt()
        else:
            flow += self._surplus_size.unsqueeze(1) * x.abs()
            entries = error * self.whole.norm(flow)
        norm = self.whole.norm(value)
        return Residual(value, norm, self._slack * noise, self._slack * entries)

    @once
    def _slack(self) -> float:
        """Factor above 1 that covers rounding in norms and products of errors."""
        longest = self.op.longest_row
        return 1.0 + 8.0 * float(gamma(self.num_nodes + longest + 128))

    def total_bound(self, *parts: Tensor) -> Tensor:
        """Sum of bounds, rounded up, with what underflow may have taken."""
        total = sum(parts[1:], parts[0])
        if self.op.longest_row and self.lam > 0:
            longest = float(self.op.longest_row + 8)
            lost = longest * _TINY * (1.0 + self.largest_diagonal) + 8.0 * _LOST
            total = total + math.sqrt(self.num_nodes) * lost
        return self._slack * total

    def _peak(self, x: Tensor) -> Tensor:  # [N, C] -> [C]
        """Largest absolute value of each column."""
        if x.size(0) == 0:
            return x.new_zeros(x.size(1))
        # Not 'x.abs().amax(0)', which would copy the whole block first.
        low, high = torch.aminmax(x, dim=0)
        return self.whole.max(torch.maximum(-low, high))

    def smallest_eigenvalue(self) -> float:
        """A lower bound: rigorous for PSD Laplacians, estimated for ``"nrw"``."""
        if self.num_nodes == 0:
            return 1.0
        if self.op.is_psd:
            least = 0.0 if self._surplus is None else float(self._surplus.min())
            return 1.0 + least / (1.0 + 2.0 * float(gamma(self.op.roundings + 8)))
        gap = self.diagonal - self.pattern.row_sum(self.off_diagonal)  # Gershgorin
        error = gamma(self.op.roundings + 2 * self._row_length + 16).to(gap)
        disc = -float(self.whole.max((error * self._surplus_size - gap).max()))
        # Discs cost one pass over the edges; the eigenvalue itself is estimated only
        # where they do not settle the sign.
        return disc if disc > 0 else self._eigenvalue[0]

    @once
    def _eigenvalue(self) -> tuple[float, float]:
        """Estimated bounds on the smallest eigenvalue of the system."""
        if self.op.off_diagonal is not unwrapped(self.op.off_diagonal):
            # 'torch.func' differentiates by the weights: they are out of reach here.
            return smallest_eigenvalue(self.pattern, self.diagonal, self.off_diagonal)
        low, high = self.op.scaled_eigenvalue
        return 1.0 + self.lam * low, 1.0 + self.lam * high

    def indefinite_reason(self) -> str:
        """Says why there is no minimum, and names the largest safe ``lam``."""
        low, high = self._eigenvalue
        safe = f"{self.lam / (1.0 - low):.3g}" if low < 1.0 else "inf"
        sure = "is not" if high <= 0 else "cannot be shown to be"
        return (
            f"I + lam L {sure} positive definite at lam = {self.lam:g} with "
            f"normalization={self.op.normalization!r}, so the objective has no "
            f"minimum. Use 'lam' below {safe} or normalization=\"density\""
        )


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
