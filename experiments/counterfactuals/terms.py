"""Identity terms in texts, and the texts with other terms in their place."""

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from experiments.counterfactuals._forms import MARKS, compose, spelled_like
from pyg_glif._utils.validation import check_kind, check_texts


class IdentityTerm(NamedTuple):
    r"""One occurrence of a term in a text: ``text[start:end]``."""

    #: First character.
    start: int
    #: One past the last character.
    end: int
    #: The term as the list spells it.
    term: str


def find_identity_terms(text: str, terms: Sequence[str]) -> list[IdentityTerm]:
    r"""Where a text names an identity.

    Terms are found as whole words in upper or lower case, the longest first: in
    "African American" there is "african american" and neither "african" nor
    "american". The words of a term may be joined by a hyphen or a line break. Other
    forms are other terms: "gays" is not "gay", while "gay-friendly" and "gay's" do
    hold it. It does not matter how accents are stored, in the text or in the terms.

    Args:
        text (str): Any text.
        terms (sequence of str): The terms to look for, each with something beside
            spaces and hyphens.

    Example:
        >>> terms = ["gay", "american", "african american"]
        >>> find_identity_terms("African-American and gay.", terms)[0]
        IdentityTerm(start=0, end=16, term='african american')
    """
    check_kind("text", text, str)
    found = _find(text, _check_terms("terms", terms))
    return [IdentityTerm(start, end, term) for start, end, term, _ in found]


def replace_identity_terms(
    text: str, terms: Sequence[str], by: Sequence[str] | None = None
) -> list[str]:
    r"""One variant of a text per identity: all its terms replaced by that one.

    Args:
        text (str): Any text. Without a term in it, all variants equal it.
        terms (sequence of str): The terms to replace, found as in
            :func:`find_identity_terms`.
        by (sequence of str, optional): The terms to put in their place, one variant
            each. (default: ``terms``)

    The new term is in capitals or capitalised if the old one was, else spelled as in
    ``by``. Nothing else changes, so that a difference between two predictions can have
    no other cause: "an old man" becomes "an young man", with its article. A variant
    may equal the text, where the term was there already.

    Example:
        >>> replace_identity_terms("Gay men and black men.", ["gay", "black", "deaf"])
        ['Gay men and gay men.', 'Black men and black men.', 'Deaf men and deaf men.']
    """
    check_kind("text", text, str)
    terms = _check_terms("terms", terms)
    by = terms if by is None else _check_terms("by", by, to_find=False)
    found = _find(text, terms)
    if not found:
        return [text] * len(by)
    ends = [0, *(end for _, end, _, _ in found)]
    starts = [*(start for start, _, _, _ in found), len(text)]
    between = [text[a:b] for a, b in zip(ends, starts, strict=True)]
    old = [word for _, _, _, word in found]
    return [_join(between, [spelled_like(word, term) for word in old]) for term in by]


def read_terms(path: str | Path) -> tuple[str, ...]:
    r"""Terms from a text file, one per line.

    Blank lines, repetitions and spaces around a term are dropped.

    Args:
        path (str or Path): A file in UTF-8.

    Example:
        >>> read_terms("terms.txt")  # doctest: +SKIP
        ('lesbian', 'gay', 'bisexual')
    """
    lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    terms = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    return _check_terms("path", terms)


def _check_terms(name: str, value: object, *, to_find: bool = True) -> tuple[str, ...]:
    """At least one term, none of them blank, and something to find in each."""
    terms = check_texts(name, value)
    if not terms:
        raise ValueError(f"'{name}' must hold at least one term (got none)")
    for term in terms:
        if not term.strip():
            raise ValueError(f"'{name}' must not hold blank terms (got {term!r})")
        # Words of a term may be joined by a hyphen: of hyphens nothing would be left,
        # and nothing is found everywhere.
        if to_find and not _parts(term):
            msg = f"'{name}' must not hold terms of hyphens alone (got {term!r})"
            raise ValueError(msg)
    return tuple(terms)


def _find(text: str, terms: tuple[str, ...]) -> list[tuple[int, int, str, str]]:
    """Start, end, term and the text's own word, with its accents composed."""
    pattern, names = _compile(terms)
    composed, places = compose(text)
    found = []
    for match in pattern.finditer(composed):
        start, end = match.span()
        if places is not None:
            start, end = places[start], places[end]
        # Which alternative matched is certain; the word itself may be another one
        # for Python's lower(), as "\u0131" (a small i without a dot) is for "i".
        found.append((start, end, names[(match.lastindex or 0) - 1], match[0]))
    return found


@lru_cache(maxsize=8)
def _compile(terms: tuple[str, ...]) -> tuple[re.Pattern[str], list[str]]:
    """A pattern with a group for each term, and how the list spells them."""
    names: dict[str, str] = {}
    for term in terms:
        names.setdefault(" ".join(_parts(term)).lower(), term.strip())
    longest_first = [names[key] for key in sorted(names, key=len, reverse=True)]
    words = (r"(?:\s+|-)".join(map(re.escape, _parts(t))) for t in longest_first)
    groups = "|".join(f"({word})" for word in words)
    pattern = rf"(?<![\w{MARKS}])(?:{groups})(?![\w{MARKS}])"
    return re.compile(pattern, re.IGNORECASE), longest_first


def _parts(term: str) -> list[str]:
    """The words of a term, which hyphens or spaces separate, accents composed."""
    return unicodedata.normalize("NFC", term).replace("-", " ").split()


def _join(between: list[str], words: list[str]) -> str:
    """Texts with words in their gaps."""
    pieces = [piece for pair in zip(between, words, strict=False) for piece in pair]
    return "".join([*pieces, between[-1]])
