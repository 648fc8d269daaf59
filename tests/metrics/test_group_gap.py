import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metrics import group_gap
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
    sensitive = np.concatenate([np.arange(num_groups), rng.integers(0, num_groups, 12)])
    y = rng.normal(size=(len(sensitive), 2))
    value = group_gap(torch.from_numpy(y), torch.from_numpy(sensitive))
    np.testing.assert_allclose(value, oracle.group_gap(y, sensitive), atol=1e-12)
    # Turning the labels round turns the sign of two groups, and of no more.
    turned = group_gap(torch.from_numpy(y), torch.from_numpy(9 - sensitive))
    sign = -1.0 if num_groups == 2 else 1.0
    torch.testing.assert_close(turned, sign * value)


def test_group_gap_gradient_matches_finite_differences(
    generator: torch.Generator,
) -> None:
    y = torch.randn(8, 2, dtype=torch.float64, generator=generator).requires_grad_()
    for labels in ([0, 0, 1, 1, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2, 2, 2]):
        sensitive = torch.tensor(labels)
        assert torch.autograd.gradcheck(lambda v, a=sensitive: group_gap(v, a), (y,))
