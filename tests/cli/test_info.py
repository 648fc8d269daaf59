import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from experiments.registry import EXPERIMENTS
from pyg_glif import datasets
from pyg_glif.datasets import Sentiment
from tests.cli.calls import Shell

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="needs tomli before Python 3.11")


def test_info(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "bios").mkdir(parents=True)
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path / "data"))
    found = shell("info", "--json").json
    assert found["command"] == "info"
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["machine"]["threads"] == torch.get_num_threads()
    assert found["data"] == {
        "variable": "PYG_GLIF_DATA",
        "folder": str(tmp_path / "data"),
        "packaged": ["sentiment"],
        "found": ["bios"],
    }
    lines = shell("info").out.splitlines()
    assert lines[0].split() == ["pyg_glif", metadata.version("pyg_glif")]
    states = dict(line.split(maxsplit=1) for line in lines if line)
    assert (states["bios"], states["toxicity"]) == ("found", "not found")
    assert states["data"].endswith(f" {tmp_path / 'data'} (set by PYG_GLIF_DATA)")


def test_info_is_right_about_what_is_part_of_the_package(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYG_GLIF_DATA", raising=False)
    call = shell("info")
    (line,) = (line for line in call.out.splitlines() if line.startswith("sentiment "))
    assert line.split(maxsplit=1)[1].startswith("part of the package")
    assert len(Sentiment()[0].x) > 6000  # it works without the folder
    assert "none (PYG_GLIF_DATA is not set)" in call.out
    assert shell("info", "--json").json["data"]["folder"] is None


def test_info_says_which_extra_brings_what_is_missing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    part = shell("info", "--json").json["optional"]["matplotlib"]
    assert part == {"version": None, "extra": "pyg_glif[plots]"}
    assert "missing, comes with 'pyg_glif[plots]'" in shell("info").out


def test_extras_are_those_of_the_package(shell: Shell) -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    brought = {
        re.split(r"[\[<>=;]", requirement)[0]
        for extra, wanted in extras.items()
        if extra not in ("test", "docs", "lint", "dev")  # those of developers
        for requirement in wanted
    }
    shown = shell("info", "--json").json["optional"]
    assert set(shown) == brought - {"pyg_glif"}
    for name, part in shown.items():
        extra = part["extra"].split("[")[1].rstrip("]")
        assert any(one.startswith(name) for one in extras[extra]), name


def test_info_lists_every_data_set(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [getattr(datasets, name) for name in datasets.__all__]
    lines = shell("info").out.splitlines()
    shown = {line.split()[0] for line in lines if line}
    assert set(EXPERIMENTS) <= shown
    assert {kind.__name__.lower() for kind in kinds} <= shown
    places = ["tabular/adult.csv.gz", *(f"graphs/{name}" for name in ("nba", "german"))]
    for place in places:
        (tmp_path / place).mkdir(parents=True)
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    found = shell("info", "--json").json["data"]["found"]
    assert found == ["adult", "german_graph", "nba"]
