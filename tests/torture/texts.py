"""Laws of the gender swap and of identity terms."""

import unicodedata

from experiments.counterfactuals import (
    find_identity_terms,
    has_gender,
    replace_identity_terms,
    swap_gender,
)

from .harness import Campaign, Case

# Sentences and what they must become, written by hand; X is a name.
_SENTENCES = [
    ("She is here.", "He is here."),
    ("He thanked himself.", "She thanked herself."),
    ("I saw him yesterday.", "I saw her yesterday."),
    ("That is her book.", "That is his book."),
    ("That is his book.", "That is her book."),
    ("I told her that.", "I told him that."),
    ("Give her her money.", "Give him his money."),
    ("They sent her her papers.", "They sent him his papers."),
    ("The prize is hers.", "The prize is his."),
    ("The prize is his.", "The prize is hers."),
    ("She's late, and so is he.", "He's late, and so is she."),
    ("HER WORK IS DONE.", "HIS WORK IS DONE."),
    ("Mr. Lee called her.", "Ms. Lee called him."),
]
# Texts in which nobody has a gender.
_NEUTRAL = [
    "The theory there is other than hereto assumed.",
    "See https://example.org/she/her?he=his for more.",
    "Write to her@example.org or @his_handle.",
    "HER2 and he_2 are no pronouns.",
    "Women's health is a field.",
    "",
    "...?!",
    "1234 5678",
    "シェ はここにいる。",
]
_SEPARATORS = ["\n\n", "\n", "  ", "\r\n\r\n", "\t"]
_NAMES = {"José": "Zoë", "Zoë": "José", "Mary": "John", "John": "Mary"}


def _run(case: Case) -> None:
    case.pick([_sentences, _names, _noise, _terms])(case)


def _sentences(case: Case) -> None:
    """Sentences of known counterpart, put together."""
    picked = [case.pick(_SENTENCES) for _ in range(int(case.rng.integers(1, 6)))]
    neutral = [(text, text) for text in [case.pick(_NEUTRAL)]]
    parts = [*picked, *neutral]
    order = case.rng.permutation(len(parts))
    between = case.pick(_SEPARATORS)
    text = between.join(parts[i][0] for i in order)
    want = between.join(parts[i][1] for i in order)
    case.count("texts")
    got = swap_gender(text)
    case.check(got == want, "a text is swapped otherwise", f"{text!r} gives {got!r}")
    case.check(has_gender(text) == (text != want), "has_gender disagrees", repr(text))


def _names(case: Case) -> None:
    """Accents composed or decomposed, capitals, possessives."""
    name = case.pick(list(_NAMES))
    shape = case.pick(["{} lost her keys.", "{}'s idea is good.", "Ask {}!", "({})"])
    text = shape.format(name)
    want = shape.format(_NAMES[name]).replace("her keys", "his keys")
    if case.chance(0.3):
        text, want = text.upper(), want.upper()
    form = case.pick(["NFC", "NFD"])
    text = unicodedata.normalize(form, text)
    case.count("texts")
    got = swap_gender(text, names=_NAMES)
    same = unicodedata.normalize("NFC", got) == unicodedata.normalize("NFC", want)
    case.check(
        same, f"a name in {form} is swapped otherwise", f"{text!r} gives {got!r}"
    )
    mapping = {unicodedata.normalize("NFD", a): b for a, b in _NAMES.items()}
    got = swap_gender(text, names=mapping)
    same = unicodedata.normalize("NFC", got) == unicodedata.normalize("NFC", want)
    case.check(same, f"a name in {form} and a key in NFD", f"{text!r} gives {got!r}")


def _noise(case: Case) -> None:
    """Any characters: no error, and what has no letters stays."""
    pool = "she her his he hers Mr. Mrs. \u0301\u200d\u202e\ud7ff \x00"
    pool += "<>&\"'\u2019.,;()-/@#\n"
    letters = case.rng.integers(len(pool), size=int(case.rng.integers(1, 60)))
    text = "".join(pool[i] for i in letters)
    case.count("texts")
    once = swap_gender(text)
    case.check(
        len(once.split()) == len(text.split()),
        "words are lost",
        f"{text!r} -> {once!r}",
    )
    bare = "".join(c for c in text if not c.isalpha())
    case.check(swap_gender(bare) == bare, "a text without letters changes", repr(bare))


def _terms(case: Case) -> None:
    """Identity terms: every variant has the same words around the term."""
    terms = ["gay", "black", "deaf", "African American", "middle-aged"]
    picked = [case.pick(terms) for _ in range(2)]
    text = f"A {picked[0]} person met {picked[1]} people."
    if case.chance(0.3):
        text = text.upper()
    case.count("texts")
    found = replace_identity_terms(text, terms)
    want = [f"A {t} person met {t} people.".upper() for t in terms]
    case.check([v.upper() for v in found] == want, "variants are otherwise", str(found))
    num = len(find_identity_terms(text, terms))
    case.check(num in (1, 2), "terms are not found", f"{num} in {text!r}")
    odd = case.pick(["-", " ", "", "--", "\n", ".", "("])
    try:
        out = replace_identity_terms(text, [odd, "gay"])
    except ValueError:
        return
    except Exception as error:
        case.refused(error, f"terms {odd!r}")
        return
    if "gay" not in text.lower() and odd not in text:
        case.check(out == [text] * 2, f"the term {odd!r} is found", str(out))


CAMPAIGN = Campaign("texts", _run, 80, 0.2)
