from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calls import Shell


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
            seen.append(options)
            return FakeReport([options["out"] / "table.md"])

    fake = {"sentiment": Runner(False), "bios": Runner(True)}
    monkeypatch.setattr("pyg_glif.cli.reproduce.EXPERIMENTS", fake)
    return seen


def test_reproduce_calls_the_runner(shell: Shell, calls: list[dict[str, Any]]) -> None:
    call = shell("reproduce", "sentiment", "--seeds", 3, "--variant", "nyc")
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
    assert folder.is_dir()
    assert call.out == f"| a |\n|---|\n| 1 |\n\nwritten  {folder}/table.md\n"
    assert call.err == "Epoch 1\n"


def test_reproduce_options(shell: Shell, calls: list[dict[str, Any]]) -> None:
    call = shell("reproduce", "sentiment", "--out", "a/b", "--no-progress", "--json")
    assert calls[0]["seeds"] == range(10)
    assert calls[0]["out"] == Path("a", "b")
    assert calls[0]["progress"] is False
    assert call.json == {
        "command": "reproduce",
        "name": "sentiment",
        "report": {"a": 1},
        "files": ["a/b/table.md"],
    }


def test_reproduce_refuses(shell: Shell, calls: list[dict[str, Any]]) -> None:
    shell("reproduce", "adult").fails(
        2, "NAME must be one of sentiment, bios (got 'adult')"
    )
    Path("file").touch()
    shell("reproduce", "sentiment", "--out", "file/x").fails(
        2, "--out: the folder 'file/x' cannot be written (Not a directory)"
    )
    assert calls == []


def test_reproduce_takes_a_share_of_the_texts(
    shell: Shell, calls: list[dict[str, Any]]
) -> None:
    shell("reproduce", "bios", "--limit", 0.1)
    assert calls[0]["limit"] == 0.1
    shell("reproduce", "sentiment", "--limit", 0.1).fails(
        2, "--limit is for bios (got NAME 'sentiment')"
    )
