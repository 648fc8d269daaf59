import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metrics import prediction_consistency
from tests import oracles_metrics as oracle

rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=6, max_size=20
).filter(lambda pairs: len({g for _, g in pairs}) < len(pairs))


def test_prediction_consistency() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 2, 1])
    group = torch.tensor([5, 5, 3, 3, 9, 9, 0])  # the last group has one row
    assert float(prediction_consistency(y, group)) == pytest.approx(2 / 3)
    assert prediction_consistency(y == 0, group).dtype == torch.float32


def test_a_group_of_many_agrees_only_if_all_do() -> None:
    group = torch.zeros(51, dtype=torch.long)
    y = torch.ones(51, dtype=torch.long)
    assert float(prediction_consistency(y, group)) == 1.0
    y[50] = 0
    assert float(prediction_consistency(y, group)) == 0.0


def test_scores_are_reduced_to_the_largest_column(generator: torch.Generator) -> None:
    y = torch.randn(40, 5, generator=generator)
    group = torch.arange(20).repeat(2)
    expected = prediction_consistency(y.argmax(1), group)
    assert torch.equal(prediction_consistency(y, group), expected)
    assert torch.equal(prediction_consistency(y.softmax(1), group), expected)
    tied = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    assert float(prediction_consistency(tied, torch.tensor([0, 0]))) == 1.0


@settings(deadline=None, max_examples=50)
@given(rows=rows, seed=st.integers(0, 9))
def test_prediction_consistency_matches_oracle(
    rows: list[tuple[int, int]], seed: int
) -> None:
    y, group = torch.tensor(rows).T
    expected = oracle.prediction_consistency(y.numpy(), group.numpy())
    assert float(prediction_consistency(y, group)) == pytest.approx(expected)
    # Order of rows, names of groups and names of classes do not matter.
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    renamed = prediction_consistency((y + 1).remainder(3)[order], 17 - 2 * group[order])
    assert float(renamed) == pytest.approx(expected)
