"""``pyg-glif explain``: letters about fitted people and newcomers."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.calls import Shell, write_csv

FIT = ("--outputs", "score", "--id", "name", "--out", "fair.csv")
HOW = ("--scale", "standard", "--tau", 2.0)


@pytest.fixture
def fit(shell: Shell) -> Shell:
    """A fit of thirty people with texts, and five newcomers, in the folder."""
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


def test_a_letter_to_a_fitted_person(fit: Shell) -> None:
    text = fit("explain", "fit.safetensors", "--person", "N3").out
    assert text.startswith("Your score went from 0.")
    assert "The 5 closest" in text
    words = ("explain", "fit.safetensors", "--person", "N3", "--json")
    assert "contributors" not in fit(*words).json["explanations"][0]
    (letter,) = fit(*words, "--names").json["explanations"]
    assert letter["sample"] == "N3"
    total = letter["own_share"] * letter["y_hat"]
    total += letter["neighbors_share"] * letter["neighbors_mean"]
    total += letter["others_share"] * (letter["others_mean"] or 0.0)
    assert total == pytest.approx(letter["y_fair"], abs=1e-5)
    assert letter["contributors"][0]["sample"].startswith("N")


def test_a_letter_to_a_newcomer(fit: Shell) -> None:
    words = ("explain", "fit.safetensors", "--new", "new.csv", "--id", "name")
    one = fit(*words, "--person", "N31", "--reasons", "--json").json["explanations"]
    every = fit(*words, "--json").json["explanations"]
    assert [letter["sample"] for letter in every] == [f"N{i}" for i in range(30, 35)]
    assert one[0]["y_fair"] == every[1]["y_fair"]
    fit(
        "smooth",
        "new.csv",
        "--post",
        "fit.safetensors",
        "--id",
        "name",
        "--out",
        "n.csv",
    )
    lines = Path("n.csv").read_text().splitlines()[1:]
    for line, letter in zip(lines, every, strict=True):
        assert float(line.split(",")[-1]) == pytest.approx(letter["y_fair"])


@pytest.mark.parametrize("name", ["letter.txt", "letter.json"])
def test_letters_are_written(fit: Shell, name: str) -> None:
    words = ("explain", "fit.safetensors", "--person", "N3")
    call = fit(*words, "--out", name)
    assert (call.code, call.out) == (0, f"written  {name}\n")
    text = Path(name).read_text()
    if name.endswith(".json"):
        text = json.loads(text)["explanations"][0]["text"] + "\n"
    assert text == fit(*words).out


def test_mistakes(fit: Shell) -> None:
    fit("explain", "fit.safetensors").fails(
        2, "--person must say who (or --new names a file of newcomers)"
    )
    fit("explain", "fit.safetensors", "--person", "Zoe").fails(
        2, "--person: 'fit.safetensors' has nobody with the id 'Zoe'"
    )
    fit("explain", "no.safetensors", "--person", "N3").fails(
        2, "'no.safetensors' does not exist"
    )
    words = ("explain", "fit.safetensors", "--new", "new.csv", "--person", "9")
    fit(*words, "--ignore", "name").fails(
        2,
        "--person must be a number below 5, because 'new.csv' has no ids (got '9')",
    )
