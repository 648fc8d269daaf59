"""What "her" and "his" are in a sentence, told from the words that follow."""

import re
from typing import Literal

from pyg_glif.text._words import (
    AFTER_ALONE,
    AFTER_OBJECT,
    CAUSATIVES,
    COMPLEMENTS,
    COMPOUNDS,
    DETERMINERS,
    GIVERS,
    NOT_ADVERBS,
    NOUN_AT_END,
    OBJECT_AT_END,
    PREDETERMINERS,
    QUANTITIES,
)

# The next word: on the same line or the next one, perhaps in quotation marks or
# brackets that open here, perhaps the first part of a compound ("in-laws"). Blank
# lines and wide gaps separate paragraphs.
_NEXT = re.compile(
    r"(?:-|[ \t\xa0]{1,2}|[ \t\xa0]*\r?\n[ \t\xa0]*)[\"“'\u2018`(\[*]*"
    r"(?P<word>\w+(?:['\u2019]\w+)?)(?P<hyphen>-\w)?"
)
# After "his" a noun is all but certain: only punctuation rules it out.
_NEXT_TO_HIS = re.compile(
    r"[-\s\"\u201c\u201d'\u2018\u2019`(\[*]*(?P<word>\w+)(?P<hyphen>-\w)?"
)
_OTHER = re.compile(r"\s*(/|&|or\b|and\b)\s*(her|his|hers|him)\b", re.IGNORECASE)
_BEFORE = re.compile(r"(\w+)\s+(?:(with)\s+)?\Z")
_NUMBER = re.compile(r"\s+(?:\d|two|three|four|five|ten|twenty|thirty|forty)")


def role_of_her(text: str, end: int) -> Literal["determiner", "object"]:
    """Whether the "her" that ends at ``end`` is followed by its noun."""
    other = _OTHER.match(text, end)
    if other and other[1].lower() != "and" and not other[2].lower().startswith("her"):
        # "her or his patients", "her/him": one thing for either gender. But "her and
        # his" are mostly two things, and so are "her or her lawyer".
        has_noun = _has_noun(other[2], text, other.end())
    else:
        has_noun = _her_has_noun(text, end)
    return "determiner" if has_noun else "object"


def role_of_his(text: str, end: int) -> Literal["determiner", "alone"]:
    """Whether the "his" that ends at ``end`` is followed by its noun."""
    if other := _OTHER.match(text, end):
        has_noun = _has_noun(other[2], text, other.end())
    else:
        has_noun = _his_has_noun(text, end)
    return "determiner" if has_noun else "alone"


def _has_noun(pronoun: str, text: str, end: int) -> bool:
    """Whether the second of two pronouns is followed by a noun."""
    if pronoun.lower() == "his":
        return _his_has_noun(text, end)
    return pronoun.lower() == "her" and _her_has_noun(text, end)


def _her_has_noun(text: str, end: int) -> bool:
    """Whether a noun follows "her", other pronouns apart."""
    following = _NEXT.match(text, end)
    if following is None:
        return False
    word, after = following["word"], following.end("word")
    if following["hyphen"] or _is_acronym(word, text[end - 3 : end]):
        return True
    word = word.lower().replace("\u2019", "'")
    return not (_is_after_object(word, text, after) or _is_between(word, text, end - 3))


def _his_has_noun(text: str, end: int) -> bool:
    """Whether a noun follows "his", other pronouns apart."""
    following = _NEXT_TO_HIS.match(text, end)
    if following is None:
        return False
    word, after = following["word"], following.end("word")
    if following["hyphen"] or _is_acronym(word, text[end - 3 : end]):
        return True
    word = word.lower()
    return word not in AFTER_ALONE or _is_compound(word, text, after)


def _is_acronym(word: str, pronoun: str) -> bool:
    """Whether "IT" or "AS" is more than "it" or "as" in capitals."""
    return word.isupper() and word != "I" and not pronoun.isupper()


def _is_after_object(word: str, text: str, end: int) -> bool:
    """Whether a word cannot begin a noun phrase that "her" determines."""
    if word in AFTER_OBJECT:
        return not _is_compound(word, text, end)
    if word in NOUN_AT_END:
        return not _ends_clause(text, end)
    if word in PREDETERMINERS:
        following = _NEXT.match(text, end)
        return following is not None and following["word"].lower() in DETERMINERS
    adverb = word.endswith("ly") and word not in NOT_ADVERBS
    return (adverb or word in OBJECT_AT_END) and _ends_clause(text, end)


def _is_between(word: str, text: str, start: int) -> bool:
    """Whether the word before and ``word`` after hold an object between them."""
    before = _BEFORE.search(text, max(0, start - 30), start)
    if before is None:
        return False
    verb = before[1].lower()
    if before[2]:
        # "brings with her over 20 years of experience"
        return verb in (*GIVERS, "has") and (word == "over" or word.isdigit())
    if verb in ("let", "lets", "letting"):
        return word not in ("guard", "hair", "own")
    if verb in CAUSATIVES:
        return word in COMPLEMENTS
    return verb in GIVERS and (word in QUANTITIES or word.isdigit())


def _is_compound(word: str, text: str, end: int) -> bool:
    """Whether a small word begins a longer one: "in house", "over 20 years"."""
    following = _NEXT.match(text, end)
    if following and f"{word} {following['word'].lower()}" in COMPOUNDS:
        return True
    return word in ("over", "about") and bool(_NUMBER.match(text, end))


def _ends_clause(text: str, end: int) -> bool:
    """Whether no noun can follow at ``end``."""
    following = _NEXT.match(text, end)
    return following is None or following["word"].lower() in AFTER_OBJECT
