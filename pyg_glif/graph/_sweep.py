"""Candidates of a few points, by one pass over all others without an order.

A box around a few newcomers who have nothing to do with each other holds everybody,
so ordering and boxing them rules nothing out. What is left is one product over the
bound coordinates, in blocks that stay in cache.
"""

import math

import numpy as np
import torch
from torch import Tensor

from pyg_glif.graph._ordering import bound_coordinates
from pyg_glif.graph._points import Points, product_rounding
from pyg_glif.graph._screen import Tile

#: Numbers of rows for which a sweep is faster than the boxes of a screen.
SWEPT = range(2, 257)
_BLOCK_ENTRIES = 1 << 20  # float32 entries of one block of squared distances


class Sweep:
    """Bound coordinates of points about their mean, ready for products.

    The guarantee is that of :class:`~pyg_glif.graph._screen.Screen`: no pair within
    ``tau`` is left out.
    """

    def __init__(self, points: Points, tau: float, basis: Tensor) -> None:
        self.points = points
        self._basis, self._tau = basis, tau
        w, self._factor, self._moved = bound_coordinates(points, basis)
        self._largest = math.sqrt(float(points.sq_norm.max()))
        self._centre = w.mean(0)
        w -= self._centre
        sq = w.square().sum(1, keepdim=True)
        self._most = float(sq.max())
        # One product gives |b|^2 - 2 a.b, without another pass over the block.
        self._b = torch.cat([w, sq], dim=1)

    def candidates(self, others: Points) -> tuple[Tile, Tensor, Tensor]:
        """Pairs that may be within the radius: rows in order, and nodes."""
        w, _, moved = bound_coordinates(others, self._basis)
        largest = math.sqrt(float(others.sq_norm.max()))
        # The sum of the largest norms stands in for an infinite radius.
        reach = min(self._tau * self.points.scale, self._largest + largest)
        reach = self._factor * reach + self._moved + moved
        a = w - self._centre
        sq_a = a.square().sum(1)
        rounding = 2.0 * product_rounding(a.size(1) + 1) * (sq_a + self._most)
        limit = (rounding - sq_a + reach**2).unsqueeze(1)
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        width = max(1, _BLOCK_ENTRIES // len(a))
        found = [
            _flat(torch.mm(a, b.mT) <= limit, k * width)
            for k, b in enumerate(self._b.split(width))
        ]
        row, col = (torch.cat(part) for part in zip(*found, strict=True))
        order = row.argsort(stable=True)
        rows = torch.arange(len(a), device=a.device)
        return Tile(rows, w, moved, reach), row[order], col[order]


def _flat(mask: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of what is true, in row-major order."""
    if mask.device.type == "cpu":
        # NumPy's scan of booleans is several times faster than torch's.
        flat = torch.from_numpy(np.flatnonzero(mask.numpy()))
    else:
        flat = mask.view(-1).nonzero().view(-1)
    row = torch.div(flat, mask.size(1), rounding_mode="floor")
    return row, flat - row * mask.size(1) + start
