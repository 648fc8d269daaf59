import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Mahalanobis
from pyg_glif.model_selection import RiskControl, tune
from pyg_glif.model_selection.calibration_split import calibration_split
from tests.cli.calls import Shell, Table, numbers, people, read_csv, smooth, write_csv

PEOPLE = ("people.csv", "--outputs", "score", "--id", "name", "--sensitive", "sex")
GRID = ("--taus", "0.5,1", "--lams", "0.1,1,10")


def test_tune_is_that_of_the_library(shell: Shell, table: Table) -> None:
    words = ("tune", *PEOPLE, "--labels", "repaid", "--scale", "standard", *GRID)
    found = shell(*words, "--max-loss", 0.05, "--json").json
    expected = tune(
        torch.from_numpy(table.x),
        table.y,
        table.repaid,
        taus=[0.5, 1.0],
        lams=[0.1, 1.0, 10.0],
        max_loss=0.05,
        distance=Mahalanobis.from_factor(torch.diag(torch.tensor(1 / table.x.std(0)))),
    ).to_dict()
    assert found["best"]["lam"] == expected["best"]["lam"]
    assert len(found["points"]) == 6
    for ours, theirs in zip(found["points"], expected["points"], strict=True):
        assert ours["score"] == theirs["score"]
        assert ours["unfairness"] == pytest.approx(theirs["unfairness"])


def test_the_call_that_is_printed_gives_the_outputs_chosen(
    shell: Shell, table: Table
) -> None:
    words = ("tune", *PEOPLE, "--labels", "repaid", "--scale", "standard", *GRID)
    call = shell(*words, "--max-loss", 0.5)
    assert call.code == 0
    header = "| tau | lam | accuracy | loss | squared gap of similar people |"
    assert call.out.splitlines()[0] == header
    line = call.out.splitlines()[-1]
    program, *again = shlex.split(line)
    assert program == "pyg-glif"
    assert shell(*words, "--max-loss", 0.5, "--json").json["call"] == line
    assert shell(*again).code == 0
    found = read_csv(Path("fair.csv"))
    z = (table.x - table.x.mean(0)) / table.x.std(0)
    expected = smooth(z, table.y, tau=1.0, lam=10.0)
    np.testing.assert_allclose(numbers(found["score"]), expected, atol=1e-5)
    assert found["name"] == table.name


def test_the_call_for_arrays(shell: Shell) -> None:
    table = people()
    np.save("x.npy", table.x / [10, 9000])
    np.save("y.npy", table.y)
    np.save("label.npy", table.repaid)
    words = ("tune", "x.npy", "y.npy", "--labels", "label.npy", *GRID)
    found = shell(*words, "--max-loss", 0.5, {"theta": 0.25}, "--json").json
    assert found["call"] == (
        "pyg-glif smooth x.npy y.npy --config settings.toml --tau 1.0 --lam 10.0 "
        "--out fair.npy"
    )


def test_nothing_fairer_at_that_price(shell: Shell) -> None:
    x = np.array([[0.0], [0.1], [5.0], [5.1]])
    np.save("x.npy", x)
    np.save("y.npy", np.array([0.0, 1.0, 0.0, 1.0]))
    np.save("label.npy", np.array([0, 1, 0, 1]))
    words = ("tune", "x.npy", "y.npy", "--labels", "label.npy", "--taus", 1)
    words += ("--cv", 0)
    call = shell(*words, "--lams", "100", "--threshold", 0.6, "--max-loss", 0)
    last = call.out.splitlines()[-1]
    assert last == "chosen: the model as it is; nothing tried is fairer at that price"
    assert "smooth" not in call.out


def test_pairs_and_unknown_labels(shell: Shell, table: Table) -> None:
    rows = [
        list(row) for row in zip(*read_csv(Path("people.csv")).values(), strict=True)
    ]
    for row in rows[:10]:
        row[5] = ""
    header = list(read_csv(Path("people.csv")))
    marked = [[*row, i >= 10] for i, row in enumerate(rows)]
    write_csv(Path("people.csv"), [*header, "known"], marked)
    write_csv(Path("pairs.csv"), ["first", "second"], [(0, 1), (2, 3), (4, 30)])
    words = ("tune", *PEOPLE, "--labels", "repaid", "--scale", "standard", *GRID)
    words += ("--pairs", "pairs.csv", "--max-loss", 1, "--json")
    call = shell(*words, "--ignore", "known")
    assert call.err == "pyg-glif: 10 people without a label are neighbors only\n"
    base = call.json["baseline"]
    assert base["score"] == ((table.y > 0.5) == table.repaid)[10:].mean()
    decision = table.y > 0.5
    apart = [decision[i] != decision[j] for i, j in ((0, 1), (2, 3), (4, 30))]
    assert base["unfairness"] == pytest.approx(np.mean(apart))
    masked = shell(*words, {"mask": "known"})
    assert masked.err == ""
    assert masked.json["points"] == call.json["points"]
    assert "--ignore repaid,known" in masked.json["call"]


def test_the_default_settings(shell: Shell) -> None:
    people(120).write(Path("people.csv"))
    words = ("tune", *PEOPLE, "--labels", "repaid", "--scale", "standard", "--json")
    assert len(shell(*words).json["points"]) == 36


@pytest.mark.parametrize("name", ["front.png", "front.svg", "front.pdf"])
def test_plot(shell: Shell, table: Table, name: str) -> None:
    words = ("tune", *PEOPLE, "--labels", "repaid", "--scale", "standard", *GRID)
    assert shell(*words, "--plot", name).code == 0
    start = Path(name).read_bytes()[:5]
    assert start in (b"\x89PNG\r", b"<?xml", b"%PDF-")
    assert Path(name).stat().st_size > 3000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--labels must name the column with the true class"),
        (
            ["--labels", "repaid", "--plot", "a.gif"],
            "--plot must end in .png, .pdf, .svg (got 'a.gif')",
        ),
        (
            ["--labels", "repaid", "--pairs", "people.csv"],
            "--pairs: 'people.csv' must have two columns (got 6)",
        ),
        (
            ["--labels", "repaid", "--pairs", "far.csv"],
            "'pairs' must hold node indices from 0 to 39 (got 99)",
        ),
        (
            ["--labels", "repaid", {"mask": "age"}, "--features", "income"],
            "'mask' must hold 0 and 1 (got '",
        ),
        (
            ["--labels", "repaid", "--lams", "a"],
            "argument --lams: must be numbers with commas in between, each a "
            "non-negative number (got 'a'). See 'pyg-glif tune --help'",
        ),
    ],
)
def test_tune_refuses(
    shell: Shell, table: Table, words: list[str], message: str
) -> None:
    write_csv(Path("far.csv"), ["i", "j"], [(0, 99)])
    call = shell("tune", *PEOPLE, "--scale", "none", *words)
    assert call.code == 2
    assert call.err.startswith(f"pyg-glif: error: {message}")


def test_a_plot_needs_matplotlib_and_says_so_first(
    shell: Shell, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyg_glif._utils import optional as _optional

    def nothing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(_optional, "import_module", nothing)
    shell("tune", *PEOPLE, "--labels", "repaid", "--plot", "a.png").fails(
        1, "'--plot' requires 'matplotlib.figure' (install 'pyg_glif[plots]')"
    )


def test_risk_control_is_that_of_the_library(shell: Shell, tmp_path: Path) -> None:
    table = people(400)
    table.write(tmp_path / "people.csv")
    words = ("tune", *PEOPLE, "--labels", "repaid", "--taus", "3000", "--lams", "0.1,1")
    words = (*words, "--scale", "none")
    words = (*words, "--guarantee", 0.1, "--delta", 0.2, {"share": 0.4})
    call = shell(*words, "--save", "fit.safetensors")
    assert call.code == 0
    assert "loss of accuracy at most 0.1: certified at level 0.8" in call.out
    assert call.out.endswith("pyg-glif smooth NEW --post fit.safetensors\n")
    control = RiskControl(0.1, 0.2, share=0.4)
    grid = {"taus": [3000.0], "lams": [0.1, 1.0], "guarantee": control}
    expected = tune(torch.from_numpy(table.x), table.y, table.repaid, **grid)
    guarantee = expected.guarantee
    assert guarantee is not None
    found = shell(*words, "--json").json["guarantee"]
    assert found == json.loads(json.dumps(guarantee.to_dict()))
    # What is kept is the fit to the samples outside the calibration split.
    post = GLIFPostProcessor.load("fit.safetensors")
    assert len(post.y_fair_) == len(guarantee.fitted) == 240
    rows = guarantee.fitted.numpy()
    again = smooth(table.x[rows], table.y[rows], 3000.0, expected.best.lam)
    np.testing.assert_allclose(post.y_fair_, again, atol=1e-5)


def test_risk_control_refuses(shell: Shell, table: Table) -> None:
    words = ("tune", *PEOPLE, "--scale", "none", "--labels", "repaid", *GRID)
    shell(*words, "--delta", 0.1).fails(2, "--delta goes with --guarantee")
    shell(*words, "--guarantee", 0.1, "--max-loss", 0.1).fails(
        2, "--max-loss does not go with --guarantee"
    )
    call = shell(*words, "--guarantee", 0.1)
    assert call.code == 2
    assert "must have at least 38 people set aside" in call.err
    assert shell(*words, "--guarantee", 2).code == 2


LEARNED = {
    "deviations": ("--sensitive", "sex", "--scale", "standard"),
    "effects": ("--sensitive", "sex", "--scale", "effect"),
    "table": ("--sensitive", "sex", "--scale", "standard"),
    "regressions": ("--sensitive", "sex", "--metric", "logistic"),
    "both": ("--sensitive", "sex", "--metric", "logistic", "--scale", "standard"),
}


@pytest.mark.parametrize("how", LEARNED)
def test_nothing_is_learned_from_the_calibration_split(
    shell: Shell, tmp_path: Path, how: str
) -> None:
    table = people(400)
    table.y[:] = 1 / (1 + np.exp((40000 - table.x[:, 1]) / 9000))
    known = torch.ones(400, dtype=torch.bool)
    rows = calibration_split(RiskControl(0.9, share=0.4), known, None).fitted
    words = ("tune", "people.csv", "--outputs", "score", "--id", "name", *LEARNED[how])
    words = (*words, "--labels", "repaid", "--ks", "10", "--lams", "1")
    fits = []
    for factor in (1.0, 3.0):
        # The calibration split changes, the rest does not.
        table.x[np.setdiff1d(np.arange(400), rows)] *= factor
        table.write(tmp_path / "people.csv")
        call = shell(
            *words, "--guarantee", 0.9, {"share": 0.4}, "--save", "fit.safetensors"
        )
        assert call.code == 0, call.err
        post = GLIFPostProcessor.load("fit.safetensors")
        state = {} if post.distance is None else dict(post.distance.state_dict())
        fits.append((post.metadata_, post.x_, post.y_fair_, state))
    (metadata, *tensors, state), (other_metadata, *others, other_state) = fits
    assert metadata == other_metadata
    assert state.keys() == other_state.keys()
    tensors += state.values()
    others += other_state.values()
    assert all(map(torch.equal, tensors, others))
