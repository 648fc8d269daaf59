r"""Texts as they would read had everybody in them the other gender.

The rules look at the words beside a pronoun and nowhere else: no tagger, no model,
nothing to download.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from experiments.counterfactuals._forms import MARKS, compose, is_word, spelled_like
from experiments.counterfactuals._pronouns import role_of_her, role_of_his
from pyg_glif._utils.validation import check_kind, check_texts

#: Words with one counterpart each. "her" and "his" have two each.
PRONOUNS = {
    "he": "she",
    "she": "he",
    "him": "her",
    "hers": "his",
    "himself": "herself",
    "herself": "himself",
    "her's": "his",  # "hers" misspelled
}

#: Titles before a name. There is one male title and several female ones.
TITLES = {"mr": "ms", "mrs": "mr", "ms": "mr"}

#: Forms of address that stand for a name.
ADDRESSES = {"sir": "madam", "madam": "sir", "ma'am": "sir"}

_NOUN_PAIRS = """
man woman, boy girl, gentleman lady, gentlemen ladies, guy gal,
father mother, dad mom, daddy mommy, papa mama, son daughter, brother sister,
husband wife, husbands wives, boyfriend girlfriend, fiancé fiancée,
groom bride, widower widow, uncle aunt, nephew niece,
grandfather grandmother, grandpa grandma, grandson granddaughter,
stepfather stepmother, stepson stepdaughter, stepbrother stepsister,
godfather godmother, godson goddaughter, fathers mothers, dads moms,
sons daughters, brothers sisters, uncles aunts, nephews nieces,
grandfathers grandmothers, grandsons granddaughters,
actor actress, waiter waitress, host hostess, hero heroine, heir heiress,
chairman chairwoman, spokesman spokeswoman, businessman businesswoman,
congressman congresswoman, salesman saleswoman, sportsman sportswoman,
king queen, prince princess, duke duchess
"""

#: Nouns that name one person's gender. Not "men", "women", "male" and "female",
#: which mostly say whom the work is for ("women's health").
NOUNS: dict[str, str] = {}
for _pair in _NOUN_PAIRS.split(","):
    _male, _female = _pair.split()
    NOUNS |= {_male: _female, _female: _male}

# Addresses, handles and what is neutral already ("s/he") are matched first, and left
# as they are. A word that touches a digit ("HER2") or an underscore is none.
_TOKEN = re.compile(
    r"(?P<skip>https?://\S+|www\.\S+|(?<![\w.+-])[\w.+-]+@[\w.-]+|[@#]\w+"
    r"|(?<!\w)(?:\(s\)|s/)he(?!\w)|(?<!\w)her-\d)"
    rf"|(?<![\w{MARKS}])(?P<word>ma['\u2019]am|her['\u2019]s"
    rf"|(?:[^\W\d_][{MARKS}]*)+)(?![\w{MARKS}])(?P<tail>(?<=s)['\u2019](?!\w))?",
    re.IGNORECASE,
)
_HER = {"determiner": "his", "object": "him"}
_HIS = {"determiner": "her", "alone": "hers"}
_NAME_FOLLOWS = re.compile(r"\s+[^\W\d_]")
_CAPITAL_FOLLOWS = re.compile(r"\s+(\w)")


def swap_gender(
    text: str, *, names: Mapping[str, str] | None = None, nouns: bool = False
) -> str:
    r"""A text with the gender of everybody in it changed.

    Swapped are pronouns, titles ("Mr." to "Ms."; "Mrs.", "Ms." and "Miss" to "Mr."),
    forms of address ("Sir Paul" to "Dame Paul", else "sir" to "madam") and the given
    names that ``names`` maps. Upper and lower case, punctuation, contractions and
    everything else stay as they are.

    Args:
        text (str): Any text, in English.
        names (Mapping[str, str], optional): Given name to given name, one word each,
            spelled as in the text; see :func:`pair_names`. They are also found in
            capitals, and however their accents are stored. (default: :obj:`None`)
        nouns (bool): Also swap nouns that name one person's gender, such as "husband"
            and "mother". (default: :obj:`False`)

    "her" becomes "his" before a noun and "him" elsewhere, "his" becomes "her" before a
    noun and "hers" elsewhere, decided from the next words; the guide to texts
    states how often that is right. Titles do not come back: "Mrs." becomes "Mr." and
    then "Ms.". Words about groups of people ("women's health", "female patients") are
    never swapped: they say what the work is, not who does it.

    Example:
        >>> swap_gender("She told Mr. Lee that her idea is hers; he thanked her.")
        'He told Ms. Lee that his idea is his; she thanked him.'
        >>> swap_gender("Mary's husband is proud of her.", names={"Mary": "John"})
        "John's husband is proud of him."
        >>> swap_gender("Her husband is proud.", nouns=True)
        'His wife is proud.'
    """
    check_kind("text", text, str)
    known = _check_names("names", names)
    composed, places = compose(text)
    if places is None:

        def swap(match: re.Match[str]) -> str:
            return match[0] if match["skip"] else _counterpart(match, known, nouns)

        return _TOKEN.sub(swap, text)
    # What changes is stored as the text is: letters and marks apart.
    pieces, end = [], 0
    for match in _TOKEN.finditer(composed):
        other = match[0] if match["skip"] else _counterpart(match, known, nouns)
        if other != match[0]:
            pieces += [text[end : places[match.start()]]]
            pieces += [unicodedata.normalize("NFD", other)]
            end = places[match.end()]
    return "".join([*pieces, text[end:]])


def has_gender(
    text: str, *, names: Mapping[str, str] | None = None, nouns: bool = False
) -> bool:
    r"""Whether :func:`swap_gender` changes a text.

    Args:
        text (str): Any text, in English.
        names (Mapping[str, str], optional): As for :func:`swap_gender`.
            (default: :obj:`None`)
        nouns (bool): As for :func:`swap_gender`. (default: :obj:`False`)

    Example:
        >>> has_gender("Dr. Lee lives in Ohio."), has_gender("Dr. Lee loves her job.")
        (False, True)
    """
    return swap_gender(text, names=names, nouns=nouns) != text


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


def _counterpart(match: re.Match[str], names: Mapping[str, str], nouns: bool) -> str:
    """The other gender's word for one word, or the word itself."""
    word, tail = match["word"], match["tail"] or ""
    name = names.get(word) or names.get(word.title() if word.isupper() else "")
    if name:
        return _possessive(spelled_like(word, name), tail, match)
    other = _pronoun(match) or _title(match) or (nouns and NOUNS.get(word.lower()))
    return spelled_like(word, other) + tail if other else match[0]


def _key(word: str) -> str:
    """A word as the lists spell it."""
    return word.lower().replace("\u2019", "'")


def _possessive(name: str, tail: str, match: re.Match[str]) -> str:
    """A name with the apostrophe of another: "James' work" is "Mary's work"."""
    quoted = match.string[match.start() - 1 : match.start()] in ("'", "\u2018")
    return name + tail + ("s" if tail and not quoted and name[-1] not in "sS" else "")


def _pronoun(match: re.Match[str]) -> str | None:
    """The counterpart of a pronoun."""
    key, text, end = _key(match["word"]), match.string, match.end("word")
    if key == "her":
        return _HER[role_of_her(text, end)]
    if key == "his":
        return _HIS[role_of_his(text, end)]
    return PRONOUNS.get(key)


def _title(match: re.Match[str]) -> str | None:
    """The counterpart of a title or a form of address."""
    word, text, end = match["word"], match.string, match.end("word")
    key = _key(word)
    capital = _CAPITAL_FOLLOWS.match(text, end)
    named = capital is not None and capital[1].isupper() and word[0].isupper()
    if key in TITLES:
        return TITLES[key] if _is_title(word, text, match.start(), end) else None
    if key == "miss" and named:
        return "Mr."
    if key == "dame" and named and not text[: match.start()].endswith("Notre "):
        return "sir"
    if key == "sir" and named:
        return "dame"
    return ADDRESSES.get(key)


def _is_title(word: str, text: str, start: int, end: int) -> bool:
    """Whether a word is a title, not a part of "MR imaging", "an MS" or "20 ms"."""
    if word[0].isupper() and not word.isupper():
        return True
    dot = text[end : end + 1] == "."
    follows = _NAME_FOLLOWS.match(text, end + dot)
    if follows is None or text[:start].rstrip()[-1:].isdigit():
        return False
    # In capitals a degree looks like a title: the name must be in capitals too.
    name = text[follows.end() - 1 : follows.end() + 1]
    return not word.isupper() or (dot and len(name) > 1 and name.isupper())


def _capitalised(name: str, values: Sequence[str]) -> dict[str, None]:
    """Different names in order, with a capital letter."""
    words = _check_words(name, check_texts(name, values))
    return dict.fromkeys(word[0].upper() + word[1:] for word in words)


def _check_names(name: str, value: object) -> Mapping[str, str]:
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
