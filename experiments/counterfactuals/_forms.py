"""How a word is spelled: in which case, and its accents as characters or marks."""

import re
import unicodedata
from itertools import accumulate


def _mark_class() -> str:
    r"""The inside of a character class: marks that belong to the letter before them.

    Python's ``\w`` has none of them. Variation selectors only choose a glyph, and
    mostly that of an emoji: they do not join what follows to what is before.
    """
    marks = {
        code
        for code in range(0x300, 0x1F000)
        if unicodedata.category(chr(code))[0] == "M"
        and "VARIATION SELECTOR" not in unicodedata.name(chr(code), "")
    }
    first = sorted(code for code in marks if code - 1 not in marks)
    last = sorted(code for code in marks if code + 1 not in marks)
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(first, last, strict=True))


#: Marks, for use inside the brackets of a pattern.
MARKS = _mark_class()
# A character and all that may melt into it: marks, and the vowels and final
# consonants of Korean syllables that are written letter by letter.
_CLUSTER = re.compile(rf".[{MARKS}\u1160-\u11ff]*", re.DOTALL)


def compose(text: str) -> tuple[str, list[int] | None]:
    """A text in NFC, and where each of its characters begins in the text.

    The places, one more than there are characters, are :obj:`None` if the text is
    in NFC already, as nearly every text is.
    """
    if unicodedata.is_normalized("NFC", text):
        return text, None
    clusters = _CLUSTER.findall(text)
    composed = [unicodedata.normalize("NFC", cluster) for cluster in clusters]
    starts = accumulate(map(len, clusters), initial=0)
    # Marks that have not melted into their letter begin where the letter does.
    places = [
        start for start, piece in zip(starts, composed, strict=False) for _ in piece
    ]
    return "".join(composed), [*places, len(text)]


def spelled_like(word: str, other: str) -> str:
    """``other`` in capitals, capitalised or as it is, whichever ``word`` is."""
    if len(word) > 1 and word.isupper():
        return other.upper()
    if not word[0].isupper():
        return other
    if all(part[0].isupper() for part in word.replace("-", " ").split()):
        return re.sub(r"(?<![^\s-])\w", lambda match: match[0].upper(), other)
    return other[0].upper() + other[1:]


def is_word(text: str) -> bool:
    """Whether a text is one word: letters, with or without marks."""
    letters = re.sub(f"[{MARKS}]", "", text)
    return letters.isalpha() and text[0].isalpha()
