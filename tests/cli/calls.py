"""Calls of the command line, people to call it on, and the formula it stands for."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pyg_glif.cli import main
from pyg_glif.graph.weights import DECAY

Array = NDArray[np.float64]


@dataclass
class Call:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be one JSON object and nothing else."""
        found = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(found, dict)
        return found

    def fails(self, code: int, message: str) -> None:
        """Ended with a code and exactly this message, without a traceback."""
        assert (self.code, self.out) == (code, "")
        assert self.err == f"pyg-glif: error: {message}\n"


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


class Shell:
    """Runs commands in a folder of its own; words in dicts go to ``--config``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Call:
        self._capsys.readouterr()
        settings: dict[str, object] = {}
        for word in words:
            settings |= word if isinstance(word, dict) else {}
        texts = [str(word) for word in words if not isinstance(word, dict)]
        if settings:
            lines = [f"{name} = {_toml(value)}" for name, value in settings.items()]
            Path("settings.toml").write_text("\n".join(lines))
            texts += ["--config", "settings.toml"]
        code = main(texts)
        return Call(code, *self._capsys.readouterr())


def _toml(value: object) -> str:
    """A value in TOML, which writes tables unlike JSON."""
    if isinstance(value, dict):
        pairs = (f"{json.dumps(name)} = {_toml(v)}" for name, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    return json.dumps(value)


def smooth(
    x: Array, y: Array, tau: float, lam: float = 1.0, theta: float | None = None
) -> Array:
    """``(I + lam L)^-1 y`` for weights ``exp(-theta d^2)`` within ``tau``, dense."""
    theta = DECAY / tau**2 if theta is None else theta
    sq_dist = ((x[:, None] - x[None]) ** 2).sum(-1)
    W = np.where(np.sqrt(sq_dist) <= tau, np.exp(-theta * sq_dist), 0.0)
    np.fill_diagonal(W, 0.0)
    L = np.diag(W.sum(1)) - W
    return np.linalg.solve(np.eye(len(x)) + lam * L, y)


@dataclass
class Table:
    """People with a name, a sex, two features on unlike scales, and a score."""

    name: list[str]
    sex: list[str]
    x: Array  # [N, 2] years, euros
    y: Array  # [N]
    repaid: NDArray[np.int64]  # [N]

    def write(self, path: Path, rows: slice = slice(None)) -> None:
        """All columns as CSV."""
        columns = [self.name, self.sex, *self.x.T.tolist(), self.y, self.repaid]
        header = ["name", "sex", "age", "income", "score", "repaid"]
        write_csv(path, header, list(zip(*columns, strict=True))[rows])


def people(num: int = 40, seed: int = 0) -> Table:
    """People whose score favours one sex."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, num)
    z = rng.normal(size=(num, 2))
    y = 0.5 + 0.1 * z[:, 1] + 0.1 * sex + 0.1 * rng.normal(size=num)
    return Table(
        name=[f"00{i}" for i in range(num)],
        sex=["fm"[s] for s in sex],
        x=z * [10.0, 9000.0] + [45.0, 40000.0],
        y=y,
        repaid=(z[:, 1] + 0.5 * rng.normal(size=num) > 0).astype(np.int64),
    )


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Any]) -> None:
    """A table, numbers with all their digits."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(header)
        table.writerows(rows)


def read_csv(path: Path) -> dict[str, list[str]]:
    """Columns of a table, as text."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return {name: [row[j] for row in rows] for j, name in enumerate(header)}


def numbers(column: list[str]) -> Array:
    """A column of text as numbers."""
    return np.array([float(cell) for cell in column])
