"""Adds options to parsers, and writes them back as words."""

import argparse
from typing import Any

from pyg_glif.cli.options import Options


def add_files(parser: argparse.ArgumentParser) -> None:
    """The one or two files that hold people."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="people: .csv, .tsv, .parquet, .npy (columns are numbered from 0) or "
        ".npz (arrays by name, column 3 of x is x.3)",
    )
    parser.add_argument(
        "outputs_file",
        metavar="OUTPUTS",
        nargs="?",
        help="the model's outputs for the same rows, if DATA does not hold them",
    )


def add_radius(parser: argparse.ArgumentParser) -> None:
    """The radius, or what decides it."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--tau", type=float, help="people within this distance are similar"
    )
    group.add_argument(
        "--target-degree",
        type=float,
        metavar="D",
        help="choose tau so that people have D neighbours on average (default: 20)",
    )


def add(parser: argparse.ArgumentParser, title: str, *tables: Options) -> None:
    """Adds tables of options under a title."""
    group = parser.add_argument_group(title)
    for table in tables:
        for flag, arguments in table.items():
            group.add_argument(flag, **arguments)


def given(args: argparse.Namespace, *tables: Options) -> dict[str, Any]:
    """Options that differ from their default, by flag."""
    found = {}
    for table in tables:
        for flag, arguments in table.items():
            value = getattr(args, flag[2:].replace("-", "_"), None)
            if value not in (None, False, arguments.get("default")):
                found[flag] = value
    return found


def written(options: dict[str, Any]) -> list[str]:
    """Options as words of a command."""
    words = []
    for flag, value in options.items():
        words.append(flag)
        if isinstance(value, list):
            words.append(",".join(f'"{v}"' if "," in str(v) else str(v) for v in value))
        elif value is not True:
            words.append(repr(value) if isinstance(value, float) else str(value))
    return words
