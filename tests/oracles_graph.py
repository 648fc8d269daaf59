"""Distances and annotators in NumPy, from their definitions.

Nothing here imports the package.
"""

import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mahalanobis(x1: Array, x2: Array, sigma: Array) -> Array:
    """``sqrt((a - b)' sigma (a - b))``, pair by pair."""
    out = np.zeros((len(x1), len(x2)))
    for i, a in enumerate(x1):
        for j, b in enumerate(x2):
            out[i, j] = math.sqrt(max((a - b) @ sigma @ (a - b), 0.0))
    return out


def complement_projector(basis: Array) -> Array:
    """Dense projector onto what is orthogonal to every row of ``basis``."""
    return np.eye(basis.shape[1]) - np.linalg.pinv(basis) @ basis


def annotator_weights(
    annotators: list[list[tuple[int, int, Fraction]]], combine: str
) -> dict[tuple[int, int], Fraction]:
    """Positive weight of each ordered pair, in exact arithmetic."""
    votes: dict[frozenset[int], list[Fraction]] = defaultdict(
        lambda: [Fraction(0)] * len(annotators)
    )
    for k, judgements in enumerate(annotators):
        for i, j, weight in judgements:
            pair = votes[frozenset((i, j))]
            pair[k] = max(pair[k], weight)
    out = {}
    for pair, given in votes.items():
        if combine == "any":
            weight = max(given)
        elif combine == "mean":
            weight = sum(given, Fraction(0)) / len(given)
        else:
            supported = [
                w for w in given if 2 * sum(v >= w for v in given) > len(given)
            ]
            weight = max(supported, default=Fraction(0))
        if weight > 0:
            i, j = sorted(pair)
            out[i, j] = out[j, i] = weight
    return out
