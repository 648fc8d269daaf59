"""Records of served samples, checked before any of them is counted."""

import hashlib
import math
from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from pyg_glif._utils.validation import check_known, check_scalar

# Rounding of outputs in float32 may push a difference this far beyond 1.
_ROUNDING = 1e-6


class ServedSample(NamedTuple):
    """One served sample."""

    disparity: float | None  # none: isolated
    group: str | None
    key: bytes | None  # hash of the id
    nearest: float | None  # fair distance to the nearest neighbor, if it is known
    time: float | None


def served_samples(
    disparity: Any,
    group: Any,
    id: Any,
    nearest: Any,
    time: Any,
    known_groups: Collection[str],
) -> list[ServedSample]:
    """Records from one value of each kind, or from one sequence of each kind."""
    is_single = getattr(disparity, "ndim", None) == 0
    is_single = is_single or not hasattr(disparity, "__len__")
    gaps = [disparity] if is_single else _listed(disparity)
    options = {"group": group, "id": id, "nearest": nearest, "time": time}
    columns = []
    for name, value in options.items():
        column = [value] if is_single else _listed(value)
        if value is None:
            column = [None] * len(gaps)
        elif (isinstance(value, str) and not is_single) or len(column) != len(gaps):
            got = "one" if isinstance(value, str) else len(column)
            msg = f"'{name}' must have one entry per sample"
            raise ValueError(f"{msg} (got {got} for {len(gaps)})")
        columns.append(column)
    return [
        ServedSample(
            _checked_gap(gap, index),
            _checked_group(group, known_groups),
            _hashed(id),
            _checked_distance(near),
            _seconds(time),
        )
        for index, (gap, group, id, near, time) in enumerate(
            zip(gaps, *columns, strict=True)
        )
    ]


def _listed(value: Any) -> list[Any]:
    """A list of plain values, from a tensor, an array, a series or a sequence."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [] if value is None else list(value)


def _checked_gap(value: Any, index: int) -> float | None:
    """A disparity, from 0 to 1."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"'disparity' must be a number (got {value!r})") from None
    if math.isnan(number):
        msg = f"'disparity' must be a number (got NaN at index {index})"
        raise ValueError(f"{msg}. Pass 'None' for an isolated sample")
    if not 0.0 <= number <= 1.0 + _ROUNDING:
        msg = f"'disparity' must be between 0 and 1 (got {number:g} at index {index})"
        remedy = "Compare probabilities, or decisions by a 'threshold'"
        raise ValueError(f"{msg}. {remedy}")
    return min(number, 1.0)


def _checked_group(value: Any, known: Collection[str]) -> str | None:
    """The name of a declared group; ``None`` stands for unknown."""
    if value is None:
        return None
    if not known:
        msg = f"'group' must not be given without 'groups' (got {str(value)!r})"
        raise ValueError(f"{msg}. Name them all when the monitor is made")
    check_known("group", [str(value)], known)
    return str(value)


def _hashed(id: Any) -> bytes | None:
    """Sixteen bytes that stand for an id; 7 and ``"7"`` are the same id."""
    if id is None:
        return None
    if isinstance(id, float) and not id.is_integer():
        raise ValueError(f"'id' must be a text or a whole number (got {id})")
    text = str(int(id)) if isinstance(id, float) else str(id)
    if not text:
        raise ValueError("'id' must not be empty (got ''). Pass 'None' for no id")
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _checked_distance(value: Any) -> float | None:
    """A distance to the nearest neighbor, infinite for an isolated sample."""
    if value is None:
        return None
    return check_scalar("nearest", value, minimum=0.0, allow_inf=True)


def _seconds(value: Any) -> float | None:
    """A moment in seconds."""
    if isinstance(value, datetime):
        return value.timestamp()
    return None if value is None else check_scalar("time", value)
