import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import Mahalanobis
from tests import oracles_graph


def test_mahalanobis() -> None:
    sigma = torch.tensor([[4.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    distance = Mahalanobis(sigma)
    assert str(distance) == "Mahalanobis(num_features=3, rank=2)"
    assert distance.rank == 2
    assert list(distance.parameters()) == []
    x = torch.tensor([[1.0, 7.0, 1.0]])
    torch.testing.assert_close(distance(x, x * 0), torch.tensor([[13.0]]).sqrt())
    assert distance.embed(x).shape == (1, 2)


@settings(deadline=None, max_examples=40)
@given(
    num_features=st.integers(1, 6),
    rank=st.integers(1, 6),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 2**16),
)
def test_mahalanobis_matches_oracle_at_any_rank(
    num_features: int, rank: int, scale: float, seed: int
) -> None:
    rank = min(rank, num_features)
    rng = np.random.default_rng(seed)
    factor = scale * rng.standard_normal((num_features, rank))
    sigma = factor @ factor.T
    distance = Mahalanobis(torch.from_numpy(sigma))
    assert distance.rank <= rank
    np.testing.assert_allclose(distance.sigma, sigma, atol=1e-12 * abs(sigma).max())
    x = rng.standard_normal((5, num_features))
    expected = oracles_graph.mahalanobis(x, x, sigma)
    out = distance(torch.from_numpy(x), torch.from_numpy(x)).numpy()
    # The oracle squares, so that it cannot see below the root of the precision.
    np.testing.assert_allclose(out, expected, atol=1e-6 * scale)


def test_mahalanobis_forgives_negative_eigenvalues_from_rounding() -> None:
    sigma = torch.diag(torch.tensor([1.0, -1e-17], dtype=torch.float64))
    assert Mahalanobis(sigma).rank == 1
    # In float32 that much is rounding, in float64 it is not.
    sigma = torch.diag(torch.tensor([1.0, -1e-8]))
    assert Mahalanobis(sigma).rank == 1
    with pytest.raises(ValueError, match="positive semi-definite"):
        Mahalanobis(sigma.double())
    assert Mahalanobis(sigma.double(), rtol=1e-6).rank == 1


def test_mahalanobis_stays_psd_while_it_learns(generator: torch.Generator) -> None:
    distance = Mahalanobis(torch.eye(3), learnable=True)
    assert str(distance) == "Mahalanobis(num_features=3, rank=3, learnable=True)"
    x = torch.randn(8, 3, generator=generator)
    optimizer = torch.optim.SGD(distance.parameters(), lr=5.0)
    before = distance.sigma.detach().clone()
    for _ in range(10):
        optimizer.zero_grad()
        distance(x[:4], x[4:]).mean().backward()
        optimizer.step()
    sigma = distance.sigma.detach()
    assert not torch.allclose(sigma, before)
    assert torch.linalg.eigvalsh(sigma.double()).min() > -1e-5 * sigma.abs().max()


def test_mahalanobis_gradient_of_factor_matches_finite_differences(
    generator: torch.Generator,
) -> None:
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    distance = Mahalanobis(torch.eye(3, dtype=torch.float64), learnable=True)

    def pairwise(factor: torch.Tensor) -> torch.Tensor:
        state = {"factor": factor}
        return torch.func.functional_call(distance, state, (x[:2], x[2:]))

    factor = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(pairwise, (factor.requires_grad_(),))


def test_from_factor_keeps_the_factor_and_owns_it() -> None:
    factor = torch.tensor([[1.0], [2.0]])
    distance = Mahalanobis.from_factor(factor)
    factor.zero_()
    assert distance.factor.tolist() == [[1.0], [2.0]]
    assert distance.sigma.tolist() == [[1.0, 2.0], [2.0, 4.0]]
    assert not isinstance(distance.factor, torch.nn.Parameter)
    learnable = Mahalanobis.from_factor(distance.factor, learnable=True)
    assert isinstance(learnable.factor, torch.nn.Parameter)


@pytest.mark.parametrize("learnable", [False, True])
@pytest.mark.parametrize("assign", [False, True])
def test_state_dict_brings_its_rank(learnable: bool, assign: bool) -> None:
    saved = Mahalanobis.from_factor(torch.arange(8.0).view(4, 2), learnable=learnable)
    fresh = Mahalanobis(torch.eye(4), learnable=learnable)
    fresh.load_state_dict(copy.deepcopy(saved.state_dict()), assign=assign)
    assert fresh.rank == 2
    assert torch.equal(fresh.sigma, saved.sigma)
    assert isinstance(fresh.factor, torch.nn.Parameter) is learnable
    x = torch.eye(4)
    assert torch.equal(fresh(x, x), saved(x, x))


def test_state_dict_of_other_width_is_refused() -> None:
    saved, fresh = Mahalanobis(torch.eye(3)), Mahalanobis(torch.eye(4))
    with pytest.raises(RuntimeError, match="size mismatch for factor"):
        fresh.load_state_dict(saved.state_dict())
    assert fresh.num_features == 4


def test_state_dict_in_a_model() -> None:
    model = torch.nn.ModuleDict({"metric": Mahalanobis(torch.eye(2))})
    state = {"metric.factor": torch.tensor([[3.0], [4.0]])}
    model.load_state_dict(state)
    assert str(model["metric"]) == "Mahalanobis(num_features=2, rank=1)"


def test_precision_follows_the_features() -> None:
    x = torch.eye(2)
    distance = Mahalanobis(torch.eye(2, dtype=torch.float64))
    assert distance.factor.dtype == torch.float64
    assert distance(x, x).dtype == torch.float32
    assert distance.float().factor.dtype == torch.float32
    assert distance(x.double(), x.double()).dtype == torch.float64
