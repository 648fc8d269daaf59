"""The calls of the page about the command line, and what it says they print."""

import doctest
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyg_glif import cli
from pyg_glif.cli._app import commands
from tests.cli.calls import Shell

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "command_line.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(kind: str) -> list[str]:
    """Blocks of one kind."""
    return [text for name, text in BLOCK.findall(PAGE.read_text()) if name == kind]


def calls() -> Iterator[tuple[str, str]]:
    """Every command, and what is shown below it."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


def first_lines(words: list[str]) -> str:
    """What ``head -n N FILE`` prints, or writes after ``>``."""
    _, _, count, name, *target = words
    lines = Path(name).read_text().splitlines(keepends=True)[: int(count)]
    if not target:
        return "".join(lines)
    Path(target[1]).write_text("".join(lines))
    return ""


def test_the_page_shows_what_calls_print(shell: Shell) -> None:
    (setup,) = blocks("python")
    exec(setup, {})
    checker, seen = doctest.OutputChecker(), set()
    for command, shown in calls():
        program, *words = shlex.split(command)
        if program == "head":
            printed = first_lines([program, *words])
        else:
            assert program == "pyg-glif"
            seen.add(words[0])
            call = shell(*words)
            printed = call.out + call.err
        matches = checker.check_output(shown, printed, doctest.ELLIPSIS)
        assert matches, f"$ {command}\n{printed}"
    assert seen == {"smooth", "audit", "explain", "tune", "info"}


def test_every_option_on_the_page_exists(shell: Shell) -> None:
    known = "".join(shell(name, "--help").out for name in commands())
    flags = set(re.findall(r"--[a-z][a-z-]*", PAGE.read_text()))
    assert "--outputs" in flags
    for flag in flags:
        assert re.search(rf"{flag}\b", known), flag


def test_the_documented_way_to_add_a_command_is_all_there_is_to_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "architecture.md").read_text().partition("(add-a-command)=")[2]
    code = next(text for name, text in BLOCK.findall(page) if name == "python")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "columns.py").write_text(code)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path / "more")])
    monkeypatch.delitem(sys.modules, "pyg_glif.cli.columns", raising=False)
    Path("p.csv").write_text("name,age\nAda,36\n")
    assert shell("columns", "p.csv").out == "name  Ada\nage   36\n"
    assert shell("columns", "p.csv", "--json").json["age"] == "36"
    shell("columns", "q.csv").fails(2, "'q.csv' does not exist")
    assert "list the columns of a file" in shell("--help").out
    assert shell("columns", "--help").out.startswith("usage: pyg-glif columns ")
