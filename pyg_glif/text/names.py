"""Given names and their counterparts."""

from collections.abc import Sequence

from pyg_glif._validate import check_texts, check_words


def pair_names(female: Sequence[str], male: Sequence[str]) -> dict[str, str]:
    r"""Pairs names by rank, for :func:`swap_gender`.

    The first female name stands for the first male one and the other way round, and so
    on. Lists ordered by frequency pair common names with common ones. Names on both
    lists ("Alex") fit anybody and are left out before the pairing, as are repetitions;
    what the longer list has left over is not swapped.

    Args:
        female (sequence of str): Given names, one word each, most frequent first.
        male (sequence of str): As ``female``.

    Example:
        >>> pair_names(["mary", "Alex", "Ann", "Eve"], ["John", "Paul", "Alex"])
        {'Mary': 'John', 'John': 'Mary', 'Ann': 'Paul', 'Paul': 'Ann'}
    """
    women, men = _capitalised("female", female), _capitalised("male", male)
    pairs = zip(
        (name for name in women if name not in men),
        (name for name in men if name not in women),
        strict=False,
    )
    return {a: b for woman, man in pairs for a, b in ((woman, man), (man, woman))}


def _capitalised(name: str, values: Sequence[str]) -> dict[str, None]:
    """Different names in order, with a capital letter."""
    check_words(name, check_texts(name, values))
    return dict.fromkeys(value[0].upper() + value[1:] for value in values)
