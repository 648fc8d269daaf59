"""The words of the README: its snippets run, its claims agree with its table."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from pyg_glif.cli import main
from pyg_glif.datasets import Adult
from pyg_glif.graph.weights import DECAY
from tests.cli.calls import people

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(kind: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == kind]


def given() -> dict[str, Any]:
    """What the snippets take from their reader: features, outputs, a network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=generator)
    y_hat = torch.rand(200, generator=generator)
    adult = Adult(variant="invented")
    return {
        "people": adult.frame[:500],
        "income": adult.target[:500],
        "newcomers": adult.frame[500:600],
        "income_of_newcomers": adult.target[500:600],
        "x": x,
        "y_hat": y_hat,
        "sensitive_directions": torch.eye(5)[:1],
        "x_new": x[:3] + 0.01,
        "y_hat_new": y_hat[:3],
        "data": Data(x=x, y_hat=y_hat),
        "head": torch.nn.Linear(5, 2),
    }


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that all snippets leave behind, run from top to bottom."""
    monkeypatch.chdir(tmp_path)
    names = given()
    for number, block in enumerate(blocks("python")):
        if "edge_weight)" in block:  # the layer takes the graph of the first snippet
            names["edge_weight"] = names["edge_weights"](names["sq_dist"])
        exec(compile(block, f"README.md, snippet {number}", "exec"), names)
    return names


def closed_form(names: dict[str, Any], tau: float, theta: float) -> np.ndarray:
    """``(I + L)^-1 y`` where the first column does not count."""
    z = names["x"].double().numpy()[:, 1:]
    sq_dist = ((z[:, None] - z[None]) ** 2).sum(-1)
    W = np.where(sq_dist <= tau**2, np.exp(-theta * sq_dist), 0.0)
    np.fill_diagonal(W, 0.0)
    L = np.diag(W.sum(1)) - W
    return np.linalg.solve(np.eye(len(z)) + L, names["y_hat"].double().numpy())


def test_snippets_run_and_compute_the_formula(names: dict[str, Any]) -> None:
    tau = names["tau"]
    # The paper's decay where the graph is built by hand, else that of the radius.
    expected = closed_form(names, tau, 1e-4)
    np.testing.assert_allclose(names["y_fair"], expected, atol=1e-5)
    left = torch.arange(len(names["x"])) != 7  # person 7 asked to be forgotten
    people = {name: names[name][left] for name in ("x", "y_hat")}
    expected = closed_form(people, tau, DECAY / tau**2)
    np.testing.assert_allclose(names["post"].y_fair_, expected, atol=1e-5)
    fair = names["data"].y_fair
    np.testing.assert_allclose(fair, closed_form(names, 1.0, DECAY), atol=1e-5)
    names["logits"].sum().backward()
    assert names["layer"].lam.item() == pytest.approx(1.0)
    assert names["head"].weight.grad is not None
    assert Path("fair.safetensors").exists()


def test_the_call_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    people().write(tmp_path / "people.csv")
    (block,) = blocks("sh")
    calls = [shlex.split(call) for call in block.replace("\\\n", " ").splitlines()]
    assert {program for program, *_ in calls} == {"pyg-glif"}
    smooth, explain, serve = (words for _, *words in calls)
    # The people of the tests have a column more, and other names than the README's.
    assert main([*smooth, "--ignore", "repaid"]) == 0
    assert main([*explain[:-1], "001"]) == 0
    assert serve == ["serve", "fit.safetensors"]
    assert main([*serve, "--help"]) == 0
    assert (tmp_path / "fair.csv").exists()
    assert (tmp_path / "report.html").exists()


def rows(table: str) -> dict[str, list[float]]:
    """Numbers of each method: accuracy, spread, relative spread, gaps."""
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 7 and re.fullmatch(r"\d+\.\d+", cells[2]):
            found[cells[0]] = [float(cell) for cell in cells[2:]]
    return found


def test_what_is_said_about_the_table_is_in_the_table() -> None:
    demo = README.split("<!-- demo -->")[1].split("<!-- end -->")[0]
    _, fixed, fairest = re.split(r"^\*\*.*\*\*$", demo, flags=re.M)
    first, second = rows(fixed), rows(fairest)
    base, glif, bound = (first[m] for m in ("Baseline", "GLIF", "IF-constraints"))
    words = " ".join(README.split("**How to read it.**")[1].split())
    assert "the spread of names to a third for about one point of accuracy" in words
    assert 0.3 < glif[1] / base[1] < 0.37
    assert 0.008 < base[0] - glif[0] < 0.014
    assert "halve the spread at no loss (second table)" in words
    assert second["IF-constraints"][0] >= base[0]
    assert 0.45 < second["IF-constraints"][1] / base[1] < 0.55
    assert "beside the spread of words, that of names does not fall" in words
    assert min(bound[2], second["IF-constraints"][2]) >= base[2]
    assert "the penalty in training does best here" in words
    accuracy, spread = first["In-processing"][:2]
    assert accuracy == max(row[0] for row in first.values())
    assert spread == min(row[1] for row in first.values())


def test_the_table_of_people_is_that_of_the_documentation() -> None:
    shown = README.split("<!-- demo_tables -->")[1].split("<!-- end -->")[0].strip()
    page = (ROOT / "docs" / "results" / "demo_tables.md").read_text(encoding="utf-8")
    assert page.split("\n", 2)[2].startswith(f"{shown}\n\n")
    assert shown.startswith("**Boosted trees: individuals**\n\n| method ")


def test_the_table_is_that_of_the_documentation() -> None:
    demo = README.split("<!-- demo -->")[1].split("<!-- end -->")[0].strip()
    page = (ROOT / "docs" / "results" / "demo.md").read_text(encoding="utf-8")
    title, tables = page.split("\n", 1)
    assert demo == tables.strip()
    seeds = re.split(r", seeds? ", title)[1].split(", ")
    assert ("Means over the seeds" in demo) == (len(seeds) > 1)


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"\]\((?!http)(.*?)\)", README)))
)
def test_links_lead_somewhere(path: str) -> None:
    assert (ROOT / path).exists()
