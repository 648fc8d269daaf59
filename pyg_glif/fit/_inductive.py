r"""Laplacian of new samples beside fitted ones, whose outputs and degrees stay.

Let :math:`w_{ij}` be the weight of new sample :math:`i` and sample :math:`j`, new or
fitted, and :math:`d_i = \sum_j w_{ij} + 1`; a fitted sample keeps the degree of the
fit, self-weight included. Let :math:`\tilde w_{ij} = w_{ij} / \sqrt{d_i d_j}` and
:math:`\tilde d_i = \sum_j \tilde w_{ij} + 1 / d_i`, which a fitted sample keeps too.
The entries of the row of a new sample are those of :mod:`pyg_glif.laplacian`, which
computes them:

=============  =======================================  ==============================
normalization  :math:`v_{ij}`                           :math:`a_i`
=============  =======================================  ==============================
``None``       :math:`w_{ij}`                           :math:`\sum_j v_{ij}`
``"density"``  :math:`\tilde w_{ij}`                    :math:`\sum_j v_{ij}`
``"nrw"``      :math:`\tilde w_{ij}                     :math:`\sum_j
               (1/\tilde d_i + 1/\tilde d_j)/2`         \tilde w_{ij} / \tilde d_i`
=============  =======================================  ==============================

and :math:`\mu` is ``lam`` times the ``lam_scale`` of the fit. One coordinate update
(eq. 3.7) of a new sample with fitted neighbors only is

.. math::
    f_i = \frac{\hat y_i + \mu \sum_j v_{ij} f_j}{1 + \mu a_i}

and all new samples together solve

.. math::
    (\mathbf{I} + \mu (\mathrm{diag}(a) - \mathbf{V}_{\mathrm{new}, \mathrm{new}}))
    f_{\mathrm{new}} = \hat y_{\mathrm{new}} +
    \mu \mathbf{V}_{\mathrm{new}, \mathrm{fitted}} f_{\mathrm{fitted}} .
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_glif._utils.sparse import Pattern, csr_tensor
from pyg_glif.laplacian import LaplacianOperator, entries_beside


@dataclass(frozen=True, eq=False)
class Ties:
    """Weighted pairs of a new and any other sample, sorted by new sample."""

    row: Tensor  # [P] int64
    col: Tensor  # [P] int64
    weight: Tensor  # [P] float64
    sq_dist: Tensor  # [P]

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and weights."""
        return self.row, self.col, self.weight


class GroundedOperator(LaplacianOperator):
    """Laplacian of new samples among themselves, plus their ties to fitted ones.

    The ties add to the diagonal only, so rows do not sum to zero. ``shares`` multiply
    the entries of outer and of inner ties, if groups are balanced.
    """

    def __init__(
        self,
        fitted: LaplacianOperator,
        outer: Ties,
        inner: Ties,
        num: int,
        shares: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        pattern = Pattern.of(inner.row, inner.col, num)
        self._set(pattern, inner.weight, fitted.normalization, None)
        self._fitted, self._outer = fitted, outer
        self.deg = self.deg.index_add(0, outer.row, outer.weight)
        self.diagonal, self.outer, self.off_diagonal = entries_beside(
            fitted, outer.parts, inner.parts, num
        )
        if shares is not None:  # the weights of balanced groups
            self.outer, self.off_diagonal = (
                entry * share
                for entry, share in zip(
                    (self.outer, self.off_diagonal), shares, strict=True
                )
            )
            ties = self.pattern.row_sum(self.off_diagonal)
            self.diagonal = ties.index_add(0, outer.row, self.outer)
            self._repeats += 4  # as in 'reweighted'

    @property
    def keeps_constants(self) -> bool:
        """False: ties to fitted samples add to the diagonal."""
        return False

    @cached_property
    def surplus(self) -> Tensor | None:  # [M]
        """Sum of the ties of each row; for ``"nrw"`` as in the base class."""
        if self.normalization == "nrw":
            return super().surplus
        zero = self.outer.new_zeros(self.num_nodes)
        return zero.index_add(0, self._outer.row, self.outer)

    @property
    def longest_row(self) -> int:
        """Largest number of neighbors, fitted samples among themselves included."""
        own = int(self.num_neighbors.max()) if self.num_nodes else 0
        return max(own, self._fitted.longest_row)

    @property
    def roundings(self) -> int:
        """Roundings of the fit, whose degrees enter, plus those of the new rows."""
        return super().roundings + self._fitted.roundings + self.longest_row

    @cached_property
    def lam_scale(self) -> Tensor:
        """The factor of ``lam`` in the fit."""
        return self._fitted.lam_scale

    @property
    def num_neighbors(self) -> Tensor:  # [M]
        """Number of neighbors of each new sample, fitted or new."""
        count = torch.bincount(self._outer.row, minlength=self.num_nodes)
        return count + self.pattern.rowptr.diff()

    @property
    def ties(self) -> Ties:
        """Pairs of a new and a fitted sample."""
        return self._outer

    @property
    def tied(self) -> Tensor:  # [P]
        """Fitted sample of every tie."""
        return self._outer.col

    def pull(self, f: Tensor) -> Tensor:  # [N, C] -> [M, C]
        """Sums of fitted outputs over the ties, without gathering the outputs."""
        row, col = self._outer.row, self._outer.col
        if row.numel() == 0 or f.numel() == 0:
            return f.new_zeros(self.num_nodes, f.size(1))
        count = torch.bincount(row, minlength=self.num_nodes)
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        return csr_tensor(ptr, col, self.outer, (self.num_nodes, len(f))) @ f
