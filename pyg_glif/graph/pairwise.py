"""Pairwise distances, a tile at a time, with a bound on their rounding error.

Matrix products give squared distances quickly but not to the last digit. A tile
carries a bound on that error, and gives the exact distances of the few pairs for
which it matters.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_features
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import exact_squares
from pyg_glif.graph._points import Points, as_distance, coordinates


class DistanceTile(NamedTuple):
    """Distances between some rows and some columns, times the scale of their owner."""

    sq_dist: Tensor  # [A, B], off by at most ``error``
    error: Tensor  # [A, B]
    exact: Callable[[Tensor, Tensor], Tensor]  # positions [K], [K] -> dist [K]


class EmbeddedDistances:
    """Euclidean distances of coordinates, by matrix products in float32.

    Those in tiles are multiplied by ``scale``, but for the exact ones.
    """

    def __init__(self, z: Tensor) -> None:  # [N, D]
        self._points = Points.from_embedding(z, None)
        self.scale = self._points.scale

    @property
    def z(self) -> Tensor:
        """The coordinates."""
        return self._points.z

    def tile(self, rows: slice, cols: slice) -> DistanceTile:
        """Squared distances from norms and inner products."""
        y, sq_norm = self._points.y, self._points.sq_norm
        norms = sq_norm[rows].unsqueeze(1) + sq_norm[cols]
        sq_dist = torch.addmm(norms, y[rows], y[cols].mT, alpha=-2.0)
        # A few units more than the product itself needs, for what is done with it.
        error = self._points.error(norms) + 8 * torch.finfo(torch.float32).eps * norms

        def exact(r: Tensor, c: Tensor) -> Tensor:
            points, i, j = self._points, r + rows.start, c + cols.start
            return exact_squares(points, points, i, j).sqrt_().div_(self.scale)

        return DistanceTile(sq_dist, error, exact)


class CallableDistances:
    """A black-box distance, called once per tile."""

    scale = 1.0

    def __init__(self, x: Tensor, distance: FairDistance) -> None:  # [N, F]
        self._x, self._distance = x, distance

    def tile(self, rows: slice, cols: slice) -> DistanceTile:
        """Squares of what the function returns; ``error`` covers their rounding."""
        dist = self._distance(self._x[rows], self._x[cols]).double()
        sq_dist = dist.square()
        error = sq_dist * (8 * torch.finfo(torch.float64).eps)
        return DistanceTile(sq_dist, error, lambda r, c: dist[r, c])


PairDistances = EmbeddedDistances | CallableDistances


def pair_distances(x: Tensor, distance: FairDistance | None) -> PairDistances:
    """Fair distances between the rows of ``x``."""
    x = check_features("x", x, distance).detach()
    distance = as_distance(distance)
    if not distance.is_embedding:
        return CallableDistances(x, distance)
    return EmbeddedDistances(coordinates(distance, x))


def slices(start: int, stop: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most ``size``."""
    for left in range(start, stop, size):
        yield slice(left, min(left + size, stop))
