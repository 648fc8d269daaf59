"""Fairness metrics in NumPy, pair by pair from their definitions.

Nothing here imports the package.
"""

import itertools
import math
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def members(group: Ints) -> dict[int, list[int]]:
    """Rows of each group."""
    out: dict[int, list[int]] = defaultdict(list)
    for row, label in enumerate(group.tolist()):
        out[label].append(row)
    return dict(out)


def prediction_consistency(label: Ints, group: Ints) -> float:
    """Share of groups of at least two rows that hold one label."""
    agree = [
        len({int(label[i]) for i in rows}) == 1
        for rows in members(group).values()
        if len(rows) > 1
    ]
    return sum(agree) / len(agree)


def group_std(y: Array, group: Ints) -> Array:
    """Unbiased standard deviation of each group, averaged."""
    parts = [
        y[rows].std(axis=0, ddof=1) for rows in members(group).values() if rows[1:]
    ]
    return np.mean(parts, axis=0)


def group_gap(y: Array, sensitive: Ints) -> Array:
    """Second mean minus first, or largest minus smallest."""
    means = [y[rows].mean(axis=0) for _, rows in sorted(members(sensitive).items())]
    if len(means) == 2:
        return np.asarray(means[1] - means[0])
    return np.asarray(np.max(means, axis=0) - np.min(means, axis=0))


def euclidean(a: Array, b: Array) -> float:
    """Distance of two rows, squares added without rounding on the way."""
    return math.sqrt(
        math.fsum((float(p) - float(q)) ** 2 for p, q in zip(a, b, strict=True))
    )


def violations(dist: Array, y: Array, lipschitz: float) -> list[tuple[int, int]]:
    """Pairs whose outputs are farther apart than the constant allows."""
    pairs = itertools.combinations(range(len(y)), 2)
    return [(i, j) for i, j in pairs if euclidean(y[i], y[j]) > lipschitz * dist[i, j]]


def bin_of(value: float, edges: list[float]) -> int | None:
    """Number of the bin, the last one closed on both sides."""
    for b, (left, right) in enumerate(itertools.pairwise(edges)):
        if left <= value < right or (b == len(edges) - 2 and value == right):
            return b
    return None


def distances(x: Array) -> Array:
    """All pairs."""
    return np.array([[euclidean(a, b) for b in x] for a in x])


def ratios(y: Array, edge_index: Ints, sq_dist: Array) -> Array:
    """Output difference per distance of each edge."""
    out = []
    for (i, j), sq in zip(edge_index.T, sq_dist, strict=True):
        gap = euclidean(y[i], y[j])
        out.append(0.0 if gap == 0 else math.inf if sq == 0 else gap / math.sqrt(sq))
    return np.array(out)


def knn_deviation(dist: Array, y: Array, k: int) -> Array:
    """Mean output of the nearest others by going through every choice among ties."""
    out = np.zeros_like(y)
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        reach = sorted(dist[i, others])[k - 1]
        inside = [j for j in others if dist[i, j] < reach]
        tied = [j for j in others if dist[i, j] == reach]
        choices = itertools.combinations(tied, k - len(inside))
        means = [y[[*inside, *choice]].mean(axis=0) for choice in choices]
        out[i] = np.abs(y[i] - np.mean(means, axis=0))
    return out


def energy(y: Array, edge_index: Ints, weight: Array) -> float:
    """Half the weighted squares over directed edges."""
    return 0.5 * sum(
        float(w) * euclidean(y[i], y[j]) ** 2
        for (i, j), w in zip(edge_index.T, weight, strict=True)
    )
