"""Reads files of people by columns, and names every fault by its place.

Text tables are checked cell by cell while they stream through :mod:`csv`, which knows
the line it is in; pandas then parses what is known to be a proper table. It is the
faster of the two by far, but fills up short rows and drops long ones. The module is
long because the four kinds of files share their faults and the words for them.
"""

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
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.optional import require
from pyg_glif.cli._dtypes import Notation, remedy, typed
from pyg_glif.cli._options import UsageError, ignoring, listed

#: Suffixes of tables and arrays.
SUFFIXES = (
    *(".csv", ".csv.gz", ".tsv", ".tsv.gz"),
    *(".xlsx", ".parquet", ".npy", ".npz"),
)
# Rows whose text is held at once when numbers are looked at one by one.
_CHUNK = 4096
_NUL = "it holds the character NUL"
#: Standard input, or standard output, in place of a file.
STREAM = "-"


@dataclass(frozen=True)
class Reading:
    """How tables are to be read.

    Args:
        encoding (str, optional): That of text. (default: UTF-8)
        sheet (str, optional): That of a spreadsheet. (default: the first)
        notation (Notation, optional): That of numbers and dates.
    """

    encoding: str | None = None
    sheet: str | None = None
    notation: Notation = field(default_factory=Notation)

    @staticmethod
    def of(args: argparse.Namespace) -> "Reading":
        """What the options ask for; not every command has all of them."""
        given = vars(args).get
        notation = Notation(given("decimal"), given("dates"))
        return Reading(given("encoding"), given("sheet"), notation)


class Fault(NamedTuple):
    """The first cell of a column that is not what the column must hold."""

    column: str
    place: str
    got: Any
    holds: str = "numbers"
    remedy: str | None = None

    def __str__(self) -> str:
        if self.got is None or self.got == "":
            return f"column '{self.column}' is empty in {self.place}"
        got = f"got {self.got}"
        if isinstance(self.got, float):
            return f"column '{self.column}', {self.place} must be finite ({got})"
        got = f"got {self.got!r} in {self.place}"
        return f"column '{self.column}' must hold {self.holds} ({got})"

    @property
    def is_text(self) -> bool:
        """Whether there is something in the cell, and it is no number."""
        return self.got not in (None, "") and not isinstance(self.got, float)


class CellError(UsageError):
    """Columns that should hold numbers and do not, all of them at once."""

    def __init__(
        self, path: Path, faults: Sequence[Fault], outputs: Sequence[str] = ()
    ) -> None:
        self.faults = list(faults)
        known = dict.fromkeys(fault.remedy for fault in faults if fault.remedy)
        faults = [fault for fault in faults if not fault.remedy]
        text = [fault.column for fault in faults if fault.is_text]
        ignored = [name for name in text if name not in outputs]
        remedies = [one for one in known if one]
        if ignored:
            msg = f"Leave {_them(ignored)} out with {ignoring(ignored)}"
            remedies.append(f"{msg}, or pick columns with --features")
        if len(ignored) < len(text):
            remedies.append("Pick other outputs with --outputs")
        rest = [fault.column for fault in faults if not fault.is_text]
        if rest:
            remedies.append(f"Fill or drop {_them(rest)} first")
        super().__init__(f"'{path}': {_some(self.faults)}. {'. '.join(remedies)}")


def _them(names: Sequence[str]) -> str:
    """The pronoun "it" or "them", by the number of names."""
    return "it" if len(names) == 1 else "them"


def _some(faults: Sequence[Fault], most: int = 12) -> str:
    """The first ``most`` faults as one text, and how many more there are."""
    shown = "; ".join(str(fault) for fault in faults[:most])
    return shown + (f"; and {len(faults) - most} more" if len(faults) > most else "")


class FileTable(ABC):
    """Columns of one file; they are read when they are asked for.

    Args:
        path (Path): The file.
        names (sequence of str): Its columns.
        blocks (dict, optional): Names that stand for several columns.
        reading (Reading, optional): How the file is to be read.
    """

    #: Columns that were left out because they have no name.
    num_unnamed = 0

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        blocks: dict[str, list[str]] | None = None,
        reading: Reading | None = None,
    ) -> None:
        self.path = path
        self.reading = reading or Reading()
        self.names = list(names)
        self.blocks = blocks or {}
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            of = "column" if len(twice) == 1 else "columns"
            raise UsageError(
                f"'{path}': {of} {listed(twice)} must not appear more than once"
            )

    @abstractmethod
    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""

    def plain_numbers(self, names: Sequence[str]) -> NDArray[Any] | None:
        """Finite numbers, or ``None`` if some cell is none: a frame is needed then."""
        try:
            return self.numbers(names)
        except CellError:
            return None

    @abstractmethod
    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``; text as objects."""

    def frame(
        self,
        names: Sequence[str],
        as_text: Collection[str] = (),
        option: str | None = None,
    ) -> Any:
        """Columns as a frame of pandas: numbers, truth values, dates or text.

        Cells that say that nothing is known are missing values. Raises on odd cells,
        the first of every column; ``option`` is the one that takes columns as text.
        """
        import pandas as pd

        columns, faults = {}, []
        for name, column in zip(names, self._columns(names), strict=True):
            columns[name], odd = typed(column, name in as_text, self.reading.notation)
            if odd is not None:
                fault = self._fault(name, odd.row, odd.cell, odd.holds)
                if fault.remedy and option:
                    more = f"{fault.remedy}, or name it in '{option}' of --config"
                    fault = fault._replace(remedy=more)
                faults.append(fault)
        if faults:
            raise CellError(self.path, faults)
        return pd.DataFrame(columns)

    def _columns(self, names: Sequence[str]) -> Iterator[Any]:
        """Columns as they are stored."""
        return map(self.column, names)

    def place(self, row: int) -> str:
        """The place of a row, as messages name it."""
        return f"row {row}"

    def _fault(self, name: str, row: int, cell: Any, holds: str = "numbers") -> Fault:
        """What is wrong with a cell, and how it could be read all the same."""
        way = remedy(cell, self.reading.notation, holds)
        return Fault(name, self.place(row), cell, holds, way)

    def outputs(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, ``[N]`` for a single column."""
        value = self.numbers(names)
        return value[:, 0] if len(names) == 1 else value

    def whole(self, names: Sequence[str]) -> str | None:
        """The name of the array that ``names`` are all columns of, if there is one."""
        return next((key for key, all in self.blocks.items() if all == names), None)

    def find(self, name: str) -> list[str]:
        """Columns that a name, an array or a pattern with ``*`` stands for."""
        if name in self.names:
            return [name]
        if name in self.blocks:
            return self.blocks[name]
        # Only '*' is special: names of columns may hold the other characters.
        pattern = name.replace("[", "[[]").replace("?", "[?]")
        return [one for one in self.names if "*" in name and fnmatchcase(one, pattern)]

    @property
    def contents(self) -> str:
        """Names for messages: arrays in place of their columns."""
        inside = {name for block in self.blocks.values() for name in block}
        alone = [name for name in self.names if name not in inside]
        return listed([*self.blocks, *alone])

    def _check_finite(self, value: NDArray[Any], names: Sequence[str]) -> None:
        """Raises on numbers that are not finite, the first of every column."""
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            bad = ~np.isfinite(value)
            rows = {
                j: int(bad[:, j].argmax()) for j in np.flatnonzero(bad.any(0)).tolist()
            }
            raise CellError(
                self.path,
                [
                    Fault(names[j], self.place(i), float(value[i, j]))
                    for j, i in rows.items()
                ],
            )


class TextTable(FileTable):
    """CSV whose first record names the columns.

    Commas, semicolons and tabs are told apart by the first record. Columns without a
    name, such as the index that pandas writes, are left out.
    """

    def __init__(self, path: Path, reading: Reading) -> None:
        # A stream is read once, and a file as often as it takes.
        self._content = sys.stdin.buffer.read() if str(path) == STREAM else None
        self._encoding = reading.encoding or "utf-8"
        self._delimiter = ","
        try:
            self._delimiter = self._find_delimiter(path, reading.notation.decimal)
            with self._open(path) as file:
                self._header = _header(
                    path, next(self._records(path, file), (1, []))[1]
                )
            # This pass also checks the number of cells in every row.
            self.num_rows = sum(1 for _ in self._rows(path))
        except UnicodeError as error:
            raise self._encoding_error(path) from error
        self.num_unnamed = self._header.count("")
        super().__init__(path, [name for name in self._header if name], None, reading)

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        if self.reading.notation.decimal is not None:
            return self._one_by_one(names)
        try:
            # Quickly by pandas. What it refuses is read again cell by cell, so that the
            # error can name the line.
            frame = self._frame(names, np.float64)
        except (ValueError, OverflowError):
            return self._one_by_one(names)
        value: NDArray[Any] = frame.to_numpy()
        # pandas takes a column of nothing but 'True' and 'False' for numbers.
        first = next(self._rows(self.path), (0, []))[1]
        words = first and not all(_is_number(first[k]) for k in self._at(names))
        if words or not np.isfinite(value).all():
            return self._one_by_one(names)
        return value

    def _columns(self, names: Sequence[str]) -> Iterator[Any]:
        """The text of columns, all of them read at once."""
        frame = self._frame(names, str)
        return (frame.iloc[:, k].to_numpy(object) for k in range(len(names)))

    def _at(self, names: Sequence[str]) -> list[int]:
        """Positions of the named columns in the file."""
        where = {name: k for k, name in enumerate(self._header)}
        return [where[name] for name in names]

    def column(self, name: str) -> NDArray[Any]:
        """The text of a column, ``[N]``."""
        return np.array(self._frame([name], str).iloc[:, 0].tolist(), dtype=object)

    def _frame(self, names: Sequence[str], dtype: Any) -> Any:
        """Columns by pandas, in the order asked, with nothing read as missing."""
        import pandas as pd

        # Before version 3.1 the last digit may be wrong unless this is asked for.
        old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
        exact = {"float_precision": "round_trip"} if old else {}
        at = self._at(names)
        with self._open(self.path) as file:
            next(self._records(self.path, file))
            frame = pd.read_csv(
                file,
                sep=self._delimiter,
                header=None,
                names=range(len(self._header)),
                usecols=sorted(set(at)),
                index_col=False,
                dtype=dtype,
                na_filter=False,
                # Blank lines are at the end, if anywhere, and are not rows.
                nrows=self.num_rows,
                skip_blank_lines=False,
                engine="c",
                **exact,
            )
        return frame[at]

    def _one_by_one(self, names: Sequence[str]) -> NDArray[Any]:
        """Numbers as Python reads them, or the first fault of every column."""
        at, notation = self._at(names), self.reading.notation
        faults: dict[int, Fault] = {}
        parts = [np.empty((0, len(at)))]
        rows = self._rows(self.path)
        while chunk := list(islice(rows, _CHUNK)):
            value = np.full((len(chunk), len(at)), np.nan)
            for i, (line, row) in enumerate(chunk):
                for j, cell in enumerate(row[k].strip() for k in at):
                    number = notation.number(cell)
                    value[i, j] = np.nan if number is None else number
                    if not np.isfinite(value[i, j]) and j not in faults:
                        got = cell if number is None else number
                        way = remedy(cell, notation) if number is None else None
                        place = f"line {line}"
                        faults[j] = Fault(names[j], place, got, remedy=way)
            parts.append(value)
        if faults:
            raise CellError(self.path, [faults[j] for j in sorted(faults)])
        return np.concatenate(parts)

    def place(self, row: int) -> str:
        """The line in which a row ends; quoted line breaks are counted."""
        return f"line {next(islice(self._rows(self.path), row, None))[0]}"

    def _rows(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every row, as many as the header has."""
        with self._open(path) as file:
            records = self._records(path, file)
            next(records)
            blank = 0
            for line, row in records:
                if not row:  # fine at the end of the file only
                    blank = blank or line
                    continue
                if blank or len(row) != len(self._header):
                    msg = f"'{path}': line {blank or line} must have "
                    msg += f"{len(self._header)} cells like the first line"
                    remedy = "Quote cells that hold the delimiter"
                    got = 0 if blank else len(row)
                    raise UsageError(f"{msg} (got {got}). {remedy}")
                yield line, row

    def _records(self, path: Path, file: Any) -> Iterator[tuple[int, list[str]]]:
        """Line and cells of every record, the header among them."""
        reader = csv.reader(file, delimiter=self._delimiter, strict=True)
        try:
            for row in reader:
                if "\0" in "".join(row):  # pandas would end the cell there
                    raise csv.Error(_NUL)
                yield reader.line_num, row
        except csv.Error as error:
            # Python 3.10 refuses NUL by itself, in other words.
            reason = _NUL if "NUL" in str(error) else error
            msg = f"'{path}': line {max(reader.line_num, 1)} is broken ({reason})"
            raise UsageError(msg) from error

    def _encoding_error(self, path: Path) -> UsageError:
        """The error for the first byte that is not UTF-8."""
        other = "or name its encoding by --encoding, such as cp1252 or utf-16"
        if self._encoding != "utf-8":
            msg = f"--encoding must be that of '{path}' (got {self._encoding})"
            return UsageError(msg)
        with self._open(path, errors="surrogateescape") as file:
            header: list[str] = []
            # Without NUL, which would be reported instead of the encoding.
            text = (line.replace("\0", "") for line in file)
            for line, row in self._records(path, text):
                for j, cell in enumerate(row):
                    bad = re.search("[\udc80-\udcff]", cell)
                    if bad is None:
                        continue
                    named = j < len(header) and header[j]
                    where = f"column '{header[j]}', line {line}" if named else ""
                    msg = f"'{path}': {where or f'line {line}'} must be UTF-8 text"
                    got = f"got the byte {ord(bad[0]) - 0xDC00:#x}"
                    msg = f"{msg} ({got}). Save the table as UTF-8"
                    return UsageError(f"{msg}, {other}")
                header = header or [cell.strip() for cell in row]
        return UsageError(f"'{path}' must be UTF-8 text. Save it as UTF-8, {other}")

    def _open(self, path: Path, errors: str = "strict") -> Any:
        """Opens text for the csv module, and skips a byte order mark."""
        name = "utf-8-sig" if self._encoding == "utf-8" else self._encoding
        options: dict[str, Any] = {"encoding": name, "errors": errors, "newline": ""}
        if self._content is not None:
            return io.TextIOWrapper(io.BytesIO(self._content), **options)
        if path.suffix.lower() == ".gz":
            return gzip.open(path, "rt", **options)
        return path.open(**options)

    def _find_delimiter(self, path: Path, decimal: str | None) -> str:
        """What cuts the first record into most cells, without cutting quoted ones."""
        counts = []
        for strict in (True, False):
            # Of those that cut nothing the first is taken: not the decimal sign.
            for one in ";\t," if decimal == "," else ",;\t":
                with self._open(path) as file, contextlib.suppress(csv.Error):
                    record = next(csv.reader(file, delimiter=one, strict=strict), [])
                    # Quotes that are never closed are reported when rows are read.
                    counts.append((len(record) > 1, strict, len(record), one))
        return max(counts, key=lambda count: count[:3])[3] if counts else ","


def _header(path: Path, cells: list[str]) -> list[str]:
    """Names of the columns, from the cells of the first record."""
    header = [cell.strip() for cell in cells]
    named = [name for name in header if name]
    if not named:
        raise UsageError(f"'{path}' must start with a line of column names")
    # Numbers from 0 are names that programs give; any others are somebody's data.
    numbered = [str(i) for i in range(len(named))]
    if all(_is_number(name) for name in named) and named != numbered:
        got = ", ".join(named[:3])
        msg = f"'{path}' must start with a line of column names (got {got})"
        raise UsageError(msg)
    return header


def _is_number(cell: str) -> bool:
    """Whether a cell reads as a number, NaN and infinity among them."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


class FrameTable(FileTable):
    """A table with typed cells, of which pandas makes columns."""

    @abstractmethod
    def _series(self, name: str) -> Any:
        """A column as a series of pandas."""

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        columns = [self._parsed(self.column(name)) for name in names]
        faults = [
            fault
            for name, column in zip(names, columns, strict=True)
            for fault in self._texts(name, column)
        ]
        if faults:
            raise CellError(self.path, faults)
        kinds = [c.astype(np.float64) if c.dtype == object else c for c in columns]
        value = np.stack(kinds, axis=1)
        self._check_finite(value, names)
        return value

    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``; categories as what they stand for."""
        series = self._series(name)
        if series.dtype.kind in "fiub":
            return np.asarray(series.to_numpy())
        cells = [None if _is_missing(cell) else cell for cell in series.tolist()]
        # Not 'np.array(cells)', which makes a matrix of lists of equal length.
        out = np.empty(len(cells), dtype=object)
        out[:] = cells
        return out

    def frame(
        self,
        names: Sequence[str],
        as_text: Collection[str] = (),
        option: str | None = None,
    ) -> Any:
        """Columns as a frame of pandas; numbers that are categories are text."""
        coded = [n for n in names if str(self._series(n).dtype) == "category"]
        return super().frame(names, {*as_text, *coded}, option)

    def _parsed(self, array: NDArray[Any]) -> NDArray[Any]:
        """A column in which texts are numbers, if their notation was given."""
        notation = self.reading.notation
        if array.dtype != object or notation.decimal is None:
            return array
        out = array.copy()
        for row, cell in enumerate(array.tolist()):
            if isinstance(cell, str) and (number := notation.number(cell)) is not None:
                out[row] = number
        return out

    def _texts(self, name: str, array: NDArray[Any]) -> Iterator[Fault]:
        """The first text or gap of a column of objects."""
        if array.dtype == object:
            for row, cell in enumerate(array.tolist()):
                if not isinstance(cell, (bool, int, float)):
                    yield self._fault(name, row, cell if cell is None else str(cell))
                    return


class ParquetTable(FrameTable):
    """A table with typed columns; only those asked for are read."""

    def __init__(self, path: Path, reading: Reading) -> None:
        self._arrow = require("pyarrow.parquet", "reading .parquet", "files")
        try:
            names = self._arrow.read_schema(path).names
        except Exception as error:  # the package has errors of many kinds
            msg = f"'{path}' must be a Parquet file ({error})"
            raise UsageError(msg) from error
        super().__init__(path, names, None, reading)

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

    def __init__(self, path: Path, reading: Reading) -> None:
        import pandas as pd

        require("openpyxl", "reading .xlsx", "files")
        try:
            with pd.ExcelFile(path, engine="openpyxl") as book:
                sheet = reading.sheet or str(book.sheet_names[0])
                if sheet not in book.sheet_names:
                    msg = f"--sheet: '{path}' has no sheet '{sheet}'"
                    msg = f"{msg} (it has {listed(book.sheet_names)})"
                    raise UsageError(msg)
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
        first = ["" if _is_missing(c) else str(c) for c in frame[:1].to_numpy().flat]
        header = _header(path, first)
        self.num_unnamed = header.count("")
        self._frame = frame[1:].infer_objects().set_axis(header, axis=1)
        super().__init__(path, [name for name in header if name], None, reading)

    def _series(self, name: str) -> Any:
        return self._frame[name].infer_objects()

    def place(self, row: int) -> str:
        """The row as the spreadsheet counts it, from the names on."""
        return f"row {row + 2}"


def _is_missing(cell: Any) -> bool:
    """Whether a cell is ``None``, the NA of pandas or NaN."""
    import pandas as pd

    return cell is None or cell is pd.NA or (isinstance(cell, float) and cell != cell)


class ArrayTable(FileTable):
    """Arrays ``[N]`` or ``[N, C]`` as NumPy keeps them; one without a name, or several.

    Column 3 of array ``x`` is ``x.3``, and ``3`` if the array has no name.
    """

    def __init__(self, path: Path, reading: Reading) -> None:
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
        super().__init__(path, names, blocks, reading)

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        keys = list(dict.fromkeys(self._where[name][0] for name in names))
        for key in keys:
            kind = self._arrays[key].dtype
            if kind.kind not in "fiub":
                of = f"array '{key}' " if key else ""
                raise UsageError(f"'{self.path}': {of}must hold numbers (got {kind})")
        rows = {key: len(self._arrays[key]) for key in keys}
        if len(set(rows.values())) > 1:
            got = ", ".join(f"{size} in '{key}'" for key, size in rows.items())
            msg = f"'{self.path}': arrays must have equally many rows (got {got})"
            raise UsageError(f"{msg}. Pick arrays with --features")
        array = self._arrays[keys[0]]
        # A whole array is taken as it is, without a copy.
        if len(keys) == 1 and array.ndim == 2 and list(names) == self._leaves(keys[0]):
            value = array
        else:
            value = np.stack([self.column(name) for name in names], axis=1)
        self._check_finite(value, names)
        return value

    def _leaves(self, key: str) -> list[str]:
        """The columns of an array."""
        return [name for name, (of, _) in self._where.items() if of == key]

    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``; text as objects."""
        key, j = self._where[name]
        array = self._arrays[key]
        out = array if array.ndim == 1 else array[:, j]
        return out.astype(object) if out.dtype.kind in "USOM" else out

    def outputs(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers; a matrix of one column stays one."""
        value = self.numbers(names)
        one = len(names) == 1 and self._arrays[self._where[names[0]][0]].ndim == 1
        return value[:, 0] if one else value

    def whole(self, names: Sequence[str]) -> str | None:
        """The name of the array that ``names`` are all columns of, if there is one."""
        if list(names) == self._leaves(""):
            return "outputs"  # it has no name of its own
        return super().whole(names)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays by name, the name of a single one being empty; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            arrays = {"": found} if isinstance(found, np.ndarray) else dict(found)
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


def suffix_of(path: str) -> str:
    """The suffix of a file in small letters, ``.csv.gz`` as one."""
    where = Path(path)
    zipped = where.suffix.lower() == ".gz"
    return "".join(where.suffixes[-2 if zipped else -1 :]).lower()


def check_table(path: str) -> None:
    """Raises on a path that no table can be read from."""
    if path == STREAM:
        return
    if suffix_of(path) not in SUFFIXES:
        msg = f"a table must end in {', '.join(SUFFIXES)}"
        raise UsageError(f"{msg}, or be {STREAM} for standard input (got '{path}')")
    if Path(path).is_dir():
        raise UsageError(f"'{path}' must be a file (got a folder)")
    if not Path(path).exists():
        raise UsageError(f"'{path}' does not exist")


def open_table(path: str, reading: Reading | None = None) -> FileTable:
    """The columns of a file, by its suffix; of standard input as CSV."""
    check_table(path)
    kinds: dict[str, type[Any]] = {".parquet": ParquetTable, ".xlsx": ExcelTable}
    kinds |= {".npy": ArrayTable, ".npz": ArrayTable}
    kind = kinds.get(suffix_of(path), TextTable)
    try:
        table: FileTable = kind(Path(path), reading or Reading())
    except FileNotFoundError as error:
        raise UsageError(f"'{path}' does not exist") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UsageError(f"'{path}' must be a whole gzip file ({error})") from error
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"'{path}' cannot be read ({reason})") from error
    return table
