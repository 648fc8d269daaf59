import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from tests.cli.calls import Shell

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="needs tomli before Python 3.11")


def test_info(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    facts = shell("info", "--json").json
    assert facts["command"] == "info"
    assert facts["versions"]["torch"] == metadata.version("torch")
    assert facts["machine"]["threads"] == torch.get_num_threads()
    assert facts["data"] == {"variable": "PYG_GLIF_DATA", "folder": str(tmp_path)}
    lines = shell("info").out.splitlines()
    assert lines[0].split() == ["pyg_glif", metadata.version("pyg_glif")]
    assert lines[-1].endswith(f" {tmp_path} (set by PYG_GLIF_DATA)")
    monkeypatch.delenv("PYG_GLIF_DATA")
    assert "none (PYG_GLIF_DATA is not set)" in shell("info").out
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
