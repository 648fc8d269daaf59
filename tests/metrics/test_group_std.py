import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metrics import GroupStd, group_std
from tests import oracles_metrics as oracle


def test_group_std() -> None:
    y = torch.tensor([1.0, 3.0, 5.0, 5.0, 5.0, 9.0])
    group = torch.tensor([4, 4, 0, 0, 0, 7])  # a group of one does not count
    assert float(group_std(y, group)) == pytest.approx(2**0.5 / 2)
    assert group_std(y.double(), group).dtype == torch.float64


def test_without_groups_it_is_the_standard_deviation(
    generator: torch.Generator,
) -> None:
    y = torch.randn(94, 2, generator=generator)
    torch.testing.assert_close(group_std(y), y.std(dim=0))
    torch.testing.assert_close(group_std(y[:, 0]), y[:, 0].std())


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 999), num_groups=st.integers(1, 6), num_rows=st.integers(8, 30)
)
def test_group_std_matches_oracle(seed: int, num_groups: int, num_rows: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(num_rows, 2)) + 1e6
    group = rng.integers(0, num_groups, num_rows)
    value = group_std(torch.from_numpy(y), torch.from_numpy(group))
    np.testing.assert_allclose(value, oracle.group_std(y, group), rtol=1e-8)
    # A shift changes nothing, a factor scales.
    scaled = group_std(torch.from_numpy(-2.0 * y + 1.0), torch.from_numpy(group))
    torch.testing.assert_close(scaled, 2.0 * value, rtol=1e-7, atol=0.0)


def test_group_std_gradient_matches_finite_differences(
    generator: torch.Generator,
) -> None:
    y = torch.randn(7, 2, dtype=torch.float64, generator=generator).requires_grad_()
    group = torch.tensor([0, 0, 0, 1, 1, 2, 1])
    assert torch.autograd.gradcheck(lambda v: group_std(v, group), (y,))


def test_equal_outputs_have_zero_gradient() -> None:
    y = torch.tensor([2.0, 2.0, 1.0, 3.0], requires_grad=True)
    group_std(y, torch.tensor([0, 0, 1, 1])).backward()
    assert y.grad is not None
    torch.testing.assert_close(y.grad, torch.tensor([0.0, 0.0, -(0.5**1.5), 0.5**1.5]))


def test_group_std_class_is_differentiable() -> None:
    y = torch.tensor([1.0, 3.0], requires_grad=True)
    GroupStd()(y).backward()
    assert y.grad is not None
    torch.testing.assert_close(y.grad, torch.tensor([-(0.5**0.5), 0.5**0.5]))


def test_group_std_of_decisions() -> None:
    decision = torch.tensor([0, 1])
    assert float(group_std(decision)) == pytest.approx(decision.double().std().item())
