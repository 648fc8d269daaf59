import re

import pytest

from pyg_glif.text import pair_names, swap_gender


def test_pair_names_pairs_by_rank_in_both_directions() -> None:
    names = pair_names(["Mary", "Ann", "Eve"], ["John", "Paul"])
    assert names == {"Mary": "John", "John": "Mary", "Ann": "Paul", "Paul": "Ann"}
    assert swap_gender("Mary, Paul and Eve", names=names) == "John, Ann and Eve"


def test_pair_names_leaves_out_names_of_both_and_repetitions() -> None:
    names = pair_names(["Alex", "mary", "Mary", "Ann"], ["John", "Alex", "Paul"])
    assert names == {"Mary": "John", "John": "Mary", "Ann": "Paul", "Paul": "Ann"}
    assert pair_names([], ["John"]) == {}


def test_pair_names_keeps_capitals_inside() -> None:
    assert pair_names(["MacKenzie"], ["josé"]) == {
        "MacKenzie": "José",
        "José": "MacKenzie",
    }


def test_pair_names_takes_accents_however_they_are_stored() -> None:
    apart = pair_names(["Rene\u0301e", "Ren\u00e9e"], ["Jose\u0301"])
    assert apart == {"Ren\u00e9e": "Jos\u00e9", "Jos\u00e9": "Ren\u00e9e"}
    assert pair_names(["X\u030ca"], ["Al"])["Al"] == "X\u030ca"
    with pytest.raises(ValueError, match="'male' must hold single words"):
        pair_names([], ["\u0301"])


@pytest.mark.parametrize(
    ("female", "male", "error", "message"),
    [
        ("Mary", ["Al"], TypeError, "'female' must be a sequence of texts (got str)"),
        (["Mary"], [1], TypeError, "'male' must hold texts (got int at index 0)"),
        (["Mary Ann"], [], ValueError, "'female' must hold single words (got 'Mary "),
        ([""], [], ValueError, "'female' must hold single words (got '')"),
    ],
)
def test_pair_names_rejects(female, male, error, message) -> None:
    with pytest.raises(error, match=re.escape(message)):
        pair_names(female, male)
