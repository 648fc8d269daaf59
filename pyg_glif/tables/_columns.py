"""Reads the columns of pandas and polars frames: numbers, dates, categories."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.validation import check_known

REMEDY = "Name columns that do not count in 'ignore'"
Kind = Literal["number", "date", "duration", "category"]

# What pandas finds in columns of objects, and how it is read.
_INFERRED: dict[str, Kind] = {
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
    "datetime64": "date",
    "datetime": "date",
    "date": "date",
    "timedelta64": "duration",
    "timedelta": "duration",
    "boolean": "category",
    "string": "category",
    "mixed-integer": "category",
    "empty": "category",
}
# More values than this, and one for more than half of all samples, are no categories
# but names, numbers of files or prose.
_FREE_TEXT = 20


@dataclass(frozen=True)
class Column:
    """A column of a frame.

    Args:
        name (str, int or tuple): What it is called.
        kind (str): ``"number"``, ``"date"`` or ``"duration"`` (in days), or
            ``"category"``.
        values (numpy.ndarray): Numbers, NaN where they are missing; of categories,
            their position among ``categories``, NaN where they are missing.
        categories (tuple): Different values of a category, in order; else empty.
    """

    name: Any
    kind: Kind
    values: NDArray[np.float64]
    categories: tuple[Any, ...] = ()

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Where the value is missing."""
        return np.isnan(self.values)

    @classmethod
    def of(cls, frame: Any, name: Any) -> "Column":
        """The column of a frame, whose kind is found out."""
        series = _series(frame, name)
        kind = _kind_of(series)
        if kind is None:
            raise TypeError(f"{name!r} of {series.dtype}")
        if kind != "category":
            return cls(name, kind, numbers(series, kind))
        codes, values = factorized(series)
        # Numbers and truth values come before texts.
        categories = sorted(set(values), key=lambda v: (isinstance(v, str), v))
        # Missing values have the code -1, and so the last entry.
        table = np.array([*map(categories.index, values), np.nan])
        return cls(name, kind, table[codes], tuple(categories))

    def is_constant(self) -> bool:
        """Whether all samples have the same value, and none is missing."""
        return bool((self.values == self.values[0]).all())

    def is_free_text(self) -> bool:
        """Whether nearly every sample has a text of its own."""
        texts = [value for value in self.categories if isinstance(value, str)]
        return len(texts) > max(_FREE_TEXT, int((~self.missing).sum()) / 2)


def check_array(
    name: str, value: Any, shape: tuple[int, ...], optional: bool = False
) -> None:
    """Raises unless the value is a float64 array of finite numbers of that shape."""
    if value is None and optional:
        return
    if not isinstance(value, np.ndarray) or value.dtype != np.float64:
        raise TypeError(f"'{name}' must be a float64 array (got {value!r})")
    if value.shape != shape:
        raise ValueError(f"'{name}' must have shape {shape} (got {value.shape})")
    if not np.isfinite(value).all():
        raise ValueError(f"'{name}' must be finite (got {value[~np.isfinite(value)]})")


def read_as(frame: Any, name: Any, kind: Kind) -> Any:
    """Numbers of a column, or codes and values of categories, as the fit read them.

    Raises :class:`TypeError` with the column's name and type if it cannot be read so.
    """
    series = _series(frame, name)
    if kind == "category":
        return factorized(series)
    current = _kind_of(series)
    # JSON has neither dates nor types of columns without values; and truth values
    # are numbers to those who have written them as 0 and 1.
    as_other = current == "category" and (
        kind == "date" or series.dtype == bool or series.isna().all()
    )
    try:
        if current == kind or as_other:
            return numbers(series, kind)
    except ValueError:  # text that is no date
        pass
    raise TypeError(f"{name!r} of {series.dtype}, which was a {kind}")


def numbers(series: Any, kind: Kind) -> NDArray[np.float64]:
    """A column in float64, NaN where values are missing."""
    import pandas

    if kind == "date":
        # Other text than of this form would be guessed at.
        dates = pandas.to_datetime(series, utc=True, format="ISO8601")
        series = (dates - pandas.Timestamp(0, tz="UTC")) / pandas.Timedelta(days=1)
    elif kind == "duration":
        series = pandas.to_timedelta(series) / pandas.Timedelta(days=1)
    out: NDArray[np.float64] = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return out


def factorized(series: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """The position of the value of each sample, -1 if missing, and all values."""
    import pandas

    codes, values = pandas.factorize(series)
    return codes, [plain_value(value) for value in values.tolist()]


def plain_value(value: Any) -> Any:
    """A category as text, truth value or number; others by their text."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def take(frame: Any, rows: NDArray[np.intp]) -> Any:
    """Rows of a frame, as a frame of its kind."""
    if hasattr(frame, "iloc"):
        return frame.iloc[rows].reset_index(drop=True)
    return frame[rows]


def with_column(frame: Any, name: Any, source: Any, rows: NDArray[np.intp]) -> Any:
    """The frame with a column replaced by rows of the same column of ``source``.

    Values are taken, not made, so that the column keeps its type, whatever it is.
    """
    if hasattr(frame, "iloc"):
        out = frame.copy(deep=False)
        out[name] = source[name].array.take(rows)
        return out
    return frame.with_columns(source[name][rows])


def _series(frame: Any, name: Any) -> Any:
    """The column of a pandas or polars frame as a series of pandas."""
    import pandas

    column = frame[name]
    if isinstance(column, pandas.Series):
        return column
    return pandas.Series(column.to_numpy())


def _kind_of(series: Any) -> Kind | None:
    """How a column is read, :obj:`None` if it cannot be."""
    from pandas.api import types

    dtype = series.dtype
    if isinstance(dtype, types.CategoricalDtype) or types.is_bool_dtype(dtype):
        return "category"
    if types.is_numeric_dtype(dtype):
        return None if types.is_complex_dtype(dtype) else "number"
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_timedelta64_dtype(dtype):
        return "duration"
    inferred = types.infer_dtype(series, skipna=True)
    if inferred == "mixed" and all(
        isinstance(value, (str, bool, int, float)) for value in series.dropna()
    ):
        return "category"
    return _INFERRED.get(inferred)


def frame_names(df: Any, *, empty: bool = False, called: str = "df") -> tuple[Any, ...]:
    """Names of the columns of a frame; raises unless it has rows, or may not."""
    # By name, so that polars need not be installed.
    kinds = [f"{kind.__module__}.{kind.__name__}" for kind in type(df).__mro__]
    if not any(re.fullmatch(r"(pandas|polars)\..*DataFrame", kind) for kind in kinds):
        msg = (
            f"'{called}' must be a frame of pandas or polars (got {type(df).__name__})"
        )
        raise TypeError(msg)
    names = column_names(called, df) or ()
    if not names or (len(df) == 0 and not empty):
        shape = f"{len(df)} rows, {len(names)} columns"
        raise ValueError(f"'{called}' must not be empty (got {shape})")
    return names


def read_columns(df: Any, names: Sequence[Any], called: str = "df") -> list[Column]:
    """Columns of the frame of a fit; messages name all that cannot be used."""
    columns, bad = [], []
    for name in names:
        try:
            columns.append(Column.of(df, name))
        except TypeError as error:
            bad.append(str(error))
    if bad:
        msg = f"'{called}' must hold numbers, truth values, dates, text or categories"
        raise TypeError(f"{msg} (got {', '.join(bad)}). {REMEDY}")
    empty = [column.name for column in columns if column.missing.all()]
    if empty:
        msg = f"'{called}' must not have columns without values (got {listed(empty)})"
        raise ValueError(f"{msg}. {REMEDY}")
    infinite = [c.name for c in columns if np.isinf(c.values).any()]
    if infinite:
        got = f"infinity in {listed(infinite)}"
        raise ValueError(f"'{called}' must hold finite numbers (got {got})")
    texts = [column for column in columns if column.is_free_text()]
    if texts:
        msg = f"'{called}' must not have columns of free text"
        got = ", ".join(f"{len(c.categories)} values in {c.name!r}" for c in texts)
        raise ValueError(f"{msg} (got {got} for {len(df)} samples). {REMEDY}")
    return columns


def equivalent_positions(
    equivalent: Mapping[Any, Sequence[Sequence[Any]]], columns: Sequence[Column]
) -> dict[Any, list[list[int]]]:
    """For each column, positions of the categories that are equivalent."""
    known = {column.name: column for column in columns}
    check_known("equivalent", equivalent, known)
    out = {}
    for name, groups in equivalent.items():
        if known[name].kind != "category":
            msg = "'equivalent' must name columns of categories"
            raise ValueError(f"{msg} (got {name!r}, a {known[name].kind})")
        if any(isinstance(group, str) for group in groups):
            msg = f"'equivalent[{name!r}]' must be a list of groups (got {groups!r})"
            raise TypeError(f"{msg}. Use '[(first, second)]'")
        values = [value for group in groups for value in group]
        categories = known[name].categories
        check_known(f"equivalent[{name!r}]", values, categories)
        if len(set(values)) < len(values):
            msg = f"'equivalent[{name!r}]' must not repeat a value (got {groups!r})"
            raise ValueError(msg)
        out[name] = [[categories.index(value) for value in group] for group in groups]
    return out


def listed(names: Sequence[Any]) -> str:
    """Names in quotes, separated by commas."""
    return ", ".join(map(repr, names))
