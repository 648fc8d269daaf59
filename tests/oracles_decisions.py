"""Measures of decisions, from their definitions, in NumPy."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def flip_consistency(outputs: Floats) -> float:
    """Share of rows whose signs are all the same."""
    same = [len({value > 0 for value in row}) == 1 for row in outputs.tolist()]
    return sum(same) / len(same)


def pairs(z: Floats, tau: float, group: NDArray[np.int64]) -> set[tuple[int, int]]:
    """All pairs within a radius whose groups differ, one by one."""
    return {
        (i, j)
        for i in range(len(z))
        for j in range(i + 1, len(z))
        if group[i] != group[j] and np.sqrt(((z[i] - z[j]) ** 2).sum()) <= tau
    }


def disagreement(outputs: Floats, pairs: set[tuple[int, int]]) -> float:
    """Share of pairs with different decisions."""
    return float(np.mean([(outputs[i] > 0) != (outputs[j] > 0) for i, j in pairs]))


def auc(outputs: Floats, y: NDArray[np.int64]) -> float:
    """Chance that a positive is above a negative, half for ties."""
    above = outputs[y == 1][:, None] - outputs[y == 0][None]
    return float(np.mean((above > 0) + 0.5 * (above == 0)))


def calibration_error(p: Floats, y: NDArray[np.int64], num_bins: int) -> float:
    """Weighted mean distance of confidence and frequency, in bins of equal width."""
    bins = np.minimum((p * num_bins).astype(int), num_bins - 1)
    total = 0.0
    for k in range(num_bins):
        here = bins == k
        if here.any():
            total += here.mean() * abs(p[here].mean() - y[here].mean())
    return float(total)
