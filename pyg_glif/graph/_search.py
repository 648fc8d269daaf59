"""Exact searches for the pairs within a radius.

The plain ones form every squared distance by matrix products over tiles. The
projected ones do so on a few coordinates that bound distances from below, skip tiles
whose boxes are too far apart, and finish only the candidates.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_glif._pattern import csr_tensor
from pyg_glif._runtime import Progress
from pyg_glif.graph._decide import decide
from pyg_glif.graph._points import Points
from pyg_glif.graph._screen import BLOCK_ENTRIES, Candidates, Screen, Workspace

#: Pairs ``(i, j, sq_dist)``; within one set of points each pair comes once.
Pairs = tuple[Tensor, Tensor, Tensor]


def plain_pairs(
    points: Points, tau: float, tile_size: int, progress: bool | None
) -> Iterator[Pairs]:
    """Pairs of one set, graph by graph, by products over all coordinates."""
    order, end = _graph_order(points)
    starts = range(0, points.num_nodes, tile_size)
    block = _PlainBlock(points, points, tau, tile_size)
    with Progress(len(starts), "radius graph", progress) as bar:
        for start in starts:
            stop = min(start + tile_size, points.num_nodes)
            last = points.num_nodes if end is None else int(end[stop - 1])
            yield from block.pairs(order, start, stop, order, range(start, last))
            bar.update()


def plain_cross_pairs(
    others: Points, points: Points, tau: float, tile_size: int, progress: bool | None
) -> Iterator[Pairs]:
    """Pairs of one point of ``others`` and one of ``points``."""
    starts = range(0, others.num_nodes, tile_size)
    block = _PlainBlock(others, points, tau, tile_size)
    with Progress(len(starts), "neighbours", progress) as bar:
        for start in starts:
            stop = min(start + tile_size, others.num_nodes)
            yield from block.pairs(None, start, stop, None, range(points.num_nodes))
            bar.update()


def projected_pairs(
    points: Points,
    tau: float,
    basis: Tensor,
    tile_size: int,
    progress: bool | None,
) -> Iterator[Pairs]:
    """Pairs of one set, by bounds on few coordinates first, then exactly."""
    screen = Screen(points, tau, basis, tile_size)
    with Progress(screen.num_tiles, "radius graph", progress) as bar:
        for some in screen.own_tiles():
            yield from _finish(some, points, points, tau)
            bar.update()


def projected_cross_pairs(
    others: Points, screen: Screen, tau: float, progress: bool | None
) -> Iterator[Pairs]:
    """Pairs of one point of ``others`` and one of the screen's points."""
    with Progress(others.num_nodes, "neighbours", progress) as bar:
        for some in screen.tiles_of(others):
            yield from _finish(some, others, screen.points, tau)
            bar.update(some.rows.numel())


def _finish(
    some: Candidates, left: Points, right: Points, tau: float
) -> Iterator[Pairs]:
    """Decides on the candidates of a tile."""
    a, sq_a = left.y[some.rows], left.sq_norm[some.rows]
    bound = right.bound(tau)
    for r, j in some.blocks:
        norms = sq_a[r].add_(right.sq_norm[j])
        sq = norms - 2.0 * _sampled_products(r, j, a, right.y)
        near = (sq <= bound + right.error(norms)).nonzero().view(-1)
        found = some.rows[r[near]], j[near], sq[near].clamp_(min=0.0), norms[near]
        yield decide(left, right, *_same_graph(left, right, found), tau)


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


class _PlainBlock:
    """Squared distances between tiles of two sets of points."""

    def __init__(self, left: Points, right: Points, tau: float, tile_size: int) -> None:
        self._left, self._right, self._tau = left, right, tau
        self._work = Workspace(right.y.device, max(BLOCK_ENTRIES, tile_size))
        self._width = max(1, BLOCK_ENTRIES // tile_size)
        self._largest = right.sq_norm.max()

    def pairs(
        self,
        left_order: Tensor | None,
        start: int,
        stop: int,
        right_order: Tensor | None,
        columns: range,
    ) -> Iterator[Pairs]:
        """Pairs of the rows from ``start`` to ``stop`` with some columns.

        Within one set, only columns after the row count.
        """
        left, right = self._left, self._right
        rows = _take(left_order, start, stop)
        a, sq_a = left.y[rows] * -2.0, left.sq_norm[rows]
        bound = right.bound(self._tau)
        limit = bound + right.error(sq_a + self._largest) - sq_a
        for first in columns[:: self._width]:
            cols = _take(right_order, first, min(first + self._width, columns.stop))
            sq_b = right.sq_norm[cols]
            r, c, flat = self._work.within(a, right.y[cols], limit.unsqueeze(1), sq_b)
            if left is right:
                later = c + first > r + start
                r, c, flat = r[later], c[later], flat[later]
            i, j = _ids(left_order, r + start), _ids(right_order, c + first)
            sq = self._work.values(flat).add_(sq_a[r]).clamp_(min=0.0)
            found = _same_graph(left, right, (i, j, sq, sq_a[r] + sq_b[c]))
            yield decide(left, right, *found, self._tau)


def _graph_order(points: Points) -> tuple[Tensor | None, Tensor | None]:
    """Nodes sorted by graph, and for each position the end of its graph."""
    if points.batch is None:
        return None, None
    order = points.batch.argsort(stable=True)
    label = points.batch[order]
    return order, torch.searchsorted(label, label, right=True)


def _take(order: Tensor | None, start: int, stop: int) -> slice | Tensor:
    """Rows at positions from ``start`` to ``stop``."""
    return slice(start, stop) if order is None else order[start:stop]


def _ids(order: Tensor | None, position: Tensor) -> Tensor:
    """Node numbers at some positions."""
    return position if order is None else order[position]


def _same_graph(
    left: Points, right: Points, found: tuple[Tensor, Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Drops pairs across graphs."""
    if left.batch is None or right.batch is None:
        return found
    i, j, sq, norms = found
    same = left.batch[i] == right.batch[j]
    return i[same], j[same], sq[same], norms[same]
