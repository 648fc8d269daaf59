"""Nearest samples by brute force in float64, from the definition.

Nothing here imports the package.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SAME = 1e-13  # times the number of coordinates: distances that rounding tells apart


def brute_force_reach(dist: Array, k: int) -> Array:  # [N, M] -> [N]
    """The k-th smallest distance of each row, infinite if there are fewer."""
    if k > dist.shape[1]:
        return np.full(len(dist), math.inf)
    kth: Array = np.sort(dist, axis=1)[:, k - 1]
    return kth


def brute_force_nearest(
    z: Array,
    k: int,
    *,
    mutual: bool = False,
    tau: float = math.inf,
    batch: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], Array, Array]:
    """Edges sorted by (row, column), squared distances, and the scales of nodes."""
    squares = np.stack([((z - row) ** 2).sum(-1) for row in z])
    dist = np.sqrt(squares)
    np.fill_diagonal(dist, math.inf)
    if batch is not None:
        dist[batch[:, None] != batch[None]] = math.inf
    reach = brute_force_reach(dist, k)
    near = (dist <= reach[:, None] * (1.0 + _SAME * z.shape[1])) & np.isfinite(dist)
    inside = (near & near.T if mutual else near | near.T) & (dist <= tau)
    return np.stack(np.nonzero(inside)), squares[inside], np.minimum(reach, tau)


def exact_nearest(z: Array, k: int) -> set[tuple[int, int]]:
    """Pairs of which one is among the k nearest of the other, in exact arithmetic."""
    rows = [[Fraction(value) for value in row] for row in z.tolist()]
    found = set()
    for i, row in enumerate(rows):
        square = {
            j: sum((a - b) ** 2 for a, b in zip(row, other, strict=True))
            for j, other in enumerate(rows)
            if j != i
        }
        limit = sorted(square.values())[: min(k, len(square))][-1]
        for j in [j for j, value in square.items() if value <= limit]:
            found |= {(i, j), (j, i)}
    return found
