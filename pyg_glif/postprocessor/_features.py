"""What people are like, in the values that they know themselves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._arrays import column_names


@dataclass(frozen=True, eq=False)
class Features:
    """Values of people by column, numbers or texts, none of which may be missing.

    Args:
        names (tuple of str): What the columns are called.
        values (Tensor): Numbers, or positions among ``levels``; NaN where a value is
            missing. Float64.
        levels (tuple): For each column its different texts, :obj:`None` for numbers.

    Shapes:
        - **values:** :math:`(N, F)`
    """

    names: tuple[str, ...]
    values: Tensor
    levels: tuple[tuple[str, ...] | None, ...]

    @classmethod
    def of(cls, frame: Any) -> "Features":
        """The columns of a frame of pandas or polars."""
        names = column_names("people", frame)
        if names is None:
            kind = type(frame).__name__
            msg = f"'people' must be a frame of pandas or polars (got {kind})"
            raise TypeError(msg)
        read = [_read(frame, name) for name in frame.columns]
        values = [value for value, _ in read] or [np.empty(len(frame))]
        return cls(
            tuple(str(name) for name in names),
            torch.from_numpy(np.stack(values, axis=1)),
            tuple(levels for _, levels in read),
        )

    @classmethod
    def of_numbers(cls, names: Sequence[Any], x: Tensor) -> "Features":
        """Columns of numbers that have names."""
        named = tuple(str(name) for name in names)
        return cls(named, x.double(), (None,) * len(named))

    def __len__(self) -> int:
        return len(self.values)

    def value(self, row: int, column: int) -> Any:
        """A value as plain data: a number, a text, or :obj:`None`."""
        found, levels = float(self.values[row, column]), self.levels[column]
        if found != found:
            return None
        if levels is not None:
            return levels[int(found)]
        return int(found) if found == int(found) and abs(found) < 1e15 else found

    def row(self, row: int) -> dict[str, Any]:
        """One person's values by name."""
        return {name: self.value(row, at) for at, name in enumerate(self.names)}

    def spread(self) -> Tensor:  # [F]
        """Standard deviation of each column of numbers, NaN of others."""
        out = torch.full((len(self.names),), torch.nan, dtype=torch.float64)
        for at, levels in enumerate(self.levels):
            known = self.values[:, at][~self.values[:, at].isnan()]
            if levels is None and known.numel():
                out[at] = known.std(correction=0)
        return out

    def differing(
        self, row: int, other: int, others: "Features | None" = None
    ) -> Iterator[tuple[str, Any, Any]]:
        """Columns in which two people differ, with both values."""
        others = self if others is None else others
        for at, name in enumerate(self.names):
            mine, theirs = self.value(row, at), others.value(other, at)
            if mine != theirs:
                yield name, mine, theirs

    def only(self, rows: Tensor) -> "Features":
        """Some of the people."""
        return Features(self.names, self.values[rows.cpu()], self.levels)

    def joined(self, other: "Features") -> "Features":
        """These people and others, with the same columns in any order."""
        place = {name: at for at, name in enumerate(other.names)}
        if set(place) != set(self.names):
            msg = "'people' must have the columns of the fit"
            raise ValueError(f"{msg} (got {', '.join(map(repr, other.names))})")
        columns, levels = [], []
        for at, name in enumerate(self.names):
            mine, theirs = self.levels[at], other.levels[place[name]]
            value = other.values[:, place[name]]
            if (mine is None) != (theirs is None):
                kind = "numbers" if mine is None else "texts"
                raise TypeError(f"'people' must hold {kind} in {name!r}, as the fit")
            if mine is not None and theirs is not None:
                mine, value = _renumbered(mine, theirs, value)
            columns.append(torch.cat([self.values[:, at], value]))
            levels.append(mine)
        return Features(self.names, torch.stack(columns, 1), tuple(levels))

    def to_config(self) -> dict[str, Any]:
        """All but the values, as plain data."""
        return {
            "names": list(self.names),
            "levels": [self._listed(at) for at in range(len(self.names))],
        }

    def _listed(self, at: int) -> list[str] | None:
        levels = self.levels[at]
        return None if levels is None else list(levels)

    @classmethod
    def from_config(cls, config: Mapping[str, Any], values: Tensor) -> "Features":
        """What :meth:`to_config` described, with its values."""
        levels = tuple(None if one is None else tuple(one) for one in config["levels"])
        return cls(tuple(config["names"]), values, levels)


def _read(frame: Any, name: Any) -> tuple[Any, tuple[str, ...] | None]:
    """A column as numbers, or as numbers of its different texts."""
    import pandas

    series = pandas.Series(frame[name].to_numpy())
    types = pandas.api.types
    if types.is_numeric_dtype(series) and not types.is_bool_dtype(series):
        return series.to_numpy(dtype=np.float64, na_value=np.nan), None
    codes, found = pandas.factorize(series, sort=False)
    value = np.where(codes < 0, np.nan, codes.astype(np.float64))
    return value, tuple(str(one) for one in found)


def _renumbered(
    mine: tuple[str, ...], theirs: tuple[str, ...], value: Tensor
) -> tuple[tuple[str, ...], Tensor]:
    """Levels of both, and the positions among them of values of the second."""
    place = {level: at for at, level in enumerate(mine)}
    for level in theirs:
        place.setdefault(level, len(place))
    table = torch.tensor([place[level] for level in theirs], dtype=torch.float64)
    known = ~value.isnan()
    out = value.clone()
    out[known] = table[value[known].long()]
    return tuple(place), out
