"""Violated pairs of outputs, and groups of duplicates.

Both are searched among all pairs, in tiles, and decided in float64.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif.graph.pairwise import EmbeddedDistances, PairDistances, slices

_PER_ROW = 4  # pairs of one row that a scan reports
_TINY = torch.finfo(torch.float64).tiny


class Violated(NamedTuple):
    """Pairs that break their constraint, and bounds over all pairs."""

    pairs: NDArray[np.int64]  # [2, K], first < second; the worst few of each row
    radius: NDArray[np.float64]  # [K], L d_ij
    excess: float  # max ||f_i - f_j|| - L d_ij over the pairs that were decided
    shrink: float  # min L d_ij / ||f_i - f_j||, at most 1
    forgiving: float  # the same for L d_ij + forgiven
    complete: bool  # whether every pair that might break its constraint was decided


class _Pairs(NamedTuple):
    """Some pairs in float64."""

    i: Tensor  # [K]
    j: Tensor  # [K]
    radius: Tensor  # [K]
    gap: Tensor  # [K], ||f_i - f_j||

    def take(self, index: Tensor) -> "_Pairs":
        """The pairs at some positions."""
        return _Pairs(*(part[index] for part in self))


class ViolationScan:
    """Looks at all pairs, a tile at a time."""

    def __init__(
        self, dists: PairDistances, num_rows: int, lipschitz: float, tile_size: int
    ) -> None:
        self._dists, self._num_rows = dists, num_rows
        self._lipschitz, self._tile_size = lipschitz, tile_size

    def __call__(
        self, f: Tensor, forgiven: float = 0.0, *, everything: bool = False
    ) -> Violated:  # f: [N, C], float64
        """Pairs of ``f`` that break their constraint.

        Of a tile with many suspects only the worst of each row and column are
        decided, and the result is not complete, unless ``everything``.
        """
        gaps, size = EmbeddedDistances(f), self._tile_size
        violated, complete = [], True
        excess, shrink, forgiving = 0.0, 1.0, 1.0
        for rows in slices(0, self._num_rows, size):
            for cols in slices(rows.start, self._num_rows, size):
                pairs, all_of_them = self._decide(gaps, rows, cols, everything)
                complete &= all_of_them
                if not pairs.i.numel():
                    continue
                away = pairs.gap.clamp(min=_TINY)
                excess = max(excess, float((pairs.gap - pairs.radius).max()))
                shrink = min(shrink, float((pairs.radius / away).min()))
                forgiven_radius = pairs.radius + forgiven
                forgiving = min(forgiving, float((forgiven_radius / away).min()))
                violated.append(_worst(pairs, 4 * size))
        return Violated(*_worst_of_rows(violated), excess, shrink, forgiving, complete)

    def _decide(
        self, gaps: EmbeddedDistances, rows: slice, cols: slice, everything: bool
    ) -> tuple[_Pairs, bool]:
        """Suspects of one tile in float64, and whether these are all."""
        dist, gap = self._dists.tile(rows, cols), gaps.tile(rows, cols)
        ratio = self._lipschitz * gaps.scale / self._dists.scale
        factor = ratio * ratio  # infinite where it overflows; '**' would raise
        # An upper bound of ||f_i - f_j||^2 - (L d_ij)^2; overflow (NaN) is suspect.
        over = gap.sq_dist + gap.error - factor * (dist.sq_dist - dist.error)
        r, c, all_of_them = _suspects(over, rows == cols, everything)
        radius = self._lipschitz * dist.exact(r, c)
        pairs = _Pairs(r + rows.start, c + cols.start, radius, gap.exact(r, c))
        return pairs, all_of_them


def _suspects(
    over: Tensor, diagonal: bool, everything: bool
) -> tuple[Tensor, Tensor, bool]:  # over: [A, B]
    """Positions above zero, or the largest of each row and column if too many."""
    suspect = (over <= 0).logical_not_()
    if diagonal:
        suspect.triu_(1)
    if everything or int(suspect.sum()) <= 4 * sum(over.shape):
        r, c = suspect.nonzero(as_tuple=True)
        return r, c, True
    over = over.nan_to_num_(nan=torch.inf).masked_fill_(~suspect, -torch.inf)
    chosen = torch.zeros_like(suspect)
    chosen.scatter_(1, over.argmax(1, keepdim=True), True)
    chosen.scatter_(0, over.argmax(0, keepdim=True), True)
    r, c = (chosen & suspect).nonzero(as_tuple=True)
    return r, c, False


def _worst(pairs: _Pairs, limit: int) -> _Pairs:
    """Pairs that break their constraint, at most ``limit`` of them."""
    excess = pairs.gap - pairs.radius
    index = (excess > 0).nonzero().view(-1)
    if index.numel() > limit:
        index = index[excess[index].topk(limit).indices]
    return pairs.take(index)


def _worst_of_rows(
    violated: list[_Pairs],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pairs and radii of the pairs that are among the worst of either row."""
    if not violated:
        return np.empty((2, 0), np.int64), np.empty(0)
    i, j, radius, gap = (
        torch.cat(parts).cpu().numpy() for parts in zip(*violated, strict=True)
    )
    keep = np.zeros(len(i), bool)
    for end in (i, j):
        order = np.lexsort((radius - gap, end))
        ranked = end[order]
        first = np.searchsorted(ranked, ranked)
        keep[order[np.arange(len(order)) - first < _PER_ROW]] = True
    return np.stack([i[keep], j[keep]]), radius[keep]


def coinciding_groups(
    dists: PairDistances, num_rows: int, tile_size: int
) -> NDArray[np.int64]:  # [N], from 0 without gaps
    """Labels of rows, equal where a chain of zero distances links them."""
    if isinstance(dists, EmbeddedDistances):
        label: Tensor = torch.unique(dists.z, dim=0, return_inverse=True)[1]
        return label.cpu().numpy()
    groups = np.arange(num_rows)
    for rows in slices(0, num_rows, tile_size):
        for cols in slices(rows.start, num_rows, tile_size):
            tile = dists.tile(rows, cols)
            r, c = (tile.sq_dist == 0).nonzero(as_tuple=True)
            zero = tile.exact(r, c) == 0  # a small distance may vanish when squared
            i, j = (r[zero] + rows.start).cpu(), (c[zero] + cols.start).cpu()
            groups = _link(groups, groups[i.numpy()], groups[j.numpy()])
    return groups


def _link(
    groups: NDArray[np.int64], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Labels after joining groups pairwise."""
    differ = first != second
    if not differ.any():
        return groups
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    num, links = int(groups.max()) + 1, (first[differ], second[differ])
    graph = coo_matrix((np.ones(len(links[0])), links), shape=(num, num))
    joined: NDArray[np.int64] = connected_components(graph, False)[1]
    return joined[groups].astype(np.int64)
