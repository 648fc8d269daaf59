"""Tables in files by columns; errors name every fault by its place."""

import argparse
import contextlib
import csv
import gzip
import io
import re
import sys
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.optional import require
from pyg_glif.cli._dtypes import (
    CellError,
    Fault,
    Notation,
    as_numbers,
    remedy,
    typed,
)
from pyg_glif.cli._options import (
    STREAM,
    UsageError,
    check_table,
    listed,
    suffix_of,
)

# Rows of text that are held at once when a file is read as numbers.
_CHUNK = 4096
_NUL = "it holds the character NUL"


class FileTable(ABC):
    """Columns of one file, which are read when they are asked for.

    Args:
        path (Path): The file.
        names (sequence of str): Its columns.
        blocks (dict, optional): Names that stand for several columns.
        notation (Notation, optional): How cells are written.
    """

    #: Columns that were left out because they have no name.
    num_unnamed = 0

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        blocks: dict[str, list[str]] | None = None,
        notation: Notation | None = None,
    ) -> None:
        self.path = path
        self.notation = notation or Notation()
        self.names = list(names)
        self.blocks = blocks or {}
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            columns = "column" if len(twice) == 1 else "columns"
            raise UsageError(
                f"'{path}': {columns} {listed(twice)} must not appear more than once"
            )

    @abstractmethod
    def columns(self, names: Sequence[str]) -> list[NDArray[Any]]:
        """Columns as they are stored, each ``[N]``; text as objects."""

    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``; text as objects."""
        return self.columns([name])[0]

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        columns, faults = [], []
        for name, column in zip(names, self.columns(names), strict=True):
            values, row = as_numbers(column, self.notation)
            columns.append(values)
            if row is not None:
                faults.append(self._fault(name, row, column[row]))
        if faults:
            raise CellError(self.path, faults)
        return np.stack(columns, axis=1)

    def frame(
        self,
        names: Sequence[str],
        as_text: Collection[str] = (),
        option: str | None = None,
    ) -> Any:
        """Columns as a frame of pandas: numbers, truth values, dates or text.

        Cells that stand for a gap are missing values. Raises on odd cells, the first
        of every column; ``option`` is the one that takes columns as text.
        """
        import pandas as pd

        columns, faults = {}, []
        for name, column in zip(names, self.columns(names), strict=True):
            columns[name], odd = typed(column, name in as_text, self.notation)
            if odd is not None:
                fault = self._fault(name, odd.row, odd.cell, odd.holds)
                if fault.remedy and option:
                    more = f"{fault.remedy}, or name it in '{option}' of --config"
                    fault = fault._replace(remedy=more)
                faults.append(fault)
        if faults:
            raise CellError(self.path, faults)
        return pd.DataFrame(columns)

    def place(self, row: int) -> str:
        """The place of a row, as messages name it."""
        return f"row {row}"

    def _fault(self, name: str, row: int, cell: Any, holds: str = "numbers") -> Fault:
        """The fault of a cell, and how the cell could be read all the same."""
        cell = cell.strip() if isinstance(cell, str) else cell
        number = self.notation.number(cell) if holds == "numbers" else None
        if number is not None:
            return Fault(name, self.place(row), number)
        cell = cell if cell is None else str(cell)
        way = remedy(cell, self.notation, holds)
        return Fault(name, self.place(row), cell, holds, way)

    def outputs(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, ``[N]`` for a single column."""
        value = self.numbers(names)
        return value[:, 0] if len(names) == 1 else value

    def whole(self, names: Sequence[str]) -> str | None:
        """The name of the array whose columns are ``names``, if there is one."""
        return next((key for key, all in self.blocks.items() if all == names), None)

    def find(self, name: str) -> list[str]:
        """Columns that a name, an array or a pattern with ``*`` stands for."""
        if name in self.names:
            return [name]
        if name in self.blocks:
            return self.blocks[name]
        # Only '*' is special: names of columns may hold the other characters.
        pattern = name.replace("[", "[[]").replace("?", "[?]")
        return [n for n in self.names if "*" in name and fnmatchcase(n, pattern)]

    @property
    def contents(self) -> str:
        """Names for messages: arrays in place of their columns."""
        inside = {name for block in self.blocks.values() for name in block}
        return listed([*self.blocks, *(n for n in self.names if n not in inside)])


class TextTable(FileTable):
    """CSV whose first record names the columns.

    The delimiter is a comma, a semicolon or a tab, whichever the first record has.
    Columns without a name, such as the index that pandas writes, are left out.
    The :mod:`csv` module reads it, because pandas fills up short rows and drops the
    end of long ones.
    """

    def __init__(self, path: Path, notation: Notation) -> None:
        if str(path) == STREAM:
            self._content = sys.stdin.buffer.read()
        else:
            self._content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            self._content = gzip.decompress(self._content)
        # Byte order marks are no part of the first name.
        utf8 = notation.encoding in (None, "utf-8")
        self._encoding = "utf-8-sig" if utf8 else str(notation.encoding)
        self.path = path
        try:
            self._delimiter = self._find_delimiter(notation.decimal)
            self._header = _header(path, next(self._records(), (1, []))[1])
            for _ in self._rows():  # raises on rows with too many or too few cells
                pass
        except UnicodeError as error:
            raise self._encoding_error() from error
        self.num_unnamed = self._header.count("")
        super().__init__(path, [name for name in self._header if name], None, notation)

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        if self.notation.decimal is not None:
            return super().numbers(names)
        rows, parts = self._cells(names), [np.empty((0, len(names)))]
        try:
            while chunk := [list(map(float, row)) for row in islice(rows, _CHUNK)]:
                parts.append(np.array(chunk))
        except ValueError:
            return super().numbers(names)  # raises, or reads what this cannot
        value = np.concatenate(parts)
        return value if np.isfinite(value).all() else super().numbers(names)

    def columns(self, names: Sequence[str]) -> list[NDArray[Any]]:
        """Columns of text, each ``[N]``."""
        cells = list(self._cells(names))
        rows = np.array(cells, dtype=object).reshape(len(cells), len(names))
        return list(rows.T)

    def _cells(self, names: Sequence[str]) -> Iterator[list[str]]:
        """Cells of the named columns, row by row."""
        where = {name: k for k, name in enumerate(self._header)}
        positions = [where[name] for name in names]
        return ([row[k] for k in positions] for _, row in self._rows())

    def place(self, row: int) -> str:
        """The line in which a row ends; quoted line breaks are counted."""
        return f"line {next(islice(self._rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every row, as many as the header has."""
        blank = 0
        for line, row in islice(self._records(), 1, None):
            if not row:  # fine at the end of the file only
                blank = blank or line
                continue
            if blank or len(row) != len(self._header):
                msg = f"'{self.path}': line {blank or line} must have "
                msg += f"{len(self._header)} cells like the first line"
                got = 0 if blank else len(row)
                how = "Quote cells that hold the delimiter"
                raise UsageError(f"{msg} (got {got}). {how}")
            yield line, row

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every record, the header among them."""
        reader = csv.reader(self._open(), delimiter=self._delimiter, strict=True)
        try:
            for row in reader:
                if any("\0" in cell for cell in row):
                    raise csv.Error(_NUL)
                yield reader.line_num, row
        except csv.Error as error:
            # Python 3.10 refuses NUL by itself, in other words.
            reason = _NUL if "NUL" in str(error) else error
            msg = f"'{self.path}': line {max(reader.line_num, 1)} is broken ({reason})"
            raise UsageError(msg) from error

    def _open(self) -> io.TextIOWrapper:
        """The text of the file, with its ends of lines as they are."""
        return io.TextIOWrapper(
            io.BytesIO(self._content), encoding=self._encoding, newline=""
        )

    def _encoding_error(self) -> UsageError:
        """The error for the first byte that is not in the encoding."""
        if self._encoding != "utf-8-sig":
            msg = f"--encoding must be that of '{self.path}' (got {self._encoding})"
            return UsageError(msg)
        try:
            self._content.decode("utf-8")
            start = 0
        except UnicodeDecodeError as error:
            start = error.start
        line = 1 + len(re.findall(rb"\r\n?|\n", self._content[:start]))
        msg = f"'{self.path}': line {line} must be UTF-8 text"
        how = "Save the table as UTF-8, or name its encoding by --encoding"
        got = f"got the byte {self._content[start]:#x}"
        return UsageError(f"{msg} ({got}). {how}, such as cp1252 or utf-16")

    def _find_delimiter(self, decimal: str | None) -> str:
        """The sign that cuts the first record into most cells, outside of quotes."""
        counts = []
        for strict in (True, False):
            # Of those that cut nothing the first is taken: not the decimal sign.
            for sign in ";\t," if decimal == "," else ",;\t":
                with contextlib.suppress(csv.Error):
                    reader = csv.reader(self._open(), delimiter=sign, strict=strict)
                    record = next(reader, [])
                    # Quotes that are never closed are reported when rows are read.
                    counts.append((len(record) > 1, strict, len(record), sign))
        return max(counts, key=lambda count: count[:3])[3] if counts else ","


def _header(path: Path, cells: list[str]) -> list[str]:
    """Names of the columns, from the cells of the first record."""
    header = [cell.strip() for cell in cells]
    named = [name for name in header if name]
    msg = f"'{path}' must start with a line of column names"
    if not named:
        raise UsageError(msg)
    # Numbers from 0 are names that programs give; any others are data.
    numbered = [str(i) for i in range(len(named))]
    number = Notation().number
    if named != numbered and all(number(name) is not None for name in named):
        raise UsageError(f"{msg} (got {', '.join(named[:3])})")
    return header


class FrameTable(FileTable):
    """Columns of pandas."""

    @abstractmethod
    def _series(self, name: str) -> Any:
        """A column as a series of pandas."""

    def columns(self, names: Sequence[str]) -> list[NDArray[Any]]:
        """Columns as they are stored, each ``[N]``; categories as their values."""
        return [_objects(self._series(name)) for name in names]

    def frame(
        self,
        names: Sequence[str],
        as_text: Collection[str] = (),
        option: str | None = None,
    ) -> Any:
        """Columns as a frame of pandas; numbers that are categories are text."""
        coded = [n for n in names if str(self._series(n).dtype) == "category"]
        return super().frame(names, {*as_text, *coded}, option)


def _objects(series: Any) -> NDArray[Any]:
    """A series as numbers, or as objects with ``None`` for gaps."""
    if series.dtype.kind in "fiub":
        return np.asarray(series.to_numpy())
    # Not 'np.array(cells)', which makes a matrix of lists of equal length.
    cells = np.empty(len(series), dtype=object)
    cells[:] = series.tolist()
    cells[series.isna().to_numpy()] = None
    return cells


class ParquetTable(FrameTable):
    """A table with typed columns; only those asked for are read."""

    def __init__(self, path: Path, notation: Notation) -> None:
        self._arrow = require("pyarrow.parquet", "reading .parquet", "files")
        try:
            names = self._arrow.read_schema(path).names
        except Exception as error:  # the package has errors of many kinds
            raise UsageError(f"'{path}' must be a Parquet file ({error})") from error
        super().__init__(path, names, None, notation)

    def _series(self, name: str) -> Any:
        try:
            table = self._arrow.read_table(self.path, columns=[name])
            # The index that pandas notes in the file is a column like the others.
            return table.to_pandas(ignore_metadata=True).iloc[:, 0]
        except Exception as error:
            msg = f"'{self.path}': column '{name}' cannot be read ({error})"
            raise UsageError(msg) from error


class ExcelTable(FrameTable):
    """A sheet of a spreadsheet, whose first row names the columns."""

    def __init__(self, path: Path, notation: Notation) -> None:
        import pandas as pd

        require("openpyxl", "reading .xlsx", "files")
        try:
            with pd.ExcelFile(path, engine="openpyxl") as book:
                sheets = [str(name) for name in book.sheet_names]
                sheet = notation.sheet or sheets[0]
                if sheet not in sheets:
                    msg = f"--sheet: '{path}' has no sheet '{sheet}'"
                    raise UsageError(f"{msg} (it has {listed(sheets)})")
                # Cells as they are: nothing in them is read as missing.
                frame = pd.read_excel(
                    book, sheet_name=sheet, header=None, dtype=object, na_filter=False
                )
        except UsageError:
            raise
        except Exception as error:  # zip files and XML break in many ways
            msg = f"'{path}' must be a spreadsheet of Excel ({error})"
            raise UsageError(msg) from error
        frame = frame.mask(frame == "", None)
        rows = frame.notna().any(axis=1)
        frame = frame.loc[: rows[rows].index.max()] if rows.any() else frame[:0]
        first = frame[:1].to_numpy().ravel()
        header = _header(path, ["" if pd.isna(cell) else str(cell) for cell in first])
        self.num_unnamed = header.count("")
        self._frame = frame[1:].set_axis(header, axis=1)
        super().__init__(path, [name for name in header if name], None, notation)

    def _series(self, name: str) -> Any:
        return self._frame[name].infer_objects()

    def place(self, row: int) -> str:
        """The row as the spreadsheet counts it, from the names on."""
        return f"row {row + 2}"


class ArrayTable(FileTable):
    """Arrays ``[N]`` or ``[N, C]`` as NumPy keeps them; one without a name, or several.

    Column 3 of array ``x`` is ``x.3``, and ``3`` if the array has no name.
    """

    def __init__(self, path: Path, notation: Notation) -> None:
        self._arrays = _load(path)
        self._where: dict[str, tuple[str, int]] = {}
        names: list[str] = []
        blocks: dict[str, list[str]] = {}
        for key, array in self._arrays.items():
            if array.ndim == 1 and key:
                leaves = [key]
            else:
                width = 1 if array.ndim == 1 else array.shape[1]
                leaves = [f"{key}.{j}" if key else f"{j}" for j in range(width)]
                if key:
                    blocks[key] = leaves
            self._where.update({leaf: (key, j) for j, leaf in enumerate(leaves)})
            names += leaves
        super().__init__(path, names, blocks, notation)

    def columns(self, names: Sequence[str]) -> list[NDArray[Any]]:
        """Columns as they are stored, each ``[N]``; text as objects."""
        out = []
        for key, j in map(self._where.__getitem__, names):
            array = self._arrays[key]
            column = array if array.ndim == 1 else array[:, j]
            is_numeric = column.dtype.kind in "fiub"
            out.append(column if is_numeric else column.astype(object))
        return out

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        keys = dict.fromkeys(self._where[name][0] for name in names)
        rows = {key: len(self._arrays[key]) for key in keys}
        if len(set(rows.values())) > 1:
            got = ", ".join(f"{size} in '{key}'" for key, size in rows.items())
            msg = f"'{self.path}': arrays must have equally many rows (got {got})"
            raise UsageError(f"{msg}. Pick arrays with --features")
        array = self._arrays[self._where[names[0]][0]]
        if array.ndim == 2 and array.dtype.kind in "fiub":
            leaves = [name for name, (key, _) in self._where.items() if key in keys]
            # A whole array is taken as it is, without a copy.
            if list(names) == leaves and np.isfinite(array).all():
                return array
        return super().numbers(names)

    def outputs(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers; a matrix of one column stays one."""
        value = self.numbers(names)
        is_vector = self._arrays[self._where[names[0]][0]].ndim == 1
        return value[:, 0] if len(names) == 1 and is_vector else value

    def whole(self, names: Sequence[str]) -> str | None:
        """The name of the array whose columns are ``names``, if there is one."""
        # An array without a name is the only one of its file.
        unnamed = "" in self._arrays and list(names) == self.names
        return "outputs" if unnamed else super().whole(names)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays by name, the name of a single one being empty; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            single = isinstance(content, np.ndarray)
            arrays = {"": content} if single else dict(content)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # damaged headers end in errors of many kinds
        kind = "arrays of numbers or text" if path.suffix == ".npz" else "an array"
        raise UsageError(f"'{path}' must hold {kind} ({error})") from error
    for key, array in arrays.items():
        if array.ndim not in (1, 2):
            of = f"array '{key}' " if key else ""
            msg = f"'{path}': {of}must have 1 or 2 dimensions"
            raise UsageError(f"{msg} (got shape {array.shape})")
    return arrays


def open_table(path: str, args: argparse.Namespace | None = None) -> FileTable:
    """The columns of a file, by its suffix; of standard input as CSV.

    Options among ``args`` say how cells are written.
    """
    check_table(path)
    notation = Notation() if args is None else Notation.of(args)
    kinds: dict[str, type[Any]] = {".parquet": ParquetTable, ".xlsx": ExcelTable}
    kinds |= {".npy": ArrayTable, ".npz": ArrayTable}
    kind = kinds.get(suffix_of(path), TextTable)
    try:
        table: FileTable = kind(Path(path), notation)
    except FileNotFoundError as error:
        raise UsageError(f"'{path}' does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"'{path}' must be a whole gzip file ({error})") from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"'{path}' cannot be read ({reason})") from error
    return table
