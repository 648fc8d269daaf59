"""The numbers of walks through the library are those that were recorded.

``python -m tests.golden`` records them anew, where a change of numbers is wanted.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.golden.cases import CASES

RECORDED = json.loads(Path(__file__).with_name("numbers.json").read_text())


def test_every_case_is_recorded() -> None:
    assert list(CASES) == list(RECORDED)


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_recorded(name: str) -> None:
    case, expected = CASES[name], RECORDED[name]
    found = case.run()
    assert list(found) == list(expected)
    for key, value in found.items():
        ours, theirs = np.asarray(value), np.asarray(expected[key])
        assert ours.dtype.kind == theirs.dtype.kind, key
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(
                ours, theirs, rtol=case.rtol, atol=case.atol, err_msg=key
            )
        else:
            np.testing.assert_array_equal(ours, theirs, err_msg=key)
