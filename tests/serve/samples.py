"""Samples to serve, the files they are kept in, and the formula behind the answers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
from numpy.typing import NDArray

from pyg_glif import GLIFPostProcessor
from pyg_glif.cli import main
from tests.oracles_inductive import fitted_weights, update, weights

Array = NDArray[np.float64]
TAU, THETA, LAM = 0.9, 0.5, 2.0


@dataclass(frozen=True)
class Numbers:
    """Samples of three named numbers, their scores, and samples that come later."""

    x: Array  # [N, 3]
    y: Array  # [N]
    x_new: Array  # [M, 3]
    y_new: Array  # [M]

    names = ("age", "income", "hours per week")

    def save(self, path: Path, lam: float = LAM) -> None:
        """Fits and keeps the fit."""
        frame = pandas.DataFrame(self.x, columns=list(self.names))
        post = GLIFPostProcessor(tau=TAU, theta=THETA, lam=lam)
        post.fit(frame, torch.from_numpy(self.y)).save(path)

    def corrected(self, lam: float = LAM) -> Array:
        """What new samples should get, from the formula."""
        W = fitted_weights(self.x, TAU, THETA)
        L = np.diag(W.sum(1)) - W
        f = np.linalg.solve(np.eye(len(W)) + lam * L, self.y[:, None])
        outer = weights(self.x_new, self.x, TAU, THETA)
        return update(W, outer, self.y_new[:, None], f, lam, None)[:, 0]

    def num_neighbors(self) -> list[int]:
        """How many fitted samples are near each new sample."""
        near: list[int] = (weights(self.x_new, self.x, TAU, 0.0) > 0).sum(1).tolist()
        return near

    def bodies(self) -> list[dict[str, Any]]:
        """A request for each new sample."""
        pairs = zip(self.x_new.tolist(), self.y_new.tolist(), strict=True)
        return [{"x": [row], "y_hat": [score]} for row, score in pairs]


def numbers(size: int = 80, new: int = 12) -> Numbers:
    """Samples drawn from one seed; the last new sample is far from all samples."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(size + new, 3))
    x[-1] = 40.0
    y = 1 / (1 + np.exp(-x[:, 0] - rng.normal(size=size + new) / 2))
    return Numbers(x[:size], y[:size], x[size:], y[size:])


def write_table(folder: Path, size: int = 90) -> tuple[Path, Path]:
    """A table of samples with text and gaps, and the fit that 'smooth' made of it."""
    rng = np.random.default_rng(3)
    sex = rng.choice(["female", "male"], size)
    age = rng.integers(20, 65, size).astype(object)
    job = rng.choice(["clerk", "driver", "<b>nurse</b>"], size)
    score = 0.2 + 0.006 * age.astype(float) + 0.15 * (sex == "male")
    score += 0.1 * (job == "clerk") + rng.normal(scale=0.05, size=size)
    age[4] = ""
    people = pandas.DataFrame(
        {
            "name": [f"person {i}" for i in range(size)],
            "sex": sex,
            "age": age,
            "job": job,
            "score": score.clip(0.01, 0.99).round(6),
        }
    )
    table, fit = folder / "people.csv", folder / "table.safetensors"
    people.to_csv(table, index=False)
    words = ["smooth", str(table), "--outputs", "score", "--sensitive", "sex"]
    words += ["--id", "name", "--out", str(folder / "fair.csv"), "--save", str(fit)]
    words += ["--lam", "1", "--quiet"]
    assert main(words) == 0
    return table, fit
