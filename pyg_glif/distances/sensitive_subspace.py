"""Distances that ignore sensitive directions."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.complement import complement, orthonormalize
from pyg_glif._utils.validation import (
    check_features,
    check_not_empty,
    check_scalar,
    check_subspace_rank,
)
from pyg_glif.distances.base import FairDistance, row_product
from pyg_glif.registry import register

# How far products of directions may be off, in float32 and over many features.
_ORTHONORMAL = 1e-4


@register
class SensitiveSubspace(FairDistance):
    r"""Ignores differences along sensitive directions.

    .. math::
        d(\mathbf{x}, \mathbf{x}^{\prime}) =
        \| (\mathbf{I} - \mathbf{Q} \mathbf{Q}^{\top})
        (\mathbf{x} - \mathbf{x}^{\prime}) \|, \qquad
        \mathbf{Q}^{\top} \mathbf{Q} = \mathbf{I}, \quad
        \operatorname{range}(\mathbf{Q}) =
        \operatorname{span}\{ \mathbf{b}_1, \ldots, \mathbf{b}_K \}

    Two samples that differ only by a combination of the rows
    :math:`\mathbf{b}_k` of ``basis`` are at distance zero, up to rounding. The rows
    need be neither orthogonal nor independent: they are orthonormalised once, by a
    singular value decomposition in float64. No :math:`F \times F` matrix is formed.

    :meth:`embed` gives :math:`F - R` coordinates of the orthogonal complement, where
    :math:`R` is the rank of ``basis``. No coordinate is left that consists of rounding
    errors alone, in which a decision tree could read what was removed. A column whose
    axis is among the directions is dropped, and its values have no effect at all; a
    column that no direction touches stays as it is. Along oblique directions rounding
    moves coordinates in their last digits; where all other columns take few values, a
    model may tell these apart.

    Args:
        basis (torch.Tensor): Rows that span the sensitive directions. They must
            leave at least one direction over, or all samples would be equal.
        rtol (float, optional): Singular values of ``basis`` up to ``rtol`` times
            the largest count as zero.
            (default: :math:`\max(K, F)` times the precision of ``basis``)

    Shapes:
        - **basis:** :math:`(K, F)`
        - **input:** features :math:`(A, F)` and :math:`(B, F)`
        - **output:** distances :math:`(A, B)`

    The directions keep the dtype of ``basis`` and are cast to that of the features
    when used. Loading a state dict takes on the rank found there.

    Example:
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0], [0.0, 2.0]]))
        >>> distance(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 7.0]]))
        tensor([[3.]])
        >>> distance
        SensitiveSubspace(num_features=2, rank=1)
    """

    _low_rank = "directions"
    directions: Tensor  # [F, R], orthonormal columns
    # The parts of their complement.
    _kept: Tensor
    _read: Tensor
    _write: Tensor

    def __init__(self, basis: Tensor, *, rtol: float | None = None) -> None:
        super().__init__()
        basis = check_features("basis", basis).detach()
        check_not_empty("basis", basis)
        if rtol is None:
            rtol = max(basis.shape) * torch.finfo(basis.dtype).eps
        rtol = check_scalar("rtol", rtol, minimum=0)
        directions = orthonormalize(basis, rtol)
        check_subspace_rank("basis", directions.size(1), basis.size(1))
        self.register_buffer("directions", directions.to(basis.dtype))
        self._turn()

    def _turn(self) -> None:
        """Computes the coordinates of the complement from the directions."""
        parts = complement(self.directions)
        for name, part in zip(("_kept", "_read", "_write"), parts, strict=True):
            self.register_buffer(name, part, persistent=False)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Takes on the saved directions, and their complement."""
        super()._load_from_state_dict(*args, **kwargs)
        self._turn()

    @property
    def num_features(self) -> int:
        """Number of columns the distance expects."""
        return self.directions.size(0)

    @property
    def rank(self) -> int:
        """Number of independent sensitive directions."""
        return self.directions.size(1)

    @property
    def basis(self) -> Tensor:
        """Orthonormal rows that span the sensitive directions, ``[rank, F]``."""
        return self.directions.T

    def embed(self, x: Tensor) -> Tensor:
        """Returns coordinates of the orthogonal complement, :math:`(N, F - R)`."""
        x = self._rows("x", x)
        out = x[:, self._kept]
        if self._read.size(1) > 0:
            out = out - row_product(row_product(x, self._read), self._write)
        return out

    def null_space(self, num_features: int) -> Tensor:
        """The sensitive directions, a copy."""
        return self.directions.clone()

    def to_config(self) -> dict[str, Any]:
        """An empty configuration: the directions are in the state dict."""
        return {}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], state: Mapping[str, Tensor] | None = None
    ) -> "SensitiveSubspace":
        """The distance with the directions in ``state``, which are kept as they are."""
        directions = check_features("directions", (state or {})["directions"])
        check_subspace_rank("directions", directions.size(1), directions.size(0))
        # Building from the directions would orthonormalise, and round, them again.
        out = cls(torch.eye(1, len(directions), dtype=directions.dtype), **config)
        out.load_state_dict({"directions": directions})
        _check_orthonormal("directions", directions)
        return out

    def extra_repr(self) -> str:
        """Arguments of the printed distance."""
        return f"num_features={self.num_features}, rank={self.rank}"


def _check_orthonormal(name: str, value: Tensor) -> None:
    """Raises unless the columns are orthonormal, up to rounding."""
    gram = value.double().T @ value.double()
    gap = float((gram - torch.eye(len(gram), dtype=gram.dtype)).abs().max())
    if gap > _ORTHONORMAL:
        msg = f"'{name}' must have orthonormal columns"
        raise ValueError(f"{msg} (got products that are off by {gap:.3g})")
