"""A column with its scale: plain data that turns values into coordinates."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_kind,
    check_scalar,
    check_texts,
)
from pyg_glif.tables._columns import Column, Kind, check_array, listed, read_as
from pyg_glif.tables._effects import EffectGrid

Table = NDArray[np.float64]

_ROUNDING = 1e-13


class ScaledColumn(NamedTuple):
    """A column of new samples.

    Args:
        table (numpy.ndarray): Coordinates, :math:`(N, D)`.
        unseen (list): Values that the fit has not seen; :obj:`None` if missing.
        num_missing (int): Samples without a value.
    """

    table: Table
    unseen: list[Any]
    num_missing: int


@dataclass(frozen=True, eq=False)
class Scaled:
    r"""Coordinates for the values of one column.

    Args:
        name (str, int or tuple): The column.
        kind (str): How it is read.
        how (str): How it was scaled, in words.
        points (list): Categories, or ascending numbers.
        table (numpy.ndarray): Coordinates of ``points``, :math:`(P, D)`. Between two
            numbers they change linearly; beyond the first and last they do not.
        unit (float, optional): If given, the numbers less ``points[0]``, in this unit,
            are multiplied by ``table[0]`` instead.
        missing (numpy.ndarray, optional): Coordinates of a missing value, if the fit
            has seen one.
        unseen (numpy.ndarray): Coordinates of values the fit has not seen.
        labels (list of str): What the coordinates are called.
        reach (float): Largest distance between samples of the fit in this column.
        share (float): Share of this column in the variance of all coordinates.
        num_missing (int): Samples of the fit without a value.
        note (str): What else should be known.
    """

    name: Any
    kind: Kind
    how: str
    points: list[Any]
    table: Table
    unit: float | None
    missing: Table | None
    unseen: Table
    labels: list[str]
    reach: float = 0.0
    share: float = 0.0
    num_missing: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        for name in ("how", "note"):
            check_kind(name, getattr(self, name), str)
        width = len(check_texts("labels", self.labels, minimum=1))
        rows = 1 if self.unit is not None else len(self.points)
        for name, shape in (
            ("table", (rows, width)),
            ("unseen", (width,)),
            ("missing", (width,)),
        ):
            check_array(name, getattr(self, name), shape, name == "missing")
        if self.kind == "category":
            # As plain data they may be equal: 1 and True, or NaN twice.
            if self.unit is not None or not self.points:
                raise ValueError("'points' must be categories, without a unit")
        else:
            points = np.array(self.points, dtype=np.float64)
            check_array("points", points, (max(1, rows),))
            if (np.diff(points) <= 0).any():
                raise ValueError("'points' must be in ascending order")
        if self.unit is not None:
            check_scalar("unit", self.unit, above=0.0)
        for name in ("reach", "share"):
            check_scalar(name, getattr(self, name), minimum=0.0)
        check_count("num_missing", self.num_missing, minimum=0)

    def described(
        self, column: Column, groups: list[list[int]], share: float
    ) -> "Scaled":
        """The same with what a summary says about the samples of the fit."""
        from scipy.spatial.distance import pdist

        notes = [
            f"equivalent: {listed([column.categories[k] for k in group])}"
            for group in groups
        ]
        if column.is_constant():
            notes.append("constant")
        rows = self.table
        if self.unit is not None:
            known = column.values[~column.missing]
            rows = self._of_numbers(np.array([known.min(), known.max()]))
        if self.missing is not None:
            rows = np.vstack([rows, self.missing])
        return replace(
            self,
            reach=float(pdist(rows).max()) if len(rows) > 1 else 0.0,
            share=share,
            num_missing=int(column.missing.sum()),
            note="; ".join(notes),
        )

    def of_fit(self, column: Column) -> Table:
        """Coordinates of the samples of the fit, :math:`(N, D)`."""
        if self.kind == "category":
            positions = np.where(column.missing, -1, column.values).astype(np.intp)
            return self._rows_with_ends[positions]
        return self._of_numbers(column.values)

    def __call__(self, frame: Any) -> "ScaledColumn":
        """Coordinates of new samples; raises on values of another kind."""
        unseen = []
        if self.kind == "category":
            codes, values = read_as(frame, self.name, "category")
            # The two rows after the categories: unseen, missing.
            positions = np.array([*(self._positions.get(v, -2) for v in values), -1])
            table = self._rows_with_ends[positions[codes]]
            unseen = [value for value in values if value not in self._positions]
            num_missing = int((codes < 0).sum())
        else:
            values = read_as(frame, self.name, self.kind)
            if np.isinf(values).any():
                row = int(np.isinf(values).argmax())
                raise ValueError(f"infinity in {self.name!r} at row {row}")
            table = self._of_numbers(values)
            num_missing = int(np.isnan(values).sum())
        if num_missing and self.missing is None:
            unseen.append(None)
        return ScaledColumn(table, unseen, num_missing)

    def to_config(self) -> dict[str, Any]:
        """Plain data; :meth:`from_config` builds an equal object from it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Scaled":
        """The object that :meth:`to_config` described."""
        values = dict(config)
        for name in ("table", "missing", "unseen"):
            if values[name] is not None:
                values[name] = np.array(values[name], dtype=np.float64)
        values["table"] = values["table"].reshape(-1, len(values["labels"]))
        if isinstance(values["name"], list):  # as JSON has tuples
            values["name"] = tuple(values["name"])
        return cls(**values)

    @cached_property
    def _positions(self) -> dict[Any, int]:
        """The position of each category."""
        return {value: k for k, value in enumerate(self.points)}

    @cached_property
    def _rows_with_ends(self) -> Table:
        """Coordinates of the categories, of unseen values and of missing ones."""
        missing = self.unseen if self.missing is None else self.missing
        return np.vstack([self.table, self.unseen, missing])

    def _of_numbers(self, values: NDArray[np.float64]) -> Table:
        """Coordinates of numbers, :math:`(N, D)`."""
        if self.unit is not None:
            out: Table = (values[:, None] - self.points[0]) / self.unit * self.table
        else:
            curves = [np.interp(values, self.points, curve) for curve in self.table.T]
            out = np.column_stack(curves)
        out[np.isnan(values)] = self.unseen if self.missing is None else self.missing
        return out


def in_units(column: Column, unit: float | None, groups: list[list[int]]) -> Scaled:
    """Values in units, whatever their effect on a model.

    Args:
        column (Column): The values.
        unit (float, optional): The difference that counts one; two different
            categories are ``1 / unit`` apart. By default, the standard deviation, and
            1 in two of the coordinates of categories.
        groups (list): Positions of categories that are equivalent.
    """
    if column.kind == "category":
        how = "one-hot" if unit is None else f"unit {unit:g}"
        size = 1.0 if unit is None else 0.5**0.5 / unit
        return _one_hot(column, how, size, groups)
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(column.values[:, None])
    labels, missing = [str(column.name)], None
    if column.missing.any():
        # At the mean, and at 1 in a coordinate for missing values.
        labels.append(f"{column.name}=missing")
        missing = np.array([0.0, 1.0])
    return Scaled(
        name=column.name,
        kind=column.kind,
        how="standard deviation" if unit is None else f"unit {unit:g}",
        points=scaler.mean_.tolist(),
        table=np.eye(1, len(labels)),
        unit=float(scaler.scale_[0] if unit is None else unit),
        missing=missing,
        unseen=np.zeros(len(labels)),
        labels=labels,
    )


def _one_hot(column: Column, how: str, size: float, groups: list[list[int]]) -> Scaled:
    """A coordinate of ``size`` for each category, or for several that are equivalent.

    Missing ones have their own; unseen ones none.
    """
    leader = {k: group[0] for group in groups for k in group}
    leaders = [leader.get(k, k) for k in range(len(column.categories))]
    members: dict[int, list[str]] = {}
    for k, value in zip(leaders, column.categories, strict=True):
        members.setdefault(k, []).append(str(value))
    labels = [f"{column.name}={'|'.join(names)}" for names in members.values()]
    labels += [f"{column.name}=missing"] if column.missing.any() else []
    rows = size * np.eye(len(labels))
    return Scaled(
        name=column.name,
        kind=column.kind,
        how=how,
        points=list(column.categories),
        table=rows[[list(members).index(k) for k in leaders]],
        unit=None,
        missing=rows[-1] if column.missing.any() else None,
        unseen=np.zeros(len(labels)),
        labels=labels,
    )


def by_effect(
    grid: EffectGrid, how: str, effects: Table, groups: list[list[int]]
) -> Scaled:
    """Effects of the points of a grid, less their mean over samples.

    Args:
        grid (EffectGrid): The points.
        how (str): How they were found.
        effects (numpy.ndarray): One row per holder of the grid.
        groups (list): Positions of categories that are equivalent.
    """
    column, effects = grid.column, effects.copy()
    for group in groups:
        counts = [(column.values == k).sum() for k in group]
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
            unit=None,
            missing=missing,
            unseen=np.zeros(width),
            labels=labels,
        )

    out = effects - scaled(effects).of_fit(column).mean(axis=0)
    # Where a column has no effect, what is left is the rounding of means.
    out[np.abs(out) <= _ROUNDING * np.abs(effects).max()] = 0.0
    return scaled(out)


def combined(effect: Scaled, standard: Scaled, factors: tuple[float, float]) -> Scaled:
    """One column by its effect and by its spread, side by side.

    Args:
        effect (Scaled): The column by its effect, which gives the points.
        standard (Scaled): The column in standard deviations, or one-hot.
        factors (tuple of float): What the coordinates of the two are multiplied by.
    """
    by_effect, by_spread = factors
    rows = standard.table
    if effect.kind != "category":
        # Linear between the points, the first and last of which are the extremes.
        rows = standard._of_numbers(np.array(effect.points, dtype=np.float64))
    missing = None
    if effect.missing is not None and standard.missing is not None:
        missing = np.append(by_effect * effect.missing, by_spread * standard.missing)
    names = [f"{label}:effect" for label in effect.labels]
    return replace(
        effect,
        how=f"{effect.how}, {standard.how}",
        table=np.hstack([by_effect * effect.table, by_spread * rows]),
        missing=missing,
        unseen=np.zeros(len(names) + len(standard.labels)),
        labels=names + standard.labels,
    )
