"""Opening what people give, and writing what they asked for."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyg_glif._optional import find, require
from pyg_glif.cli.array_source import ArraySource
from pyg_glif.cli.base import UsageError
from pyg_glif.cli.csv_source import CSVSource
from pyg_glif.cli.parquet_source import ParquetSource
from pyg_glif.cli.source import Source

#: Suffixes of tables and arrays.
DATA = (".csv", ".tsv", ".parquet", ".npy", ".npz")


def open_source(path: str) -> Source:
    """The columns of a file, by its suffix."""
    where = Path(path)
    kind = _check_suffix("a file of people", where, DATA)
    readers: dict[str, Callable[[Path], Source]] = {
        ".parquet": ParquetSource,
        ".npy": ArraySource,
        ".npz": ArraySource,
    }
    try:
        if where.is_dir():
            raise UsageError(f"'{path}' must be a file (got a folder)")
        return readers.get(kind, CSVSource)(where)
    except FileNotFoundError as error:
        raise UsageError(f"'{path}' does not exist") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"'{path}' must be UTF-8 text ({error})") from error
    except OSError as error:
        raise UsageError(f"'{path}' cannot be read ({error.strerror})") from error


def check_targets(
    targets: dict[str, tuple[str | None, tuple[str, ...]]], inputs: Sequence[str | None]
) -> None:
    """Raises on anything that could not be written in the end, before it is made.

    ``targets`` has path and suffixes by option. Old files are replaced, inputs are not.
    """
    taken = {Path(path).resolve(): path for path in inputs if path}
    for option, (path, suffixes) in targets.items():
        if path is None:
            continue
        where = Path(path)
        _check_suffix(option, where, suffixes)
        if where.suffix.lower() == ".parquet" and not find("polars"):
            require("pyarrow.parquet", "writing .parquet", "files")
        if where.resolve() in taken:
            msg = f"{option} must not be '{taken[where.resolve()]}', which has another"
            raise UsageError(f"{msg} use in this call")
        taken[where.resolve()] = path
        if where.is_dir():
            raise UsageError(f"{option} must be a file (got the folder '{path}')")
        try:
            _beside(where).touch()
            _beside(where).unlink()
        except OSError as error:
            msg = f"{option}: '{path}' cannot be written ({error.strerror})"
            raise UsageError(msg) from error


def _check_suffix(what: str, path: Path, suffixes: tuple[str, ...]) -> str:
    """The suffix, if it is one of those known."""
    kind = path.suffix.lower()
    if kind not in suffixes:
        msg = f"{what} must end in {', '.join(suffixes)} (got '{path}')"
        raise UsageError(msg)
    return kind


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside ``path`` that takes its place once it is complete."""
    beside = _beside(path)
    try:
        yield beside
        os.replace(beside, path.resolve())
    finally:
        beside.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name in the same folder that nobody else uses."""
    path = path.resolve()
    return path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")


def write_text(path: str, text: str) -> None:
    """A text file, complete or not at all."""
    with replacing(Path(path)) as beside:
        beside.write_text(text, encoding="utf-8")
