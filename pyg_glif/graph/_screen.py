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
_LEAF_SIZE = 64
_BOX_AXES = 16


class Workspace:
    """Reused buffers for one block of squared distances and its mask."""

    def __init__(self, device: torch.device, num_entries: int) -> None:
        self._value = torch.empty(num_entries, dtype=torch.float32, device=device)
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
        if mask.device.type == "cpu":
            # NumPy's scan of booleans is several times faster than torch's.
            flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
        else:
            flat = mask.view(-1).nonzero().view(-1)
        row = torch.div(flat, shape[1], rounding_mode="floor")
        return row, flat - row * shape[1], flat

    def values(self, flat: Tensor) -> Tensor:
        """Entries of the block computed last."""
        return self._value[flat]


class Candidates(NamedTuple):
    """Some rows, and blocks of candidates: position among the rows, other node."""

    rows: Tensor
    blocks: Iterator[tuple[Tensor, Tensor]]


class Screen:
    """Bound coordinates of the points in compact order, cut into boxed leaves."""

    def __init__(
        self, points: Points, tau: float, basis: Tensor, tile_size: int
    ) -> None:
        self.points = points
        self._basis, self._tau, self._tile_size = basis, tau, tile_size
        w, self._factor, self._moved = bound_coordinates(points, basis)
        self._largest = math.sqrt(float(points.sq_norm.max()))
        if points.batch is not None:
            # Graphs lie further apart than the radius along one more coordinate.
            apart = max(4.0 * self._radius(self._largest, self._moved), 1.0)
            label = points.batch.to(w.dtype) * apart
            w = torch.cat([w, label.unsqueeze(1)], dim=1)
        self._perm, self._leaf = compact_order(w, min(_LEAF_SIZE, tile_size))
        self._leaves = self._cut(w[self._perm])
        parts = _box_coordinates(self._leaves)
        self._lo, self._hi = parts.amin(1), parts.amax(1)
        self._per_tile = max(1, tile_size // self._leaf)
        rows = max(self._per_tile * self._leaf, tile_size)
        self._width = max(1, BLOCK_ENTRIES // (rows * self._leaf))  # in leaves
        self._work = Workspace(w.device, self._width * rows * self._leaf)

    @property
    def num_tiles(self) -> int:
        """Number of tiles that the points themselves make up."""
        return math.ceil(self._leaves.size(0) / self._per_tile)

    def own_tiles(self) -> Iterator[Candidates]:
        """Tiles of the points with candidates among later points: each pair once."""
        radius = self._radius(self._largest, self._moved)
        for tile in range(self.num_tiles):
            first = tile * self._per_tile
            last = min(first + self._per_tile, self._leaves.size(0))
            start = first * self._leaf
            rows = self._perm[start : last * self._leaf]
            w = self._leaves[first:last].flatten(0, 1)[: rows.numel()]
            yield Candidates(rows, self._blocks(w, radius, first, start))

    def tiles_of(self, others: Points) -> Iterator[Candidates]:
        """Tiles of other points with candidates among all of ours."""
        w, _, moved = bound_coordinates(others, self._basis)
        radius = self._radius(math.sqrt(float(others.sq_norm.max())), moved)
        perm, run = compact_order(w, self._tile_size)
        for rows in perm.split(run):
            yield Candidates(rows, self._blocks(w[rows], radius))

    def _radius(self, largest: float, moved: float) -> float:
        """Radius in bound coordinates that no pair within ``tau`` exceeds."""
        # The sum of the largest norms stands in for an infinite radius.
        reach = min(self._tau * self.points.scale, self._largest + largest)
        return self._factor * reach + self._moved + moved

    def _cut(self, w: Tensor) -> Tensor:  # [N, K] -> [leaves, leaf, K]
        """Equal leaves; the last one is filled up with copies of its last point."""
        num_leaves = math.ceil(w.size(0) / self._leaf)
        fill = num_leaves * self._leaf - w.size(0)
        w = torch.cat([w, w[-1:].expand(fill, -1)])
        return w.view(num_leaves, self._leaf, -1)

    def _near_leaves(self, w: Tensor, radius: float, first: int) -> Tensor:
        """Leaves from ``first`` on whose box is within reach of that of ``w``."""
        parts = _box_coordinates(w)
        lo, hi = parts.amin(0), parts.amax(0)
        gap = torch.maximum(self._lo[first:] - hi, lo - self._hi[first:]).clamp_(min=0)
        # A little beyond the radius, to cover the rounding of the sum.
        near = gap.square_().sum(1) <= radius**2 * (1.0 + 64.0 * _EPS)
        return near.nonzero().view(-1) + first

    def _blocks(
        self, w: Tensor, radius: float, first: int = 0, start: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Screens rows against all leaves in reach, block by block.

        Rows that are points of the screen at positions from ``start`` on are paired
        with later positions only.
        """
        leaves_near = self._near_leaves(w, radius, first)
        if leaves_near.numel() == 0:  # which 'split' would return as one empty part
            return
        within = torch.arange(self._leaf, device=w.device)
        centre = w.mean(0)  # close to both sides, so that little cancels
        a = w - centre
        sq_a = a.square().sum(1)
        # One product then gives |b|^2 - 2 a.b, without another pass over the block.
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        for leaves in leaves_near.split(self._width):
            b = self._leaves[leaves].flatten(0, 1).sub_(centre)
            sq_b = b.square().sum(1, keepdim=True)
            rounding = 2.0 * product_rounding(a.size(1)) * (sq_a + sq_b.max())
            limit = radius**2 + rounding - sq_a
            b = torch.cat([b, sq_b], dim=1)
            r, c, _ = self._work.within(a, b, limit.unsqueeze(1))
            # Positions in the compact order of all points of these leaves.
            position = (leaves.unsqueeze(1) * self._leaf + within).flatten()[c]
            wanted = position < self.points.num_nodes  # not a filler
            if start is not None:
                wanted &= position > r + start
            yield r[wanted], self._perm[position[wanted]]


def _box_coordinates(w: Tensor) -> Tensor:  # [..., K] -> [..., B]
    """The coordinates that boxes are made of: the leading ones and the last."""
    lead = min(_BOX_AXES, w.size(-1) - 1)
    return torch.cat([w[..., :lead], w[..., -1:]], dim=-1)
