"""Candidate search for a small batch of queries, by one pass over runs of points.

A box around a few unrelated queries covers almost all points, so ordering and boxing
the queries rules nothing out. Taken one by one they are far from most runs of points:
each run is multiplied only with the queries that may be close to it.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_glif.graph._decide import decide
from pyg_glif.graph._points import Points, product_rounding
from pyg_glif.graph._pruning import (
    Screen,
    Tile,
    box_coordinates,
    flat_within,
    sq_box_gap,
    widened,
)
from pyg_glif.graph._search import Pairs, finish

#: Numbers of queries for which a batch query is faster than the boxes of a screen.
BATCH_SIZES = range(2, 257)
# Leaves of the screen in a run: products that are worth a call.
_LEAVES = 64
_BLOCK_ENTRIES = 1 << 22  # float32 entries of one block of squared distances


class BatchQuery:
    """Bound coordinates of a screen's points about their mean, ready for products.

    The guarantee is that of :class:`~pyg_glif.graph._pruning.Screen`: no pair within
    its radius is left out.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        w, self._perm, self._length, self._lo, self._hi = screen.runs(_LEAVES)
        self._centre = w.mean(0)
        w = w - self._centre
        sq = w.square().sum(1, keepdim=True)
        self._most = float(sq.max())
        # One product gives |b|^2 - 2 a.b, without another pass over the block.
        b = torch.cat([w, sq], dim=1)
        # Fillers of the last run are infinitely far from every query.
        filler = b.new_zeros(len(self._lo) * self._length - len(b), b.size(1))
        filler[:, -1] = torch.inf
        self._runs = torch.cat([b, filler]).view(len(self._lo), self._length, -1)

    def pairs(self, others: Points, tau: float) -> Iterator[Pairs]:
        """Pairs of one of a few points of ``others`` and one of the screen's points."""
        points = self._screen.points
        tile, row, col = self._candidates(others)
        for measured in finish(others, points, tile, [(row, col)]):
            yield decide(others, points, *measured, tau)

    def _candidates(self, others: Points) -> tuple[Tile, Tensor, Tensor]:
        """Pairs that may be within the radius: rows in order, and nodes."""
        tile = self._screen.tile_of(others)
        position = box_coordinates(tile.w)
        gap = sq_box_gap(
            self._lo.unsqueeze(1), self._hi.unsqueeze(1), position, position
        )
        in_reach = gap <= widened(gap.new_tensor(tile.reach**2))  # [R, A]
        a = tile.w - self._centre
        sq_a = a.square().sum(1)
        rounding = 2.0 * product_rounding(a.size(1) + 1) * (sq_a + self._most)
        limit = (rounding - sq_a + tile.reach**2).unsqueeze(1)
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        step = max(1, _BLOCK_ENTRIES // (len(a) * self._length))
        pairs = [
            self._within(a, limit, part, k * step)
            for k, part in enumerate(in_reach.split(step))
        ]
        row, col = (torch.cat(part) for part in zip(*pairs, strict=True))
        order = row.argsort(stable=True)
        return tile, row[order], col[order]

    def _within(
        self, a: Tensor, limit: Tensor, in_reach: Tensor, first: int
    ) -> tuple[Tensor, Tensor]:  # in_reach: [R', A]
        """Candidate pairs of queries and the nodes of some runs, from run ``first``."""
        run, row = in_reach.nonzero(as_tuple=True)
        sizes = in_reach.sum(1).tolist()
        value = a.new_empty(len(row), self._length)
        parts = zip(
            a[row].split(sizes),
            self._runs[first : first + len(in_reach)],
            value.split(sizes),
            strict=True,
        )
        for part, b, out in parts:
            if len(part):
                torch.mm(part, b.mT, out=out)
        flat = flat_within(value, limit[row])
        pair = torch.div(flat, self._length, rounding_mode="floor")
        position = (run[pair] + first - pair) * self._length + flat
        return row[pair], self._perm[position]
