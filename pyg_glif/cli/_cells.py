"""Cells of a file to columns of a frame: numbers, truth values, dates or text."""

import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: What stands for a missing value, in small letters.
GAPS = frozenset(("", "?", "na", "n/a", "#n/a", "nan", "null", "none"))
_TRUTH = {"true": True, "false": False}
_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")


def typed(column: Any, as_text: bool = False) -> tuple[Any, tuple[int, Any] | None]:
    """A column in the kind that all its cells have, and the first odd cell, if any.

    Odd are infinity, and a text where most cells are numbers: a slip rather than a
    category. A column that is taken ``as_text`` has neither.
    """
    import pandas as pd

    if not as_text and column.dtype.kind in "fiub":
        return column, _first(column, np.isinf(column))
    codes, found = pd.factorize(column)  # -1 where nothing is stored
    cells = [_cell(cell) for cell in found]
    known = [cell for cell in cells if cell is not None]
    texts = [cell if cell is None else str(cell) for cell in cells]
    if as_text:
        return _taken(codes, texts), None
    if all(str(cell).lower() in _TRUTH for cell in known):
        words = [None if c is None else _TRUTH[str(c).lower()] for c in cells]
        return _taken(codes, words), None
    numbers = [np.nan if cell is None else number_in(cell) for cell in cells]
    if None not in numbers:
        values = _taken(codes, numbers).astype(np.float64)
        return values, _first(values, np.isinf(values))
    if all(isinstance(c, date) or _DATE.fullmatch(str(c)) for c in known):
        days = pd.Series(texts, dtype=object)
        dates = pd.to_datetime(days, utc=True, errors="coerce", format="ISO8601")
        if dates.notna().sum() == len(known):
            return dates.dt.tz_localize(None).reindex(codes).array, None
    column = _taken(codes, texts)
    strange = np.array([number is None for number in numbers] + [False])[codes]
    there = np.array([cell is not None for cell in cells] + [False])[codes]
    return column, _first(column, strange) if 2 * strange.sum() < there.sum() else None


def number_in(cell: Any) -> float | None:
    """The number that a cell holds or spells, if there is one."""
    if isinstance(cell, (bool, date)):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


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


def _first(column: Any, odd: Any) -> tuple[int, Any] | None:
    """Row and cell of the first odd one."""
    where = np.flatnonzero(odd)[:1].tolist()
    return (where[0], column[where[0]]) if where else None
