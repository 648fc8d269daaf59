import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.model_selection import train_test_split

from experiments.datasets import _counterfactual, bios, toxicity

SEEDS = st.integers(0, 2**32 - 1)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=80),
    st.floats(0.05, 0.95),
    st.floats(0.0, 0.9),
    SEEDS,
)
def test_stratified_split_takes_the_share_of_every_stratum(
    strata: list[int], test_share: float, val_share: float, seed: int
) -> None:
    stratum = torch.tensor(strata)
    split = _counterfactual.stratified_split(stratum, test_share, val_share, seed)
    assert torch.equal(
        split, _counterfactual.stratified_split(stratum, test_share, val_share, seed)
    )
    for value in set(strata):
        here = split[stratum == value]
        num_test = int((here == _counterfactual.TEST).sum())
        num_val = int((here == _counterfactual.VAL).sum())
        assert abs(num_test - test_share * len(here)) <= 0.5
        assert abs(num_val - val_share * (len(here) - num_test)) <= 0.5


@settings(deadline=None, max_examples=40)
@given(st.integers(10, 400), SEEDS)
def test_bios_split_is_that_of_the_published_script(num: int, seed: int) -> None:
    np.random.seed(seed)  # noqa: NPY002
    train = np.random.choice(num, int(num * (1 - 0.1)), replace=False)  # noqa: NPY002
    ours = bios.authors_bios_split(num, 0.1, seed)
    assert ours[0].tolist() == train.tolist()
    assert ours[1].tolist() == np.setdiff1d(range(num), train).tolist()


def test_bios_split_has_the_sizes_of_the_paper() -> None:
    train, test = bios.authors_bios_split(393_423, 0.1, 0)
    assert (len(train), len(test)) == (354_080, 39_343)


@settings(deadline=None, max_examples=40)
@given(st.integers(21, 400), st.integers(21, 400), SEEDS)
def test_toxicity_split_is_that_of_the_published_script(
    num_without: int, num_with: int, seed: int
) -> None:
    np.random.seed(seed)  # noqa: NPY002
    known = np.random.choice(50, size=25, replace=False)  # noqa: NPY002
    parts = [
        train_test_split(np.arange(num), test_size=0.05)
        for num in (num_without, num_with)
    ]
    ours_known, ours = toxicity.authors_toxicity_split(
        50, 25, (num_without, num_with), 0.05, seed
    )
    assert ours_known.tolist() == sorted(known.tolist())
    state = np.random.RandomState(seed)
    assert toxicity.choose_terms(state, 50, 25).tolist() == ours_known.tolist()
    for part, our in zip(parts, ours, strict=True):
        assert [rows.tolist() for rows in our] == [rows.tolist() for rows in part]


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 200), st.floats(0.0, 0.9), st.floats(0.01, 1.0))
def test_carve_validation_keeps_a_share_of_each_split(
    num: int, val_share: float, share: float
) -> None:
    order = torch.randperm(num, generator=torch.Generator().manual_seed(num))
    train, test = order[num // 3 :], order[: num // 3]
    number, split = _counterfactual.carve_validation(train, test, val_share, share)
    assert number.tolist() == sorted(set(number.tolist()))
    from_train = number[split != _counterfactual.TEST]
    assert torch.isin(from_train, train).all()
    assert torch.isin(number[split == _counterfactual.TEST], test).all()
    num_val = round(val_share * len(train))
    assert int((split == _counterfactual.VAL).sum()) == math.ceil(share * num_val)
    assert int((split == _counterfactual.TEST).sum()) == math.ceil(share * len(test))


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 7), (3, 3), (9, 7), (0.5, 4), (1.0, 7)]
)
def test_keep_takes_a_number_or_a_share(limit: float | None, expected: int) -> None:
    kept = _counterfactual.keep(7, limit).tolist()
    assert len(kept) == expected
    assert kept == sorted(set(kept))
    assert set(kept) <= set(range(7))
