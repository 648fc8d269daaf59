"""Texts and whole numbers by which people and groups are called."""

from collections.abc import Iterable
from typing import Any

#: What a person or a group may be called.
Id = str | int


def as_ids(ids: Any, name: str = "ids") -> list[Id]:
    """Texts or whole numbers, from any sequence or from one of them."""
    if isinstance(ids, (str, int)):
        ids = [ids]
    if not isinstance(ids, Iterable):
        raise TypeError(f"'{name}' must be a sequence (got {type(ids).__name__})")
    # Entries of arrays, tensors and series as Python has them.
    found = [one.item() if hasattr(one, "item") else one for one in ids]
    for one in found:
        if isinstance(one, bool) or not isinstance(one, (str, int)):
            raise TypeError(f"'{name}' must be texts or whole numbers (got {one!r})")
    return found
