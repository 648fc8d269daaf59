"""Fitted neighbors of new samples, and the disparity between both."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import check_finite, check_scalar

# Pairs whose outputs are held at once.
_BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class FittedNeighbors:
    r"""Pairs of a new sample and a fitted neighbor, sorted by new sample.

    Args:
        row (Tensor): New sample of each pair.
        col (Tensor): Fitted sample of each pair.
        weight (Tensor): Weight of the pair.
        sq_dist (Tensor): Squared fair distance.
        num_new (int): Number of new samples.

    Shapes:
        - **row, col, weight, sq_dist:** :math:`(P)`

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> post = GLIFPostProcessor(tau=1.0, theta=0.0, lam=1.0)
        >>> x, y = torch.tensor([[0.0], [0.5], [9.0]]), torch.tensor([0.2, 0.4, 0.9])
        >>> x_new, y_new = torch.tensor([[0.0], [5.0]]), torch.tensor([0.9, 0.5])
        >>> info = post.fit(x, y).transform_info(x_new, y_new)
        >>> info.neighbors.disparity(info.value).round(decimals=4)
        tensor([0.2000,    nan], dtype=torch.float64)
        >>> info.neighbors.nearest()
        tensor([0., inf])
    """

    row: Tensor = field(repr=False)  # [P]
    col: Tensor = field(repr=False)  # [P]
    weight: Tensor = field(repr=False)  # [P]
    sq_dist: Tensor = field(repr=False)  # [P]
    num_new: int
    outputs: Tensor = field(repr=False)  # of fitted samples, smoothed; not a copy

    def disparity(self, y_fair: object, threshold: float | None = None) -> Tensor:
        r"""Weighted mean difference between each new output and those of its neighbors.

        .. math::
            D_i = \frac{\sum_j w_{ij} \, \delta(f_i, f_j)}{\sum_j w_{ij}}, \qquad
            j \text{ fitted neighbor of } i

        where :math:`\delta` is the absolute difference of single outputs, half the sum
        of absolute differences of several (which is in :math:`[0, 1]` for probabilities
        of classes), and with a ``threshold``, whether decisions differ. It is NaN for
        samples without neighbors, and for those whose weights are all zero.

        Args:
            y_fair (array-like): Outputs that the transform returned.
            threshold (float, optional): A single output above it means class 1; of
                several, the largest decides. (default: :obj:`None`, outputs are
                compared, not decisions)

        Shapes:
            - **input:** :math:`(M)` or :math:`(M, C)`
            - **output:** :math:`(M)`, float64
        """
        new = to_tensor("y_fair", y_fair).detach().to(self.outputs.device)
        if new.shape != (self.num_new, *self.outputs.shape[1:]):
            want = (self.num_new, *self.outputs.shape[1:])
            msg = f"'y_fair' must have the shape of the new outputs, {want}"
            raise ValueError(f"{msg} (got {tuple(new.shape)})")
        check_finite("y_fair", new)
        if threshold is not None:
            check_scalar("threshold", threshold)
        mean = torch.zeros(self.num_new, dtype=torch.float64, device=new.device)
        total = torch.bincount(self.row, self.weight.double(), minlength=self.num_new)
        parts = (part.split(_BLOCK) for part in (self.row, self.col, self.weight))
        for row, col, weight in zip(*parts, strict=True):
            gap = _difference(new[row], self.outputs[col], threshold)
            mean.index_add_(0, row, gap * weight.double())
        return mean / total

    def of(self, start: int, stop: int) -> "FittedNeighbors":
        """Pairs of some consecutive new samples."""
        ends = torch.tensor([start, stop], device=self.row.device)
        pairs = slice(*torch.searchsorted(self.row, ends).tolist())
        return replace(
            self,
            row=self.row[pairs] - start,
            col=self.col[pairs],
            weight=self.weight[pairs],
            sq_dist=self.sq_dist[pairs],
            num_new=stop - start,
        )

    def reordered(self, columns: Tensor) -> "FittedNeighbors":
        """The same pairs, with the columns of outputs in another order."""
        return replace(self, outputs=self.outputs[:, columns])

    def nearest(self) -> Tensor:  # -> [M]
        """Fair distance of each new sample to its nearest neighbor, or infinity."""
        out = self.sq_dist.new_full((self.num_new,), torch.inf)
        return out.scatter_reduce_(0, self.row, self.sq_dist, "amin").sqrt_()


def _difference(a: Tensor, b: Tensor, threshold: float | None) -> Tensor:  # -> [P]
    """Differences of pairs of outputs, or of the decisions that follow."""
    # 'reshape(len(y), -1)' fails for zero rows.
    a, b = (y.double().unsqueeze(1).flatten(1) for y in (a, b))
    if threshold is None:
        gap = (a - b).abs().sum(1)
        return gap / 2.0 if a.size(1) > 1 else gap
    return (decisions(a, threshold) != decisions(b, threshold)).double()
