"""CSV without pandas: every cell accounted for, every fault with its line."""

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli.base import UsageError
from pyg_glif.cli.source import Source

# Rows whose text is held at once.
_CHUNK = 4096


class CSVSource(Source):
    """A table whose first line names the columns.

    Commas, semicolons and tabs are told apart by the first line. Columns without a
    name, such as the index that pandas writes, are left out.
    """

    def __init__(self, path: Path) -> None:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
        self._delimiter = max(",;\t", key=first.count)
        self._header = _header(path, next(csv.reader([first], **self._dialect), []))
        self.num_unnamed = self._header.count("")
        super().__init__(path, [name for name in self._header if name])

    @property
    def _dialect(self) -> dict[str, Any]:
        return {"delimiter": self._delimiter, "strict": True}

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        at = [self._header.index(name) for name in names]
        rows = ([row[j] for j in at] for _, row in self._rows())
        parts = [np.empty((0, len(at)))]
        for start in itertools.count(0, _CHUNK):
            cells = list(itertools.islice(rows, _CHUNK))
            if not cells:
                return np.concatenate(parts)
            parts.append(self._parse(cells, names, start))
        raise AssertionError

    def _parse(
        self, cells: list[list[str]], names: Sequence[str], start: int
    ) -> NDArray[Any]:
        """Numbers from some rows of text."""
        try:
            value = np.array(cells, dtype=np.float64)
        except ValueError:
            raise self._first_text(cells, names, start) from None
        self.check_finite(value, names, start)
        return value

    def _first_text(
        self, cells: list[list[str]], names: Sequence[str], start: int
    ) -> UsageError:
        """The error for the first cell that is no number."""
        for row, line in enumerate(cells, start):
            for name, cell in zip(names, line, strict=True):
                try:
                    float(cell)
                except ValueError:
                    return self.text_error(name, row, cell.strip())
        raise AssertionError

    def column(self, name: str) -> NDArray[Any]:
        """The text of a column, ``[N]``."""
        at = self._header.index(name)
        return np.array([row[at] for _, row in self._rows()], dtype=np.str_)

    def place(self, row: int) -> str:
        """The line in which a row ends, which quoted line breaks shift."""
        line, _ = next(itertools.islice(self._rows(), row, None))
        return f"line {line}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every row."""
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, **self._dialect)
            next(reader)
            blank = None
            try:
                for row in reader:
                    if not row:  # fine at the end of the file only
                        blank = blank or reader.line_num
                        continue
                    if blank is not None or len(row) != len(self._header):
                        self._ragged(blank or reader.line_num, 0 if blank else len(row))
                    yield reader.line_num, row
            except (csv.Error, UnicodeDecodeError) as error:
                msg = f"'{self.path}': line {reader.line_num} is broken ({error})"
                raise UsageError(msg) from error

    def _ragged(self, line: int, got: int) -> None:
        """Says which line has too many or too few cells."""
        msg = f"'{self.path}': line {line} must have {len(self._header)} cells"
        remedy = "Quote cells that hold the delimiter"
        raise UsageError(f"{msg} like the first line (got {got}). {remedy}")


def _header(path: Path, cells: list[str]) -> list[str]:
    """Names of columns."""
    header = [cell.strip() for cell in cells]
    if not any(header):
        raise UsageError(f"'{path}' must start with a line of column names")
    named = [name for name in header if name]
    twice = [name for name in named if named.count(name) > 1]
    if twice:
        raise UsageError(f"'{path}': column '{twice[0]}' must be there once only")
    # Numbers from 0 are names that programs give; any others are somebody's data.
    if all(_is_number(name) for name in named):
        numbered = [str(i) for i in range(len(named))]
        if named != numbered:
            got = ", ".join(named[:3])
            msg = f"'{path}' must start with a line of column names (got {got})"
            raise UsageError(msg)
    return header


def _is_number(cell: str) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
