"""Smoothing in many digits, from the formulas, with mpmath alone.

Weights, outputs and ``lam`` are taken as the exact numbers that floats are.
"""

from collections.abc import Sequence

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Exact = list[mpmath.mpf]

# Condition numbers in the tests reach 1e140; what is left must still be exact.
_DIGITS = 260
_SELF_WEIGHT = 1


def smooth(W: Array, y: Array, lam: float, normalization: str | None) -> list[Exact]:
    """Columns of the closed form (eq. 3.5), by elimination."""
    with mpmath.workdps(_DIGITS):
        size = len(W)
        V, a, scale = _laplacian(mpmath.matrix(W.tolist()), normalization)
        strength = mpmath.mpf(lam) * scale
        M = mpmath.matrix(size, size)
        for i in range(size):
            for j in range(size):
                M[i, j] = -strength * V[i, j]
            M[i, i] = 1 + strength * a[i]
        columns = [mpmath.matrix(y[:, c].tolist()) for c in range(y.shape[1])]
        return [list(mpmath.lu_solve(M, column)) for column in columns]


def _laplacian(
    W: mpmath.matrix, normalization: str | None
) -> tuple[mpmath.matrix, Exact, mpmath.mpf]:
    """Negated rest, diagonal and scale of ``lam``."""
    size = W.rows

    def row_sums(V: mpmath.matrix) -> Exact:
        return [mpmath.fsum(V[i, j] for j in range(size)) for i in range(size)]

    deg = row_sums(W)
    if normalization is None:
        return W, deg, mpmath.mpf(1)
    deg = [d + _SELF_WEIGHT for d in deg]
    scale = mpmath.fsum(deg) / size
    V = mpmath.matrix(size, size)
    for i in range(size):
        for j in range(size):
            V[i, j] = W[i, j] / mpmath.sqrt(deg[i] * deg[j])
    total = row_sums(V)
    if normalization == "density":
        return V, total, scale
    inverse = [1 / (total[i] + _SELF_WEIGHT / deg[i]) for i in range(size)]
    for i in range(size):
        for j in range(size):
            V[i, j] *= (inverse[i] + inverse[j]) / 2
    return V, [t * inv for t, inv in zip(total, inverse, strict=True)], scale


def smooth_grounded(inner: Array, outer: Array, rhs: Array, lam: float) -> list[Exact]:
    """``(I + lam (diag(a) - V)) f = rhs`` with weights ``outer`` beyond the rows."""
    with mpmath.workdps(_DIGITS):
        size, strength = len(inner), mpmath.mpf(lam)
        M = mpmath.matrix((-inner).tolist()) * strength
        for i in range(size):
            row = [*inner[i].tolist(), *outer[i].tolist()]
            M[i, i] = 1 + strength * mpmath.fsum(map(mpmath.mpf, row))
        columns = [mpmath.matrix(rhs[:, c].tolist()) for c in range(rhs.shape[1])]
        return [list(mpmath.lu_solve(M, column)) for column in columns]


def smooth_complete(y: Sequence[float], weight: float, lam: float) -> Exact:
    """All nodes linked with all others, one weight.

    The same for all three Laplacians: degrees are equal, and the normalised weight
    times the average degree is the weight again.
    """
    with mpmath.workdps(_DIGITS):
        values = [mpmath.mpf(v) for v in y]
        pull = mpmath.mpf(lam) * len(y) * mpmath.mpf(weight)
        mean = mpmath.fsum(values) / len(y)
        return [(v + pull * mean) / (1 + pull) for v in values]


def smooth_bipartite(
    left: Sequence[float],
    right: Sequence[float],
    weight: float,
    lam: float,
    normalization: str | None,
) -> Exact:
    """Two sides, linked with each other completely; one to many is a star."""
    with mpmath.workdps(_DIGITS):
        a, b, w = len(left), len(right), mpmath.mpf(weight)
        own = {"left": b * w, "right": a * w}
        pull, diagonal = (
            mpmath.mpf(lam) * w,
            {side: mpmath.mpf(lam) * d for side, d in own.items()},
        )
        if normalization is not None:
            assert normalization == "density"
            deg = {side: d + _SELF_WEIGHT for side, d in own.items()}
            scale = (a * deg["left"] + b * deg["right"]) / (a + b)
            pull *= scale / mpmath.sqrt(deg["left"] * deg["right"])
            diagonal = {"left": b * pull, "right": a * pull}
        ys = [[mpmath.mpf(v) for v in side] for side in (left, right)]
        s, t = 1 + diagonal["left"], 1 + diagonal["right"]
        # Sums S, T of the two sides: s S - a pull T = sum(left), and vice versa.
        sums = [mpmath.fsum(side) for side in ys]
        det = s * t - a * b * pull * pull
        S = (t * sums[0] + a * pull * sums[1]) / det
        T = (s * sums[1] + b * pull * sums[0]) / det
        out = [(v + pull * T) / s for v in ys[0]]
        return out + [(v + pull * S) / t for v in ys[1]]


def distance(value: Sequence[float], exact: Exact) -> mpmath.mpf:
    """Euclidean distance of floats to an exact solution."""
    with mpmath.workdps(_DIGITS):
        pairs = zip(value, exact, strict=True)
        return mpmath.sqrt(mpmath.fsum((mpmath.mpf(v) - e) ** 2 for v, e in pairs))
