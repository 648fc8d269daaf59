"""Exact removal of what every connected component shares."""

from collections.abc import Callable

import torch
from torch import Tensor

from pyg_glif._utils.sparse import csr_tensor


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
