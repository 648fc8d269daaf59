"""Reads the command, runs it, prints what it says, and turns errors into codes."""

import argparse
import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn

from pyg_glif._plain import plain
from pyg_glif.cli.arguments import add
from pyg_glif.cli.base import Outcome, Run, UsageError
from pyg_glif.cli.options import COMMON
from pyg_glif.cli.surroundings import surroundings

_COMMANDS = {
    "smooth": "make outputs treat similar people alike, and write them",
    "audit": "report how similar people are treated",
    "tune": "choose radius and strength by what they cost",
    "info": "versions, optional parts, where data is looked for",
    "reproduce": "repeat an experiment of the paper",
}
_EPILOG = """\
examples:
  pyg-glif smooth people.csv --outputs score --standardize --out fair.csv
  pyg-glif audit people.csv --outputs score --standardize --attributes sex
  pyg-glif COMMAND --help

exit codes:
  0    fine
  1    the work failed: no convergence, memory, disk, a missing optional package
  2    wrong options or unusable input
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv (sequence of str, optional): Words after ``pyg-glif``.
            (default: those of the process)

    Returns the exit code: 0 if all is well, 1 if the work failed, 2 if options or input
    cannot be used, 130 if interrupted. Errors are told on standard error.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        pyg-glif ...
        0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = _main(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (such as 'head') has seen enough; Python must not try again.
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _main(words: list[str]) -> int:
    """Everything but broken pipes."""
    try:
        args = _parser().parse_args(words)
        with surroundings(args):
            run: Run = import_module(f"pyg_glif.cli.{args.command}").run
            outcome = run(args)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0)
    except (KeyboardInterrupt, Exception) as error:
        return _fail(error, words)
    _say(outcome, args.json)
    return 0


def _say(outcome: Outcome, as_json: bool) -> None:
    """Prints an outcome."""
    print(json.dumps(plain(outcome.data), indent=2) if as_json else outcome.text)


def _fail(error: BaseException, words: list[str]) -> int:
    """Tells an error, and says which code it has."""
    if "--debug" in words:
        traceback.print_exception(error)
    code, message = _verdict(error)
    print(f"pyg-glif: error: {message}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": message, "exit_code": code}))
    return code


def _verdict(error: BaseException) -> tuple[int, str]:
    """Exit code and message."""
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (UsageError, ValueError, TypeError, FileNotFoundError)):
        return 2, message
    if isinstance(error, (RuntimeError, MemoryError, OSError, ImportError)):
        return 1, message
    return 1, f"{type(error).__name__}: {message}. Add --debug to see where"


class _Parser(argparse.ArgumentParser):
    """Raises in place of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        """Says what is wrong and where to read on."""
        raise UsageError(f"{message}. See '{self.prog} --help'")


def _parser() -> argparse.ArgumentParser:
    """All commands."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="pyg-glif",
        description="Make the outputs of a model treat similar people alike.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    shown = f"pyg-glif {version('pyg_glif')}"
    parser.add_argument("--version", action="version", version=shown)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name, summary in _COMMANDS.items():
        module = import_module(f"pyg_glif.cli.{name}")
        child = commands.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=raw,
            allow_abbrev=False,
        )
        module.add_arguments(child)
        add(child, "what is shown", COMMON)
    return parser
