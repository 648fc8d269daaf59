"""Two exact searches for the pairs within a radius, sharing one inner step.

``plain_pairs`` forms every squared distance by matrix products over tiles.
``projected_pairs`` does so on a few coordinates that bound distances from below,
skips tiles whose boxes are too far apart, and finishes only the candidates.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_glif._pairs import flat_nonzero, sampled_products
from pyg_glif._runtime import Progress
from pyg_glif.graph.decide import decide
from pyg_glif.graph.ordering import bound_coordinates, compact_order
from pyg_glif.graph.points import Points

#: Undirected edges ``(i, j, sq_dist)``, each pair once.
Pairs = tuple[Tensor, Tensor, Tensor]

_EPS = torch.finfo(torch.float32).eps
_LEAF_SIZE = 64
_BLOCK_ENTRIES = 1 << 20  # float32 entries of one block of squared distances


class _Workspace:
    """Reused buffers for one block of squared distances and its mask."""

    def __init__(self, device: torch.device, num_entries: int) -> None:
        self._value = torch.empty(num_entries, device=device)
        self._mask = torch.empty(num_entries, dtype=torch.bool, device=device)

    def within(
        self, a: Tensor, b: Tensor, limit: Tensor, sq_b: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:  # a: [A, K], b: [B, K], limit: [A, 1]
        """Where ``a.b (+ sq_b) <= limit``: rows and columns in row-major order.

        Third come the flat positions, by which ``values`` looks the sums up.
        """
        shape = (a.size(0), b.size(0))
        value = self._value[: shape[0] * shape[1]].view(shape)
        mask = self._mask[: shape[0] * shape[1]].view(shape)
        if sq_b is None:
            torch.mm(a, b.mT, out=value)
        else:
            torch.addmm(sq_b, a, b.mT, out=value)
        torch.le(value, limit, out=mask)
        flat = flat_nonzero(mask)
        row = torch.div(flat, shape[1], rounding_mode="floor")
        return row, flat - row * shape[1], flat

    def values(self, flat: Tensor) -> Tensor:
        """Entries of the block computed last."""
        return self._value[flat]


def plain_pairs(
    points: Points, tau: float, tile_size: int, progress: bool | None
) -> Iterator[Pairs]:
    """All pairs by products over all coordinates, graph by graph."""
    order, end = _graph_order(points)
    work = _Workspace(points.y.device, max(_BLOCK_ENTRIES, tile_size * tile_size))
    width = _width(tile_size)
    bound = (tau * points.scale) ** 2
    largest = points.sq_norm.max()
    num_tiles = math.ceil(points.num_nodes / tile_size)
    with Progress(num_tiles, "radius graph", progress) as bar:
        for start in range(0, points.num_nodes, tile_size):
            stop = min(start + tile_size, points.num_nodes)
            rows = _take(order, start, stop)
            a, sq_a = points.y[rows] * -2.0, points.sq_norm[rows]
            limit = bound + points.rounding * (sq_a + largest) - sq_a
            last = points.num_nodes if end is None else int(end[stop - 1])
            for left in range(start, last, width):
                cols = _take(order, left, min(left + width, last))
                sq_b = points.sq_norm[cols]
                r, c, flat = work.within(a, points.y[cols], limit.unsqueeze(1), sq_b)
                later = c + left > r + start
                r, c = r[later], c[later]
                i, j = _ids(order, r + start), _ids(order, c + left)
                sq = work.values(flat[later]).add_(sq_a[r]).clamp_(min=0.0)
                found = i, j, sq, sq_a[r] + sq_b[c]
                yield decide(points, *_same_graph(points, found), tau)
            bar.update()


def projected_pairs(
    points: Points,
    tau: float,
    basis: Tensor,
    tile_size: int,
    progress: bool | None,
) -> Iterator[Pairs]:
    """Pairs by bounds on few coordinates first, then exactly."""
    screen = _Screen(points, tau, basis, tile_size)
    bound = (tau * points.scale) ** 2
    with Progress(screen.num_tiles, "radius graph", progress) as bar:
        for tile in range(screen.num_tiles):
            rows, blocks = screen.candidates(tile)
            a, sq_a = points.y[rows], points.sq_norm[rows]
            for r, j in blocks:
                norms = sq_a[r].add_(points.sq_norm[j])
                sq = norms - 2.0 * sampled_products(r, j, a, points.y)
                near = (sq <= bound + points.rounding * norms).nonzero().view(-1)
                found = rows[r[near]], j[near], sq[near].clamp_(min=0.0), norms[near]
                yield decide(points, *_same_graph(points, found), tau)
            bar.update()


class _Screen:
    """Bound coordinates in compact order, cut into leaves with their boxes."""

    def __init__(
        self, points: Points, tau: float, basis: Tensor, tile_size: int
    ) -> None:
        w, factor, moved = bound_coordinates(points, basis)
        diameter = 2.0 * math.sqrt(float(points.sq_norm.max()))
        self._radius = factor * min(tau * points.scale, diameter) + 2.0 * moved
        self._points = points
        if points.batch is not None:
            # Graphs lie further apart than the radius along one more coordinate.
            label = points.batch.to(w.dtype) * max(4.0 * self._radius, 1.0)
            w = torch.cat([w, label.unsqueeze(1)], dim=1)
        self._perm, self._leaf = compact_order(w, min(_LEAF_SIZE, tile_size))
        self._leaves = self._cut(w[self._perm])
        self._lo, self._hi = self._boxes()
        self._per_tile = max(1, tile_size // self._leaf)
        self.num_tiles = math.ceil(self._leaves.size(0) / self._per_tile)
        rows = self._per_tile * self._leaf
        self._width = _width(rows)
        self._work = _Workspace(w.device, max(_BLOCK_ENTRIES, rows * self._leaf))

    def _cut(self, w: Tensor) -> Tensor:  # [N, K] -> [leaves, leaf, K]
        """Equal leaves; the last one is filled up with copies of its last point."""
        num_leaves = math.ceil(w.size(0) / self._leaf)
        fill = num_leaves * self._leaf - w.size(0)
        w = torch.cat([w, w[-1:].expand(fill, -1)])
        return w.view(num_leaves, self._leaf, -1)

    def _boxes(self) -> tuple[Tensor, Tensor]:
        """Lower and upper corners on the leading coordinates and the last."""
        lead = min(16, self._leaves.size(2) - 1)
        parts = torch.cat([self._leaves[..., :lead], self._leaves[..., -1:]], dim=2)
        return parts.amin(1), parts.amax(1)

    def _near_leaves(self, first: int, last: int) -> Tensor:
        """Leaves from ``first`` on whose box is within reach of the tile's box."""
        lo, hi = self._lo[first:last].amin(0), self._hi[first:last].amax(0)
        gap = torch.maximum(self._lo[first:] - hi, lo - self._hi[first:]).clamp_(min=0)
        near = gap.square_().sum(1) <= self._radius**2 * (1.0 + 64.0 * _EPS)
        return near.nonzero().view(-1) + first

    def _positions(self, leaves: Tensor) -> Tensor:
        """Positions in the compact order of all points of some leaves."""
        within = torch.arange(self._leaf, device=leaves.device)
        return (leaves.unsqueeze(1) * self._leaf + within).flatten()

    def candidates(self, tile: int) -> tuple[Tensor, Iterator[tuple[Tensor, Tensor]]]:
        """Node numbers of a tile's rows, and blocks of candidates (row, node)."""
        first = tile * self._per_tile
        last = min(first + self._per_tile, self._leaves.size(0))
        start = first * self._leaf
        stop = min(last * self._leaf, self._points.num_nodes)
        return self._perm[start:stop], self._blocks(first, last, start, stop)

    def _blocks(
        self, first: int, last: int, start: int, stop: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Screens the tile's rows against all leaves in reach, block by block."""
        a = self._leaves[first:last].flatten(0, 1)[: stop - start]
        centre = a.mean(0)  # close to both sides, so that little cancels
        a = a - centre
        sq_a = a.square().sum(1)
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        for leaves in self._near_leaves(first, last).split(
            max(1, self._width // self._leaf)
        ):
            b = self._leaves[leaves].flatten(0, 1).sub_(centre)
            sq_b = b.square().sum(1, keepdim=True)
            rounding = (a.size(1) + 16) * _EPS * (sq_a + sq_b.max())
            limit = self._radius**2 + rounding - sq_a
            b = torch.cat([b, sq_b], dim=1)
            r, c, _ = self._work.within(a, b, limit.unsqueeze(1))
            position = self._positions(leaves)[c]
            later = (position > r + start) & (position < self._points.num_nodes)
            yield r[later], self._perm[position[later]]


def _width(num_rows: int) -> int:
    """Columns of a block with ``num_rows`` rows."""
    return max(1, _BLOCK_ENTRIES // num_rows)


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
    points: Points, found: tuple[Tensor, Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Drops pairs across graphs."""
    if points.batch is None:
        return found
    i, j, sq, norms = found
    same = points.batch[i] == points.batch[j]
    return i[same], j[same], sq[same], norms[same]
