"""Published settings, as the paper prints them."""

import re
from pathlib import Path

import numpy as np

import experiments._paper as paper
from pyg_glif.datasets import Sentiment
from tests.oracles import smooth, system

ROOT = Path(__file__).parents[2]


def test_notes_on_the_paper_name_tests_that_exist() -> None:
    page = (ROOT / "docs" / "paper_notes.md").read_text()
    named = re.findall(r"`(test_\w+)`(?:\s+\(in `(tests/[\w/.]+)`\))?", page)
    assert len(named) > 20
    for name, path in named:
        source = (ROOT / (path or "tests/test_theory.py")).read_text()
        assert f"def {name}(" in source, (name, path)


def test_grids() -> None:
    assert len(paper.SQ_TAUS) == 151
    assert (min(paper.SQ_TAUS), max(paper.SQ_TAUS)) == (0.1, 100.0)
    assert len(paper.LAMS) == 9
    assert 2.25 in paper.LIPSCHITZ


def test_nrw_drives_names_apart_where_its_system_is_nearly_singular() -> None:
    """Words and names of the packaged data, a linear model, the published strength."""
    dataset = Sentiment()
    data = dataset[0]
    x, y = data.x.double().numpy(), data.y.numpy()
    train, names = data.train_mask.numpy(), data.name_mask.numpy()
    ridge = x[train].T @ x[train] + np.eye(100)
    score = x @ np.linalg.solve(ridge, x[train].T @ (2.0 * y[train] - 1.0))
    judged = data.test_mask.numpy() | names
    side = dataset.side_x.double().numpy()
    basis = np.linalg.svd(side, full_matrices=False)[2][:50]
    z = (x - x @ basis.T @ basis)[judged]
    sq_dist = ((z[:, None] - z[None]) ** 2).sum(-1)
    spread: dict[str, list[float]] = {"nrw": [], "density": []}
    lowest = {}
    for sq_tau in (12.0, 17.4):
        W = np.where(sq_dist <= sq_tau, np.exp(-1e-4 * sq_dist), 0.0)
        np.fill_diagonal(W, 0.0)
        for normalization, found in spread.items():
            fair = smooth(W, score[judged], 0.1, normalization)
            found.append(fair[names[judged]].std())
            matrix = system(W, 0.1, normalization)
            lowest[normalization] = np.linalg.eigvalsh(matrix)[0]
    assert spread["nrw"][1] > 1.5 * spread["nrw"][0]
    assert spread["density"][1] < 0.5 * spread["density"][0]
    assert 0 < lowest["nrw"] < 0.3  # positive definite still, but barely
    assert lowest["density"] > 1 - 1e-9
