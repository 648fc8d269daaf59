"""Exact searches for the pairs within a radius, and for the nearest.

The plain ones form every squared distance by matrix products over tiles. The
projected ones do so on a few coordinates that bound distances from below, skip tiles
whose boxes are too far apart, and finish only the candidates.

A search for the nearest has one radius per point. A few nearby points bound it at the
start, and it shrinks as pairs are added.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Crew, Progress
from pyg_glif._utils.sparse import csr_tensor
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import decide
from pyg_glif.graph._knn_candidates import CandidatePool, kth_smallest, loosened
from pyg_glif.graph._points import Points
from pyg_glif.graph._pruning import BLOCK_ENTRIES, Screen, Tile, Workspace

#: Pairs ``(i, j, sq_dist)``; within one set of points each pair comes once.
Pairs = tuple[Tensor, Tensor, Tensor]
#: Pairs ``(i, j, sq, error)`` whose squared distance in ``y`` is known to ``error``.
Measured = tuple[Tensor, Tensor, Tensor, Tensor]

_Tile = TypeVar("_Tile")

_ROUND = 8  # tiles that are measured before bounds change
_SAMPLE = 512  # points from which the first bound on the k-th distance is taken


def callable_tiles(
    x: Tensor,
    distance: FairDistance,
    batch: Tensor | None,
    tile_size: int,
    bar: Progress,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Tiles ``(rows, cols, dist, wanted)`` of a distance without an embedding.

    ``wanted`` masks the pairs of one graph, each pair once.
    """
    order = torch.arange(x.size(0), device=x.device)
    if batch is not None:
        order = batch.argsort(stable=True)
    tiles = order.split(tile_size)
    for start, rows in enumerate(tiles):
        for cols in tiles[start:]:
            if batch is not None and batch[rows[-1]] < batch[cols[0]]:
                break
            dist = distance(x[rows], x[cols])
            wanted = torch.ones_like(dist, dtype=torch.bool)
            if cols is rows:
                wanted = wanted.triu(1)
            if batch is not None:
                wanted &= batch[rows].unsqueeze(1) == batch[cols]
            yield rows, cols, dist, wanted
        bar.update()


def plain_pairs(
    left: Points, right: Points, tau: float, tile_size: int, progress: bool | None
) -> Iterator[Pairs]:
    """Pairs of two sets, or of one, by products over all coordinates."""
    blocks = _PlainBlocks(left, right, tile_size)
    with Progress(blocks.num_tiles, "neighbors", progress) as bar:
        for tile in range(blocks.num_tiles):
            for measured in blocks.measure(tile, right.bound(tau)):
                yield decide(left, right, *measured, tau)
            bar.update()


def projected_pairs(
    left: Points, screen: Screen, tau: float, progress: bool | None
) -> Iterator[Pairs]:
    """Pairs of the screen's points, or of others and them, by few coordinates first."""
    right = screen.points
    tiles = screen.own_tiles() if left is right else screen.tiles_of(left)
    with Progress(left.num_nodes, "neighbors", progress) as bar:
        for tile in tiles:
            for measured in finish(left, right, tile, screen.candidates(tile)):
                yield decide(left, right, *measured, tau)
            bar.update(tile.rows.numel())


def plain_nearest(
    left: Points,
    right: Points,
    pool: CandidatePool,
    tile_size: int,
    progress: bool | None,
) -> None:
    """Fills a pool with pairs of two sets, or of one, by products."""
    blocks = _PlainBlocks(left, right, tile_size)
    tiles = range(blocks.num_tiles)
    with Crew(right.y.device, len(tiles) // _ROUND) as crew:
        crew.map(lambda tile: blocks.bound(tile, pool), tiles)
        _fill(
            pool, tiles, lambda tile: blocks.measure(tile, pool.reach), crew, progress
        )


def projected_nearest(
    left: Points, screen: Screen, pool: CandidatePool, progress: bool | None
) -> None:
    """Fills a pool with pairs of the screen's points, or of others and them."""
    right = screen.points
    own = left is right
    tiles = list(screen.own_tiles() if own else screen.tiles_of(left))

    def next_to(tile: Tile) -> tuple[Tensor, Tensor]:
        pairs = screen.closest(tile, 2 * pool.k + 2)
        ((i, _, sq, error),) = finish(left, right, tile, [pairs])
        return i, sq.add_(error)

    def measure(tile: Tile) -> Iterator[Measured]:
        return finish(left, right, tile, screen.candidates(tile, pool.reach))

    with Crew(right.y.device, len(tiles) // _ROUND) as crew:
        parts = zip(*crew.map(next_to, tiles), strict=True)
        end, most = (torch.cat(part) for part in parts)
        kth = kth_smallest(end, most, pool.k, left.num_nodes)
        torch.minimum(pool.upper, loosened(kth), out=pool.upper)
        _fill(pool, tiles, measure, crew, progress)


def _fill(
    pool: CandidatePool,
    tiles: Sequence[_Tile],
    measure: Callable[[_Tile], Iterator[Measured]],
    crew: Crew,
    progress: bool | None,
) -> None:
    """Adds the measured pairs of tiles to a pool.

    Bounds change between rounds only, so the result does not depend on the number or
    the order of threads.
    """

    def wanted(tile: _Tile) -> list[Measured]:
        return [pool.wanted(*pairs) for pairs in measure(tile)]

    with Progress(len(tiles), "nearest neighbors", progress) as bar:
        for start in range(0, len(tiles), _ROUND):
            some = tiles[start : start + _ROUND]
            for measured in crew.map(wanted, some):
                for pairs in measured:
                    pool.add(*pairs)
            bar.update(len(some))


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
    """Squared distances between tiles of two sets of points, or of one.

    Within one set, nodes are sorted by graph, and a row is paired with later columns
    of its graph only.
    """

    def __init__(self, left: Points, right: Points, tile_size: int) -> None:
        self._left, self._right, self._tile_size = left, right, tile_size
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

    @property
    def num_tiles(self) -> int:
        """Number of tiles that the rows make up."""
        return -(-self._left.num_nodes // self._tile_size)

    def measure(
        self, tile: int, bound: float | tuple[Tensor, Tensor]
    ) -> Iterator[Measured]:
        """Pairs of a tile that may be within a squared radius.

        There is one radius for all, or one for each point of both sets; then a pair
        counts that may be within either of its two.
        """
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

    def bound(self, tile: int, pool: CandidatePool) -> None:
        """Bounds the distances of the k nearest of a tile, from a sample."""
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
