"""Mahalanobis distances of any rank, fixed or learned."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pyg_glif._utils.validation import (
    check_features,
    check_not_empty,
    check_scalar,
)
from pyg_glif.distances.base import FairDistance, row_product
from pyg_glif.registry import register


@register
class Mahalanobis(FairDistance):
    r"""Weighs and mixes features by a positive semi-definite matrix.

    .. math::
        d(\mathbf{x}, \mathbf{x}^{\prime})^2 =
        (\mathbf{x} - \mathbf{x}^{\prime})^{\top} \mathbf{\Sigma}
        (\mathbf{x} - \mathbf{x}^{\prime}), \qquad
        \phi(\mathbf{x}) = \mathbf{A}^{\top} \mathbf{x}, \quad
        \mathbf{\Sigma} = \mathbf{A} \mathbf{A}^{\top}

    :math:`\mathbf{\Sigma}` multiplies differences directly: for the classical
    distance pass the *inverse* of a covariance matrix. It is factored once, by
    eigenvalues in float64, and the factor :math:`\mathbf{A}` has one column per
    positive eigenvalue, so a metric of low rank embeds into few coordinates.

    Args:
        sigma (torch.Tensor): Symmetric positive semi-definite matrix, not zero.
        learnable (bool, optional): If :obj:`True`, the factor is a parameter. A
            gradient step on it keeps :math:`\mathbf{\Sigma}` positive
            semi-definite and its rank at most what it was.
            (default: :obj:`False`)
        rtol (float, optional): Eigenvalues of absolute value up to ``rtol`` times
            the largest count as zero; this forgives small negative ones that come
            from rounding. (default: :math:`F` times the precision of ``sigma``)

    Shapes:
        - **sigma:** :math:`(F, F)`
        - **input:** features :math:`(A, F)` and :math:`(B, F)`
        - **output:** distances :math:`(A, B)`

    The factor keeps the dtype of ``sigma`` and is cast to that of the features when
    used. Loading a state dict takes on the rank found there.

    Example:
        >>> distance = Mahalanobis(torch.diag(torch.tensor([4.0, 0.0])))
        >>> distance(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 9.0]]))
        tensor([[2.]])
        >>> distance
        Mahalanobis(num_features=2, rank=1)
    """

    _low_rank = "factor"
    factor: Tensor  # [F, R]

    def __init__(
        self, sigma: Tensor, *, learnable: bool = False, rtol: float | None = None
    ) -> None:
        super().__init__()
        sigma = check_features("sigma", sigma).detach()
        check_not_empty("sigma", sigma)
        if rtol is None:
            rtol = sigma.size(0) * torch.finfo(sigma.dtype).eps
        rtol = check_scalar("rtol", rtol, minimum=0)
        _check_symmetric("sigma", sigma, rtol)
        self._set_factor(_factorize(sigma, rtol), learnable)

    @classmethod
    def from_factor(cls, factor: Tensor, *, learnable: bool = False) -> "Mahalanobis":
        r"""Builds the distance from :math:`\mathbf{A}`, which is kept as it is.

        Args:
            factor (torch.Tensor): Any matrix :math:`(F, R)`; the distance is
                :math:`\| \mathbf{A}^{\top} (\mathbf{x} - \mathbf{x}^{\prime}) \|`.
            learnable (bool, optional): If :obj:`True`, the factor is a parameter.
                (default: :obj:`False`)

        Example:
            >>> Mahalanobis.from_factor(torch.eye(5)[:, :2], learnable=True)
            Mahalanobis(num_features=5, rank=2, learnable=True)
        """
        factor = check_features("factor", factor)
        check_not_empty("factor", factor)
        out = cls.__new__(cls)
        FairDistance.__init__(out)
        out._set_factor(factor.detach().clone(), learnable)
        return out

    def _set_factor(self, factor: Tensor, learnable: bool) -> None:
        """Registers the factor, as a parameter or as a constant."""
        if learnable:
            self.factor = nn.Parameter(factor)
        else:
            self.register_buffer("factor", factor)

    @property
    def num_features(self) -> int:
        """Number of columns the distance expects."""
        return self.factor.size(0)

    @property
    def rank(self) -> int:
        """Number of coordinates :meth:`embed` returns."""
        return self.factor.size(1)

    @property
    def sigma(self) -> Tensor:
        r"""The matrix :math:`\mathbf{A} \mathbf{A}^{\top}`, ``[F, F]``."""
        return self.factor @ self.factor.T

    def embed(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\mathbf{X} \mathbf{A}`, with ``rank`` columns."""
        x = self._rows("x", x)
        return row_product(x, self.factor)

    def null_space(self, num_features: int) -> Tensor:
        r"""The null space of :math:`\mathbf{\Sigma}`, by singular values.

        Example:
            >>> Mahalanobis(torch.diag(torch.tensor([4.0, 0.0]))).null_space(2).abs()
            tensor([[0.],
                    [1.]])
        """
        factor = self.factor.detach()
        # Full, because the columns of 'left' beyond the rank span the null space.
        left, values, _ = torch.linalg.svd(factor.double(), full_matrices=True)
        limit = max(factor.shape) * torch.finfo(factor.dtype).eps * values[0]
        free: Tensor = left[:, int((values > limit).sum()) :]
        return free.to(factor.dtype)

    def to_config(self) -> dict[str, Any]:
        """The keyword ``learnable``; the factor is in the state dict."""
        return {"learnable": isinstance(self.factor, nn.Parameter)}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], state: Mapping[str, Tensor] | None = None
    ) -> "Mahalanobis":
        """The distance with the factor in ``state``, which is kept as it is."""
        return cls.from_factor((state or {})["factor"], **config)

    def extra_repr(self) -> str:
        """Arguments of the printed distance."""
        shown = f"num_features={self.num_features}, rank={self.rank}"
        learnable = isinstance(self.factor, nn.Parameter)
        return f"{shown}, learnable=True" if learnable else shown


def _factorize(sigma: Tensor, rtol: float) -> Tensor:  # [F, F] -> [F, R]
    """A factor with one column per eigenvalue above the tolerance."""
    # eigh reads one triangle: hand it the symmetric part, not an arbitrary half.
    symmetric = (sigma.double() + sigma.T.double()) / 2
    eigenvalues, vectors = torch.linalg.eigh(symmetric)
    _check_eigenvalues("sigma", eigenvalues, rtol)
    keep = eigenvalues > rtol * eigenvalues[-1]
    factor: Tensor = vectors[:, keep] * eigenvalues[keep].sqrt()
    # A column of features without weight must have none: rounding could be read.
    factor[~symmetric.any(dim=1)] = 0
    return factor.to(sigma.dtype)


def _check_symmetric(name: str, value: Tensor, rtol: float) -> None:
    """A square matrix, equal to its transpose up to rounding."""
    if value.dim() != 2 or value.size(0) != value.size(1):
        raise ValueError(f"'{name}' must be square (got shape {tuple(value.shape)})")
    gap = float((value - value.T).abs().max())
    if gap > rtol * float(value.abs().max()):
        msg = f"'{name}' must be symmetric (got entries that differ by {gap:.3g})"
        raise ValueError(f"{msg}. Use '({name} + {name}.T) / 2'")


def _check_eigenvalues(name: str, value: Tensor, rtol: float) -> None:
    """Ascending eigenvalues of a positive semi-definite matrix that is not zero."""
    low, high = float(value[0]), float(value[-1])
    if low < -rtol * max(abs(low), abs(high)):
        msg = f"'{name}' must be positive semi-definite"
        raise ValueError(f"{msg} (got smallest eigenvalue {low:.6g})")
    if high <= 0:
        msg = f"'{name}' must not be zero (got rank 0)"
        raise ValueError(f"{msg}. Every pair would be at distance 0")
