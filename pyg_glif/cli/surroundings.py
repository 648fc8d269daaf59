"""Streams and warnings while a command works."""

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO


class _NoTerminal:
    """A stream that says it is no terminal, so that no progress bar appears."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """No."""
        return False


@contextlib.contextmanager
def surroundings(args: argparse.Namespace) -> Iterator[None]:
    """Keeps standard output for the outcome, and warnings short."""
    with contextlib.ExitStack() as stack:
        if args.quiet or args.no_progress:
            dumb: Any = _NoTerminal(sys.stderr)
            stack.enter_context(contextlib.redirect_stderr(dumb))
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning as one line, without the place in the code."""
    print(f"pyg-glif: warning: {' '.join(str(message).split())}", file=sys.stderr)
