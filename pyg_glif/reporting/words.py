"""Numbers and values as people read them."""

import math
from collections.abc import Sequence
from typing import Any


def number(value: float, digits: int = 4) -> str:
    """A number in a few digits, whole numbers in full, thousands apart.

    Example:
        >>> number(12345), number(0.123456), number(0.0), number(1234.56)
        ('12,345', '0.1235', '0', '1,235')
    """
    if isinstance(value, int) or (math.isfinite(value) and value == int(value)):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.3e}"
    if not math.isfinite(value):
        return "none" if math.isnan(value) else ("-" if value < 0 else "") + "unbounded"
    size = abs(value)
    if size >= 1000.0:
        return f"{value:,.0f}" if size < 1e15 else f"{value:.3e}"
    return f"{value:.{digits}g}" if size >= 1e-4 else f"{value:.2e}"


def percent(share: float) -> str:
    """A share as a percentage that is 0% and 100% only if the share is 0 and 1.

    Example:
        >>> percent(0.1234), percent(0.0), percent(1e-6), percent(0.99999), percent(1.0)
        ('12.3%', '0%', '<0.01%', '>99.99%', '100%')
    """
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    if share < 1e-4:
        return "<0.01%"
    if share > 1.0 - 1e-4 and share < 1.0:
        return ">99.99%"
    digits = 1 if 0.01 <= share <= 0.99 else 2
    if abs(100 * share - round(100 * share)) < 1e-9:
        digits = 0
    return f"{share:.{digits}%}"


def brief(value: Any) -> str:
    """A number in three digits, or a text as it is."""
    return number(value, 3) if isinstance(value, (int, float)) else str(value)


def whole_percents(shares: Sequence[float]) -> list[int]:
    """Shares in whole percents: those with the largest remainders are rounded up.

    Example:
        >>> whole_percents([1 / 3, 1 / 3, 1 / 3]), whole_percents([0.005, 0.995])
        ([34, 33, 33], [1, 99])
    """
    percents = [int(100.0 * share // 1) for share in shares]
    left = round(100.0 * sum(shares)) - sum(percents)
    order = sorted(range(len(shares)), key=lambda k: percents[k] - 100.0 * shares[k])
    for k in order[:left]:
        percents[k] += 1
    return percents


def counted(count: int, one: str, many: str) -> str:
    """A number and what there are so many of.

    Example:
        >>> counted(1, "person", "people"), counted(2913, "pair", "pairs")
        ('1 person', '2,913 pairs')
    """
    return f"{count:,} {one if count == 1 else many}"


def shown(value: Any) -> str:
    """A value as text: lists with commas, nothing for :obj:`None`.

    Example:
        >>> shown([1.0, "a", None, True])
        '1, a, , yes'
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return str(value)
