"""Exact searches for the pairs within a radius, and for the nearest.

Plain searches form every squared distance by matrix products over tiles. Pruned ones
do so on a few coordinates that bound distances from below, skip tiles whose boxes are
too far away, and finish only the candidates. Where a function gives the distance, it
is called on every tile.

A search for the nearest has one radius per point. A few nearby points bound it at the
start, and it shrinks as pairs are added.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Crew, Progress
from pyg_glif._utils.sparse import csr_tensor
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import called_within, decide, exact_squares
from pyg_glif.graph._knn_candidates import (
    CandidatePool,
    Nearest,
    kth_smallest,
    loosened,
)
from pyg_glif.graph._points import Points
from pyg_glif.graph._pruning import BLOCK_ENTRIES, Screen, Tile, Workspace

#: Pairs ``(i, j, sq_dist)``; within one set of points each pair comes once.
Pairs = tuple[Tensor, Tensor, Tensor]
#: Pairs ``(i, j, sq, error)`` whose squared distance in ``y`` is known to ``error``.
Measured = tuple[Tensor, Tensor, Tensor, Tensor]
#: One squared radius, or one for each point of both sets: a pair then counts if it
#: may be within either of its two.
Bound = float | tuple[Tensor, Tensor]

CALLABLE_TILE = 512  # rows and columns of a tile that a function is called on
_ROUND = 8  # tiles that are measured before bounds change
_SAMPLE = 512  # points from which the first bound on the k-th distance is taken


def callable_pairs(
    x: Tensor,
    distance: FairDistance,
    batch: Tensor | None,
    tau: float,
    left: Tensor | None = None,
    progress: bool | None = None,
) -> Iterator[Pairs]:
    """Pairs within the radius and their distances, not squared, by calls on tiles.

    First rows are those of ``left``, if there is one; else each pair comes once.
    """
    order = torch.arange(len(x), device=x.device)
    if batch is not None:
        order = batch.argsort(stable=True)
    columns = tiles = order.split(CALLABLE_TILE)
    if left is not None:
        tiles = torch.arange(len(left), device=x.device).split(CALLABLE_TILE)
    with Progress(len(tiles), "neighbors", progress) as bar:
        for start, rows in enumerate(tiles):
            for cols in columns if left is not None else columns[start:]:
                if batch is not None and batch[rows[-1]] < batch[cols[0]]:
                    break
                dist = distance((x if left is None else left)[rows], x[cols])
                within = called_within(dist, tau)
                if cols is rows:
                    within = within.triu(1)
                if batch is not None:
                    within &= batch[rows].unsqueeze(1) == batch[cols]
                r, c = within.nonzero(as_tuple=True)
                yield rows[r], cols[c], dist[r, c]
            bar.update()


def callable_nearest(
    x: Tensor,
    k: int,
    distance: FairDistance,
    batch: Tensor | None,
    tau: float,
    left: Tensor | None = None,
    reach: Tensor | None = None,
    progress: bool | None = None,
) -> Nearest:
    """The k nearest rows of each by a function; values are distances, not squared.

    With ``left``, pairs within the ``reach`` of a row of ``x`` come too.
    """
    size = len(x if left is None else left)
    upper = x.new_full((size,), math.inf, dtype=torch.float64)
    pool = CandidatePool(k, upper, other=reach)
    for i, j, dist in callable_pairs(x, distance, batch, tau, left, progress):
        value = dist.double()
        pool.add(*pool.wanted(i, j, value, torch.zeros_like(value)))
    return pool.resolve(slack=0.0)


class PointSearch:
    """Exact search among points, pruned on the directions of a basis, if any.

    Args:
        points: The known points.
        tau: The radius, in the unit of ``z``.
        basis: Orthonormal directions ``[D, M]``; :obj:`None` for a plain search.
        tile_size: Rows handled at once.
    """

    def __init__(
        self, points: Points, tau: float, basis: Tensor | None, tile_size: int = 256
    ) -> None:
        self.points, self.tau, self._tile_size = points, tau, tile_size
        self.screen: Screen | None = None
        if basis is not None:
            self.screen = Screen(points, tau, basis, tile_size)

    @property
    def slack(self) -> float:
        """Relative difference of squared distances that rounding alone may cause."""
        return (self.points.num_features + 4) * torch.finfo(torch.float64).eps

    def place(self, z: Tensor) -> tuple["PointSearch", Points]:
        """A search whose center and scale suit other points, and these points."""
        left = self.points.like(z)
        if left is not None:
            return self, left
        # Too far away for the scale of the known points.
        points, left = self.points.together_with(z)
        return PointSearch(points, self.tau, None, self._tile_size), left

    def pairs(
        self, left: Points | None = None, progress: bool | None = None
    ) -> Iterator[Pairs]:
        """Pairs of the points, or of others and them, within the radius."""
        left = self.points if left is None else left
        blocks = self._blocks(left)
        with Progress(len(blocks.tiles), "neighbors", progress) as bar:
            for tile in blocks.tiles:
                for measured in blocks.measure(tile, self.points.bound(self.tau)):
                    yield decide(left, self.points, *measured, self.tau)
                bar.update()

    def nearest(
        self,
        k: int,
        left: Points | None = None,
        reach: Tensor | None = None,
        slack: float = 0.0,
        progress: bool | None = None,
    ) -> Nearest:
        """The k nearest points of each, or of others; squares are those of ``y``.

        With ``left``, pairs within the ``reach`` of a known point come too, a square.
        Bounds change between rounds of tiles only, so the result does not depend on
        the number or the order of threads.
        """
        points, other = self.points, None
        limit = points.bound(self.tau) * (1.0 + 1e-6)
        limit = min(limit, torch.finfo(torch.float32).max)
        if left is not None:
            own = torch.zeros_like(points.sq_norm) if reach is None else reach.float()
            other = loosened(own).clamp_(max=limit)
        first = points if left is None else left
        upper = torch.full_like(first.sq_norm, limit)
        pool = CandidatePool(
            k, upper, lambda i, j: exact_squares(first, points, i, j), other
        )
        blocks = self._blocks(first)
        tiles = blocks.tiles

        def wanted(tile: Any) -> list[Measured]:
            return [pool.wanted(*pairs) for pairs in blocks.measure(tile, pool.reach)]

        with (
            Crew(points.y.device, len(tiles) // _ROUND) as crew,
            Progress(len(tiles), "nearest neighbors", progress) as bar,
        ):
            blocks.lower(pool, crew)
            for start in range(0, len(tiles), _ROUND):
                some = tiles[start : start + _ROUND]
                for measured in crew.map(wanted, some):
                    for pairs in measured:
                        pool.add(*pairs)
                bar.update(len(some))
        return pool.resolve(max(slack, self.slack))

    def _blocks(self, left: Points) -> "_PlainBlocks | _PrunedBlocks":
        """Tiles of ``left`` beside the points."""
        if self.screen is None:
            return _PlainBlocks(left, self.points, self._tile_size)
        return _PrunedBlocks(left, self.screen)


class _PrunedBlocks:
    """Squared distances of the candidates that a screen leaves, tile by tile."""

    def __init__(self, left: Points, screen: Screen) -> None:
        self._left, self._screen = left, screen
        own = left is screen.points
        self.tiles = list(screen.own_tiles() if own else screen.tiles_of(left))

    def measure(self, tile: Any, bound: Bound) -> Iterator[Measured]:
        """Pairs of a tile that may be within a squared radius."""
        upper = None if isinstance(bound, float) else bound
        candidates = self._screen.candidates(tile, upper)
        return finish(self._left, self._screen.points, tile, candidates)

    def lower(self, pool: CandidatePool, crew: Crew) -> None:
        """Lowers the bounds of a pool, by the points next to those of each tile."""

        def next_to(tile: Tile) -> tuple[Tensor, Tensor]:
            pairs = self._screen.closest(tile, 2 * pool.k + 2)
            points = self._screen.points
            ((i, _, sq, error),) = finish(self._left, points, tile, [pairs])
            return i, sq.add_(error)

        parts = zip(*crew.map(next_to, self.tiles), strict=True)
        end, most = (torch.cat(part) for part in parts)
        kth = kth_smallest(end, most, pool.k, self._left.num_nodes)
        torch.minimum(pool.upper, loosened(kth), out=pool.upper)


def finish(
    left: Points,
    right: Points,
    tile: Tile,
    candidates: Iterable[tuple[Tensor, Tensor]],
) -> Iterator[Measured]:
    """Squared distances of the candidates of a tile."""
    # Several times faster than by brackets.
    a, sq_a = left.y.index_select(0, tile.rows), left.sq_norm[tile.rows]
    for r, j in candidates:
        norms = sq_a[r].add_(right.sq_norm[j])
        sq = norms.sub(_sampled_products(r, j, a, right.y), alpha=2.0).clamp_(min=0.0)
        yield _same_graph(left, right, (tile.rows[r], j, sq, right.error(norms)))


def _sampled_products(row: Tensor, col: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Inner products ``a[row] . b[col]`` for sorted ``row``, without gathering.

    One fused pass over the pairs: gathering both sides first would write and read
    ``2 * num_pairs * a.size(1)`` numbers.
    """
    ends = torch.arange(a.size(0) + 1, device=row.device)
    zero = a.new_zeros(1).expand(row.numel())
    crow = torch.searchsorted(row, ends)
    pattern = csr_tensor(crow, col, zero, (a.size(0), b.size(0)))
    product: Tensor = torch.sparse.sampled_addmm(pattern, a, b.mT, beta=0.0)
    return product.values()


class _PlainBlocks:
    """Squared distances by products over all coordinates, tile by tile.

    Within one set, nodes are sorted by graph, and a row is paired with later columns
    of its graph only.
    """

    def __init__(self, left: Points, right: Points, tile_size: int) -> None:
        self._left, self._right, self._tile_size = left, right, tile_size
        self.tiles = range(-(-left.num_nodes // tile_size))
        self._own = left is right
        self._work = Workspace(right.y.device, max(BLOCK_ENTRIES, tile_size))
        self._width = max(1, BLOCK_ENTRIES // tile_size)
        self._largest = right.sq_norm.max()
        self._order: Tensor | None = None
        if self._own and right.batch is not None:
            self._order = right.batch.argsort(stable=True)
            label = right.batch[self._order]
            # For each position the start and the end of its graph.
            self._start = torch.searchsorted(label, label)
            self._stop = torch.searchsorted(label, label, right=True)

    def measure(self, tile: Any, bound: Bound) -> Iterator[Measured]:
        """Pairs of a tile that may be within a squared radius."""
        left, right = self._left, self._right
        start, stop, columns = self._ranges(tile)
        rows = self._take(start, stop)
        a, sq_a = left.y[rows] * -2.0, left.sq_norm[rows]
        slack = right.error(sq_a.max() + self._largest)
        row_bound = slack + (bound if isinstance(bound, float) else bound[0][rows])
        first = start if self._own else columns.start
        for begin in range(first, columns.stop, self._width):
            cols = self._take(begin, min(begin + self._width, columns.stop))
            col_bound = None if isinstance(bound, float) else bound[1][cols] + slack
            sq_b = right.sq_norm[cols]
            r, c, flat = self._work.within(
                a, right.y[cols], row_bound, col_bound, (sq_a, sq_b)
            )
            if self._own:
                later = c + begin > r + start
                r, c, flat = r[later], c[later], flat[later]
            i, j = self._ids(r + start), self._ids(c + begin)
            sq = self._work.values(flat).clamp_(min=0.0)
            error = right.error(sq_a[r] + sq_b[c])
            yield _same_graph(left, right, (i, j, sq, error))

    def lower(self, pool: CandidatePool, crew: Crew) -> None:
        """Lowers the bounds of a pool, by a sample of the points."""
        crew.map(lambda tile: self._lower_tile(tile, pool), self.tiles)

    def _lower_tile(self, tile: int, pool: CandidatePool) -> None:
        """Bounds on the distances of the k nearest of a tile."""
        left, right = self._left, self._right
        start, stop, columns = self._ranges(tile)
        device = right.y.device
        step = max(1, len(columns) // max(_SAMPLE, 16 * pool.k))
        some = torch.arange(columns.start, columns.stop, step, device=device)
        if self._own:  # the tile itself comes last
            own = torch.arange(start, stop, device=device)
            some = torch.cat([some[(some < start) | (some >= stop)], own])
        if some.numel() < pool.k:
            return
        rows, cols = self._take(start, stop), self._ids(some)
        norms = left.sq_norm[rows].unsqueeze(1) + right.sq_norm[cols]
        most = torch.addmm(norms, left.y[rows], right.y[cols].mT, alpha=-2.0)
        most.clamp_(min=0.0).add_(right.error(norms))
        if self._own:
            most[:, -len(own) :].fill_diagonal_(torch.inf)
            if right.batch is not None:
                across = right.batch[rows].unsqueeze(1) != right.batch[cols]
                most.masked_fill_(across, torch.inf)
        kth = most.topk(pool.k, largest=False).values.amax(1)
        pool.upper[rows] = torch.minimum(pool.upper[rows], loosened(kth))

    def _ranges(self, tile: int) -> tuple[int, int, range]:
        """Start and stop of a tile, and the columns of the graphs it belongs to."""
        start = tile * self._tile_size
        stop = min(start + self._tile_size, self._left.num_nodes)
        if self._order is None:
            return start, stop, range(self._right.num_nodes)
        return start, stop, range(int(self._start[start]), int(self._stop[stop - 1]))

    def _take(self, start: int, stop: int) -> slice | Tensor:
        """Rows at positions from ``start`` to ``stop``."""
        return slice(start, stop) if self._order is None else self._order[start:stop]

    def _ids(self, position: Tensor) -> Tensor:
        """Node numbers at some positions."""
        return position if self._order is None else self._order[position]


def _same_graph(left: Points, right: Points, pairs: Measured) -> Measured:
    """Drops pairs across graphs."""
    if left.batch is None or right.batch is None:
        return pairs
    i, j, sq, error = pairs
    same = left.batch[i] == right.batch[j]
    return i[same], j[same], sq[same], error[same]
