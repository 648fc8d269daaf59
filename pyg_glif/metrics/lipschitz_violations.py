"""Counts of pairs whose outputs break a Lipschitz condition."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress, without_autocast
from pyg_glif._utils.validation import (
    check_count,
    check_features,
    check_finite,
    check_mask,
    check_non_negative,
    check_num_rows,
    check_outputs,
    check_rank,
    check_same_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph.pairwise import (
    DistanceTile,
    EmbeddedDistances,
    PairDistances,
    pair_distances,
    slices,
)


class Violations(NamedTuple):
    r"""Counts of pairs that break a Lipschitz condition, in all and by fair distance.

    Attributes:
        num_violations (int): Pairs that break it.
        num_pairs (int): Pairs that were looked at.
        by_sample (torch.Tensor): Violations that each row takes part in,
            :math:`(N)`; they sum to twice ``num_violations``.
        bin_edges (torch.Tensor): Edges of the bins of fair distance,
            :math:`(B + 1)`; empty without bins.
        bin_violations (torch.Tensor): Violations in each bin, :math:`(B)`.
        bin_pairs (torch.Tensor): Pairs in each bin, :math:`(B)`.
    """

    num_violations: int
    num_pairs: int
    by_sample: Tensor
    bin_edges: Tensor
    bin_violations: Tensor
    bin_pairs: Tensor

    @property
    def share(self) -> float:
        """Violations per pair, from 0 to 1."""
        return self.num_violations / self.num_pairs

    @property
    def bin_share(self) -> Tensor:
        """Violations per pair of each bin; NaN for a bin without pairs."""
        return self.bin_violations.double() / self.bin_pairs


@without_autocast()
def lipschitz_violations(
    x: Tensor,
    y: Tensor,
    lipschitz: float,
    *,
    distance: FairDistance | None = None,
    bins: Iterable[float] | Tensor | None = None,
    mask: Tensor | None = None,
    rtol: float = 0.0,
    tile_size: int = 512,
    progress: bool | None = None,
) -> Violations:
    r"""Counts the pairs that global individual fairness forbids.

    .. math::
        |\{ i < j : \| \mathbf{y}_i - \mathbf{y}_j \|_2 >
        L (1 + \mathrm{rtol}) \, d(\mathbf{x}_i, \mathbf{x}_j) \}|

    in all and, as in Figure 2 (right) of the
    `paper <https://arxiv.org/abs/2110.13796>`_, by bins of fair distance. Every pair
    is looked at once, in tiles: memory does not grow with the number of pairs.
    Whether a pair counts, and in which bin, is decided in float64.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y (torch.Tensor): Outputs, float32 or float64.
        lipschitz (float): The constant :math:`L \ge 0`, outputs per distance.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        bins (sequence of float, optional): Ascending edges of bins of fair distance
            (not squared). A bin holds its left edge, the last one also its right
            edge; pairs outside all bins count in the totals only.
            (default: :obj:`None`)
        mask (torch.Tensor, optional): Rows to look at, such as names: pairs with
            both ends in it count. (default: all rows)
        rtol (float, optional): Excess that is forgiven, as a share of
            :math:`L d`. Outputs of a solver meet their constraints up to its
            tolerance only. (default: 0)
        tile_size (int, optional): Rows and columns handled at once. (default: 512)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the count takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`,
          mask :math:`(N)`
        - **output:** :class:`Violations`

    Duplicates with different outputs break the condition for any constant.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> y = torch.tensor([0.0, 2.0, 2.5])
        >>> violations = lipschitz_violations(x, y, lipschitz=1.0, bins=[0, 2, 4])
        >>> violations.num_violations, violations.num_pairs
        (1, 3)
        >>> violations.by_sample, violations.bin_share
        (tensor([1, 1, 0]), tensor([1., 0.], dtype=torch.float64))
    """
    x = check_features("x", x, distance)
    y = check_outputs("y", y).to(x.device)
    check_same_rows("y", y, "x", x)
    bound = check_scalar("lipschitz", lipschitz, minimum=0.0)
    bound *= 1.0 + check_scalar("rtol", rtol, minimum=0.0)
    check_count("tile_size", tile_size)
    edges = None if bins is None else _check_bin_edges("bins", bins).to(x.device)
    keep = torch.ones(len(x), dtype=torch.bool, device=x.device)
    if mask is not None:
        keep = check_mask("mask", mask, len(x)).to(x.device)
        x, y = x[keep], y[keep]
    check_num_rows("x" if mask is None else "x[mask]", len(x), 2)
    dists = pair_distances(x, distance)
    gaps = EmbeddedDistances(y.detach().reshape(len(y), -1))
    count = _ViolationCount(dists, gaps, bound, edges, len(x), x.device)
    count.run(tile_size, progress)
    by_sample = torch.zeros(len(keep), dtype=torch.long, device=x.device)
    by_sample[keep] = count.by_sample
    num_pairs = len(x) * (len(x) - 1) // 2
    total = int(count.by_sample.sum()) // 2
    bounds = x.new_empty(0, dtype=torch.float64) if edges is None else edges
    return Violations(total, num_pairs, by_sample, bounds, *count.histograms())


class _ViolationCount:
    """Running counts of pairs whose outputs are too far apart.

    A pair is settled by its tile where the bounds on rounding allow, and from the
    definition in float64 where they do not.
    """

    def __init__(
        self,
        dists: PairDistances,
        gaps: PairDistances,
        bound: float,
        edges: Tensor | None,
        num_rows: int,
        device: torch.device,
    ) -> None:
        self._dists, self._gaps, self._bound = dists, gaps, bound
        self._num_rows = num_rows
        ratio = bound * gaps.scale / dists.scale
        self._factor = ratio * ratio
        self.by_sample = torch.zeros(num_rows, dtype=torch.long, device=device)
        self._edges = edges
        if edges is not None:
            self._edges = edges.clone()
            # The last bin holds its right edge too.
            self._edges[-1] = edges[-1].nextafter(edges.new_tensor(torch.inf))
        num_bins = 0 if edges is None else edges.numel() - 1
        # Below, the bins, above; pairs in the first row, violations in the second.
        shape = (2, num_bins + 2)
        self._histogram = torch.zeros(shape, dtype=torch.long, device=device)

    def run(self, size: int, progress: bool | None) -> None:
        """Counts every pair once, tile by tile."""
        steps = -(-self._num_rows // size)
        total = steps * (steps + 1) // 2
        with Progress(total, "Lipschitz violations", progress) as bar:
            for rows in slices(0, self._num_rows, size):
                for cols in slices(rows.start, self._num_rows, size):
                    self._add(rows, cols)
                    bar.update()

    def histograms(self) -> tuple[Tensor, Tensor]:
        """Violations and pairs by bin."""
        pairs, violations = self._histogram[:, 1:-1]
        return violations, pairs

    def _add(self, rows: slice, cols: slice) -> None:
        """Counts the pairs of one tile."""
        dist, gap = self._dists.tile(rows, cols), self._gaps.tile(rows, cols)
        excess = gap.sq_dist - self._factor * dist.sq_dist
        error = gap.error + self._factor * dist.error
        violated = excess > 0
        unsure = (excess.abs() > error).logical_not_()  # overflow (NaN) is unsure too
        low = self._bins(dist, unsure)
        if rows == cols:
            unsure.triu_(1)
        r, c = unsure.nonzero(as_tuple=True)
        if r.numel():
            exact = dist.exact(r, c)
            violated[r, c] = gap.exact(r, c) > self._bound * exact
            if low is not None and self._edges is not None:
                low[r, c] = torch.bucketize(exact, self._edges, right=True)
        if rows == cols:
            violated.triu_(1)
        self.by_sample[rows] += violated.sum(1)
        self.by_sample[cols] += violated.sum(0)
        if low is not None:
            self._add_bins(low, violated, rows == cols)

    def _bins(self, dist: DistanceTile, unsure: Tensor) -> Tensor | None:
        """Bin of each pair; those that rounding may put into another are unsure."""
        if self._edges is None:
            return None
        edges = (self._edges * self._dists.scale).square().to(dist.sq_dist.dtype)
        least = (dist.sq_dist - dist.error).clamp_(min=0.0)
        # Comparing with one edge after another, without a change of dtype, is several
        # times faster than a binary search per pair: that one cannot be vectorised.
        count, reached = torch.zeros_like(least), torch.empty_like(least)
        for edge in edges.tolist():
            count += torch.ge(least, edge, out=reached)
        low = count.long()
        following = torch.cat([edges, edges.new_tensor([torch.inf])])
        unsure |= dist.sq_dist + dist.error >= following.take(low)
        return low

    def _add_bins(self, low: Tensor, violated: Tensor, diagonal: bool) -> None:
        """Counts pairs and violations by bin."""
        if diagonal:  # each pair once: the rest goes to 'below', which is dropped
            low = low.triu_(1)
        size = self._histogram.numel()
        both = low.mul_(2).add_(violated).view(-1).bincount(minlength=size).view(-1, 2)
        self._histogram[0] += both.sum(1)
        self._histogram[1] += both[:, 1]


def _check_bin_edges(name: str, value: Iterable[float] | Tensor) -> Tensor:
    """Two or more finite, ascending, non-negative numbers, as float64."""
    if not isinstance(value, Tensor):
        value = torch.tensor(
            [check_scalar(name, edge) for edge in value], dtype=torch.float64
        )
    value = value.double()
    check_rank(name, value, 1)
    if value.numel() < 2:
        msg = f"'{name}' must hold at least 2 edges (got {value.numel()})"
        raise ValueError(msg)
    check_finite(name, value)
    check_non_negative(name, value)
    if bool((value.diff() <= 0).any()):
        raise ValueError(f"'{name}' must be ascending (got {value.tolist()})")
    return value
