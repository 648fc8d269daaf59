"""What commands take and give."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias


class UsageError(ValueError):
    """Wrong options or unusable input; the message is for the person who typed."""


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: for people, and as plain data."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


#: Does the work of one command.
Run: TypeAlias = Callable[[argparse.Namespace], Outcome]


def note(args: argparse.Namespace, message: str) -> None:
    """Tells something in passing, on standard error."""
    if not args.quiet:
        print(f"pyg-glif: {message}", file=sys.stderr)


def listed(names: list[str], most: int = 12) -> str:
    """Names for a message, not more than fit."""
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"


def aligned(rows: list[tuple[str, Any]]) -> str:
    """Two columns of text; numbers in five digits."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {short(value)}" for name, value in rows)


def short(value: Any) -> str:
    """A number in five digits, anything else as it is."""
    return f"{value:.5g}" if isinstance(value, float) else str(value)
