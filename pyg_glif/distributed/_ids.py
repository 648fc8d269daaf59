"""Matching of ids in any order, in bounded memory."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.distributed._store import Scratch

#: Ids in some order, some at a time; may be asked for again.
Stream = Callable[[], Iterable[NDArray[Any]]]

_KEYS = ("0123456789123456", "6543219876543210")


def digests(ids: NDArray[Any]) -> NDArray[np.uint64]:  # [N] -> [N, 2]
    """Two numbers for each id, equal if and, up to 2^-128, only if ids are."""
    if ids.dtype.kind == "i":
        first = ids.astype(np.int64).view(np.uint64)
        return np.stack([first, np.zeros_like(first)], axis=1)
    from pandas.util import hash_array

    objects = as_texts(ids).astype(object)
    return np.stack([hash_array(objects, hash_key=key) for key in _KEYS], axis=1)


def first_of(ids: NDArray[Any]) -> Any:
    """The first id as messages show it."""
    return as_texts(ids[:1]).tolist()[0]


def as_texts(ids: NDArray[Any]) -> NDArray[Any]:
    """Ids as they are shown: texts decoded, numbers as they are."""
    if ids.dtype.kind == "S":
        return np.array([text.decode() for text in ids], dtype=object)
    return ids


def check_unique(name: str, stream: Stream, count: int) -> None:
    """Raises if an id comes twice, and names it with both rows."""
    values, stop = Scratch().array((count,), np.uint64), 0
    for ids in stream():
        start, stop = stop, stop + len(ids)
        values[start:stop] = digests(ids)[:, 0]
    values.sort()
    twice = values[1:][values[1:] == values[:-1]]
    if not len(twice):
        return
    seen: dict[Any, int] = {}
    first = 0
    suspects = np.unique(twice)
    for ids in stream():
        for row in np.flatnonzero(np.isin(digests(ids)[:, 0], suspects)):
            id = first_of(ids[row:])
            if id in seen:
                raise ValueError(
                    f"'{name}' must be different for all rows (got {id!r} in rows "
                    f"{seen[id]} and {first + int(row)}, counted over all files)"
                )
            seen[id] = first + int(row)
        first += len(ids)


class Lookup:
    """Positions of samples by id."""

    def __init__(self, stream: Stream, count: int) -> None:
        kind = [("first", "<u8"), ("second", "<u8"), ("position", "<i8")]
        self._table = Scratch().array((count,), np.dtype(kind))
        stop = 0
        for ids in stream():
            start, stop = stop, stop + len(ids)
            part, values = self._table[start:stop], digests(ids)
            part["first"], part["second"] = values[:, 0], values[:, 1]
            part["position"] = np.arange(start, stop)
        self._table.sort(order=["first", "second"])

    def positions(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Positions of these ids; -1 for unknown ones."""
        values, last = digests(ids), len(self._table) - 1
        index = np.searchsorted(self._table["first"], values[:, 0])
        index = np.minimum(index, last)
        # Of texts, two may share the first number: the next ones are looked at too.
        for _ in range(4):
            same = self._table["first"][index] == values[:, 0]
            hit = same & (self._table["second"][index] == values[:, 1])
            after = same & ~hit
            if not after.any():
                break
            index = np.where(after, np.minimum(index + 1, last), index)
        return np.where(hit, self._table["position"][index], -1)


def positions_of(
    name: str, dataset: Stream, count: int, queries: Stream
) -> Iterator[NDArray[np.int64]]:
    """Positions of ids in another order, some at a time.

    Raises if an id is missing, comes twice or is unknown.
    """
    lookup = Lookup(dataset, count)
    seen = Scratch().array((count,), np.bool_)
    total = 0
    for ids in queries():
        position = lookup.positions(ids)
        if (position < 0).any():
            id = first_of(ids[position < 0])
            msg = f"'{name}' must have the ids of the dataset and no others"
            raise ValueError(f"{msg} (got {id!r})")
        order = np.sort(position)
        repeated = [*position[seen[position]], *order[1:][order[1:] == order[:-1]]]
        if repeated:
            id = first_of(ids[position == repeated[0]])
            msg = f"'{name}' must have every id once"
            raise ValueError(f"{msg} (got {id!r} twice)")
        seen[position] = True
        total += len(ids)
        yield position
    if total < count:
        missing = int(np.argmin(seen))
        first = 0
        for ids in dataset():
            if missing < first + len(ids):
                id = first_of(ids[missing - first :])
                msg = f"'{name}' must have every id (got {total} of {count})"
                raise ValueError(f"{msg}. {id!r} is missing")
            first += len(ids)
