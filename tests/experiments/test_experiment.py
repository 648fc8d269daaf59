import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments import (
    BIOS,
    EXPERIMENTS,
    SENTIMENT,
    Experiment,
    Record,
    Report,
    Run,
    Runtime,
    Trial,
)
from pyg_glif.distances import Euclidean
from pyg_glif.graph import SimilarityGraph


@dataclass(frozen=True)
class Config:
    """Settings of the smallest experiment."""

    variant: str = "line"


class LineTrial(Trial):
    """Three people on a line, of whom neighbours are similar."""

    def __init__(self, seed: int, progress: bool | None) -> None:
        x = torch.tensor([[0.0], [1.0], [2.0]])
        graph = SimilarityGraph.search(x, 2.0, progress=progress)
        super().__init__(seed, 0.0, Euclidean(), graph, progress)

    def methods(self) -> Mapping[str, Any]:
        return {"Baseline": self.baseline, "GLIF": self.smoothed}

    def measure(self, outputs: Tensor) -> dict[str, float]:
        return {"first": float(outputs[0]), "dtype": float(outputs.dtype.itemsize)}

    def baseline(self) -> Iterable[Record]:
        yield Record("Baseline", {}, self.measure(torch.tensor([0.0, 3.0, 6.0])))

    def smoothed(self) -> Iterable[Record]:
        chosen = {"tau": 1.0, "lam": 1.0}
        y_hat = torch.tensor([0.0, 3.0, 6.0])
        return self.sweep("GLIF", None, y_hat, [1.0, 2.0], [1.0, 2.0], chosen)

    def runtimes(self) -> Iterable[Runtime]:
        return [Runtime("none", 3, 0.5)]


class LineExperiment(Experiment):
    """The smallest experiment."""

    name = "lines"

    def prepare(self, seed: int, progress: bool | None = None) -> Trial:
        return LineTrial(seed, progress)

    def report(self, runs: Sequence[Run]) -> Report:
        return Report(self.name, runs[0].variant, tuple(runs), ())

    def draw(self, runs: Sequence[Run]) -> dict[str, Any]:
        return {}


def test_an_experiment_runs_its_methods_in_order(tmp_path: Path) -> None:
    experiment = LineExperiment(Config())
    assert repr(experiment) == "LineExperiment('lines', variant='line')"
    report = experiment([3, 1], out=tmp_path)
    assert [path.name for path in report.files] == [
        "lines_line_seed_3.json",
        "lines_line_seed_1.json",
        "lines_line.md",
    ]
    run = Run.read(report.files[0])
    assert list(run.seconds) == ["Data", "Baseline", "GLIF"]
    assert run.runtimes == (Runtime("none", 3, 0.5),)
    assert [r.method for r in run.records] == ["Baseline", *["GLIF"] * 4]
    # Neighbours at radius 1: (I + L) f = y has the first row 2 f_0 - f_1 = 0.
    (chosen,) = (r for r in run.records if r.chosen)
    assert chosen.setting == {"tau": 1.0, "lam": 1.0}
    assert chosen.metrics["first"] == pytest.approx(1.5, rel=1e-5)


@pytest.mark.usefixtures("double_by_default")
def test_experiments_run_in_single_precision() -> None:
    run = LineExperiment(Config()).run(0)
    assert {record.metrics["dtype"] for record in run.records} == {4.0}


def test_other_data_and_parts_of_them() -> None:
    assert SENTIMENT.configured(None, None) is SENTIMENT
    assert SENTIMENT.configured("nyc", None).config.variant == "nyc"
    assert SENTIMENT.config.variant == "us"
    with pytest.raises(ValueError, match="'limit' must be None for 'sentiment'") as e:
        SENTIMENT.configured(None, 0.1)
    assert str(e.value) == "'limit' must be None for 'sentiment' (got 0.1)"
    assert BIOS.configured(None, 0.1).config.options == {"limit": 0.1}


def test_names_of_experiments_cost_no_import() -> None:
    names = ["sentiment", "bios", "toxicity", "adult", "german"]
    names += ["credit", "bail", "german_graph", "nba"]
    assert list(EXPERIMENTS) == names
    assert all(EXPERIMENTS[name].name == name for name in EXPERIMENTS)
    code = (
        "import sys; from experiments.registry import EXPERIMENTS; "
        "print(*EXPERIMENTS, 'torch' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == [*EXPERIMENTS, "False"]
