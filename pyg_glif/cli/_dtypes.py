"""Cells of a file to columns of a frame: numbers, truth values, dates or text."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli._options import UsageError, ignoring

#: What stands for a missing value, in small letters.
GAPS = frozenset(("", "?", "na", "n/a", "#n/a", "nan", "null", "none"))
_TRUTH = {"true": True, "false": False}
_WORDS = ("nan", "inf", "infinity")  # numbers to Python, whatever their sign
# What groups thousands, beside the one of '.' and ',' that is not the decimal sign.
_GROUPS = " \u00a0\u202f'\u2019"
_MINUS = "\u2212"
_CURRENCIES = "$€£¥₹₽₩₺₪"
# Numbers in any notation: "12,5", "1.234,5", "12 345", "1,00,000", "-45 %".
_NUMBER_LIKE = re.compile(
    rf"[-+{_MINUS}(]?\s?[{_CURRENCIES}]?\s?[-+{_MINUS}]?"
    rf"(\d+|\d*[.,]\d+|\d+[.,]|\d{{1,3}}([.,{_GROUPS}])(\d{{2,3}}\2)*\d{{3}}([.,]\d*)?)"
    rf"(e[-+]?\d+)?\s?[%‰{_CURRENCIES}]?[-)]?",
    re.IGNORECASE,
)
_TIME = r"([T ]\d\d:\d\d.*)?"
_YEAR_FIRST = re.compile(rf"(\d{{4}})([-/.])(\d\d?)\2(\d\d?){_TIME}")
_YEAR_LAST = re.compile(rf"(\d\d?)([-/.])(\d\d?)\2(\d{{4}}|\d\d){_TIME}")


@dataclass(frozen=True)
class Notation:
    """How the cells of a file are written.

    Args:
        decimal (str, optional): The decimal sign, ``"."`` or ``","``. The other one,
            spaces and apostrophes then group thousands. :obj:`None` takes numbers as
            Python writes them, with a point and without groups.
        dates (str, optional): The order ``"dmy"`` or ``"mdy"`` of dates whose year
            comes last. :obj:`None` takes dates with the year first only.
        encoding (str, optional): Encoding of text. (default: UTF-8)
        sheet (str, optional): Sheet of a spreadsheet. (default: the first)
    """

    decimal: str | None = None
    dates: str | None = None
    encoding: str | None = None
    sheet: str | None = None

    @staticmethod
    def of(args: argparse.Namespace) -> "Notation":
        """The notation that the options ask for; not every command has all of them."""
        options = ("decimal", "dates", "encoding", "sheet")
        return Notation(*(getattr(args, name, None) for name in options))

    def number(self, cell: Any) -> float | None:
        """The number that a cell holds or spells, if there is one."""
        if isinstance(cell, (bool, date)):
            return None
        if self.decimal is not None and isinstance(cell, str):
            text = cell.strip()
            if text.lower().lstrip("+-") not in _WORDS:
                cell = self._plain(text)
        try:
            return float(cell)
        except (TypeError, ValueError):
            return None

    def _plain(self, text: str) -> str | None:
        """A number as Python writes it."""
        point = re.escape(str(self.decimal))
        groups = f"[{'.' if self.decimal == ',' else ','}{_GROUPS}]"
        whole = rf"\d+|\d{{1,3}}(?P<group>{groups})\d{{3}}(?:(?P=group)\d{{3}})*"
        pattern = rf"(?P<whole>{whole})(?:{point}(?P<part>\d*))?|{point}(?P<only>\d+)"
        pattern = rf"(?P<sign>[-+]?)(?:{pattern})(?P<power>[eE][-+]?\d+)?"
        match = re.fullmatch(pattern, text)
        if match is None:
            return None
        digits = re.sub(r"\D", "", match["whole"] or "0")
        part = match["part"] or match["only"] or "0"
        return f"{match['sign']}{digits}.{part}{match['power'] or ''}"

    def day(self, cell: Any) -> str | None:
        """The date that a cell holds or spells, the year first, if there is one."""
        if isinstance(cell, date):
            return cell.isoformat()
        if not isinstance(cell, str):
            return None
        match = _YEAR_FIRST.fullmatch(cell)
        if match is not None:
            year, _, month, day, time = match.groups()
        else:
            match = _YEAR_LAST.fullmatch(cell)
            if match is None or self.dates is None or len(match[4]) != 4:
                return None
            first, _, second, year, time = match.groups()
            day, month = (first, second) if self.dates == "dmy" else (second, first)
        return f"{year}-{month:0>2}-{day:0>2}{time or ''}"


class Fault(NamedTuple):
    """First cell of a column that does not fit the column."""

    column: str
    place: str
    got: Any
    holds: str = "numbers"
    remedy: str | None = None

    def __str__(self) -> str:
        if self.got is None or self.got == "":
            return f"column '{self.column}' is empty in {self.place}"
        if isinstance(self.got, float):
            msg = f"column '{self.column}', {self.place} must be finite"
            return f"{msg} (got {self.got})"
        got = f"got {self.got!r} in {self.place}"
        return f"column '{self.column}' must hold {self.holds} ({got})"

    @property
    def is_text(self) -> bool:
        """Whether the cell is neither empty nor a number."""
        return self.got not in (None, "") and not isinstance(self.got, float)


class CellError(UsageError):
    """Columns that must hold numbers and do not, all of them at once."""

    def __init__(
        self, path: Path, faults: Sequence[Fault], outputs: Sequence[str] = ()
    ) -> None:
        self.faults = list(faults)
        remedies = list(dict.fromkeys(f.remedy for f in faults if f.remedy))
        others = [fault for fault in faults if not fault.remedy]
        texts = [fault.column for fault in others if fault.is_text]
        ignored = [name for name in texts if name not in outputs]
        if ignored:
            msg = f"Leave {_them(ignored)} out with {ignoring(ignored)}"
            remedies.append(f"{msg}, or pick columns with --features")
        if len(ignored) < len(texts):
            remedies.append("Pick other outputs with --outputs")
        if len(texts) < len(others):
            gaps = [fault for fault in others if not fault.is_text]
            remedies.append(f"Fill or drop {_them(gaps)} first")
        shown = [str(fault) for fault in faults[:12]]
        if len(faults) > len(shown):
            shown.append(f"and {len(faults) - len(shown)} more")
        super().__init__(f"'{path}': {'; '.join(shown)}. {'. '.join(remedies)}")


def _them(items: Sequence[Any]) -> str:
    return "it" if len(items) == 1 else "them"


class Odd(NamedTuple):
    """The first cell of a column that is not what the column holds."""

    row: int
    cell: Any
    holds: str = "numbers"


def like_a_number(cell: Any) -> bool:
    """Whether a text is a number in some notation."""
    return isinstance(cell, str) and _NUMBER_LIKE.fullmatch(cell.strip()) is not None


def like_a_date(cell: Any) -> bool:
    """Whether a text is a date in figures, in some order."""
    kinds = (_YEAR_FIRST, _YEAR_LAST)
    return isinstance(cell, str) and any(kind.fullmatch(cell) for kind in kinds)


def remedy(cell: Any, notation: Notation, holds: str = "numbers") -> str | None:
    """How to have a number or a date in another notation read, if it is one."""
    if holds == "numbers":
        if not like_a_number(cell):
            return None
        values = {sign: Notation(decimal=sign).number(cell) for sign in ",."}
        ways = [
            f"'--decimal {sign}' reads {cell!r} as {value:.15g}"
            for sign, value in values.items()
            if value is not None and sign != notation.decimal
        ]
        return ", ".join(ways) or f"Write {cell!r} as a plain number, like -1234.5"
    if not like_a_date(cell):
        return None
    last = _YEAR_LAST.fullmatch(cell)
    if last is None or notation.dates is not None:
        return f"Write {cell!r} as a date that exists, like 2024-12-31"
    if len(last[4]) != 4:
        return f"Write {cell!r} with a year of four digits"
    return f"Write dates = 'dmy' or 'mdy' to --config for what comes first in {cell!r}"


def as_numbers(
    column: NDArray[Any], notation: Notation
) -> tuple[NDArray[Any], int | None]:
    """The numbers of a column, and the first row without a finite one, if any."""
    values = column
    if column.dtype == object:
        try:
            if notation.decimal is not None:
                raise ValueError  # 1.234 may be more than a thousand
            values = column.astype(np.float64)
        except (TypeError, ValueError):
            cells = [notation.number(cell) for cell in column]
            values = np.array(cells, dtype=np.float64)  # None becomes NaN
    odd = np.flatnonzero(~np.isfinite(values))
    return values, int(odd[0]) if len(odd) else None


def typed(
    column: Any, as_text: bool = False, notation: Notation | None = None
) -> tuple[Any, Odd | None]:
    """A column in the kind that all its cells have, and the first odd cell, if any.

    Odd are infinity, a number or a date in another notation, and a text where most
    cells are numbers, or dates: a slip rather than a category. A column that is taken
    ``as_text`` has none of them.
    """
    import pandas as pd

    notation = notation or Notation()
    if not as_text and column.dtype.kind in "fiub":
        return column, _first(column, np.isinf(column))
    codes, values = pd.factorize(column)  # -1 where nothing is stored
    cells = [_cell(cell) for cell in values]
    known = [cell for cell in cells if cell is not None]
    texts = [cell if cell is None else str(cell) for cell in cells]
    if as_text:
        return _taken(codes, texts), None
    if all(str(cell).lower() in _TRUTH for cell in known):
        words = [None if c is None else _TRUTH[str(c).lower()] for c in cells]
        return _taken(codes, words), None
    numbers = [np.nan if cell is None else notation.number(cell) for cell in cells]
    if None not in numbers:
        column = _taken(codes, numbers).astype(np.float64)
        return column, _first(column, np.isinf(column))
    days = pd.Series([notation.day(cell) for cell in cells], dtype=object)
    dates = pd.to_datetime(days, utc=True, errors="coerce", format="ISO8601")
    if dates.notna().sum() == len(known):
        return dates.dt.tz_localize(None).reindex(codes).array, None
    column = _taken(codes, texts)
    is_number = np.array([number is not None for number in numbers])
    is_date = dates.notna().to_numpy()
    for holds, like in (("numbers", like_a_number), ("dates", like_a_date)):
        foreign = np.array([like(cell) for cell in cells]) & ~is_number & ~is_date
        if foreign.any():
            return column, _first(column, _rows(codes, foreign), holds)
    there = _rows(codes, [cell is not None for cell in cells])
    for holds, fits in (("numbers", is_number), ("dates", is_date)):
        strange = there & ~_rows(codes, fits)
        if 2 * strange.sum() < there.sum():
            return column, _first(column, strange, holds)
    return column, None


def _rows(codes: NDArray[np.intp], values: Any) -> NDArray[np.bool_]:
    """For each row whether its cell has a property; not where nothing is stored."""
    out: NDArray[np.bool_] = np.append(np.asarray(values, dtype=np.bool_), False)[codes]
    return out


def _cell(cell: Any) -> Any:
    """A cell without white space around it, ``None`` if nothing is known."""
    cell = cell.strip() if isinstance(cell, str) else cell
    return None if isinstance(cell, str) and cell.lower() in GAPS else cell


def _taken(codes: NDArray[np.intp], values: Sequence[Any]) -> NDArray[Any]:
    """For each row its value; the last one, nothing, where there is no code."""
    table = np.empty(len(values) + 1, dtype=object)
    table[:-1] = values
    out: NDArray[Any] = table[codes]
    return out


def _first(column: Any, odd: Any, holds: str = "numbers") -> Odd | None:
    """Row and cell of the first odd one."""
    where = np.flatnonzero(odd)[:1].tolist()
    return Odd(where[0], column[where[0]], holds) if where else None
