"""Served people as they come in: checked before any of them is counted."""

import hashlib
import math
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from pyg_glif._utils.validation import check_known, check_scalar

# Rounding of outputs in float32 may push a difference this far beyond 1.
_ROUNDING = 1e-6


class Served(NamedTuple):
    """One served person."""

    disparity: float | None  # none: no peers
    group: str | None
    key: bytes | None  # of the id
    nearest: float | None  # fair distance to the nearest peer, if it is known
    time: float | None


def served_people(
    disparity: Any,
    group: Any,
    id: Any,
    nearest: Any,
    time: Any,
    known_groups: Collection[str],
) -> list[Served]:
    """People from numbers, or from one sequence of each kind."""
    alone = not hasattr(disparity, "__len__") or getattr(disparity, "ndim", None) == 0
    gaps = [disparity] if alone else _listed(disparity)
    columns = {"group": group, "id": id, "nearest": nearest, "time": time}
    lists = {}
    for name, value in columns.items():
        if value is None:
            lists[name] = [None] * len(gaps)
            continue
        lists[name] = [value] if alone else _listed(value)
        if (isinstance(value, str) and not alone) or len(lists[name]) != len(gaps):
            got = "one" if isinstance(value, str) else len(lists[name])
            msg = f"'{name}' must have one entry per person"
            raise ValueError(f"{msg} (got {got} for {len(gaps)})")
    return [
        Served(
            _gap(gap, k),
            _group(lists["group"][k], known_groups),
            _key(lists["id"][k]),
            _distance(lists["nearest"][k]),
            _time(lists["time"][k]),
        )
        for k, gap in enumerate(gaps)
    ]


def _listed(value: Any) -> list[Any]:
    """A list of plain values, from a tensor, an array, a series or a sequence."""
    return list(value.tolist() if hasattr(value, "tolist") else value)


def _gap(value: Any, index: int) -> float | None:
    """A disparity, from 0 to 1."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"'disparity' must be a number (got {value!r})") from None
    if math.isnan(number):
        msg = f"'disparity' must be a number (got NaN at index {index})"
        raise ValueError(f"{msg}. Pass 'None' for a person without peers")
    if not 0.0 <= number <= 1.0 + _ROUNDING:
        msg = f"'disparity' must be between 0 and 1 (got {number:g} at index {index})"
        remedy = "Compare probabilities, or decisions by a 'threshold'"
        raise ValueError(f"{msg}. {remedy}")
    return min(number, 1.0)


def _group(value: Any, known: Collection[str]) -> str | None:
    """The name of a group that was declared; ``None`` stands for unknown."""
    if value is None:
        return None
    name = str(value)
    if not known:
        msg = f"'group' must not be given without 'groups' (got {name!r})"
        raise ValueError(f"{msg}. Name them all when the monitor is made")
    check_known("group", [name], known)
    return name


def _key(value: Any) -> bytes | None:
    """Sixteen bytes that stand for an id; 7 and ``"7"`` are the same id."""
    if value is None:
        return None
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"'id' must be a text or a whole number (got {value})")
    text = str(int(value)) if isinstance(value, float) else str(value)
    if not text:
        raise ValueError("'id' must not be empty (got ''). Pass 'None' for no id")
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _distance(value: Any) -> float | None:
    """A distance to the nearest peer, infinite without one."""
    if value is None:
        return None
    return check_scalar("nearest", value, minimum=0.0, allow_inf=True)


def _time(value: Any) -> float | None:
    """A moment in seconds."""
    if isinstance(value, datetime):
        return value.timestamp()
    return None if value is None else check_scalar("time", value)
