"""Hostile sets of points, and who is near whom by brute force.

Nothing here imports the package.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from .harness import Case

Array = NDArray[np.float64]


def hostile_points(case: Case, largest: int = 300) -> tuple[NDArray[np.floating], str]:
    """Points ``[N, D]`` in float32 or float64, and what they are."""
    size = case.pick([0, 1, 2, 3, 10, 60, 150, largest])
    width = case.pick([1, 2, 3, 8, 17, 300 if size <= 60 else 40])
    kind = case.pick(list(_KINDS))
    x = _KINDS[kind](case, size, width)
    words = [kind]
    if x.size and case.chance(0.3):
        x, word = _distorted(case, x)
        words.append(word)
    if x.size and case.chance(0.2):
        x = x[case.rng.integers(len(x), size=len(x))]
        words.append("duplicates")
    dtype = np.float32 if case.chance(0.5) else np.float64
    return x.astype(dtype), f"{' '.join(words)} {x.shape} {np.dtype(dtype)}"


def _isotropic(case: Case, size: int, width: int) -> Array:
    return case.rng.normal(size=(size, width))


def _clustered(case: Case, size: int, width: int) -> Array:
    centres = 10.0 * case.rng.normal(size=(4, width))
    noise = 10.0 ** case.rng.uniform(-3, 0) * case.rng.normal(size=(size, width))
    return centres[case.rng.integers(4, size=size)] + noise


def _lattice(case: Case, size: int, width: int) -> Array:
    return case.rng.integers(0, case.pick([2, 4, 10]), size=(size, width)) * 1.0


def _categorical(case: Case, size: int, width: int) -> Array:
    blocks = [
        np.eye(levels)[case.rng.integers(levels, size=size)]
        for levels in case.rng.integers(2, 6, size=min(width, 4))
    ]
    return np.concatenate(blocks, axis=1)


def _nearly_constant(case: Case, size: int, width: int) -> Array:
    """Most columns the same for all, or all but for their last digits."""
    x = np.tile(
        case.rng.normal(size=width) * 10.0 ** case.rng.integers(-3, 4), (size, 1)
    )
    noise = 10.0 ** case.rng.uniform(-12, -5, size=width)
    noise[case.rng.random(width) < 0.5] = 0.0
    x = x * (1.0 + noise * case.rng.normal(size=(size, width)))
    if case.chance(0.3):
        x[:, 0] = case.rng.normal(size=size)
    return x


def rare_points(case: Case, size: int) -> NDArray[np.floating]:
    """Columns that are the same for all but a few, whom a sample easily misses."""
    x = np.full((size, case.pick([20, 60, 130])), case.pick([0.0, 1.0, 0.1]))
    num = int(case.rng.integers(1, 6))
    where = case.rng.integers(size, size=num), case.rng.integers(x.shape[1], size=num)
    x[where] += 10.0 ** case.rng.uniform(-25, 0)
    return x.astype(case.pick([np.float32, np.float64]))


def _opposite(case: Case, size: int, width: int) -> Array:
    """Two clusters around opposite points: products of large numbers nearly cancel."""
    width = case.pick([64, 64, 400]) if 1 < size <= 200 else width
    side = case.rng.choice([-1.0, 1.0], size=(size, 1))
    noise = case.rng.uniform(0.1, 0.3) * case.rng.normal(size=(size, width))
    return side * case.pick([1.0, 0.7, 1 / 3]) * np.ones(width) + noise


def _no_features(case: Case, size: int, width: int) -> Array:
    return np.zeros((size, 0))


def _magnitudes(case: Case, size: int, width: int) -> Array:
    """Rows whose sizes differ by many powers of ten."""
    scale = 10.0 ** case.rng.uniform(-15, 15, size=(size, 1))
    return scale * case.rng.normal(size=(size, width))


_KINDS = {
    "isotropic": _isotropic,
    "clustered": _clustered,
    "lattice": _lattice,
    "categorical": _categorical,
    "nearly constant": _nearly_constant,
    "opposite": _opposite,
    "no features": _no_features,
    "magnitudes": _magnitudes,
}


def _distorted(case: Case, x: Array) -> tuple[Array, str]:
    """Other units, a far origin, or columns in unlike units."""
    kind = case.pick(["scaled", "offset", "columns"])
    if kind == "scaled":
        return x * 10.0 ** case.rng.uniform(-15, 15), kind
    if kind == "offset":
        return x + 1e6, kind
    return x * 10.0 ** case.rng.uniform(-15, 15, size=x.shape[1]), kind


def hostile_batch(case: Case, size: int) -> NDArray[np.int64] | None:
    """Graph numbers, unsorted, few, many or huge; often none."""
    kind = case.pick(["none", "none", "few", "sparse", "huge", "own"])
    if kind == "none":
        return None
    if kind == "few":
        return case.rng.integers(0, 4, size=size)
    if kind == "own":
        return case.rng.permutation(size).astype(np.int64)
    high = 2**63 - 1 if kind == "huge" else 10**12
    ids = case.rng.integers(0, high, size=5)
    ids[0] = high
    return ids[case.rng.integers(5, size=size)]


class Distances:
    """Distances between two sets of points, by definition, in float64.

    Float64 sums depend on their order in the last bits. ``low`` and ``high`` are the
    smallest and largest of several orders: between them either verdict is right.
    """

    def __init__(self, a: NDArray[np.floating], b: NDArray[np.floating]) -> None:
        shape = (len(a), len(b))
        self.low, self.high = np.zeros(shape), np.zeros(shape)
        self.square = np.zeros(shape)
        if a.shape[1] == 0:
            return
        right = b.astype(np.float64)
        for i, row in enumerate(a.astype(np.float64)):
            squares = np.square(row - right)
            sums = [
                squares.sum(1),
                np.cumsum(squares, axis=1)[:, -1],
                np.cumsum(squares[:, ::-1], axis=1)[:, -1],
                squares.astype(np.longdouble).sum(1).astype(np.float64),
                torch.from_numpy(squares).sum(1).numpy(),
            ]
            self.square[i] = sums[3]
            self.low[i] = np.sqrt(np.minimum.reduce(sums))
            self.high[i] = np.sqrt(np.maximum.reduce(sums))


def hostile_radius(case: Case, dist: Array) -> float:
    """A radius on a tie or one unit in the last place beside it, or an extreme one."""
    kind = case.pick(["tie", "tie", "above", "below", "between", "zero", "all", "huge"])
    if kind == "zero" or dist.size == 0:
        return 0.0
    if kind == "all":
        return float("inf")
    if kind == "huge":
        return case.pick([1e155, 1e160, 1e200, 1e308])
    flat = np.sort(dist.ravel())
    # Small distances more often: graphs of everybody say little.
    place = int(len(flat) * case.rng.random() ** 2)
    tau = float(flat[place])
    if kind == "between":
        return float((tau + flat[min(place + 1, len(flat) - 1)]) / 2)
    return float(
        {"above": np.nextafter(tau, np.inf), "below": np.nextafter(tau, 0)}.get(
            kind, tau
        )
    )
