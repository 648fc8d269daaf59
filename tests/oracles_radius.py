"""Radius graphs by brute force in float64, from the definition.

Nothing here imports the package.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def brute_force_distances(z: Array) -> Array:  # [N, D] -> [N, N]
    """Euclidean distances of all pairs, from differences."""
    return np.sqrt(((z[:, None] - z[None]) ** 2).sum(-1))


def brute_force_edges(
    z: Array, tau: float, batch: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], Array]:
    """Edges sorted by (row, column), and their squared distances."""
    squares = np.stack([((z - row) ** 2).sum(-1) for row in z])
    inside = np.sqrt(squares) <= tau
    np.fill_diagonal(inside, False)
    if batch is not None:
        inside &= batch[:, None] == batch[None]
    return np.stack(np.nonzero(inside)), squares[inside]
