"""Matching of ids in any order; ids of all samples are held in memory."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.optional import require


def as_arrow(ids: NDArray[Any]) -> Any:
    """Ids as an Arrow array, texts decoded."""
    arrow = require("pyarrow", "pyg_glif.distributed", "ray")
    if ids.dtype.kind == "S":
        return arrow.array([text.decode() for text in ids])
    return arrow.array(ids)


def check_unique(name: str, ids: Iterable[NDArray[Any]]) -> None:
    """Raises if two rows have one id, and names both."""
    column = _column(ids)
    position = _positions(column, column)
    repeated = np.flatnonzero(position != np.arange(len(position)))
    if len(repeated):
        row = int(repeated[0])
        raise ValueError(
            f"'{name}' must be different for all rows (got {column[row].as_py()!r} in "
            f"rows {position[row]} and {row}, counted over all files)"
        )


def positions_of(
    name: str, known: Iterable[NDArray[Any]], queries: Iterable[NDArray[Any]]
) -> NDArray[np.int64]:
    """Positions of as many ids in another order.

    Raises if an id is unknown or comes twice.
    """
    column = _column(queries)
    position = _positions(column, _column(known))
    unknown = np.flatnonzero(position < 0)
    if len(unknown):
        msg = f"'{name}' must have the ids of the dataset and no others"
        raise ValueError(f"{msg} (got {column[int(unknown[0])].as_py()!r})")
    order = np.argsort(position, kind="stable")
    repeated = order[1:][np.diff(position[order]) == 0]
    if len(repeated):
        msg = f"'{name}' must have every id once"
        raise ValueError(f"{msg} (got {column[int(repeated[0])].as_py()!r} twice)")
    return position


def _column(ids: Iterable[NDArray[Any]]) -> Any:
    """All ids as one Arrow column."""
    arrow = require("pyarrow", "pyg_glif.distributed", "ray")
    return arrow.chunked_array([as_arrow(part) for part in ids])


def _positions(column: Any, known: Any) -> NDArray[np.int64]:
    """First position of each id among known ones; -1 for unknown ones."""
    compute = require("pyarrow.compute", "pyg_glif.distributed", "ray")
    if column.type != known.type:
        return np.full(len(column), -1)
    index = compute.index_in(column, value_set=known)
    return np.asarray(compute.fill_null(index, -1)).astype(np.int64)
