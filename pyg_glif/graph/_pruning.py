"""Pruning of pairs, and of whole tiles, by lower bounds on a few coordinates.

For an orthonormal basis Q and the rest ``r = y - Q Q'y``, the triangle inequality
gives ``|y_i - y_j|^2 >= |Q'y_i - Q'y_j|^2 + (|r_i| - |r_j|)^2``: the point
``w = (Q'y, |r|)`` stands in for y, and ``|w_i - w_j|`` never exceeds the distance.
"""

import math
import threading
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pyg_glif.graph._points import Points, product_rounding

BLOCK_ENTRIES = 1 << 20  # float32 entries of one block of squared distances
_EPS = torch.finfo(torch.float32).eps
LEAF_SIZE = 64
_BOX_AXES = _SPLIT_AXES = 16
_NEXT_ROWS = 1024  # points in the leaves next to a tile
_GROUPS = 32  # of columns


def principal_basis(
    points: Points, num_directions: int, num_rows: int = 1024, num_rounds: int = 2
) -> Tensor:  # -> [D, M]
    """Leading directions of a sample, most spread first (a randomised range finder).

    Any orthonormal basis is valid; a good one only prunes more.
    """
    rows = points.y[:: max(1, points.num_nodes // num_rows)][:num_rows]
    rows = rows - rows.mean(0)
    # Products of the sample with itself must neither vanish nor overflow; where they
    # still do for some directions, float64 keeps the factorisations finite.
    rows /= rows.abs().max().clamp_(min=torch.finfo(rows.dtype).tiny)
    generator = torch.Generator().manual_seed(0)
    size = (points.num_features, num_directions)
    basis = torch.randn(size, generator=generator, dtype=rows.dtype).to(rows.device)
    for _ in range(num_rounds):
        product = rows.mT @ (rows @ basis)
        basis = torch.linalg.qr(product.double()).Q.to(rows.dtype)
    spread = (rows @ basis).double()
    ascending: Tensor = torch.linalg.eigh(spread.mT @ spread).eigenvectors
    return basis @ ascending.flip(1).to(rows.dtype)


def bound_coordinates(points: Points, basis: Tensor) -> tuple[Tensor, float, float]:
    """Stand-ins ``w [N, M + 1]`` and how far they may overstate a distance.

    The rest is formed before its norm is taken: ``|y|^2 - |Q'y|^2`` would be off by
    the root of the rounding error where the rest is small.

    Returns:
        The coordinates; a factor, since Q is orthonormal only up to rounding (with
        ``e = |Q'Q - I|`` the bound is at most ``sqrt(1 + 2e)`` times the distance);
        and how far rounding may have moved a point.
    """
    blocks = []
    for y in points.y.split(1024):
        p = y @ basis
        rest = torch.addmm(y, p, basis.mT, alpha=-1.0).square_().sum(1, keepdim=True)
        blocks.append(torch.cat([p, rest.sqrt_()], dim=1))
    largest = math.sqrt(float(points.sq_norm.max()))
    return torch.cat(blocks), *bound_errors(basis, largest, points.rounding)


def bound_errors(basis: Tensor, largest: float, rounding: float) -> tuple[float, float]:
    """Factor and offset by which bound coordinates may overstate a distance."""
    gram = basis.mT.double() @ basis.double()
    gram.diagonal().sub_(1.0)
    factor = math.sqrt(1.0 + 2.0 * float(gram.square().sum().sqrt()))
    return factor, 2.0 * (math.sqrt(basis.size(1)) + 2.0) * rounding * largest


def compact_order(w: Tensor, leaf_size: int) -> tuple[Tensor, int]:
    """Permutation that puts nearby points into runs of equal length.

    A balanced k-d tree built level by level: every run is cut at the median of its
    most spread coordinate. Returns the permutation and the length of a run.
    """
    num_points = w.size(0)
    levels = max(0, math.ceil(math.log2(max(1, num_points) / leaf_size)))
    leaf = math.ceil(num_points / 2**levels)
    coords = torch.cat([w[:, :_SPLIT_AXES], w[:, -1:]], dim=1)
    # One more row, which the fillers below look up.
    coords = torch.cat([coords, coords.mean(0, keepdim=True)])
    # Fillers (index num_points) make all runs equally long; they sort last.
    order = torch.arange(leaf * 2**levels, device=w.device).clamp_(max=num_points)
    for level in range(levels):
        runs = order.view(2**level, -1)
        members = coords[runs]
        axis = members.var(1).argmax(1)
        key = members.gather(2, axis.view(-1, 1, 1).expand(*runs.shape, 1)).squeeze(2)
        key = key.masked_fill_(runs == num_points, math.inf)
        order = runs.gather(1, key.argsort(1)).view(-1)
    return order[:num_points], leaf


class Workspace(threading.local):
    """Reused buffers for one block of squared distances, its mask and its limits.

    Each thread has its own; copies of the owner start with new ones.
    """

    def __init__(self, device: torch.device, num_entries: int) -> None:
        self._value = torch.empty(num_entries, dtype=torch.float32, device=device)
        self._mask = torch.empty(num_entries, dtype=torch.bool, device=device)
        self._limit: Tensor | None = None

    def __reduce__(self) -> tuple[type["Workspace"], tuple[torch.device, int]]:
        # Scratch memory is not worth pickling, and thread-local memory cannot be.
        return type(self), (self._value.device, self._value.numel())

    def within(
        self,
        a: Tensor,
        b: Tensor,
        rows: Tensor,
        cols: Tensor | None = None,
        terms: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # a: [A, K], b: [B, K]
        """Positions where ``a.b (+ terms) <= max(rows, cols)``, in row-major order.

        ``rows`` has one entry per row, or one for all, ``cols`` one per column, and the
        terms are one of each. Returns rows, columns, and the flat positions, by which
        ``values`` looks the sums up.
        """
        shape = (a.size(0), b.size(0))
        size = shape[0] * shape[1]
        value, mask = self._value[:size].view(shape), self._mask[:size].view(shape)
        if terms is None:
            torch.mm(a, b.mT, out=value)
        else:
            torch.add(terms[0].unsqueeze(1), terms[1], out=value).addmm_(a, b.mT)
        limit = rows.unsqueeze(-1)
        if cols is not None:
            if self._limit is None:
                self._limit = torch.empty_like(self._value)
            # One pass that writes, and no mask to be joined with another.
            limit = torch.maximum(limit, cols, out=self._limit[:size].view(shape))
        flat = flat_within(value, limit, mask)
        row = torch.div(flat, shape[1], rounding_mode="floor")
        return row, flat - row * shape[1], flat

    def values(self, flat: Tensor) -> Tensor:
        """Entries of the last block."""
        return self._value[flat]


class Tile(NamedTuple):
    """Rows of one set, placed among the screen's points."""

    rows: Tensor  # [A], node numbers
    w: Tensor  # [A, K], bound coordinates
    moved: float  # how far rounding may have moved them
    reach: float  # the radius, in the unit of the bound coordinates
    first: int = 0  # leaves before this one are skipped
    start: int | None = None  # position of the first row; earlier columns are skipped


class Reach(NamedTuple):
    """The radius in bound coordinates, rounding included."""

    dist: float  # the radius in the unit of the points
    largest: float  # norm of the points
    factor: float  # by which bound coordinates may overstate a distance
    moved: float  # distance by which rounding may have moved a point

    def radius(self, largest: float, moved: float) -> float:
        """Radius in bound coordinates that no pair within the radius exceeds."""
        # The sum of the largest norms stands in for an infinite radius.
        reach = min(self.dist, self.largest + largest)
        return self.factor * reach + self.moved + moved

    def labelled(self, w: Tensor, batch: Tensor | None) -> Tensor:
        """Bound coordinates with one more, in which graphs are beyond the radius."""
        if batch is None:
            return w
        spacing = max(4.0 * self.radius(self.largest, self.moved), 1.0)
        return torch.cat([w, (batch.to(w.dtype) * spacing).unsqueeze(1)], dim=1)


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
        # With room for a squared norm, and a one: see '_columns'.
        self._leaves = self._cut(torch.nn.functional.pad(w, (0, 2)))
        self._leaves[..., -1] = 1.0
        parts = box_coordinates(self._leaves[..., :-2])
        self._lo, self._hi = parts.amin(1), parts.amax(1)
        self._per_tile = max(1, tile_size // self._leaf)
        rows = max(self._per_tile * self._leaf, tile_size)
        self._width = max(1, BLOCK_ENTRIES // (rows * self._leaf))  # in leaves
        self._work = Workspace(w.device, self._width * rows * self._leaf)

    def own_tiles(self) -> Iterator[Tile]:
        """Tiles of the points, to be paired with later points: each pair once."""
        reach = self._reach.radius(self._reach.largest, self._reach.moved)
        for first in range(0, self._leaves.size(0), self._per_tile):
            last = min(first + self._per_tile, self._leaves.size(0))
            start = first * self._leaf
            rows = self._perm[start : last * self._leaf]
            w = self._leaves[first:last].flatten(0, 1)[: rows.numel(), :-2]
            yield Tile(rows, w, self._reach.moved, reach, first, start)

    def tile_of(self, others: Points) -> Tile:
        """Other points in their own order, to be paired with all points."""
        w, _, moved = bound_coordinates(others, self._basis)
        reach = self._reach.radius(math.sqrt(float(others.sq_norm.max())), moved)
        return Tile(torch.arange(len(w), device=w.device), w, moved, reach)

    def tiles_of(self, others: Points) -> Iterator[Tile]:
        """Tiles of other points, to be paired with all points."""
        _, w, moved, reach, *_ = self.tile_of(others)
        perm, run = compact_order(w, self._tile_size)
        for rows in perm.split(run):
            yield Tile(rows, w[rows], moved, reach)

    def stored_tiles(self, w: Tensor) -> Iterator[Tile]:
        """Tiles of stored points in compact order, to be paired with all points."""
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

    def runs(self, num_leaves: int) -> tuple[Tensor, Tensor, int, Tensor, Tensor]:
        """The points in compact order, cut into runs of so many leaves.

        Returns bound coordinates ``[N, K]``, node numbers ``[N]``, the length of a run,
        and the ends of the box around each ``[R, B]``.
        """
        lo, hi = (
            torch.stack([choose(part, 0) for part in bounds.split(num_leaves)])
            for bounds, choose in ((self._lo, torch.amin), (self._hi, torch.amax))
        )
        w = self._leaves.flatten(0, 1)[: self._perm.numel(), :-2]
        return w, self._perm, num_leaves * self._leaf, lo, hi

    def share_left(self, tile: Tile) -> float:
        """Share of all leaves within reach of a tile."""
        return float((self._sq_gap(tile.w, 0) <= tile.reach**2).float().mean())

    def candidates(
        self, tile: Tile, upper: tuple[Tensor, Tensor] | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Pairs that may be within the radius: position in the tile, other node.

        ``upper`` holds a squared radius for each point of the tile's set and of the
        screen's. A pair is kept if it may be within either of its two.
        """
        if upper is None:
            yield from self._blocks(tile, tile.w.new_tensor(tile.reach**2), None)
            return
        row = self._sq_reach(upper[0][tile.rows], tile.moved)
        col = self._sq_reach(upper[1][self._perm], tile.moved)
        yield from self._blocks(tile, row, self._cut(col.unsqueeze(1)).squeeze(2))

    def closest(self, tile: Tile, num: int) -> tuple[Tensor, Tensor]:
        """Pairs of each row and about ``num`` nearby points, itself excluded.

        They are the smallest bounds in the leaves next to some of the rows.
        """
        count = min(self._leaves.size(0), math.ceil(_NEXT_ROWS / self._leaf))
        count = max(count, min(self._leaves.size(0), 4 * num // self._leaf))
        positions = []
        for w in tile.w.split(self._leaf):
            leaves = self._sq_gap(w, 0).topk(count, largest=False).indices
            center = w.mean(0)
            # Off by rounding, which does not matter here.
            value = _rows(w, center) @ self._columns(leaves, center).mT
            positions.append(
                self._positions(leaves)[_least(value.clamp_(min=0.0), num)]
            )
        position = torch.cat(positions)
        r = torch.arange(len(position), device=position.device)
        r = r.repeat_interleave(position.size(1))
        position = position.view(-1)
        wanted = position < self._perm.numel()  # not a filler
        if tile.start is not None:
            wanted &= position != r + tile.start
        return r[wanted], self._perm[position[wanted]]

    def _sq_reach(self, upper: Tensor, moved: float) -> Tensor:
        """Squared radii in bound coordinates, from those in coordinates."""
        reach = upper.sqrt().mul_(self._reach.factor * (1.0 + 8.0 * _EPS))
        return reach.add_(self._reach.moved + moved).square_()

    def _positions(self, leaves: Tensor) -> Tensor:
        """Positions in the compact order of all points of some leaves."""
        within = torch.arange(self._leaf, device=leaves.device)
        return (leaves.unsqueeze(1) * self._leaf + within).flatten()

    def _columns(self, leaves: Tensor, center: Tensor) -> Tensor:
        """Points ``b`` of some leaves about a center, as ``(b, |b|^2, 1)``."""
        b = self._leaves.index_select(0, leaves).flatten(0, 1)
        b[:, :-2] -= center
        b[:, -2] = torch.linalg.vector_norm(b[:, :-2], dim=1).square_()
        return b

    def _blocks(
        self, tile: Tile, rows: Tensor, cols: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Screens a tile against all leaves in reach, block by block."""
        w, first = tile.w, tile.first
        widest = widened(rows.max())
        if cols is not None:
            widest = widened(cols[first:].amax(1)).clamp_(min=widest)
        reachable = (self._sq_gap(w, first) <= widest).nonzero().view(-1) + first
        if reachable.numel() == 0:  # which 'split' would return as one empty part
            return
        center = w.mean(0)  # close to both sides, so that little cancels
        a = _rows(w, center)
        for leaves in reachable.split(self._width):
            b = self._columns(leaves, center)
            largest = a[:, -1].max() + b[:, -2].max()
            rounding = 2.0 * product_rounding(a.size(1)) * largest
            col = None
            if cols is not None:
                col = cols.index_select(0, leaves).flatten().add_(rounding)
            r, c, _ = self._work.within(a, b, rows + rounding, col)
            position = self._positions(leaves)[c]
            wanted = position < self._perm.numel()  # not a filler
            if tile.start is not None:
                wanted &= position > r + tile.start
            yield r[wanted], self._perm[position[wanted]]


def _rows(w: Tensor, center: Tensor) -> Tensor:  # [A, K] -> [A, K + 2]
    """Points ``a`` about a center, as ``(-2 a, 1, |a|^2)``.

    Their products with :meth:`Screen._columns` are squared distances, without another
    pass over the block.
    """
    a = w - center
    sq_a = a.square().sum(1, keepdim=True)
    return torch.cat([a.mul_(-2.0), torch.ones_like(sq_a), sq_a], dim=1)


def _least(value: Tensor, num: int) -> Tensor:  # [A, B] -> [A, <= num]
    """Columns of about the ``num`` least values of each row, which are not negative.

    The least of each of some groups of columns, and the least of those: most of the
    least are in groups of their own. Non-negative floats are ordered as their bits
    are, and the last bits, which do not matter here, take the number of the column.
    """
    width = value.size(1)
    bits = (1 << (width - 1).bit_length()) - 1
    column = torch.arange(width, dtype=torch.int32, device=value.device)
    key = value.view(torch.int32).bitwise_and_(~bits).bitwise_or_(column)
    groups = min(width, _GROUPS * math.ceil(num / _GROUPS) * 4)
    key = key[:, : width // groups * groups].view(len(key), -1, groups).amin(1)
    return key.topk(min(num, groups), largest=False).values.long() & bits


def flat_within(value: Tensor, limit: Tensor, mask: Tensor | None = None) -> Tensor:
    """Positions of values that are at most their limits, in row-major order."""
    if value.device.type != "cpu":
        return torch.le(value, limit, out=mask).view(-1).nonzero().view(-1)
    # NumPy compares, and scans booleans, several times faster than torch.
    out = None if mask is None else mask.numpy()
    within = np.less_equal(value.numpy(), limit.numpy(), out=out)
    return torch.from_numpy(np.flatnonzero(within))


def sq_box_gap(lo: Tensor, hi: Tensor, other_lo: Tensor, other_hi: Tensor) -> Tensor:
    """Squared distances of boxes ``[..., B]`` from others."""
    gap = torch.maximum(lo - other_hi, other_lo - hi).clamp_(min=0)
    return gap.square_().sum(-1)


def widened(sq_reach: Tensor) -> Tensor:
    """A little beyond squared radii, to cover the rounding of a gap."""
    return sq_reach * (1.0 + 64.0 * _EPS)


def box_coordinates(w: Tensor) -> Tensor:  # [..., K] -> [..., B]
    """Coordinates used for boxes: the leading ones and the last."""
    lead = min(_BOX_AXES, w.size(-1) - 1)
    return torch.cat([w[..., :lead], w[..., -1:]], dim=-1)
