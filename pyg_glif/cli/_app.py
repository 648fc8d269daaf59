"""The program: parses a command, runs it, prints its outcome, and codes errors."""

import argparse
import contextlib
import io
import json
import os
import pkgutil
import re
import signal
import sys
import textwrap
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, NoReturn

from pyg_glif import cli
from pyg_glif._utils.json import plain
from pyg_glif.cli._options import (
    COMMON,
    Options,
    Outcome,
    UsageError,
    add,
    listed,
    nearest_name,
    settings_of,
    text,
)

_EPILOG = """\
examples:
  pyg-glif smooth people.csv --outputs score --sensitive sex --out fair.csv
  pyg-glif audit people.csv --outputs score --sensitive sex
  pyg-glif COMMAND --help

exit codes:
  0    fine
  1    the work failed: no convergence, memory, disk, a missing optional package
  2    wrong options or unusable input
  130  interrupted
"""


def commands() -> list[str]:
    """Names of all commands: the modules here without a leading underscore."""
    modules = (module.name for module in pkgutil.iter_modules(cli.__path__))
    return [name for name in modules if not name.startswith("_")]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv (sequence of str, optional): Words after ``pyg-glif``.
            (default: those of the process)

    Returns the exit code: 0 if all is well, 1 if the work failed, 2 if options or input
    cannot be used, 130 if interrupted. Errors go to standard error, also that
    standard output takes no more, which is a failure unless its reader has gone.

    Example:
        >>> main(["--version"])  # doctest: +ELLIPSIS
        pyg-glif ...
        0
    """
    words = list(sys.argv[1:] if argv is None else argv)
    code, content = _run(words)
    try:
        if isinstance(content, bytes) and sys.stdout is not None:
            sys.stdout.buffer.write(content)
        elif isinstance(content, str):
            print(content)
        if sys.stdout is not None:  # None where it was closed
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
    """Runs the command: the exit code, and the content of standard output."""
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
    return 0, _printed(outcome, args)


class _Interrupts:
    """Handler of Ctrl-C that ends a call, whatever is being loaded at the moment.

    Some packages turn it into an error of their own while they are loaded, or forget
    it: torch goes on without NumPy. So it is raised again until the call ends.
    """

    def __init__(self) -> None:
        self.seen = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Interrupts":
        # Only the first thread may handle signals.
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


def _printed(outcome: Outcome, args: argparse.Namespace) -> str | bytes:
    """An outcome as a table, as JSON or as text, which a table sends to stderr."""
    if outcome.table is not None:
        if not args.quiet:
            print(outcome.text, file=sys.stderr)
        return outcome.table
    return json.dumps(plain(outcome.data), indent=2) if args.json else outcome.text


def _fail(error: BaseException, words: list[str]) -> tuple[int, str | None]:
    """Prints an error; its exit code, and the error as JSON if that was asked for."""
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
    """Context in which prints go to standard error, and warnings are one line."""
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        # Columns are read by the names of the fit, and are in their order.
        warnings.filterwarnings("ignore", ".*taken by position")
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in the code."""
    print(f"pyg-glif: warning: {' '.join(str(message).split())}", file=sys.stderr)


class _Parser(argparse.ArgumentParser):
    """A parser that raises :class:`UsageError` instead of ending the process."""

    #: Commands or options, for the question about what was meant.
    known: tuple[str, ...] = ()

    def error(self, message: str) -> NoReturn:
        """Raises with what is wrong and the command that shows the help."""
        unknown = re.match(
            r"unrecognized arguments: (--[\w-]+)|"
            r"argument COMMAND: invalid choice: '(\w+)",
            message,
        )
        word = None if unknown is None else unknown[1] or unknown[2]
        known = (*self.known, *self._option_string_actions)
        meant = None if word is None else nearest_name(word, known)
        question = "" if meant is None else f". Did you mean '{meant}'?"
        raise UsageError(f"{message}{question or '.'} See '{self.prog} --help'")


class _Version(argparse.Action):
    """Looks the version up when it is asked for: reading metadata takes its time."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        """Prints the version and raises :class:`SystemExit` with code 0."""
        from importlib.metadata import version

        print(f"pyg-glif {version('pyg_glif')}")
        raise SystemExit(0)


_UNSET = object()


def _parsed(words: list[str]) -> argparse.Namespace:
    """The arguments of a call; ends the process for help, versions and mistakes."""
    try:
        if not words or words[0] not in commands():
            # Never a call: help, the version or a mistake.
            return _parser().parse_args(words)
        parser = command_parser(words[0])
        args = argparse.Namespace(**dict.fromkeys(settings_of(parser)))
        actions = {action.dest: action for action in parser._actions}
        for name, action in actions.items():
            # A value that equals the default wins over the file all the same.
            if action.default not in (None, argparse.SUPPRESS):
                setattr(args, name, _UNSET)
        parser.parse_args(words[1:], args)
    except BrokenPipeError as closed:
        # Python 3.10 raises this where the help has no reader; later ones go on.
        raise SystemExit(0) from closed
    if args.config is not None:
        for name, value in _settings(args.config, words[0], parser).items():
            if getattr(args, name) in (None, _UNSET):
                setattr(args, name, value)
    for name, value in vars(args).items():
        if value is _UNSET:
            setattr(args, name, actions[name].default)
    args.command = words[0]
    return args


def _settings(path: str, command: str, parser: argparse.ArgumentParser) -> Any:
    """Values of the file of ``--config`` by name, checked as words are.

    One file serves several commands: each ignores the settings of the others.
    """
    known = _known(parser)
    values = {}
    for name, value in _toml(path).items():
        if name in known:
            values[name] = _value(path, name, known[name], value)
            continue
        others = [_known(command_parser(other)) for other in commands()]
        if not any(name in options for options in others):
            meant = nearest_name(name, known)
            question = "" if meant is None else f". Did you mean '{meant}'?"
            msg = f"'{path}' has the unknown option '{name}' ('{command}' knows"
            raise UsageError(f"{msg} {listed(sorted(known), len(known))}){question}")
    return values


def _known(parser: argparse.ArgumentParser) -> Options:
    """All that the file of ``--config`` may hold, by name."""
    known = dict(settings_of(parser))
    for action in parser._actions:
        # Neither files of samples, nor the help, nor the file itself.
        if action.option_strings and action.dest not in ("help", "config"):
            switch = {"action": "store_true"} if action.nargs == 0 else {}
            known[action.dest] = {
                "type": action.type or text,
                "choices": action.choices,
                **switch,
            }
    return known


def _value(path: str, name: str, option: dict[str, Any], value: Any) -> Any:
    """A value of a file, as the command line would have it."""
    choices = option.get("choices")
    try:
        if option.get("action") == "store_true":
            if not isinstance(value, bool):
                msg = f"must be true or false (got {value!r})"
                raise argparse.ArgumentTypeError(msg)
            return value
        value = option.get("type", text)(value)
        if choices and value not in choices:
            msg = f"must be one of {listed(list(choices))} (got {value!r})"
            raise argparse.ArgumentTypeError(msg)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"'{path}': '{name}' {error}") from error
    return value


def _toml(path: str) -> dict[str, Any]:
    """The content of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(f"--config: '{path}' does not exist") from error
    except OSError as error:
        msg = f"--config: '{path}' cannot be read ({error.strerror})"
        raise UsageError(msg) from error
    except ValueError as error:
        raise UsageError(f"--config: '{path}' must be TOML ({error})") from error


def _parser() -> argparse.ArgumentParser:
    """The parser of the program: help, version and names of commands."""
    parser = _Parser(
        prog="pyg-glif",
        description="Make the outputs of a model treat similar people alike.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version and exit"
    )
    children = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name in commands():
        module = import_module(f"{cli.__name__}.{name}")
        children.add_parser(name, help=module.SUMMARY)
    parser.known = tuple(commands())
    return parser


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    module = import_module(f"{cli.__name__}.{name}")
    parser = _Parser(
        prog=f"pyg-glif {name}",
        description=module.DESCRIPTION,
        epilog=module.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    add(parser, "what is shown", COMMON)
    settings = ", ".join(sorted(settings_of(parser)))
    if settings:
        lines = textwrap.indent(textwrap.fill(settings, 84), "  ")
        parser.epilog = f"{parser.epilog}\nmore settings of --config:\n{lines}"
    return parser
