import re
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from experiments.counterfactuals import (
    IdentityTerm,
    find_identity_terms,
    read_terms,
    replace_identity_terms,
)

TERMS = (
    "gay",
    "old",
    "older",
    "black",
    "african",
    "american",
    "african american",
    "middle eastern",
    "lgbt",
    "lgbtq",
)

# Text, its terms, and the text with all of them replaced by "deaf".
TABLE = [
    ("gay", "gay", "deaf"),
    ("a gay man", "gay", "a deaf man"),
    ("Gay men", "gay", "Deaf men"),
    ("GAY MEN", "gay", "DEAF MEN"),
    ("he is gay", "gay", "he is deaf"),
    ("he is gay.", "gay", "he is deaf."),
    ("(gay)", "gay", "(deaf)"),
    ("\u201cgay\u201d", "gay", "\u201cdeaf\u201d"),
    ("gays, gayer, Gaylord", "", None),
    ("bold, golden, holder", "", None),
    ("gay's and gay\u2019s", "gay gay", "deaf's and deaf\u2019s"),
    ("gay-friendly", "gay", "deaf-friendly"),
    ("anti-gay", "gay", "anti-deaf"),
    ("gay/old", "gay old", "deaf/deaf"),
    ("gay,old", "gay old", "deaf,deaf"),
    ("gay_old", "", None),
    ("gay2", "", None),
    ("#gay @old", "gay old", "#deaf @deaf"),
    ("gay gay gay", "gay gay gay", "deaf deaf deaf"),
    ("old and older", "old older", "deaf and deaf"),
    ("lgbtq, lgbt", "lgbtq lgbt", "deaf, deaf"),
    ("LGBTQ+", "lgbtq", "DEAF+"),
    ("african american", "african_american", "deaf"),
    ("African American", "african_american", "Deaf"),
    ("African-American", "african_american", "Deaf"),
    ("AFRICAN AMERICAN", "african_american", "DEAF"),
    ("african\namerican", "african_american", "deaf"),
    ("african  american", "african_american", "deaf"),
    ("african, american", "african american", "deaf, deaf"),
    ("african americans", "african", "deaf americans"),
    ("black african american", "black african_american", "deaf deaf"),
    ("african african american", "african african_american", "deaf deaf"),
    ("american african", "american african", "deaf deaf"),
    ("middle eastern", "middle_eastern", "deaf"),
    ("Middle eastern food", "middle_eastern", "Deaf food"),
    ("the middle of eastern", "", None),
    ("an old man", "old", "an deaf man"),
    ("oLD", "old", "deaf"),
    ("", "", None),
    ("nothing here", "", None),
]


@pytest.mark.parametrize(("text", "found", "expected"), TABLE)
def test_identity_terms(text: str, found: str, expected: str | None) -> None:
    terms = [word.replace("_", " ") for word in found.split()]
    matches = find_identity_terms(text, TERMS)
    assert [match.term for match in matches] == terms
    for start, end, term in matches:
        assert re.sub(r"[\s-]+", " ", text[start:end].lower()) == term
    (variant,) = replace_identity_terms(text, TERMS, ["deaf"])
    assert variant == (text if expected is None else expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a gay man", "a middle eastern man"),
        ("Gay men", "Middle Eastern men"),
        ("GAY MEN", "MIDDLE EASTERN MEN"),
        ("African-American", "Middle Eastern"),
        ("African american", "Middle eastern"),
    ],
)
def test_case_of_terms_of_several_words(text: str, expected: str) -> None:
    assert replace_identity_terms(text, TERMS, ["middle eastern"]) == [expected]


def test_replace_identity_terms_uses_the_spelling_of_by() -> None:
    assert replace_identity_terms("a gay man", TERMS, ["Sikh"]) == ["a Sikh man"]


def test_find_identity_terms_uses_the_spelling_of_the_list() -> None:
    found = find_identity_terms("gay African-American", ["Gay", "african-american"])
    assert found == [(0, 3, "Gay"), (4, 20, "african-american")]
    assert isinstance(found[0], IdentityTerm)


def test_terms_are_no_patterns() -> None:
    assert replace_identity_terms("a.b axb", ["a.b"], [r"\1"]) == [r"\1 axb"]
    assert find_identity_terms("c++ c", ["c++"]) == [(0, 3, "c++")]


words = st.sampled_from(
    ["gay", "old", "lgbt", "african", "american", "Black", "bold,", "-", "\n", "gays"]
)
sentences = st.lists(words, max_size=10).map(" ".join) | st.text(max_size=30)


@given(sentences)
@settings(deadline=None, max_examples=200)
def test_text_outside_terms_is_kept(text: str) -> None:
    found = find_identity_terms(text, TERMS)
    assert found == sorted(found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    gaps = [0, *(k for match in found for k in match[:2]), len(text)]
    outside = [text[a:b] for a, b in zip(gaps[::2], gaps[1::2], strict=True)]
    variants = replace_identity_terms(text, TERMS)
    assert len(variants) == len(TERMS)
    for term, variant in zip(TERMS, variants, strict=True):
        pattern = re.escape(term).join(map(re.escape, outside))
        assert re.fullmatch(pattern, variant, re.IGNORECASE)


@given(sentences)
@settings(deadline=None, max_examples=200)
def test_variants_hold_the_new_term_only(text: str) -> None:
    count = len(find_identity_terms(text, TERMS))
    for term, variant in zip(TERMS, replace_identity_terms(text, TERMS), strict=True):
        assert [found.term for found in find_identity_terms(variant, TERMS)] == (
            [term] * count
        )


@given(sentences)
@settings(deadline=None, max_examples=50)
def test_variants_of_variants_are_the_same(text: str) -> None:
    variants = [v.lower() for v in replace_identity_terms(text, TERMS)]
    again = [replace_identity_terms(v, TERMS) for v in variants]
    assert all([w.lower() for w in some] == variants for some in again)


ACCENTED = ("métis", "Québécois", "việt kiều", "cafe", "İzmirli", "हिन्द", "sikh")


@given(
    st.lists(
        st.sampled_from(
            [
                *("métis", "MÉTIS", "Québécois", "Việt-Kiều", "café", "cafe", "Cafe"),
                *("İzmirli", "हिन्दी", "हिन्द", "s\u0131kh", "\u017fikh", "x\u030csikh"),
                *("sikh\u0331", "sikh", ",", "\n", "❤\ufe0fsikh"),
            ]
        ),
        max_size=8,
    ).map(" ".join)
    | st.text(max_size=30)
)
@settings(deadline=None, max_examples=300)
def test_it_does_not_matter_how_accents_are_stored(text: str) -> None:
    composed, apart = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    expected = find_identity_terms(composed, ACCENTED)
    for terms in (ACCENTED, tuple(unicodedata.normalize("NFD", t) for t in ACCENTED)):
        found = find_identity_terms(apart, terms)
        pairs = list(zip(found, expected, strict=True))
        for ours, theirs in pairs:
            assert terms.index(ours.term) == ACCENTED.index(theirs.term)
            word = unicodedata.normalize("NFC", apart[ours.start : ours.end])
            assert word == composed[theirs.start : theirs.end]
        for ours, theirs in zip(
            replace_identity_terms(apart, terms),
            replace_identity_terms(composed, ACCENTED),
            strict=True,
        ):
            both = [unicodedata.normalize("NFC", variant) for variant in (ours, theirs)]
            assert both[0] == both[1]
        gaps = re.split("\0", replace_identity_terms(apart, terms, ["\0"])[0])
        if "\0" not in text:
            assert len("".join(gaps)) == len(apart) - sum(b - a for a, b, _ in found)


def test_an_accent_is_part_of_its_word() -> None:
    cafe = "cafe\u0301"
    assert find_identity_terms(cafe, ["cafe"]) == []
    assert find_identity_terms(cafe, ["caf\u00e9"]) == [(0, 5, "caf\u00e9")]
    assert find_identity_terms("हिन्दी", ["हिन्द"]) == []
    new = ["e\u0301cole x"]
    assert replace_identity_terms("African American", TERMS, new) == ["E\u0301cole X"]


@pytest.mark.parametrize("letter", ["\u0131", "\u017f", "\u212a", "\u0130"])
@pytest.mark.parametrize("term", ["i", "s", "k", "sikh", "\u0131", "\u017f", "\u0130"])
def test_letters_that_only_patterns_call_alike(letter: str, term: str) -> None:
    """Two ideas of upper and lower case: no word may fall between them."""
    for text in (letter, f"{letter}ikh", f"si{letter}h"):
        for start, end, found in find_identity_terms(text, [term, "x"]):
            assert (start, end, found) == (0, len(text), term)


PUNCTUATION = st.text("-+!.,/\u2013\u2642#*\\ ", min_size=1, max_size=4)


@given(PUNCTUATION, st.text("ab -+!.,/\u2013\u2642#*\\", max_size=20))
@settings(deadline=None, max_examples=300)
def test_terms_of_punctuation_are_found_or_refused(term: str, text: str) -> None:
    if not term.strip(" -"):
        with pytest.raises(ValueError, match="'terms' must not hold"):
            find_identity_terms(text, [term])
        return
    for start, end, found in find_identity_terms(text, [term]):
        assert found == term.strip()
        assert start < end
        apart = [re.sub(r"[\s-]+", " ", t).strip() for t in (text[start:end], term)]
        assert apart[0] == apart[1]
    (variant,) = replace_identity_terms(text, [term], [term])
    assert re.sub(r"[\s-]", "", variant) == re.sub(r"[\s-]", "", text)


def test_read_terms(tmp_path: Path) -> None:
    path = tmp_path / "terms.txt"
    path.write_text("\ufeffgay\n\n  african american \r\nqueer\ngay\n", "utf-8")
    assert read_terms(path) == ("gay", "african american", "queer")
    assert read_terms(str(path)) == read_terms(path)
    path.write_text("\n \n")
    with pytest.raises(ValueError, match="must hold at least one term"):
        read_terms(path)
    with pytest.raises(FileNotFoundError):
        read_terms(tmp_path / "none.txt")


def test_counts_of_the_source(shared_data) -> None:
    """The data states how many whole-word terms each comment holds."""
    pandas = pytest.importorskip("pandas")
    folder = shared_data("toxicity")
    terms = read_terms(folder / "identity_terms.txt")
    assert len(terms) == 50
    table = pandas.read_csv(folder / "jigsaw_test_balanced.csv.gz")
    text, stated = table["text"].astype(str), table["n_identity_terms"]
    found = text.map(lambda comment: len(find_identity_terms(comment, terms)))
    # The source does not join "African-American", and counts two terms there.
    joined = text.str.contains("(?i)african-american|middle-(?:eastern|aged)")
    assert (found == stated)[~joined].all()
    assert (found < stated)[joined].any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((1, ["a"]), TypeError, "'text' must be a str (got int)"),
        (("x", "gay"), TypeError, "'terms' must be a sequence of texts (got str)"),
        (("x", []), ValueError, "'terms' must hold at least one term (got none)"),
        (("x", [" "]), ValueError, "'terms' must not hold blank terms (got ' ')"),
        (("x", [3]), TypeError, "'terms' must hold texts (got int at index 0)"),
        (("x", ["a"], []), ValueError, "'by' must hold at least one term (got none)"),
        (
            ("x", ["a", "-"]),
            ValueError,
            "'terms' must not hold terms of hyphens alone (got '-')",
        ),
        (("x", ["- -"]), ValueError, "must not hold terms of hyphens alone"),
    ],
)
def test_identity_terms_reject(arguments, error, message) -> None:
    with pytest.raises(error, match=re.escape(message)):
        replace_identity_terms(*arguments)
    if len(arguments) == 2:
        with pytest.raises(error, match=re.escape(message)):
            find_identity_terms(*arguments)
