"""Smoothing from its formulas, in decimal arithmetic of 120 digits.

Floats are taken as the exact numbers they are. With condition numbers up to 1e60 the
results are right to far more digits than float64 has. Nothing here imports the package.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: An array of decimals.
Exact = NDArray[Any]
_DIGITS = 120


def exact(values: Any) -> Exact:
    """Floats as decimals, without rounding."""
    array = np.asarray(values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    out.ravel()[:] = [Decimal(float(v)) for v in array.ravel()]
    return out


@dataclass
class ExactSystem:
    """``diag(s) - T``, the matrix ``I + lam L`` of a graph given by its edges once."""

    i: NDArray[np.int64]
    j: NDArray[np.int64]
    s: Exact  # [N]
    t: Exact  # [E]

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return len(self.s)


@contextmanager
def digits() -> Iterator[None]:
    """Enough digits, inside a ``with`` block."""
    with localcontext() as context:
        context.prec = _DIGITS
        yield


def _row_sums(num_nodes: int, i: Any, j: Any, value: Exact) -> Exact:
    out = exact(np.zeros(num_nodes))
    np.add.at(out, i, value)
    np.add.at(out, j, value)
    return out


def exact_system(
    num_nodes: int,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    weight: Exact,
    lam: Decimal,
    normalization: str | None,
) -> ExactSystem:
    """The table of Laplacians, ``W_ii = 1`` in the normalised ones."""
    one = Decimal(1)
    deg = _row_sums(num_nodes, i, j, weight)
    if normalization is None:
        return ExactSystem(i, j, one + lam * deg, lam * weight)
    deg = deg + one
    lam = lam * (deg.sum() / Decimal(num_nodes))
    root = np.array([one / d.sqrt() for d in deg], dtype=object)
    v = weight * root[i] * root[j]
    total = _row_sums(num_nodes, i, j, v)
    if normalization == "density":
        return ExactSystem(i, j, one + lam * total, lam * v)
    inverse = one / (total + one / deg)
    t = lam * v * (inverse[i] + inverse[j]) / Decimal(2)
    return ExactSystem(i, j, one + lam * total * inverse, t)


def solve_dense(system: ExactSystem, y: Exact) -> Exact:  # [N, C]
    """Gaussian elimination with pivots."""
    size = system.num_nodes
    A = exact(np.zeros((size, size + y.shape[1])))
    A[np.arange(size), np.arange(size)] = system.s
    np.subtract.at(A, (system.i, system.j), system.t)
    np.subtract.at(A, (system.j, system.i), system.t)
    A[:, size:] = y
    for k in range(size):
        pivot = max(range(k, size), key=lambda row: abs(A[row, k]))
        if pivot != k:
            A[[k, pivot]] = A[[pivot, k]]
        below = [row for row in range(k + 1, size) if A[row, k]]
        if below:
            factor = A[below, k] / A[k, k]
            A[below, k:] = A[below, k:] - factor[:, None] * A[k, k:]
    for k in reversed(range(size)):
        A[k, size:] = A[k, size:] / A[k, k]
        if k:
            A[:k, size:] = A[:k, size:] - A[:k, k, None] * A[k, size:]
    return A[:, size:]


def solve_forest(system: ExactSystem, y: Exact) -> Exact:  # [N, C]
    """Elimination from the leaves of a graph without cycles, in linear time."""
    size = system.num_nodes
    neighbours: list[list[tuple[int, Decimal]]] = [[] for _ in range(size)]
    for i, j, t in zip(system.i.tolist(), system.j.tolist(), system.t, strict=True):
        neighbours[i].append((j, t))
        neighbours[j].append((i, t))
    parent: list[tuple[int, Decimal] | None] = [None] * size
    seen, order = np.zeros(size, dtype=bool), []
    for root in range(size):
        if seen[root]:
            continue
        seen[root] = True
        queue = [root]
        for node in queue:
            for other, t in neighbours[node]:
                if not seen[other]:
                    seen[other] = True
                    parent[other] = (node, t)
                    queue.append(other)
        order.extend(queue)
    s, f = system.s.copy(), y.copy()
    for node in reversed(order):
        above = parent[node]
        if above is not None:
            up, t = above
            s[up] = s[up] - t * t / s[node]
            f[up] = f[up] + f[node] * (t / s[node])
    for node in order:
        above = parent[node]
        if above is not None:
            f[node] = f[node] + above[1] * f[above[0]]
        f[node] = f[node] / s[node]
    return f


def solve_complete(num_nodes: int, weight: Decimal, lam: Decimal, y: Exact) -> Exact:
    """The complete graph with one weight: all three Laplacians give the same.

    The mean of a column stays, what is left of it shrinks by ``1 + lam n w``.
    """
    mean = y.sum(0) / Decimal(num_nodes)
    return mean + (y - mean) / (Decimal(1) + lam * weight * Decimal(num_nodes))


def error_norm(value: NDArray[np.floating], truth: Exact) -> NDArray[np.float64]:
    """Norm of the error of each column."""
    gap = exact(value) - truth
    squares = (gap * gap).sum(0)
    return np.array([float(square.sqrt()) for square in squares])
