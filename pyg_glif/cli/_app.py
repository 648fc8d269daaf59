"""Reads the command, runs it, prints what it says, and turns errors into codes."""

import argparse
import contextlib
import io
import json
import os
import pkgutil
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from pyg_glif import cli
from pyg_glif._utils.json import plain
from pyg_glif.cli._options import COMMON, Outcome, UsageError, add, nearest_name

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


def commands() -> list[str]:
    """Names of all commands: the modules here without a leading underscore."""
    found = (module.name for module in pkgutil.iter_modules(cli.__path__))
    return [name for name in found if not name.startswith("_")]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv (sequence of str, optional): Words after ``pyg-glif``.
            (default: those of the process)

    Returns the exit code: 0 if all is well, 1 if the work failed, 2 if options or input
    cannot be used, 130 if interrupted. Errors are told on standard error, also that
    standard output takes no more, which is a failure unless its reader has gone.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        pyg-glif ...
        0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    code, text = _run(words)
    try:
        if isinstance(text, bytes) and sys.stdout is not None:
            sys.stdout.buffer.write(text)
        elif isinstance(text, str):
            print(text)
        if sys.stdout is not None:  # as it is where somebody closed it
            sys.stdout.flush()
    except OSError as error:
        # What could not be written must not be tried again when Python ends.
        with contextlib.suppress(OSError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whose reader has seen enough
            msg = f"standard output must take what is printed (got {error})"
            print(f"pyg-glif: error: {msg}", file=sys.stderr)
            code = code or 1
    return code


def _run(words: list[str]) -> tuple[int, str | bytes | None]:
    """Parses and works: the exit code, and what to print if there is something."""
    interrupts = _Interrupts()
    try:
        with interrupts:
            args = _parsed(words)
            with _surroundings():
                outcome = import_module(f"{cli.__name__}.{args.command}").run(args)
    except SystemExit as stop:  # --help and --version
        return int(stop.code or 0), None
    except (KeyboardInterrupt, Exception) as error:
        seen = KeyboardInterrupt() if interrupts.seen else error
        return _fail(seen.with_traceback(error.__traceback__), words)
    return 0, _said(outcome, args)


class _Interrupts:
    """Sees to it that Ctrl-C ends a call, whatever is being loaded at the moment.

    Some packages turn it into an error of their own while they are loaded, or forget
    it: torch goes on without NumPy. So it is remembered, and raised until it is heard.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Interrupts":
        # No thread but the first may ask for signals.
        if threading.current_thread() is threading.main_thread():
            self._handle(signal.SIGINT)
        return self

    def _handle(self, number: int) -> None:
        """Installs our handler for a signal, and keeps the one before."""
        self._before.setdefault(number, signal.signal(number, self._raise))

    def _raise(self, *_: object) -> NoReturn:
        self.seen = True
        if hasattr(signal, "setitimer"):  # not every system has alarms
            self._handle(signal.SIGALRM)
            # Raises once more in half a second, unless this one ends the call.
            signal.setitimer(signal.ITIMER_REAL, 0.5)
        raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        if len(self._before) > 1:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _said(outcome: Outcome, args: argparse.Namespace) -> str | bytes:
    """An outcome as a table, as JSON or as text; beside a table, text goes aside."""
    if outcome.table is not None:
        if not args.quiet:
            print(outcome.text, file=sys.stderr)
        return outcome.table
    return json.dumps(plain(outcome.data), indent=2) if args.json else outcome.text


def _fail(error: BaseException, words: list[str]) -> tuple[int, str | None]:
    """Tells an error; its exit code, and the error as JSON if that was asked for."""
    # Parsing itself may have failed, so there need not be parsed options.
    if "--debug" in words:
        traceback.print_exception(error)
    code, message = _verdict(error)
    print(f"pyg-glif: error: {message}", file=sys.stderr)
    as_json = json.dumps({"error": message, "exit_code": code})
    return code, as_json if "--json" in words else None


def _verdict(error: BaseException) -> tuple[int, str]:
    """The exit code for an error, and its message in one line."""
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    message = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, (UsageError, ValueError, TypeError, FileNotFoundError)):
        return 2, message
    if isinstance(error, (RuntimeError, MemoryError, OSError, ImportError)):
        return 1, message
    return 1, f"{type(error).__name__}: {message}. Add --debug to see where"


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    """Sends what is printed inside to standard error, and shortens warnings."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in the code."""
    print(f"pyg-glif: warning: {' '.join(str(message).split())}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser that raises :class:`UsageError` instead of ending the process."""

    #: Commands and options, to tell what was meant.
    known: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Raises with what is wrong and the command that shows the help."""
        unknown = re.match(r"unrecognized arguments: (--[\w-]+)", message)
        unknown = unknown or re.match(
            r"argument COMMAND: invalid choice: '(\w+)", message
        )
        meant = nearest_name(unknown[1], self.known) if unknown else None
        question = "" if meant is None else f". Did you mean '{meant}'?"
        raise UsageError(f"{message}{question or '.'} See '{self.prog} --help'")


class _Version(argparse.Action):
    """Looks the version up when it is asked for: reading metadata takes its time."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Prints the version and raises :class:`SystemExit` with code 0."""
        from importlib.metadata import version

        print(f"pyg-glif {version('pyg_glif')}")
        raise SystemExit(0)


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a call; ends the process for help, versions and mistakes."""
    try:
        return _parser().parse_args(words)
    except BrokenPipeError as closed:
        # Python 3.10 raises this where nobody reads the help; later ones go on.
        raise SystemExit(0) from closed


def _parser() -> argparse.ArgumentParser:
    """The parser of the command line, with one sub-parser per command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="pyg-glif",
        description="Make the outputs of a model treat similar people alike.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and exit"
    )
    children = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name in commands():
        module = import_module(f"{cli.__name__}.{name}")
        child = children.add_parser(
            name,
            help=module.SUMMARY,
            description=module.DESCRIPTION,
            epilog=module.EPILOG,
            formatter_class=raw,
            allow_abbrev=False,
        )
        module.add_arguments(child)
        add(child, "what is shown", COMMON)
        parser.known += (name, *child._option_string_actions)
    return parser
