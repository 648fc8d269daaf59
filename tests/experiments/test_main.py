"""The command ``python -m experiments``."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from experiments.__main__ import main


@dataclass
class FakeReport:
    """What a runner gives back."""

    files: list[Path] = field(default_factory=list)

    def to_markdown(self) -> str:
        return "| a |\n|---|\n| 1 |\n"

    def to_dict(self) -> dict[str, Any]:
        return {"a": 1}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Calls of a runner that stands in for the experiments."""
    seen: list[dict[str, Any]] = []

    @dataclass
    class Runner:
        takes_limit: bool

        def __call__(self, **options: Any) -> FakeReport:
            print("Epoch 1")  # training programs talk
            if options["variant"] == "none":
                raise FileNotFoundError("'x.csv' is missing")
            seen.append(options)
            return FakeReport([options["out"] / "table.md"])

    fake = {"sentiment": Runner(False), "bios": Runner(True)}
    monkeypatch.setattr("experiments.__main__.EXPERIMENTS", fake)
    return seen


def test_options_reach_the_experiment(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sentiment", "--seeds", "3", "--variant", "nyc"]) == 0
    folder = Path("results", "sentiment")
    assert calls == [
        {
            "seeds": range(3),
            "variant": "nyc",
            "limit": None,
            "out": folder,
            "resume": False,
            "progress": None,
        }
    ]
    out, err = capsys.readouterr()
    assert out == f"| a |\n|---|\n| 1 |\n\nwritten  {folder}/table.md\n"
    assert err == "Epoch 1\n"
    main(["bios", "--limit", "0.1", "--resume"])
    assert (calls[1]["limit"], calls[1]["resume"]) == (0.1, True)


def test_json_is_all_of_standard_output(
    calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["sentiment", "--out", "a/b", "--no-progress", "--json"])
    assert calls[0]["seeds"] == range(10)
    assert calls[0]["out"] == Path("a", "b")
    assert calls[0]["progress"] is False
    assert json.loads(capsys.readouterr().out) == {
        "name": "sentiment",
        "report": {"a": 1},
        "files": ["a/b/table.md"],
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("adult", "argument NAME: invalid choice: 'adult'"),
        ("sentiment --seeds 0", "--seeds must be at least 1 (got 0)"),
        ("sentiment --limit 0.1", "--limit is for bios (got NAME 'sentiment')"),
        ("sentiment --variant none", "'x.csv' is missing"),
    ],
)
def test_unusable_options_and_data_end_with_code_2(
    calls: list[dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    assert f"python -m experiments: error: {message}" in capsys.readouterr().err
    assert calls == []
    if message == "'x.csv' is missing":
        with pytest.raises(FileNotFoundError):
            main([*words.split(), "--debug"])
