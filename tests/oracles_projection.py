"""The projection onto Lipschitz outputs, from its definition."""

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Array = NDArray[np.float64]


def euclidean(x: Array) -> Array:
    """All distances between rows."""
    difference = x[:, None, :] - x[None, :, :]
    return np.sqrt((difference**2).sum(-1))


def outputs_apart(f: Array) -> Array:
    """All distances between outputs, ``[N]`` or ``[N, C]``."""
    return euclidean(f.reshape(len(f), -1))


def largest_violation(dist: Array, f: Array, lipschitz: float) -> float:
    """max ||f_i - f_j|| - L d_ij over all pairs, at least zero."""
    i, j = np.triu_indices(len(f), 1)
    excess = outputs_apart(f)[i, j] - lipschitz * dist[i, j]
    return float(excess.max(initial=0.0))


def projection(dist: Array, y: Array, lipschitz: float) -> Array:
    """The whole problem, every pair a constraint, by an interior-point method."""
    rows = y.reshape(len(y), -1)
    f = cp.Variable(rows.shape)
    i, j = np.triu_indices(len(y), 1)
    constraints = []
    if len(i):
        apart = cp.norm(f[i] - f[j], 2, axis=1)
        constraints = [apart <= lipschitz * dist[i, j]]
    objective = cp.Minimize(cp.sum_squares(f - rows))
    cp.Problem(objective, constraints).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9
    )
    return np.asarray(f.value).reshape(y.shape)


def kkt_errors(
    dist: Array,
    y: Array,
    f: Array,
    lipschitz: float,
    pairs: NDArray[np.int64],
    multipliers: Array,
) -> dict[str, float]:
    """How far the conditions of optimality are from being met, each in output units.

    Samples at distance zero form groups, inside which multipliers are free: only the
    sum of a group's conditions has to hold.
    """
    y, f = y.reshape(len(y), -1), f.reshape(len(f), -1)
    u = multipliers.reshape(len(multipliers), y.shape[1])
    i, j = pairs
    force = y - f
    np.subtract.at(force, i, u)
    np.add.at(force, j, u)
    zero = coo_matrix(dist * lipschitz == 0)
    num, group = connected_components(zero, directed=False)
    total = np.zeros((num, y.shape[1]))
    np.add.at(total, group, force)
    apart, radius = f[i] - f[j], lipschitz * dist[i, j]
    length = np.sqrt((u**2).sum(1))
    # A multiplier acts along the difference, and only where the limit is reached.
    along = length * np.sqrt((apart**2).sum(1)) - (u * apart).sum(1)
    idle = length * np.abs(radius - np.sqrt((apart**2).sum(1)))
    return {
        "stationarity": float(np.abs(total).max(initial=0.0)),
        "direction": float(along.max(initial=0.0)),
        "complementarity": float(idle.max(initial=0.0)),
        "feasibility": largest_violation(dist, f, lipschitz),
    }
