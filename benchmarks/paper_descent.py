"""The paper's coordinate descent, the way its experiments run it."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

BLOCK, BATCH, EPOCHS = 1500, 512, 10
Mix = Callable[[np.ndarray, np.ndarray], np.ndarray]  # [B, N], [N, C] -> [B, C]


def elementwise(rows: np.ndarray, f: np.ndarray) -> np.ndarray:
    """Neighbours' sums as the authors compute them: all products, then a sum."""
    out: np.ndarray = (f[None] * rows[:, :, None]).sum(1)
    return out


def matrix_product(rows: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The same sums from a matrix product, which the authors do not use."""
    return rows @ f


class PaperDescent:
    """The paper's coordinate descent: dense rows, bit-packed, batches of 512.

    Written from section 3.2.2 and eq. 3.7, with 0/1 weights and 10 epochs as in its
    experiments. ``"nrw"`` recomputes the normalised rows of every batch. With
    ``sampled`` rows only these are set up and batches consist of them: enough to time
    a batch where all rows would take too long.
    """

    def __init__(
        self,
        z: Tensor,
        y_hat: Tensor,
        tau: float,
        normalization: Any = None,
        *,
        lam: float,
        sampled: int | None = None,
    ):
        self.z, self.y, self.tau = z.numpy(), y_hat.numpy(), tau
        self.normalization, self.lam = normalization, lam
        self.rng = np.random.default_rng(0)
        count = len(self.y)
        self.known = np.arange(count)
        if sampled is not None:
            self.known = self.rng.choice(count, sampled, replace=False)
        start = time.perf_counter()
        self.norm = (self.z**2).sum(1)
        blocks = np.array_split(self.known, len(self.known) // BLOCK + 1)
        found = [self.near(block) for block in blocks]
        self.bits = np.concatenate([bits for bits, _ in found])
        self.degree = np.concatenate([degree for _, degree in found])
        if normalization == "nrw":
            sums = [self._tilde(self._rows(part), part).sum(1) for part in blocks]
            self.degree_tilde = np.concatenate(sums)
        self.setup_seconds = time.perf_counter() - start

    def near(self, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pairs within ``tau`` as packed bits, and degrees with the self-weight."""
        square = self.norm[part, None] + self.norm - 2.0 * (self.z[part] @ self.z.T)
        near = square <= self.tau * self.tau
        near[np.arange(len(part)), part] = True
        return np.packbits(near, axis=1), near.sum(1).astype(np.float32)

    def _rows(self, stored: np.ndarray) -> np.ndarray:
        count = len(self.y)
        return np.unpackbits(self.bits[stored], axis=1, count=count).astype(np.float32)

    def _tilde(self, rows: np.ndarray, part: np.ndarray) -> np.ndarray:
        root = np.sqrt(self.degree)
        return rows / root[part, None] / root[None]

    def batch(self, f: np.ndarray, mix: Mix = elementwise) -> None:
        """One update of 512 random coordinates."""
        stored = self.rng.choice(len(self.known), BATCH, replace=False)
        part, rows = self.known[stored], self._rows(stored)
        own = (np.arange(BATCH), part)
        if self.normalization is None:
            rows[own] = 0.0
            scale = self.lam * rows.sum(1, keepdims=True)
            f[part] = (self.y[part] + self.lam * mix(rows, f)) / (1.0 + scale)
            return
        lam = self.lam * float(self.degree.mean())
        inverse = 1.0 / self.degree_tilde
        rows = self._tilde(rows, part) * (inverse[part, None] + inverse[None]) / 2.0
        loop = rows[own].copy()
        rows[own] = 0.0
        f[part] = (self.y[part] + lam * mix(rows, f)) / (
            1.0 + lam * (1.0 - loop[:, None])
        )

    def run(self, epochs: int = EPOCHS) -> np.ndarray:
        """Outputs after some epochs of random batches."""
        f = self.y.copy()
        for _ in range(len(f) // BATCH * epochs):
            self.batch(f)
        return f

    def scaled_seconds(self, batches: int) -> float:
        """Seconds of a full run, extrapolated from a few batches."""
        f = self.y.copy()
        start = time.perf_counter()
        for _ in range(batches):
            self.batch(f)
        per_batch = (time.perf_counter() - start) / batches
        return self.setup_seconds + per_batch * num_batches(len(f))


def num_batches(num_rows: int, epochs: int = EPOCHS) -> int:
    """Batches of a full run."""
    return num_rows // BATCH * epochs
