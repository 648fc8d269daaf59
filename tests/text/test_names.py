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
