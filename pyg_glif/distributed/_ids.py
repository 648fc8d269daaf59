"""Who is who: ids of people, in any order and in bounded memory."""

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
        return np.array([one.decode() for one in ids], dtype=object)
    return ids


def check_unique(name: str, stream: Stream, count: int) -> None:
    """Raises if an id comes twice, and names it with both rows."""
    first = Scratch().array((count,), np.uint64)
    at = 0
    for ids in stream():
        first[at : at + len(ids)] = digests(ids)[:, 0]
        at += len(ids)
    first.sort()
    twice = first[1:][first[1:] == first[:-1]]
    if not len(twice):
        return
    seen: dict[Any, int] = {}
    at = 0
    suspects = np.unique(twice)
    for ids in stream():
        for row in np.flatnonzero(np.isin(digests(ids)[:, 0], suspects)):
            one = first_of(ids[row:])
            if one in seen:
                raise ValueError(
                    f"'{name}' must be different for everybody (got {one!r} in rows "
                    f"{seen[one]} and {at + int(row)}, counted over all files)"
                )
            seen[one] = at + int(row)
        at += len(ids)


class Lookup:
    """Positions of people by id."""

    def __init__(self, stream: Stream, count: int) -> None:
        kind = [("first", "<u8"), ("second", "<u8"), ("position", "<i8")]
        self._table = Scratch().array((count,), np.dtype(kind))
        at = 0
        for ids in stream():
            part, found = self._table[at : at + len(ids)], digests(ids)
            part["first"], part["second"] = found[:, 0], found[:, 1]
            part["position"] = np.arange(at, at + len(ids))
            at += len(ids)
        self._table.sort(order=["first", "second"])

    def positions(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """Where these people are; -1 for those who are not there."""
        found = digests(ids)
        at = np.searchsorted(self._table["first"], found[:, 0])
        at = np.minimum(at, len(self._table) - 1)
        # Of texts, two may share the first number: the next ones are looked at too.
        for _ in range(4):
            same = self._table["first"][at] == found[:, 0]
            hit = same & (self._table["second"][at] == found[:, 1])
            after = same & ~hit
            if not after.any():
                break
            at = np.where(after, np.minimum(at + 1, len(self._table) - 1), at)
        return np.where(hit, self._table["position"][at], -1)


def positions_of(
    name: str, people: Stream, count: int, given: Stream
) -> Iterator[NDArray[np.int64]]:
    """Positions of people in another order, some at a time.

    Raises if somebody is missing, comes twice or is not among the people.
    """
    lookup = Lookup(people, count)
    seen = Scratch().array((count,), np.bool_)
    total = 0
    for ids in given():
        found = lookup.positions(ids)
        if (found < 0).any():
            one = first_of(ids[found < 0])
            msg = f"'{name}' must have the ids of the people and no others"
            raise ValueError(f"{msg} (got {one!r})")
        again = seen[found].copy()
        order = np.sort(found)
        if again.any() or (order[1:] == order[:-1]).any():
            doubles = (
                found[again] if again.any() else order[1:][order[1:] == order[:-1]]
            )
            one = first_of(ids[found == doubles[0]])
            msg = f"'{name}' must have every person once"
            raise ValueError(f"{msg} (got {one!r} twice)")
        seen[found] = True
        total += len(ids)
        yield found
    if total < count:
        missing = int(np.argmin(seen))
        at = 0
        for ids in people():
            if missing < at + len(ids):
                one = first_of(ids[missing - at :])
                msg = f"'{name}' must have every person (got {total} of {count})"
                raise ValueError(f"{msg}. {one!r} is missing")
            at += len(ids)
