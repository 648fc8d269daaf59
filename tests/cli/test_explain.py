"""``pyg-glif explain``: explanations of fitted and of new samples."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.calls import Shell, write_csv

FIT = ("--outputs", "score", "--id", "name", "--out", "fair.csv")
HOW = ("--scale", "standard", "--tau", 2.0)


@pytest.fixture
def fit(shell: Shell) -> Shell:
    """A fit of thirty people with texts, and five new ones, in the folder."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(35):
        age, job = int(random.integers(20, 30)), random.choice(["a", "b"])
        score = 1 / (1 + np.exp(-(age - 25) / 3 - (job == "a")))
        rows.append((f"N{i}", age, job, score))
    header = ["name", "age", "job", "score"]
    write_csv(Path("people.csv"), header, rows[:30])
    write_csv(Path("new.csv"), header, rows[30:])
    call = shell("smooth", "people.csv", *FIT, *HOW, "--save", "fit.safetensors")
    assert call.code == 0, call.err
    return shell


def test_explanation_of_a_fitted_sample(fit: Shell) -> None:
    text = fit("explain", "fit.safetensors", "--person", "N3").out
    assert text.startswith("Your score went from 0.")
    assert "The 5 closest" in text
    words = ("explain", "fit.safetensors", "--person", "N3", "--json")
    assert "contributors" not in fit(*words).json["explanations"][0]
    (explanation,) = fit(*words, "--names").json["explanations"]
    assert explanation["sample"] == "N3"
    total = explanation["own_share"] * explanation["y_hat"]
    total += explanation["neighbors_share"] * explanation["neighbors_mean"]
    total += explanation["others_share"] * (explanation["others_mean"] or 0.0)
    assert total == pytest.approx(explanation["y_fair"], abs=1e-5)
    assert explanation["contributors"][0]["sample"].startswith("N")


def test_explanations_of_new_samples(fit: Shell) -> None:
    words = ("explain", "fit.safetensors", "--new", "new.csv", "--id", "name")
    one = fit(*words, "--person", "N31", "--reasons", "--json").json["explanations"]
    every = fit(*words, "--json").json["explanations"]
    assert [explanation["sample"] for explanation in every] == [
        f"N{i}" for i in range(30, 35)
    ]
    assert one[0]["y_fair"] == every[1]["y_fair"]
    words = ("smooth", "new.csv", "--post", "fit.safetensors", "--id", "name")
    assert fit(*words, "--out", "n.csv").code == 0
    lines = Path("n.csv").read_text().splitlines()[1:]
    for line, explanation in zip(lines, every, strict=True):
        assert float(line.split(",")[-1]) == pytest.approx(explanation["y_fair"])


@pytest.mark.parametrize("name", ["explanation.txt", "explanation.json"])
def test_explanations_are_written(fit: Shell, name: str) -> None:
    words = ("explain", "fit.safetensors", "--person", "N3")
    call = fit(*words, "--out", name)
    assert (call.code, call.out) == (0, f"written  {name}\n")
    text = Path(name).read_text()
    if name.endswith(".json"):
        text = json.loads(text)["explanations"][0]["text"] + "\n"
    assert text == fit(*words).out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("fit.safetensors", "--person must say who (or --new names a file of "),
        (
            "fit.safetensors --person Zoe",
            "--person: 'fit.safetensors' has nobody with the id 'Zoe'",
        ),
        ("no.safetensors --person N3", "'no.safetensors' does not exist"),
        (
            "fit.safetensors --new new.csv --person 9 --ignore name",
            "--person must be a number below 5, because 'new.csv' has no ids (got '9')",
        ),
    ],
)
def test_mistakes(fit: Shell, words: str, message: str) -> None:
    call = fit("explain", *words.split())
    assert call.code == 2
    assert call.err.startswith(f"pyg-glif: error: {message}")
