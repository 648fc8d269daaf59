"""Data that every JSON reader takes."""

import json
import math
from typing import Any


def plain(value: Any) -> Any:
    """A value for JSON: tuples as lists, NaN as ``None``, infinities as text."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        return "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def is_held(one: Any, other: Any) -> bool:
    """Whether plain data is in other data, which may have more keys, for new options.

    Read from a file and described again by what was made of it, data has to be the
    same: numbers, truth values and texts are told apart as JSON tells them.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return all(key in other and is_held(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_held, one, other))
    return json.dumps(one) == json.dumps(other)
