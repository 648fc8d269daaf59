"""Counting pairs that break a Lipschitz condition, tile by tile."""

import torch
from torch import Tensor

from pyg_glif._runtime import Progress
from pyg_glif.graph.tiles import PairDistances, Tile, slices


class ViolationCount:
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
        self.by_person = torch.zeros(num_rows, dtype=torch.long, device=device)
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
        """Looks at every pair once."""
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
        """Counts one tile."""
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
        self.by_person[rows] += violated.sum(1)
        self.by_person[cols] += violated.sum(0)
        if low is not None:
            self._add_bins(low, violated, rows == cols)

    def _bins(self, dist: Tile, unsure: Tensor) -> Tensor | None:
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
