import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metrics import GroupGap, group_gap
from tests import oracles_metrics as oracle


def test_group_gap() -> None:
    y = torch.tensor([1.0, 2.0, 6.0])
    assert float(group_gap(y, torch.tensor([3, 3, 8]))) == 4.5
    assert float(group_gap(y, torch.tensor([True, True, False]))) == -4.5
    assert float(group_gap(y, torch.tensor([2, 0, 1]))) == 5.0  # never negative
    wide = torch.stack([y, -y], dim=1)
    assert group_gap(wide, torch.tensor([0, 0, 1])).tolist() == [4.5, -4.5]
    assert group_gap(wide, torch.tensor([2, 0, 1])).tolist() == [5.0, 5.0]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), num_groups=st.integers(2, 5))
def test_group_gap_matches_oracle(seed: int, num_groups: int) -> None:
    rng = np.random.default_rng(seed)
    attribute = np.concatenate([np.arange(num_groups), rng.integers(0, num_groups, 12)])
    y = rng.normal(size=(len(attribute), 2))
    value = group_gap(torch.from_numpy(y), torch.from_numpy(attribute))
    np.testing.assert_allclose(value, oracle.group_gap(y, attribute), atol=1e-12)
    # Turning the labels round turns the sign of two groups, and of no more.
    turned = group_gap(torch.from_numpy(y), torch.from_numpy(9 - attribute))
    sign = -1.0 if num_groups == 2 else 1.0
    torch.testing.assert_close(turned, sign * value)


def test_group_gap_gradient_matches_finite_differences(
    generator: torch.Generator,
) -> None:
    y = torch.randn(8, 2, dtype=torch.float64, generator=generator).requires_grad_()
    for labels in ([0, 0, 1, 1, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2, 2, 2]):
        attribute = torch.tensor(labels)
        assert torch.autograd.gradcheck(lambda v, a=attribute: group_gap(v, a), (y,))


def test_group_gap_class(generator: torch.Generator) -> None:
    y = torch.randn(30, generator=generator)
    attribute = (torch.arange(30) >= 10).long()  # a batch with group 1 only
    metric, other = GroupGap(), GroupGap()
    metric.update(y[20:], attribute[20:])
    other.update(y[:15], attribute[:15])
    metric.merge_state(other)
    metric.update(y[15:20], attribute[15:20])
    torch.testing.assert_close(metric.compute(), group_gap(y, attribute))
    metric.reset()
    metric.update(torch.tensor([0.0, 1.0]), torch.tensor([0, 1]))
    assert float(metric.compute()) == 1.0
    assert (metric.is_differentiable, metric.higher_is_better) == (True, None)


@pytest.mark.parametrize(
    ("y", "attribute", "message"),
    [
        (
            torch.ones(2),
            torch.tensor([1, 1]),
            "'attribute' must take at least two values (got [1] only)",
        ),
        (
            torch.ones(2),
            torch.tensor([0, -1]),
            "'attribute' must be non-negative (got -1)",
        ),
        (
            torch.ones(2),
            torch.tensor([0, 1, 1]),
            "'attribute' must have one entry per row (got shape (3,) for 2)",
        ),
        (
            torch.tensor([0.0, torch.nan]),
            torch.tensor([0, 1]),
            "'y' must be finite (got nan at index 1, 1 such values)",
        ),
        (
            torch.empty(0),
            torch.empty(0, dtype=torch.long),
            "'y' must not be empty (got shape (0,))",
        ),
    ],
)
def test_group_gap_rejects_bad_input(
    y: torch.Tensor, attribute: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        group_gap(y, attribute)
    assert str(caught.value) == message
