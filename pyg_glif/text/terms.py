"""Identity terms in texts, and the texts with other terms in their place."""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pyg_glif._validate import check_kind, check_terms


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
    hold it.

    Args:
        text (str): Any text.
        terms (sequence of str): The terms to look for.

    Example:
        >>> terms = ["gay", "american", "african american"]
        >>> find_identity_terms("African-American and gay.", terms)[0]
        IdentityTerm(start=0, end=16, term='african american')
    """
    check_kind("text", text, str)
    pattern, names = _compile(check_terms("terms", terms))
    return [
        IdentityTerm(*match.span(), names[_key(match[0])])
        for match in pattern.finditer(text)
    ]


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
    terms = check_terms("terms", terms)
    by = terms if by is None else check_terms("by", by)
    found = list(_compile(terms)[0].finditer(text))
    if not found:
        return [text] * len(by)
    ends = [0, *(match.end() for match in found)]
    starts = [*(match.start() for match in found), len(text)]
    between = [text[a:b] for a, b in zip(ends, starts, strict=True)]
    old = [match[0] for match in found]
    return [_join(between, [_like(word, term) for word in old]) for term in by]


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
    return check_terms("path", terms)


@lru_cache(maxsize=8)
def _compile(terms: tuple[str, ...]) -> tuple[re.Pattern[str], dict[str, str]]:
    """A pattern for all terms, and how the list spells each of them."""
    names: dict[str, str] = {}
    for term in terms:
        names.setdefault(_key(term), term.strip())
    longest_first = sorted(names, key=len, reverse=True)
    words = (r"(?:\s+|-)".join(map(re.escape, key.split())) for key in longest_first)
    return re.compile(rf"(?<!\w)(?:{'|'.join(words)})(?!\w)", re.IGNORECASE), names


def _key(term: str) -> str:
    """A term without what spellings of it differ in."""
    return " ".join(term.lower().replace("-", " ").split())


def _like(word: str, term: str) -> str:
    """A term in the case of the word it replaces."""
    if len(word) > 1 and word.isupper():
        return term.upper()
    if not word[0].isupper():
        return term
    parts = word.replace("-", " ").split()
    if all(part[0].isupper() for part in parts):
        return re.sub(r"(?<!\w)\w", lambda match: match[0].upper(), term)
    return term[0].upper() + term[1:]


def _join(between: list[str], words: list[str]) -> str:
    """Texts with words in their gaps."""
    pieces = [piece for pair in zip(between, words, strict=False) for piece in pair]
    return "".join([*pieces, between[-1]])
