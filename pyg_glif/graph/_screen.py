"""Rules pairs out on a few coordinates, whole tiles of them where it can."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_glif.graph._ordering import bound_coordinates, compact_order
from pyg_glif.graph._points import Points, product_rounding

BLOCK_ENTRIES = 1 << 20  # float32 entries of one block of squared distances
_EPS = torch.finfo(torch.float32).eps
LEAF_SIZE = 64
_BOX_AXES = 16
_NEXT_ROWS = 1024  # points in the leaves next to a tile


class Workspace:
    """Reused buffers for one block of squared distances and its mask."""

    def __init__(self, device: torch.device, num_entries: int) -> None:
        self._value = torch.empty(num_entries, dtype=torch.float32, device=device)
        self._mask = torch.empty(num_entries, dtype=torch.bool, device=device)
        self._beyond: tuple[Tensor, Tensor] | None = None

    def within(
        self,
        a: Tensor,
        b: Tensor,
        base: Tensor,
        rows: Tensor | float,
        cols: Tensor | None = None,
        sq_b: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # a: [A, K], b: [B, K]
        """Where ``a.b (+ sq_b) <= base + max(rows, cols)``, in row-major order.

        ``base`` and ``rows`` have one entry per row, ``cols`` and ``sq_b`` one per
        column. Returns rows, columns, and the flat positions, by which ``values``
        looks the sums up.
        """
        shape = (a.size(0), b.size(0))
        size = shape[0] * shape[1]
        value, mask = self._value[:size].view(shape), self._mask[:size].view(shape)
        if sq_b is None:
            torch.mm(a, b.mT, out=value)
        else:
            torch.addmm(sq_b, a, b.mT, out=value)
        torch.le(value, (base + rows).unsqueeze(1), out=mask)
        if cols is not None:
            if self._beyond is None:
                self._beyond = torch.empty_like(self._value), self._mask.clone()
            rest, near = (part[:size].view(shape) for part in self._beyond)
            torch.sub(value, cols, out=rest)
            mask |= torch.le(rest, base.unsqueeze(1), out=near)
        flat = flat_nonzero(mask)
        row = torch.div(flat, shape[1], rounding_mode="floor")
        return row, flat - row * shape[1], flat

    def values(self, flat: Tensor) -> Tensor:
        """Entries of the block computed last."""
        return self._value[flat]


class Tile(NamedTuple):
    """Rows of one set, placed among the screen's points."""

    rows: Tensor  # [A], node numbers
    w: Tensor  # [A, K], bound coordinates
    moved: float  # how far rounding may have moved them
    reach: float  # the radius, in the unit of the bound coordinates
    first: int = 0  # leaves before this one do not count
    start: int | None = None  # nor do positions up to that of the row, from here on


class Runs(NamedTuple):
    """Points in compact order, in runs of equal length with a box around each."""

    w: Tensor  # [N, K], bound coordinates
    perm: Tensor  # [N], node numbers
    length: int  # of a run; the last one may be shorter
    lo: Tensor  # [R, B]
    hi: Tensor  # [R, B]


class Reach(NamedTuple):
    """How far the radius reaches in bound coordinates."""

    dist: float  # the radius in the unit of the points
    largest: float  # norm of the points
    factor: float  # by which bound coordinates may overstate a distance
    moved: float  # by how far rounding may have moved a point

    def radius(self, largest: float, moved: float) -> float:
        """Radius in bound coordinates that no pair within the radius exceeds."""
        # The sum of the largest norms stands in for an infinite radius.
        reach = min(self.dist, self.largest + largest)
        return self.factor * reach + self.moved + moved

    def labelled(self, w: Tensor, batch: Tensor | None) -> Tensor:
        """Bound coordinates, with graphs further apart than the radius along one."""
        if batch is None:
            return w
        apart = max(4.0 * self.radius(self.largest, self.moved), 1.0)
        return torch.cat([w, (batch.to(w.dtype) * apart).unsqueeze(1)], dim=1)


class Screen:
    """Bound coordinates of the points in compact order, cut into boxed leaves."""

    def __init__(
        self, points: Points, tau: float, basis: Tensor, tile_size: int
    ) -> None:
        self.points, self._basis = points, basis
        w, factor, moved = bound_coordinates(points, basis)
        largest = math.sqrt(float(points.sq_norm.max()))
        self._reach = Reach(tau * points.scale, largest, factor, moved)
        w = self._reach.labelled(w, points.batch)
        perm, leaf = compact_order(w, min(LEAF_SIZE, tile_size))
        self._set(w[perm], perm, leaf, tile_size)

    @classmethod
    def stored(cls, w: Tensor, leaf: int, reach: "Reach", tile_size: int) -> "Screen":
        """A screen of bound coordinates in compact order; there are no points."""
        out = cls.__new__(cls)
        out._reach = reach
        out._set(w, torch.arange(len(w), device=w.device), leaf, tile_size)
        return out

    def _set(self, w: Tensor, perm: Tensor, leaf: int, tile_size: int) -> None:
        """Cuts points in compact order into leaves with boxes."""
        self._perm, self._leaf, self._tile_size = perm, leaf, tile_size
        self._leaves = self._cut(w)
        parts = box_coordinates(self._leaves)
        self._lo, self._hi = parts.amin(1), parts.amax(1)
        self._per_tile = max(1, tile_size // self._leaf)
        rows = max(self._per_tile * self._leaf, tile_size)
        self._width = max(1, BLOCK_ENTRIES // (rows * self._leaf))  # in leaves
        self._work = Workspace(w.device, self._width * rows * self._leaf)

    @property
    def num_tiles(self) -> int:
        """Number of tiles that the points themselves make up."""
        return math.ceil(self._leaves.size(0) / self._per_tile)

    def own_tiles(self) -> Iterator[Tile]:
        """Tiles of the points, to be paired with later points: each pair once."""
        reach = self._reach.radius(self._reach.largest, self._reach.moved)
        for tile in range(self.num_tiles):
            first = tile * self._per_tile
            last = min(first + self._per_tile, self._leaves.size(0))
            start = first * self._leaf
            rows = self._perm[start : last * self._leaf]
            w = self._leaves[first:last].flatten(0, 1)[: rows.numel()]
            yield Tile(rows, w, self._reach.moved, reach, first, start)

    def tile_of(self, others: Points) -> Tile:
        """Other points in their own order, to be paired with all of ours."""
        w, _, moved = bound_coordinates(others, self._basis)
        reach = self._reach.radius(math.sqrt(float(others.sq_norm.max())), moved)
        return Tile(torch.arange(len(w), device=w.device), w, moved, reach)

    def tiles_of(self, others: Points) -> Iterator[Tile]:
        """Tiles of other points, to be paired with all of ours."""
        _, w, moved, reach, *_ = self.tile_of(others)
        perm, run = compact_order(w, self._tile_size)
        for rows in perm.split(run):
            yield Tile(rows, w[rows], moved, reach)

    def stored_tiles(self, w: Tensor) -> Iterator[Tile]:
        """Tiles of stored points in compact order, to be paired with all of ours."""
        moved, largest = self._reach.moved, self._reach.largest
        reach = self._reach.radius(largest, moved)
        for rows in torch.arange(len(w), device=w.device).split(self._tile_size):
            yield Tile(rows, w[rows], moved, reach)

    def _cut(self, w: Tensor) -> Tensor:  # [N, K] -> [leaves, leaf, K]
        """Equal leaves; the last one is filled up with copies of its last point."""
        num_leaves = math.ceil(w.size(0) / self._leaf)
        fill = num_leaves * self._leaf - w.size(0)
        w = torch.cat([w, w[-1:].expand(fill, -1)])
        return w.view(num_leaves, self._leaf, -1)

    def _sq_gap(self, w: Tensor, first: int) -> Tensor:
        """Squared distances from the box of ``w`` to those of leaves from ``first``."""
        parts = box_coordinates(w)
        lo, hi = parts.amin(0), parts.amax(0)
        return sq_box_gap(self._lo[first:], self._hi[first:], lo, hi)

    def runs(self, num_leaves: int) -> "Runs":
        """The points in compact order, cut into runs of so many leaves."""
        lo, hi = (
            torch.stack([choose(part, 0) for part in bounds.split(num_leaves)])
            for bounds, choose in ((self._lo, torch.amin), (self._hi, torch.amax))
        )
        w = self._leaves.flatten(0, 1)[: self._perm.numel()]
        return Runs(w, self._perm, num_leaves * self._leaf, lo, hi)

    def share_left(self, tile: Tile) -> float:
        """The share of all leaves that are within reach of a tile."""
        return float((self._sq_gap(tile.w, 0) <= tile.reach**2).float().mean())

    def candidates(
        self, tile: Tile, upper: tuple[Tensor, Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs that may be within the radius: position in the tile, other node.

        ``upper`` are squared radii of its own for each point of the tile's set and
        of the screen's: a pair counts that may be within either of its two.
        """
        if upper is None:
            yield from self._blocks(tile, tile.reach**2, None)
            return
        row = self._sq_reach(upper[0][tile.rows], tile.moved)
        col = self._sq_reach(upper[1][self._perm], tile.moved)
        yield from self._blocks(tile, row, self._cut(col.unsqueeze(1)).squeeze(2))

    def closest(self, tile: Tile, num: int) -> tuple[Tensor, Tensor]:
        """Pairs of each row and about ``num`` points near it, itself left out.

        They are the smallest bounds in the leaves next to the tile.
        """
        count = min(self._leaves.size(0), math.ceil(_NEXT_ROWS / self._leaf))
        count = max(count, min(self._leaves.size(0), 4 * num // self._leaf))
        leaves = self._sq_gap(tile.w, 0).topk(count, largest=False).indices
        b = self._leaves[leaves].flatten(0, 1)
        # Off by rounding, which does not matter here.
        bound = torch.addmm(b.square().sum(1), tile.w, b.mT, alpha=-2.0)
        c = bound.topk(min(num, bound.size(1)), largest=False).indices
        r = torch.arange(len(tile.rows), device=b.device).repeat_interleave(c.size(1))
        place = self._positions(leaves)[c.view(-1)]
        wanted = place < self._perm.numel()  # not a filler
        if tile.start is not None:
            wanted &= place != r + tile.start
        return r[wanted], self._perm[place[wanted]]

    def _sq_reach(self, upper: Tensor, moved: float) -> Tensor:
        """Squared radii in bound coordinates, from those in coordinates."""
        reach = upper.sqrt().mul_(self._reach.factor * (1.0 + 8.0 * _EPS))
        return reach.add_(self._reach.moved + moved).square_()

    def _positions(self, leaves: Tensor) -> Tensor:
        """Positions in the compact order of all points of some leaves."""
        within = torch.arange(self._leaf, device=leaves.device)
        return (leaves.unsqueeze(1) * self._leaf + within).flatten()

    def _blocks(
        self, tile: Tile, rows: Tensor | float, cols: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Screens a tile against all leaves in reach, block by block."""
        w, first = tile.w, tile.first
        widest = widened(torch.as_tensor(rows, device=w.device).max())
        if cols is not None:
            widest = widened(cols[first:].amax(1)).clamp_(min=widest)
        leaves_near = (self._sq_gap(w, first) <= widest).nonzero().view(-1) + first
        if leaves_near.numel() == 0:  # which 'split' would return as one empty part
            return
        centre = w.mean(0)  # close to both sides, so that little cancels
        a = w - centre
        sq_a = a.square().sum(1)
        # One product then gives |b|^2 - 2 a.b, without another pass over the block.
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        for leaves in leaves_near.split(self._width):
            b = self._leaves[leaves].flatten(0, 1).sub_(centre)
            sq_b = b.square().sum(1, keepdim=True)
            rounding = 2.0 * product_rounding(a.size(1)) * (sq_a + sq_b.max())
            b = torch.cat([b, sq_b], dim=1)
            col = None if cols is None else cols[leaves].flatten()
            r, c, _ = self._work.within(a, b, rounding - sq_a, rows, col)
            position = self._positions(leaves)[c]
            wanted = position < self._perm.numel()  # not a filler
            if tile.start is not None:
                wanted &= position > r + tile.start
            yield r[wanted], self._perm[position[wanted]]


def flat_nonzero(mask: Tensor) -> Tensor:
    """Positions of what is true, in row-major order."""
    if mask.device.type != "cpu":
        return mask.view(-1).nonzero().view(-1)
    # NumPy's scan of booleans is several times faster than torch's.
    return torch.from_numpy(np.flatnonzero(mask.numpy()))


def sq_box_gap(lo: Tensor, hi: Tensor, other_lo: Tensor, other_hi: Tensor) -> Tensor:
    """Squared distances of boxes ``[..., B]`` from others."""
    gap = torch.maximum(lo - other_hi, other_lo - hi).clamp_(min=0)
    return gap.square_().sum(-1)


def widened(sq_reach: Tensor) -> Tensor:
    """A little beyond squared radii, to cover the rounding of a gap."""
    return sq_reach * (1.0 + 64.0 * _EPS)


def box_coordinates(w: Tensor) -> Tensor:  # [..., K] -> [..., B]
    """The coordinates that boxes are made of: the leading ones and the last."""
    lead = min(_BOX_AXES, w.size(-1) - 1)
    return torch.cat([w[..., :lead], w[..., -1:]], dim=-1)
