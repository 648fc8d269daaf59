"""Columns that are not features: ids, attributes, groups, labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli.base import UsageError, listed
from pyg_glif.cli.files import DATA, open_source
from pyg_glif.cli.source import Source


class Columns:
    """Columns that are not features, wherever they are."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def ids(self, name: str, size: int) -> NDArray[Any]:
        """Ids, which must agree where several files hold them."""
        holders = [source for source in self._sources if source.has(name)]
        found, *others = [s.column(n) for s, n in self.find(name, holders)]
        check_same_ids(name, found, others)
        return _checked(name, found, size)

    def full(self, name: str, size: int) -> tuple[str, NDArray[Any]]:
        """Name and values of a column without gaps."""
        ((source, column),) = self.find(name)[:1]
        value = _checked(name, source.column(column), size)
        gaps = np.flatnonzero(~known(value))
        if gaps.size:
            raise source.text_error(column, int(gaps[0]), "")
        return (Path(name).stem if source not in self._sources else name), value

    def maybe(self, name: str | None, size: int) -> NDArray[Any] | None:
        """A column that may have gaps, if one is named."""
        if name is None:
            return None
        ((source, column),) = self.find(name)[:1]
        return _checked(name, source.column(column), size)

    def find(
        self, name: str, holders: Sequence[Source] | None = None
    ) -> list[tuple[Source, str]]:
        """Who has a column; a file with a single one may be named in its place."""
        holders = holders or [source for source in self._sources if source.has(name)]
        if not holders and Path(name).suffix.lower() in DATA and Path(name).is_file():
            source = open_source(name)
            if len(source.names) != 1:
                got = listed(source.names)
                raise UsageError(f"'{name}' must have a single column (it has {got})")
            return [(source, source.names[0])]
        if not holders:
            first = self._sources[0]
            msg = f"'{first.path}' has no column '{name}'"
            raise UsageError(f"{msg} (it has {listed(first.names)})")
        return [(s, s.find([name], f"'{name}'")[0]) for s in holders]


def check_same_ids(
    name: str, found: NDArray[Any], others: Sequence[NDArray[Any]]
) -> None:
    """Raises if files list people in different orders."""
    for other in others:
        if len(other) == len(found):
            apart = np.flatnonzero(found.astype(np.str_) != other.astype(np.str_))
            if apart.size:
                at = int(apart[0])
                msg = f"'{name}' must be the same in both files, row by row"
                got = f"{str(found[at])!r} and {str(other[at])!r} in row {at}"
                raise UsageError(f"{msg} (got {got}). Sort them alike")


def known(value: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries of a column are not empty."""
    there = np.ones(len(value), dtype=np.bool_)
    if value.dtype.kind == "f":
        there[:] = ~np.isnan(value)
    elif value.dtype.kind in "UO":
        # NaN, which is not equal to itself, stands for gaps among objects.
        there[:] = [v is not None and v == v and str(v).strip() != "" for v in value]
    return there


def _checked(name: str, value: NDArray[Any], size: int) -> NDArray[Any]:
    """A column with one entry per person; text as text, not as objects."""
    if len(value) != size:
        msg = f"'{name}' must have one entry per person (got {len(value)} for {size})"
        raise UsageError(msg)
    if value.dtype.kind == "O" and known(value).all():
        return value.astype(np.str_)
    return value
