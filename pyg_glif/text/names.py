"""Given names and their counterparts."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from pyg_glif._validate import check_texts
from pyg_glif.text._forms import is_word


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
    words = _check_words(name, check_texts(name, values))
    return dict.fromkeys(word[0].upper() + word[1:] for word in words)


def check_names(name: str, value: object) -> Mapping[str, str]:
    """A mapping from word to word, or :obj:`None` for an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        got = type(value).__name__
        raise TypeError(f"'{name}' must map names to names (got {got})")
    # Called for every text: the slow checks run only where the quick one fails.
    try:
        every = "".join([*value, *value.values()])
        quick = all(map(str.isalpha, value)) and all(map(str.isalpha, value.values()))
    except TypeError:
        quick = False
    if quick and unicodedata.is_normalized("NFC", every):
        return value
    old, new = (
        _check_words(name, check_texts(name, texts))
        for texts in (value.keys(), value.values())
    )
    return dict(zip(old, new, strict=True))


def _check_words(name: str, value: Iterable[str]) -> list[str]:
    """Single words of letters, each letter and its accents one character."""
    words = [unicodedata.normalize("NFC", word) for word in value]
    for word in words:
        if not is_word(word):
            raise ValueError(f"'{name}' must hold single words (got {word!r})")
    return words
