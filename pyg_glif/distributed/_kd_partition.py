"""A partition of space into parts with about equally many samples."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Coordinates that cuts are made along: the leading ones and the last.
_AXES = 16
# Spreads positions evenly over [0, 1): duplicates are cut by these.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Splitters:
    """A k-d tree over a sample; leaves are numbered from left to right.

    Samples on a cut go left or right by a number of their own, so that no number of
    duplicates makes a leaf too large.
    """

    axis: NDArray[np.int64]  # [nodes], -1 at a leaf
    value: NDArray[np.float64]  # [nodes]
    tie: NDArray[np.float64]  # [nodes]
    child: NDArray[np.int64]  # [nodes, 2]; at a leaf its number

    @classmethod
    def of(
        cls, w: NDArray[np.float32], position: NDArray[np.int64], num_leaves: int
    ) -> "Splitters":
        """The tree of bound coordinates ``w`` of samples at some positions."""
        coords, tie = _coords(w), ties(position)
        nodes: list[tuple[int, float, float, int, int]] = []
        leaves = 0

        def grow(rows: NDArray[np.int64], count: int) -> int:
            nonlocal leaves
            node = len(nodes)
            nodes.append((-1, 0.0, 0.0, 0, 0))
            if count == 1 or len(rows) < 2:
                nodes[node] = (-1, 0.0, 0.0, leaves, leaves + count)
                leaves += count
                return node
            axis = int(coords[rows].var(0).argmax())
            rows = rows[np.lexsort((tie[rows], coords[rows, axis]))]
            left = (count + 1) // 2
            cut = min(max(1, len(rows) * left // count), len(rows) - 1)
            value, last = coords[rows[cut - 1], axis], tie[rows[cut - 1]]
            low = grow(rows[:cut], left)
            high = grow(rows[cut:], count - left)
            nodes[node] = (axis, float(value), float(last), low, high)
            return node

        grow(np.arange(len(w)), num_leaves)
        columns = list(zip(*nodes, strict=True))
        child = np.array([columns[3], columns[4]], dtype=np.int64).T
        return cls(
            np.array(columns[0], dtype=np.int64),
            np.array(columns[1]),
            np.array(columns[2]),
            child,
        )

    def leaf(
        self, w: NDArray[np.float32], position: NDArray[np.int64]
    ) -> NDArray[np.int64]:  # [N, M + 1], [N] -> [N]
        """The leaf of each sample."""
        coords, tie = _coords(w), ties(position)
        out = np.empty(len(w), dtype=np.int64)
        waiting = [(0, np.arange(len(w)))]
        while waiting:
            node, rows = waiting.pop()
            if self.axis[node] < 0:
                first, stop = self.child[node]
                # A leaf of the sample may stand for several: they share its samples.
                share = (tie[rows] * (stop - first)).astype(np.int64)
                out[rows] = first + share
                continue
            key = coords[rows, self.axis[node]].astype(np.float64)
            equal = (key == self.value[node]) & (tie[rows] <= self.tie[node])
            left = (key < self.value[node]) | equal
            waiting.append((int(self.child[node, 0]), rows[left]))
            waiting.append((int(self.child[node, 1]), rows[~left]))
        return out


def ties(position: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number from 0 to 1 for each position, evenly spread."""
    return np.mod(position.astype(np.float64) * _GOLDEN, 1.0)


def _coords(w: NDArray[np.float32]) -> NDArray[np.float32]:
    """The coordinates that cuts are made along."""
    return np.concatenate([w[:, : min(_AXES, w.shape[1] - 1)], w[:, -1:]], axis=1)
