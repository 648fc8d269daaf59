r"""New people beside fitted ones, whose outputs and degrees stay as they are.

Let :math:`w_{ij}` be the weight of new person :math:`i` and person :math:`j`, new or
fitted, and :math:`d_i = \sum_j w_{ij} + 1`; a fitted person keeps the degree of the
fit, self-weight included. Let :math:`\tilde w_{ij} = w_{ij} / \sqrt{d_i d_j}` and
:math:`\tilde d_i = \sum_j \tilde w_{ij} + 1 / d_i`, which a fitted person keeps too.
The entries of a new person's row are those of :mod:`pyg_glif.laplacian`:

=============  =======================================  ==============================
normalization  :math:`v_{ij}`                           :math:`a_i`
=============  =======================================  ==============================
``None``       :math:`w_{ij}`                           :math:`\sum_j v_{ij}`
``"density"``  :math:`\tilde w_{ij}`                    :math:`\sum_j v_{ij}`
``"nrw"``      :math:`\tilde w_{ij}                     :math:`\sum_j
               (1/\tilde d_i + 1/\tilde d_j)/2`         \tilde w_{ij} / \tilde d_i`
=============  =======================================  ==============================

and :math:`\mu` is ``lam`` times the ``lam_scale`` of the fit. One coordinate update
(eq. 3.7) of a person with fitted neighbours only is

.. math::
    f_i = \frac{\hat y_i + \mu \sum_j v_{ij} f_j}{1 + \mu a_i}

and all new people together solve

.. math::
    (\mathbf{I} + \mu (\mathrm{diag}(a) - \mathbf{V}_{\mathrm{new}, \mathrm{new}}))
    f_{\mathrm{new}} = \hat y_{\mathrm{new}} +
    \mu \mathbf{V}_{\mathrm{new}, \mathrm{fitted}} f_{\mathrm{fitted}} .
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pyg_glif._pattern import csr_tensor
from pyg_glif.laplacian import SELF_WEIGHT, LaplacianOperator


@dataclass(frozen=True, eq=False)
class Links:
    """Weighted pairs of a new person and somebody else, sorted by new person."""

    row: Tensor  # [P] int64
    col: Tensor  # [P] int64
    weight: Tensor  # [P] float64

    def row_sum(self, value: Tensor, num_rows: int) -> Tensor:  # [P] -> [M]
        """Sums over the pairs of each new person."""
        return value.new_zeros(num_rows).index_add_(0, self.row, value)

    def matmul(self, value: Tensor, f: Tensor, num_rows: int) -> Tensor:  # -> [M, C]
        """Sums of ``value`` times the rows of ``f``, without gathering them."""
        if self.row.numel() == 0 or f.numel() == 0:
            return f.new_zeros(num_rows, f.size(1))
        count = torch.bincount(self.row, minlength=num_rows)
        ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
        return csr_tensor(ptr, self.col, value, (num_rows, len(f))) @ f

    @classmethod
    def none(cls, like: Tensor) -> "Links":
        """No pairs."""
        row = torch.empty(0, dtype=torch.long, device=like.device)
        return cls(row, row, torch.empty(0, dtype=torch.float64, device=like.device))


class Anchors:
    """What fitted people bring to an update of new ones: degrees that stay fixed."""

    def __init__(self, lap: LaplacianOperator) -> None:
        self.normalization = lap.normalization
        self.lam_scale = lap.lam_scale.detach()
        deg = lap.deg.detach() + SELF_WEIGHT
        self.root = deg.rsqrt()  # [N]
        total = torch.ones_like(deg)
        if lap.normalization == "nrw":
            value = lap.weight.detach() * self.root[lap.pattern.row]
            value *= self.root[lap.pattern.col]
            total = lap.pattern.row_sum(value) + SELF_WEIGHT / deg
        self.inverse = total.reciprocal()  # [N], used by "nrw" alone

    def entries(self, outer: Links, inner: Links, num_new: int) -> "NewRows":
        """Rows of the Laplacian for new people, from links to fitted and new ones."""
        v_outer, v_inner = outer.weight, inner.weight

        def total() -> Tensor:
            return outer.row_sum(v_outer, num_new) + inner.row_sum(v_inner, num_new)

        if self.normalization is None:
            return NewRows(total(), v_outer, v_inner)
        deg = total() + SELF_WEIGHT
        root = deg.rsqrt()
        v_outer = v_outer * root[outer.row] * self.root[outer.col]
        v_inner = v_inner * root[inner.row] * root[inner.col]
        diagonal = total()
        if self.normalization == "density":
            return NewRows(diagonal, v_outer, v_inner)
        own = (diagonal + SELF_WEIGHT / deg).reciprocal()
        v_outer = 0.5 * v_outer * (own[outer.row] + self.inverse[outer.col])
        v_inner = 0.5 * v_inner * (own[inner.row] + own[inner.col])
        return NewRows(diagonal * own, v_outer, v_inner)


@dataclass(frozen=True, eq=False)
class NewRows:
    """Diagonal and negated off-diagonal entries of the rows of new people."""

    diagonal: Tensor  # a: [M]
    outer: Tensor  # v towards fitted people, [P]
    inner: Tensor  # v towards new people, [Q]


class GroundedOperator(LaplacianOperator):
    """Laplacian of new people among themselves, plus their ties to fitted ones.

    The ties add to the diagonal only, so rows do not sum to zero: ``is_psd`` is false
    in order that no solver relies on that, and Gershgorin's discs certify the smallest
    eigenvalue instead, which they put at one or above for all but ``"nrw"``.
    """

    def __init__(self, anchors: Anchors, outer: Links, inner: Links, num: int) -> None:
        edges = torch.stack([inner.row, inner.col])
        super().__init__(edges, inner.weight, num, normalization=anchors.normalization)
        # The pattern has the order of 'inner': sorted, unique, without self-loops.
        rows = anchors.entries(outer, inner, num)
        self._scale = anchors.lam_scale
        self.deg = self.deg + outer.row_sum(outer.weight, num)
        self.diagonal, self.off_diagonal = rows.diagonal, rows.inner
        self.outer = rows.outer

    @property
    def is_psd(self) -> bool:
        """Whether rows sum to zero and no eigenvalue is negative."""
        return False

    @cached_property
    def lam_scale(self) -> Tensor:
        """That of the fit."""
        return self._scale
