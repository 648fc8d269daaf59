"""The paper's statements in NumPy and SciPy, written from the formulas.

Nothing here imports the package. Equation and theorem numbers are those of
arXiv 2110.13796.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

Array = NDArray[np.float64]


# --- Laplacians (section 3) -------------------------------------------------


def laplacian(W: Array, normalization: str | None, self_weight: float = 1.0) -> Array:
    """Dense Laplacian of a graph without a stored diagonal, symmetrised."""
    if normalization is None:
        return np.diag(W.sum(1)) - W
    full = W + self_weight * np.eye(len(W))
    deg = full.sum(1)
    Wt = full / np.sqrt(np.outer(deg, deg))
    deg_t = Wt.sum(1)
    if normalization == "density":
        return np.diag(deg_t) - Wt
    L = np.eye(len(W)) - Wt / deg_t[:, None]
    return (L + L.T) / 2


def average_degree(W: Array, self_weight: float = 1.0) -> float:
    """Average of the degrees that the normalised Laplacians use."""
    return float((W.sum(1) + self_weight).mean())


def effective_lam(W: Array, lam: float, normalization: str | None) -> float:
    """The paper multiplies lambda by the average degree for GLIF-NRW."""
    return lam if normalization is None else lam * average_degree(W)


def smooth(
    W: Array, y_hat: Array, lam: float, normalization: str | None = None
) -> Array:
    """Eq. 3.3 and 3.5: solve ``(I + lam L) f = y_hat``."""
    L = laplacian(W, normalization)
    system = np.eye(len(W)) + effective_lam(W, lam, normalization) * L
    return np.linalg.solve(system, y_hat)


def star(num_leaves: int) -> Array:
    """Node 0 joined to every leaf with weight 1."""
    W = np.zeros((num_leaves + 1, num_leaves + 1))
    W[0, 1:] = W[1:, 0] = 1.0
    return W


def edges(W: Array) -> tuple[NDArray[np.int64], Array]:
    """Both directions of every non-zero entry, and their weights."""
    row, col = np.nonzero(W)
    return np.stack([row, col]), W[row, col]


# --- Bregman divergences (section 3.2.4 and the appendix) -------------------


def kl(p: Array, q: Array) -> float:
    """KL divergence of class probabilities."""
    return float(np.sum(p * (np.log(p) - np.log(q))))


def bernoulli_kl(p: Array, q: Array) -> float:
    """KL divergence of independent coins."""
    return kl(p, q) + kl(1 - p, 1 - q)


def generalised_kl(p: Array, q: Array) -> float:
    """Bregman divergence of ``sum y log y - y`` on positive vectors."""
    return kl(p, q) - float(p.sum() - q.sum())


def squared_error(p: Array, q: Array) -> float:
    """Bregman divergence of ``sum y**2``."""
    return float(np.sum((p - q) ** 2))


#: name -> (divergence, map from free parameters to the output space)
SPACES: dict[str, tuple[Callable[[Array, Array], float], Callable[[Array], Array]]] = {
    "squared error": (squared_error, lambda free: free),
    "KL": (kl, special.softmax),
    "Bernoulli KL": (bernoulli_kl, special.expit),
    "generalised KL": (generalised_kl, np.exp),
}


def minimise(objective: Callable[[Array], float], start: Array) -> Array:
    """Smooth unconstrained minimisation to about 1e-7."""
    tight = {"gtol": 1e-9, "maxiter": 2000}
    found = optimize.minimize(objective, start, method="BFGS", options=tight)
    return np.asarray(found.x)


def barycentre(
    space: str, points: Array, weights: Array, argument: str
) -> Array:  # points: [J, C]
    """Minimises ``sum_j w_j D(y, z_j)`` over the first or second argument of D."""
    divergence, to_outputs = SPACES[space]

    def objective(free: Array) -> float:
        y = to_outputs(free)
        pairs = [(y, z) if argument == "first" else (z, y) for z in points]
        return float(
            sum(w * divergence(*pair) for w, pair in zip(weights, pairs, strict=True))
        )

    return to_outputs(minimise(objective, np.zeros(points.shape[1])))


def kl_update(y_hat_i: Array, others: Array, weights: Array, lam: float) -> Array:
    """One coordinate update with KL: ``KL(y, y_hat_i) + lam sum_j w_j KL(y, y_j)``."""
    points = np.vstack([y_hat_i, others])
    return barycentre("KL", points, np.concatenate([[1.0], lam * weights]), "first")


def joint_kl(W: Array, y_hat: Array, lam: float) -> Array:
    """Minimises eq. 3.9 as printed, over all samples at once."""
    num_nodes, num_classes = y_hat.shape

    def objective(free: Array) -> float:
        y = special.softmax(free.reshape(num_nodes, num_classes), axis=1)
        fit = sum(kl(y[i], y_hat[i]) for i in range(num_nodes))
        pairs = zip(*np.nonzero(W), strict=True)
        return fit + lam / 2 * sum(W[i, j] * kl(y[i], y[j]) for i, j in pairs)

    free = minimise(objective, np.log(y_hat).ravel())
    return special.softmax(free.reshape(num_nodes, num_classes), axis=1)


# --- The limit of the penalty (theorem 4.1) ---------------------------------

#: E[f'(x)^2 p(x)] and E[f'(x)^2] for f = sin(2 pi x), p = 1 + cos(2 pi x) / 2.
LIMIT_WITH_DENSITY = 4 * np.pi**2 * (1 / 2 + 3 / 32)  # 23.44
LIMIT_WITHOUT_DENSITY = 4 * np.pi**2 / 2  # 19.74


def circle_sample(num_points: int, rng: np.random.Generator | None = None) -> Array:
    """Sorted points on [0, 1) with density ``1 + cos(2 pi x) / 2``.

    Without ``rng`` the quantiles ``(i + 1/2) / n``: the same limit, no sampling noise.
    """
    if rng is None:
        level = (np.arange(num_points) + 0.5) / num_points
    else:
        level = np.sort(rng.random(num_points))
    x = level.copy()
    for _ in range(50):  # Newton on the distribution function, which is increasing
        value = x + np.sin(2 * np.pi * x) / (4 * np.pi) - level
        x -= value / (1 + np.cos(2 * np.pi * x) / 2)
    return x


def circle_edges(x: Array, radius: float) -> tuple[NDArray[np.int64], Array]:
    """Pairs within ``radius`` along the circle, and their squared distances."""
    num_points, rows, cols, sq_dists = len(x), [], [], []
    for step in range(1, num_points // 2):
        row = np.arange(num_points)
        col = (row + step) % num_points
        dist = (x[col] - x[row]) % 1.0
        near = dist <= radius
        if not near.any():
            break
        rows += [row[near], col[near]]
        cols += [col[near], row[near]]
        sq_dists += [dist[near] ** 2] * 2
    edge_index = np.stack([np.concatenate(rows), np.concatenate(cols)])
    return edge_index, np.concatenate(sq_dists)


def circle_penalties(
    x: Array, edge_index: NDArray[np.int64], weight: Array
) -> dict[str | None, float]:
    """``f' L f`` of the three Laplacians for f = sin(2 pi x), edge by edge."""
    f = np.sin(2 * np.pi * x)
    row, col = edge_index
    square = (f[row] - f[col]) ** 2
    deg = np.bincount(row, weight, len(x)) + 1.0
    tilde = weight / np.sqrt(deg[row] * deg[col])
    deg_tilde = np.bincount(row, tilde, len(x)) + 1.0 / deg
    walk = tilde / deg_tilde[row]
    stay = 1.0 / (deg * deg_tilde)
    return {
        None: float(np.sum(weight * square) / 2),
        "density": float(np.sum(tilde * square) / 2),
        "nrw": float(np.sum((1 - stay) * f**2) - np.sum(walk * f[row] * f[col])),
    }
