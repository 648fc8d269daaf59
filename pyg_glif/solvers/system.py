"""The system of one smoothing step, and the part of its solution that is known."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.collectives import once
from pyg_glif._utils.lanczos import smallest_eigenvalue
from pyg_glif._utils.sparse import Pattern, csr_tensor, unwrapped
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers._extended_precision import gamma

#: Largest entry of a system: its products with scaled outputs stay finite.
LARGEST_ENTRY = 1e150


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
        """Number of nodes, here and elsewhere."""
        return self.op.num_nodes

    @once
    def largest_diagonal(self) -> float:
        """The largest entry on the diagonal."""
        return float(self.max(self.diagonal.max()))

    @once
    def mean_diagonal(self) -> float:
        """The average entry on the diagonal: how stiff the system is."""
        return float(self.sum(self.diagonal.sum())) / self.num_nodes

    @property
    def pattern(self) -> Pattern:
        """Positions of the off-diagonal entries."""
        return self.op.pattern

    @property
    def keeps_constants(self) -> bool:
        """Whether what is constant on every component solves its own system."""
        return self.op.keeps_constants and self.surplus is None

    def sum(self, x: Tensor) -> Tensor:
        """Sum over all processes that share the graph."""
        return self.op.collectives.sum(x)

    def max(self, x: Tensor) -> Tensor:
        """Largest over all processes that share the graph."""
        return self.op.collectives.max(x)

    def norm(self, x: Tensor) -> Tensor:  # [N, C] -> [C]
        """Norm of each column over all nodes."""
        return self.op.collectives.norm(x)

    def peak(self, x: Tensor) -> Tensor:  # [N, C] -> [C]
        """Largest absolute value of each column over all nodes."""
        if x.size(0) == 0:
            return x.new_zeros(x.size(1))
        # Not 'x.abs().amax(0)', which would copy the whole block first.
        low, high = torch.aminmax(x, dim=0)
        return self.max(torch.maximum(-low, high))

    def with_halo(self, x: Tensor) -> Tensor:
        """Rows of ``x``, then those of neighbors that other processes hold."""
        return self.op.collectives.with_halo(x)

    def matmul(self, x: Tensor) -> Tensor:  # [N, C] float64
        """Product with a block of columns."""
        out = self.diagonal.unsqueeze(1) * x
        if self.pattern.num_edges and x.numel():
            matrix = self.pattern.csr(self.off_diagonal)
            out.addmm_(matrix, self.with_halo(x), alpha=-1.0)
        return out

    def isolated(self) -> Tensor:  # [N] bool
        """Rows of the identity: nodes that keep their outputs exactly."""
        out = self.diagonal == 1.0
        if bool(out.any()) and self.pattern.num_edges:
            # The one may have swallowed weights that are there.
            out &= self.pattern.row_sum(self.off_diagonal) == 0.0
        return out

    @once
    def row_surplus(self) -> Tensor | None:  # [N], or None for zeros
        """Excess of the diagonal over one and the rest of its row."""
        if self.keeps_constants:
            return None
        if self.surplus is not None:
            return self.surplus
        return self.diagonal - 1.0 - self.pattern.row_sum(self.off_diagonal)

    @once
    def surplus_size(self) -> Tensor:  # [N]
        """Size of the numbers whose sum or difference the surplus is."""
        if self.op.is_psd:
            assert self.row_surplus is not None
            return self.row_surplus
        return self.diagonal + 1.0 + self.pattern.row_sum(self.off_diagonal)

    @once
    def row_length(self) -> Tensor:  # [N] int64
        """Entries of each row beside the diagonal."""
        return self.pattern.rowptr.diff().long()

    @once
    def row_noise(self) -> Tensor:  # [N]
        """Rounding error of a row's product, per unit of the largest entry.

        Entries of the row are off by ``roundings`` operations, its diagonal by as
        many as the row is long in addition, and the product adds up the row again.
        """
        size = self.diagonal
        if self.lam == 0.0:  # the identity, exactly
            return torch.zeros_like(size)
        if self.row_surplus is not None:
            size = size + self.row_surplus.abs()
        return gamma(self.op.roundings + 2 * self.row_length + 16).to(size) * size

    def smallest_eigenvalue(self) -> float:
        """A lower bound: rigorous for PSD Laplacians, estimated for ``"nrw"``."""
        if self.num_nodes == 0:
            return 1.0
        if self.op.is_psd:
            least = 0.0 if self.row_surplus is None else float(self.row_surplus.min())
            return 1.0 + least / (1.0 + 2.0 * float(gamma(self.op.roundings + 8)))
        gap = self.diagonal - self.pattern.row_sum(self.off_diagonal)  # Gershgorin
        error = gamma(self.op.roundings + 2 * self.row_length + 16).to(gap)
        disc = -float(self.max((error * self.surplus_size - gap).max()))
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
        """The reason why there is no minimum, and the largest safe ``lam``."""
        low, high = self._eigenvalue
        safe = f"{self.lam / (1.0 - low):.3g}" if low < 1.0 else "inf"
        sure = "is not" if high <= 0 else "cannot be shown to be"
        return (
            f"I + lam L {sure} positive definite at lam = {self.lam:g} with "
            f"normalization={self.op.normalization!r}, so the objective has no "
            f"minimum. Use 'lam' below {safe} or normalization=\"density\""
        )


class ComponentMeans:
    r"""The projector onto signals that are constant on each connected component.

    Laplacians with zero row sums do not change such signals, so this part of the
    solution is known: the mean of the right-hand side. The rest solves the system with
    :math:`M - \Pi` in place of :math:`M`, whose small eigenvalues are gone.
    """

    def __init__(
        self,
        label: Tensor,  # [N]
        size: Tensor,  # [K]
        joined: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._label, self._joined = label, joined
        self._order = torch.sort(label, stable=True)[1]
        self._size = size

    def mean(self, x: Tensor) -> Tensor:  # [N, C] -> [N, C]
        """Component means, at every node."""
        total = x.new_zeros(self._size.numel(), x.size(1)).index_add_(0, self._label, x)
        total = self.joined(total)
        return (total / self._size.unsqueeze(1)).index_select(0, self._label)

    def joined(self, total: Tensor) -> Tensor:  # [K, C] -> [K, C]
        """Sums over components, of which others may hold a part."""
        return total if self._joined is None else self._joined(total)

    def factor(self, scaling: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        r"""Sparse ``B``, ``B'`` whose product ``B' B`` is the scaled projector."""
        nodes, parts = self._label.numel(), self._size.numel()
        value = scaling * self._size.double().rsqrt()[self._label]
        count = torch.bincount(self._label, minlength=parts)
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)]).int()
        by_part = csr_tensor(
            ptr, self._order.int(), value[self._order].to(dtype), (parts, nodes)
        )
        every = torch.arange(nodes + 1, device=ptr.device, dtype=torch.int32)
        by_node = csr_tensor(every, self._label.int(), value.to(dtype), (nodes, parts))
        return by_part, by_node
