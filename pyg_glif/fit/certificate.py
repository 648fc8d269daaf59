"""Facts about the output of each new sample that follow from its formula."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif.fit._inductive import GroundedOperator

# Pairs whose outputs are gathered at once: stays in cache.
_CHUNK = 1 << 16


@dataclass(frozen=True, eq=False)
class Certificate:
    r"""Own share and largest gap of each new sample, by the formula of its output.

    With :math:`p = 1` (or the precision of the output, if the fit has them), the
    strength :math:`\mu` and the diagonal :math:`a_i` of its row,

    .. math::
        f_i = \frac{p_i \hat y_i + \mu \sum_j v_{ij} f_j}{p_i + \mu a_i}

    in the coordinates in which outputs are averaged. So of two new samples with the
    same neighbors, weights and precision, the gap after is ``own_share`` times the gap
    before.

    Args:
        own_share (Tensor): :math:`p_i / (p_i + \mu a_i)`, share of the own output in
            the result: one without neighbors.
        largest_gap (Tensor): Largest difference, over fitted neighbors and over
            columns, between the output and that of the neighbor after smoothing, in
            the unit of the outputs; zero without neighbors.
        num_neighbors (Tensor): Number of fitted neighbors.
        effective_neighbors (Tensor): :math:`(\sum_j |v_{ij}|)^2 / \sum_j v_{ij}^2`, the
            number of neighbors that the weights amount to: one if a single one has all
            of the weight, zero without neighbors.

    Shapes:
        - **own_share**, **largest_gap**, **num_neighbors**, **effective_neighbors:**
          :math:`(M)`

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x, y = torch.tensor([[0.0], [0.2]]), torch.tensor([0.0, 1.0])
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0, lam=1.0).fit(x, y)
        >>> post.transform_info(x[:1], y[1:]).certificate
        Certificate(num_samples=1, own_share=0.333, largest_gap=0.333)
    """

    own_share: Tensor  # [M] float64
    largest_gap: Tensor  # [M] float64
    num_neighbors: Tensor  # [M] int64
    effective_neighbors: Tensor  # [M] float64

    @property
    def contraction(self) -> Tensor:  # [M]
        """Factor by which the gap of two samples with the same neighbors shrinks."""
        return self.own_share.reciprocal()

    def __repr__(self) -> str:
        own, gap = (
            float(part.max()) if part.numel() else 0.0
            for part in (self.own_share, self.largest_gap)
        )
        return (
            f"{type(self).__name__}(num_samples={self.own_share.numel()}, "
            f"own_share={own:.3g}, largest_gap={gap:.3g})"
        )

    @classmethod
    def join(cls, parts: "list[Certificate]") -> "Certificate":
        """Certificate of several batches."""
        names = cls.__dataclass_fields__
        return cls(
            *(torch.cat([getattr(part, name) for part in parts]) for name in names)
        )


def certificate_of(
    lap: GroundedOperator,
    own_share: Tensor,  # [M]
    value: Tensor,  # [M] or [M, C], outputs of new samples
    y_fair: Tensor,  # [N] or [N, C], outputs of fitted samples
) -> Certificate:
    """Certificate of new samples whose outputs and ties are known."""
    gap = own_share.new_zeros(len(value))
    row, col = lap.ties.row, lap.ties.col
    for i, j in zip(row.split(_CHUNK), col.split(_CHUNK), strict=True):
        difference = (value.index_select(0, i) - y_fair.index_select(0, j)).abs_()
        difference = (
            difference.flatten(1).amax(1) if difference.dim() > 1 else difference
        )
        gap.scatter_reduce_(0, i, difference.to(gap), "amax")
    count = torch.bincount(row, minlength=len(value))
    effective = _effective(row, lap.outer, len(value))
    return Certificate(own_share.cpu(), gap.cpu(), count.cpu(), effective.cpu())


def _effective(row: Tensor, weight: Tensor, num: int) -> Tensor:  # [P], [P] -> [M]
    """Effective number of neighbors of each row."""
    size = weight.double().abs()
    # Relative to the largest of a row: squares of tiny weights would be zero.
    most = size.new_zeros(num).scatter_reduce_(0, row, size, "amax")
    size = size / torch.where(most > 0, most, 1.0)[row]
    total, square = (size.new_zeros(num).index_add_(0, row, s) for s in (size, size**2))
    return torch.where(square > 0, total**2 / torch.where(square > 0, square, 1.0), 0.0)
