"""Every script in ``examples/`` runs, and its table shows what its words claim."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# This one has a file of tests to itself.
ELSEWHERE = {"finetune_text"}


def run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What the script prints when it is called without arguments."""
    module = load(name)
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    torch.manual_seed(0)
    module.main()
    return capsys.readouterr().out


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Examples fall back on people they make up."""
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))


def numbers(line: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.\d+", line)]


def test_every_example_is_run() -> None:
    functions = [
        node.name
        for node in ast.parse(Path(__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    ]
    for path in EXAMPLES.glob("*.py"):
        assert path.stem in ELSEWHERE or f"test_{path.stem}" in functions


def test_similar_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run("similar_people", monkeypatch, capsys)
    rows = [
        numbers(line) for line in out.splitlines() if re.match(r" +\d\.\d\d ", line)
    ]
    lam, unlike, gap, accuracy = (list(column) for column in zip(*rows, strict=True))
    assert lam == [0.0, 0.01, 0.1, 1.0]
    assert unlike == sorted(unlike, reverse=True)
    assert gap == sorted(gap, reverse=True)
    assert gap[-1] < 0.2 * gap[0]
    assert accuracy[-1] > accuracy[0]


def test_learn_metric_end_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load("learn_metric_end_to_end")
    out = run("learn_metric_end_to_end", monkeypatch, capsys)
    steps = [numbers(line) for line in out.splitlines() if re.match(r" +\d+ \|", line)]
    assert steps[-1][1] < 0.25 * steps[0][1]  # error of the others
    share = dict(re.findall(r"^(\w+) +\| +(\d\.\d+)", out, re.M))
    assert list(share) == module.NAMES
    assert float(share["group"]) < 0.05
    assert float(share["income"]) > 0.5


@pytest.mark.usefixtures("no_data")
def test_gnn_head(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run("gnn_head", monkeypatch, capsys)
    assert out.startswith("synthetic: 1000 people")
    rows = [line.split("|") for line in out.splitlines() if line.count("|") == 3]
    table = {row[0].strip(): [float(cell) for cell in row[1:]] for row in rows[1:]}
    ways = ("{}, smoothed afterwards", "{} with a GLIF head")
    ways += ("{} with a GLIF head, sampled",)
    for network in ("GCN", "GAT", "GraphSAGE"):
        accuracy, consistency, gap = table.pop(network)
        assert accuracy > 0.7
        for way in ways:
            fair = table.pop(way.format(network))
            assert fair[0] > accuracy - 0.1
            assert fair[1] > consistency
            assert fair[2] < gap
    assert not table


def test_ensemble(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run("ensemble", monkeypatch, capsys)
    rows = [line.split() for line in out.splitlines() if line.startswith("known")]
    assert [row[1] for row in rows] == ["well", "badly"] * 2
    for well, badly in zip(rows[::2], rows[1::2], strict=True):
        deviation, moved, weighted, error = (
            [float(r[i]) for r in (well, badly)] for i in range(2, 6)
        )
        assert weighted[0] < moved[0]  # known well: moved less
        assert weighted[1] > moved[1]
        assert error[0] < deviation[0]
        assert error[1] < deviation[1]


@pytest.mark.usefixtures("no_data")
def test_deploy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run("deploy", monkeypatch, capsys)
    assert out.startswith("6,000 people, 9 features, from a random generator")
    pattern = r"accuracy (\S+), spouse-flip consistency (\S+), mean difference (\S+)"
    before, after = (
        [float(cell) for cell in row]
        for row in re.findall(rf"^  (?:before|after ) {pattern}$", out, re.M)
    )
    assert after[0] > before[0] - 0.02
    assert after[1] > before[1]
    assert after[2] < before[2]
    assert "| own output |" in out
