"""Conversion to strict JSON, and comparison of plain data."""

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


def is_subset(part: Any, whole: Any) -> bool:
    """Whether plain data equals other data, which may have more keys for new options.

    Numbers, truth values and texts are distinguished as in JSON.
    """
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(key in whole and is_subset(part[key], whole[key]) for key in part)
    if isinstance(part, (list, tuple)) and isinstance(whole, (list, tuple)):
        return len(part) == len(whole) and all(map(is_subset, part, whole))
    return json.dumps(part) == json.dumps(whole)
