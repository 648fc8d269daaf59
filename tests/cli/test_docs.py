"""The calls of the page about the command line, and what it says they print."""

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from pyg_glif.cli._app import commands
from tests.cli.calls import Shell

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
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
    assert seen == {"smooth", "audit", "tune", "info"}


def test_every_option_on_the_page_exists(shell: Shell) -> None:
    known = "".join(shell(name, "--help").out for name in commands())
    for flag in set(re.findall(r"--[a-z][a-z-]*", PAGE.read_text())):
        assert re.search(rf"{flag}\b", known), flag
