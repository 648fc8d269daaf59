"""Raw feature values of samples, for explanations and reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.arrays import column_names
from pyg_glif._utils.validation import check_rank, check_scalar, check_texts

# Time of day of dates without one.
_MIDNIGHT = " 00:00:00"


@dataclass(frozen=True, eq=False)
class DisplayFeatures:
    """Values of samples by column, numbers or texts, some of which may be missing.

    Args:
        names (tuple of str): Names of the columns.
        values (Tensor): Numbers, or positions among ``levels``; NaN where a value is
            missing. Float64.
        levels (tuple): For each column its different texts, :obj:`None` for numbers.
        places (tuple, optional): For each column, the coordinate of the fit that is
            its effect on the model. (default: :obj:`None`, not known)
        unit (str): The unit of these effects. (default: ``""``)
        reach (tuple, optional): For each column of a table, the largest distance that
            it makes by itself: zero if it has no effect.
            (default: :obj:`None`, not known)
        outputs (tuple, optional): Names of several outputs.
            (default: :obj:`None`, not known)

    Shapes:
        - **values:** :math:`(N, F)`
    """

    names: tuple[str, ...]
    values: Tensor
    levels: tuple[tuple[str, ...] | None, ...]
    places: tuple[int, ...] | None = None
    unit: str = ""
    reach: tuple[float, ...] | None = None
    outputs: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_rank("features", self.values, 2)
        width = self.values.size(1)
        if not len(self.names) == len(self.levels) == width:
            msg = f"'features' must have a name for each of {width} columns"
            raise ValueError(f"{msg} (got {len(self.names)})")
        if self.values.dtype != torch.float64:
            raise TypeError(f"'features' must be float64 (got {self.values.dtype})")
        check_texts("features", self.names)
        if self.reach is not None and len(self.reach) != width:
            msg = f"'reach' must have one entry per column (got {len(self.reach)}"
            raise ValueError(f"{msg} for {width})")
        for reach in self.reach or ():
            check_scalar("reach", reach, minimum=0.0)
        for column, levels in enumerate(self.levels):
            if levels is not None:
                check_texts("features", levels)
                known = self.values[:, column][~self.values[:, column].isnan()]
                if not set(known.unique().tolist()) <= set(range(len(levels))):
                    msg = f"'features' must hold one of {len(levels)} texts"
                    raise ValueError(f"{msg} in '{self.names[column]}'")

    @classmethod
    def of(cls, frame: Any) -> "DisplayFeatures":
        """The columns of a frame of pandas or polars."""
        names = column_names("features", frame)
        if names is None:
            kind = type(frame).__name__
            msg = f"'features' must be a frame of pandas or polars (got {kind})"
            raise TypeError(msg)
        read = [_read(frame, name) for name in frame.columns]
        values = [value for value, _ in read] or [np.empty(len(frame))]
        return cls(
            tuple(str(name) for name in names),
            torch.from_numpy(np.stack(values, axis=1)),
            tuple(levels for _, levels in read),
        )

    @classmethod
    def of_table(cls, frame: Any, table: Any) -> "DisplayFeatures":
        """Columns that a table counts, with the place of their effect.

        An effect is one coordinate that means as much to the model as to the table:
        not one-hot ones, not those of several classes, not what is left after proxies.
        """
        config = table.to_config()
        columns = [str(column["name"]) for column in config["columns"]]
        out = cls.of(frame[list(_wanted(frame, columns))])
        reach = tuple(float(column["reach"]) for column in config["columns"])
        out = replace(out, reach=reach)
        single = all(len(column["labels"]) == 1 for column in config["columns"])
        by_effect = config["params"]["scale"] in ("effect", "conditional")
        if not (single and by_effect and config["erasure"] is None):
            return out
        return replace(out, places=tuple(range(len(columns))), unit=config["unit"])

    @classmethod
    def of_numbers(cls, names: Sequence[Any], x: Tensor) -> "DisplayFeatures":
        """Columns of numbers that have names."""
        named = tuple(str(name) for name in names)
        return cls(named, x.double(), (None,) * len(named))

    def __len__(self) -> int:
        return len(self.values)

    def value(self, row: int, column: int) -> Any:
        """A value as plain data: a number, a text, or :obj:`None`."""
        number, levels = float(self.values[row, column]), self.levels[column]
        if number != number:
            return None
        if levels is not None:
            return levels[int(number)]
        return int(number) if number.is_integer() and abs(number) < 1e15 else number

    def row(self, row: int) -> dict[str, Any]:
        """Values of one sample by name."""
        return {name: self.value(row, i) for i, name in enumerate(self.names)}

    def spread(self) -> Tensor:  # [F]
        """Standard deviation of each column of numbers, NaN of others."""
        out = torch.full((len(self.names),), torch.nan, dtype=torch.float64)
        for column, levels in enumerate(self.levels):
            known = self.values[:, column][~self.values[:, column].isnan()]
            if levels is None and known.numel():
                out[column] = known.std(correction=0)
        return out

    def differing(
        self, row: int, other: int, others: "DisplayFeatures | None" = None
    ) -> Iterator[tuple[str, Any, Any]]:
        """Columns in which two samples differ, with both values."""
        others = self if others is None else others
        for column, name in enumerate(self.names):
            first, second = self.value(row, column), others.value(other, column)
            if first != second:
                yield name, first, second

    def select(self, rows: Tensor) -> "DisplayFeatures":
        """Some of the samples, by number."""
        return replace(self, values=self.values[rows.to(self.values.device)])

    def read(self, frame: Any) -> "DisplayFeatures":
        """Other samples, with these columns, in their order."""
        return DisplayFeatures.of(frame[list(_wanted(frame, self.names))])

    def to_config(self) -> dict[str, Any]:
        """All but the values, as plain data."""
        return {name: part for name, part in vars(self).items() if name != "values"}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], values: Tensor
    ) -> "DisplayFeatures":
        """Inverse of :meth:`to_config`, given the values."""
        parts: dict[str, Any] = {
            name: tuple(part) if isinstance(part, list) else part
            for name, part in config.items()
        }
        levels = [None if part is None else tuple(part) for part in config["levels"]]
        return cls(**{**parts, "levels": tuple(levels)}, values=values)


def _read(frame: Any, name: Any) -> tuple[Any, tuple[str, ...] | None]:
    """A column as numbers, or as numbers of its different texts."""
    import pandas

    series = frame[name]
    if not isinstance(series, pandas.Series):
        series = pandas.Series(series.to_numpy())
    types = pandas.api.types
    if types.is_numeric_dtype(series) and not types.is_bool_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), None
    codes, levels = pandas.factorize(series, sort=False)
    value = np.where(codes < 0, np.nan, codes.astype(np.float64))
    texts = [str(level) for level in levels]
    if all(text.endswith(_MIDNIGHT) for text in texts):  # days, not moments
        texts = [text.removesuffix(_MIDNIGHT) for text in texts]
    return value, tuple(texts)


def _wanted(frame: Any, names: Sequence[str]) -> Iterator[Any]:
    """Labels of columns by text; a label of a frame may be no text."""
    labels = {str(label): label for label in frame.columns}
    missing = [repr(name) for name in names if name not in labels]
    if missing:
        listed = ", ".join(map(repr, names))
        msg = f"'features' must have the columns {listed}"
        raise ValueError(f"{msg} (got none named {', '.join(missing)})")
    return (labels[name] for name in names)
