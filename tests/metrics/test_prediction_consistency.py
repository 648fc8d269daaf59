import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif.metrics import PredictionConsistency, prediction_consistency
from tests import oracles_metrics as oracle

rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=6, max_size=20
).filter(lambda pairs: len({g for _, g in pairs}) < len(pairs))


def test_prediction_consistency() -> None:
    y = torch.tensor([0, 0, 1, 2, 2, 2, 1])
    group = torch.tensor([5, 5, 3, 3, 9, 9, 0])  # the last one is alone
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


@settings(deadline=None, max_examples=20)
@given(rows=rows, cuts=st.lists(st.integers(0, 20), max_size=3))
def test_batches_in_any_order_equal_the_whole(
    rows: list[tuple[int, int]], cuts: list[int]
) -> None:
    y, group = torch.tensor(rows).T
    metric, other = PredictionConsistency(), PredictionConsistency()
    order = np.array_split(np.arange(len(y)), sorted(min(c, len(y)) for c in cuts))
    for number, part in enumerate(reversed(order)):
        target = metric if number % 2 == 0 else other
        target.update(y[part], group[part])
    if other.update_called:
        metric.merge_state(other)
    assert torch.equal(metric.compute(), prediction_consistency(y, group))
    metric.reset()
    metric.update(torch.tensor([1, 1]), torch.tensor([0, 0]))
    assert float(metric.compute()) == 1.0


def test_prediction_consistency_flags() -> None:
    metric = PredictionConsistency()
    assert (metric.is_differentiable, metric.higher_is_better) == (False, True)
    assert str(metric) == "PredictionConsistency()"
    value = metric(torch.tensor([1, 0]), torch.tensor([0, 0]))
    assert float(value) == float(metric.compute()) == 0.0


NO_PAIR = (
    "'group' must hold a group of at least 2 rows (got {} groups of one). "
    "Rows are compared with those of the same number"
)


@pytest.mark.parametrize(
    ("y", "group", "error", "message"),
    [
        (
            torch.tensor([0, 1]),
            torch.tensor([0, 1]),
            ValueError,
            NO_PAIR.format(2),
        ),
        (
            torch.empty(0, dtype=torch.long),
            torch.empty(0, dtype=torch.long),
            ValueError,
            NO_PAIR.format(0),
        ),
        (torch.tensor([3]), torch.tensor([0]), ValueError, NO_PAIR.format(1)),
        (
            torch.tensor([0.2, 0.7]),
            torch.tensor([0, 0]),
            TypeError,
            "'y' must hold whole numbers (got torch.float32)",
        ),
        (
            torch.tensor([[0.2], [0.7]]),
            torch.tensor([0, 0]),
            ValueError,
            "'y' must have at least 2 columns, one per class (got shape (2, 1)). "
            "Turn single scores into labels first",
        ),
        (
            torch.tensor([[0.2, torch.nan], [0.7, 0.1]]),
            torch.tensor([0, 0]),
            ValueError,
            "'y' must be finite (got nan at index (0, 1), 1 such values)",
        ),
        (
            torch.tensor([0, 1]),
            torch.tensor([0, 0, 1]),
            ValueError,
            "'group' must have one entry per row (got shape (3,) for 2)",
        ),
        (
            torch.tensor([0, 1]),
            torch.tensor([-1, -1]),
            ValueError,
            "'group' must be non-negative (got -1)",
        ),
        (
            torch.tensor([0, -1]),
            torch.tensor([0, 0]),
            ValueError,
            "'y' must be non-negative (got -1)",
        ),
        (
            torch.tensor([0, 1]),
            torch.tensor([0.0, 0.0]),
            TypeError,
            "'group' must hold whole numbers (got torch.float32)",
        ),
        (
            [0.5, 1.0],
            torch.tensor([0, 0]),
            TypeError,
            "'y' must hold labels (got torch.float64)",
        ),
    ],
)
def test_prediction_consistency_rejects_bad_input(
    y: Tensor, group: Tensor, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        prediction_consistency(y, group)
    assert str(caught.value) == message


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `groups`"):
        PredictionConsistency(groups=2)
