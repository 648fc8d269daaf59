"""A column with its scale: plain data that turns values into coordinates."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.tables._columns import Column, Kind, read_as
from pyg_glif.tables._effects import Grid

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scaled:
    r"""What the values of one column become.

    Args:
        name (str, int or tuple): The column.
        kind (str): How it is read.
        how (str): How it was scaled, in words.
        points (list): Categories, or ascending numbers.
        table (numpy.ndarray): Coordinates of ``points``, :math:`(P, D)`. Between two
            numbers they change linearly.
        outside (str): ``"constant"`` or ``"linear"``: what numbers beyond the first
            and last point get.
        missing (numpy.ndarray, optional): Coordinates of a missing value, if the fit
            has seen one.
        unseen (numpy.ndarray): Coordinates of values the fit has not seen.
        labels (list of str): What the coordinates are called.
        reach (float): Largest distance between two people of the fit in this column.
        share (float): Share of this column in the variance of all coordinates.
        num_missing (int): People of the fit without a value.
        constant (bool): Whether all people of the fit have the same value.
    """

    name: Any
    kind: Kind
    how: str
    points: list[Any]
    table: Table
    outside: str
    missing: Table | None
    unseen: Table
    labels: list[str]
    reach: float = 0.0
    share: float = 0.0
    num_missing: int = 0
    constant: bool = False

    def of_fit(self, column: Column) -> Table:
        """Coordinates of the people of the fit, :math:`(N, D)`."""
        if self.kind == "category":
            positions = np.where(column.missing, -1, column.values).astype(np.intp)
            return self._rows_with_ends[positions]
        return self._of_numbers(column.values)

    def __call__(self, frame: Any) -> tuple[Table, list[Any]]:
        """Coordinates of new people, and the values that the fit has not seen.

        A missing value counts as one if nobody of the fit had it missing.
        """
        if self.kind != "category":
            values = read_as(frame, self.name, self.kind)
            infinite = np.isinf(values)
            if infinite.any():
                raise ValueError(f"{self.name!r} in row {int(infinite.argmax())}")
            new = [None] if self.missing is None and np.isnan(values).any() else []
            return self._of_numbers(values), new
        codes, found = read_as(frame, self.name, "category")
        place = self._place
        # The two rows after the categories: unseen, missing.
        positions = [place.get(value, -2) for value in found]
        new = [value for value in found if value not in place]
        new += [None] if self.missing is None and (codes < 0).any() else []
        return self._rows_with_ends[np.array([*positions, -1])[codes]], new

    def to_config(self) -> dict[str, Any]:
        """Plain data; :meth:`from_config` builds an equal object from it."""
        held = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in held
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Scaled":
        """The object that :meth:`to_config` described."""
        held = dict(config)
        width = len(held["labels"])
        for name in ("table", "missing", "unseen"):
            if held[name] is not None:
                held[name] = np.array(held[name], dtype=np.float64)
        held["table"] = held["table"].reshape(-1, width)
        if isinstance(held["name"], list):  # as JSON has tuples
            held["name"] = tuple(held["name"])
        return cls(**held)

    @cached_property
    def _place(self) -> dict[Any, int]:
        """The position of each category."""
        return {value: at for at, value in enumerate(self.points)}

    @cached_property
    def _rows_with_ends(self) -> Table:
        """Coordinates of the categories, of unseen values and of missing ones."""
        missing = self.unseen if self.missing is None else self.missing
        return np.vstack([self.table, self.unseen, missing])

    def _of_numbers(self, values: NDArray[np.float64]) -> Table:
        """Coordinates of numbers, :math:`(N, D)`."""
        if self.outside == "linear":
            first, last = self.points[0], self.points[-1]
            step = (self.table[-1] - self.table[0]) / (last - first)
            out: Table = self.table[0] + (values[:, None] - first) * step
        else:
            curves = [np.interp(values, self.points, one) for one in self.table.T]
            out = np.column_stack(curves)
        out[np.isnan(values)] = self.unseen if self.missing is None else self.missing
        return out


def linear(column: Column, how: str, unit: float | None) -> Scaled:
    """A number less its mean in units, by default standard deviations.

    Missing ones are at the mean, and one apart in a coordinate of their own.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(column.values[:, None])
    mean, unit = (
        float(scaler.mean_[0]),
        float(scaler.scale_[0] if unit is None else unit),
    )
    labels, missing = [str(column.name)], None
    if column.missing.any():
        labels.append(f"{column.name}=missing")
        missing = np.array([0.0, 1.0])
    table = np.eye(2, len(labels), k=-1)
    points, unseen = [mean, mean + unit], np.zeros(len(labels))
    return Scaled(
        column.name, column.kind, how, points, table, "linear", missing, unseen, labels
    )


def one_hot(column: Column, how: str, size: float, groups: list[list[int]]) -> Scaled:
    """A coordinate of ``size`` for each category, or for several that are alike.

    Missing ones have their own; unseen ones none.
    """
    together = {at: group[0] for group in groups for at in group}
    first = [together.get(at, at) for at in range(len(column.categories))]
    kept = sorted(set(first))
    names = [
        "|".join(
            str(column.categories[at]) for at in range(len(first)) if first[at] == k
        )
        for k in kept
    ]
    labels = [f"{column.name}={name}" for name in names]
    labels += [f"{column.name}=missing"] if column.missing.any() else []
    rows = size * np.eye(len(labels))
    return Scaled(
        name=column.name,
        kind=column.kind,
        how=how,
        points=list(column.categories),
        table=rows[[kept.index(one) for one in first]],
        outside="constant",
        missing=rows[-1] if column.missing.any() else None,
        unseen=np.zeros(len(labels)),
        labels=labels,
    )


def by_effect(grid: Grid, how: str, effects: Table, groups: list[list[int]]) -> Scaled:
    """Effects of the points of a grid, less their mean over people.

    Args:
        grid (Grid): The points.
        how (str): How they were found.
        effects (numpy.ndarray): One row per holder of the grid.
        groups (list): Positions of categories that are alike.
    """
    column, effects = grid.column, effects.copy()
    for group in groups:
        counts = [(column.values == at).sum() for at in group]
        effects[group] = np.average(effects[group], axis=0, weights=counts)
    width = effects.shape[1]
    name = str(column.name)
    labels = [name] if width == 1 else [f"{name}[{k}]" for k in range(width)]
    num_points = len(grid.points)

    def scaled(effects: Table) -> Scaled:
        missing = effects[-1] if len(effects) > num_points else None
        return Scaled(
            name=column.name,
            kind=column.kind,
            how=how,
            points=grid.points,
            table=effects[:num_points],
            outside="constant",
            missing=missing,
            unseen=np.zeros(width),
            labels=labels,
        )

    return scaled(effects - scaled(effects).of_fit(column).mean(axis=0))
