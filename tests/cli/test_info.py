import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

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
    assert lines[-2].split() == ["bios", "found"]
    assert lines[-1].split(maxsplit=1) == ["toxicity", "not found"]
    assert lines[-4].endswith(f"{tmp_path / 'data'} (set by PYG_GLIF_DATA)")


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
    for name, part in shell("info", "--json").json["optional"].items():
        extra = part["extra"].split("[")[1].rstrip("]")
        assert any(one.startswith(name) for one in extras[extra]), name
