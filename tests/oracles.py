"""Laplacians and smoothing from their formulas, dense and in float64."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def adjacency(edge_index: NDArray[np.int64], weight: Array, num_nodes: int) -> Array:
    """Dense weights; repeated edges add, the diagonal is dropped."""
    W = np.zeros((num_nodes, num_nodes))
    np.add.at(W, tuple(edge_index), weight)
    np.fill_diagonal(W, 0.0)
    return W


def laplacian(W: Array, normalization: str | None) -> Array:
    """The table of the design, from the authors' definitions (``W_ii = 1``)."""
    if normalization is None:
        return np.diag(W.sum(1)) - W
    W = W + np.eye(len(W))
    D = W.sum(1)
    Wt = W / np.sqrt(np.outer(D, D))
    Dt = Wt.sum(1)
    if normalization == "density":
        return np.diag(Dt) - Wt
    L = np.eye(len(W)) - Wt / Dt[:, None]
    return (L + L.T) / 2


def lam_scale(W: Array, normalization: str | None) -> float:
    """Average degree, the self-weight counted, for the normalised forms."""
    return 1.0 if normalization is None else float(W.sum(1).mean() + 1.0)


def system(W: Array, lam: float, normalization: str | None) -> Array:
    """``I + lam L`` with the scaling of ``lam``."""
    strength = lam * lam_scale(W, normalization)
    return np.eye(len(W)) + strength * laplacian(W, normalization)


def smooth(W: Array, y_hat: Array, lam: float, normalization: str | None) -> Array:
    """The closed form (eq. 3.5)."""
    return np.linalg.solve(system(W, lam, normalization), y_hat)


def smallest_eigenvalue(W: Array, normalization: str | None) -> float:
    """Of the Laplacian itself, without the scaling of ``lam``."""
    return float(np.linalg.eigvalsh(laplacian(W, normalization))[0])
