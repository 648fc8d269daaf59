import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import Mahalanobis
from pyg_glif.graph import (
    decay_of,
    edge_sq_dist,
    edge_weights,
    local_weights,
    weights,
)

# Uneven degrees, a repeated edge, an edge in one direction, an isolated node.
EDGES = torch.tensor([[0, 1, 0, 2, 0, 0, 3], [1, 0, 2, 0, 3, 1, 2]])


@pytest.fixture(params=[1, 7, 2**18], ids=lambda n: f"chunk-{n}")
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with chunks of one edge, of a few, and of all."""
    monkeypatch.setattr(weights, "_CHUNK_ELEMENTS", request.param)


def test_edge_weights() -> None:
    sq_dist = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    expected = [1.0, math.exp(-0.5), math.exp(-2.0)]
    assert edge_weights(sq_dist, 0.5).tolist() == pytest.approx(expected, rel=1e-15)
    assert edge_weights(sq_dist, 0.0).tolist() == [1.0, 1.0, 1.0]
    expected = np.exp(-1e-4 * sq_dist.numpy()).tolist()
    assert edge_weights(sq_dist, 1e-4).tolist() == pytest.approx(expected, rel=1e-15)
    assert edge_weights(torch.tensor([1e4]), 1.0).tolist() == [0.0]
    assert edge_weights(torch.empty(0), tau=1.0).shape == (0,)


def test_decay_of() -> None:
    assert decay_of(None, 2.0) == weights.DECAY / 4.0
    assert decay_of(0.3, 2.0) == 0.3
    assert decay_of(0.0, 2.0) == 0.0
    theta = torch.tensor(0.3)
    assert decay_of(theta, 2.0) is theta
    assert decay_of(None, 0.0) == 0.0
    assert decay_of(None, math.inf) == 0.0


@pytest.mark.parametrize("tau", [1e-30, 1e-8, 1.0, 1e15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_default_decay_does_not_depend_on_the_unit(
    tau: float, dtype: torch.dtype
) -> None:
    share = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    weight = edge_weights((share * tau).square().to(dtype), decay_of(None, tau))
    if tau * tau > torch.finfo(dtype).tiny:
        expected = np.exp(-weights.DECAY * share.numpy() ** 2)
        np.testing.assert_allclose(weight, expected, rtol=1e-5)
    else:  # squares that underflow leave nothing to tell distances by
        assert weight.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_local_weights(unit: float, dtype: torch.dtype) -> None:
    dist = unit * torch.tensor([0.0, 1.0, 2.0, 3.0, 0.0], dtype=torch.float64)
    scale = unit * torch.tensor([2.0, 2.0, 2.0, math.inf, 0.0], dtype=torch.float64)
    weight = local_weights(dist.square().to(dtype), scale)
    c = weights.DECAY
    expected = [1.0, math.exp(-c / 4), math.exp(-c), 1.0, 1.0]
    np.testing.assert_allclose(weight, expected, rtol=1e-6)
    assert weight.dtype == dtype
    weight = local_weights(dist.square().to(dtype), scale, decay=0.5)
    assert float(weight[2]) == pytest.approx(math.exp(-0.5))


def test_decay_beyond_the_range_of_the_dtype_gives_no_nan() -> None:
    assert edge_weights(torch.tensor([0.0, 1e-30]), 1e50).tolist() == [1.0, 0.0]
    assert edge_weights(torch.zeros(1), decay_of(None, 1e-200)).tolist() == [1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edge_weights_keeps_the_dtype_of_distances(dtype: torch.dtype) -> None:
    sq_dist = torch.ones(2, dtype=dtype)
    assert edge_weights(sq_dist, torch.tensor(1.0)).dtype == dtype
    assert edge_weights(sq_dist, torch.tensor(1.0).double()).dtype == dtype


def test_edge_weights_gradient_matches_finite_differences() -> None:
    sq_dist = torch.tensor([0.0, 0.3, 2.0], dtype=torch.float64, requires_grad=True)
    theta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(edge_weights, (sq_dist[1:], theta))
    assert torch.autograd.gradgradcheck(edge_weights, (sq_dist[1:], theta))


def test_edge_weights_gradient_at_underflow_is_finite() -> None:
    sq_dist = torch.tensor([1e6], requires_grad=True)
    theta = torch.tensor(1.0, requires_grad=True)
    edge_weights(sq_dist, theta).sum().backward()
    assert sq_dist.grad is not None
    assert theta.grad is not None
    assert sq_dist.grad.tolist() == [0.0]
    assert theta.grad.item() == 0.0


@pytest.mark.parametrize(
    ("sq_dist", "theta", "message"),
    [
        (torch.ones(1), -1.0, "'theta' must be non-negative (got -1.0)"),
        (torch.ones(1), math.nan, "'theta' must be finite (got nan)"),
        (torch.ones(1), torch.tensor(-2.0), "'theta' must be non-negative (got -2.0)"),
        (torch.ones(2), torch.ones(2), "'theta' must be 0-dimensional (got shape (2,"),
        (torch.ones(1), "a", "'theta' must be a number (got 'a')"),
        (torch.tensor([1.0, -4.0]), 1.0, "'sq_dist' must be non-negative (got -4)"),
        (torch.tensor([1.0, math.nan]), 1.0, "'sq_dist' must be finite (got nan at"),
        (torch.ones(1).long(), 1.0, "'sq_dist' must be float32 or float64 (got torch"),
        (torch.ones(1), None, "'theta' or 'tau' must be given (got neither)"),
    ],
)
def test_edge_weights_rejects_bad_input(
    sq_dist: torch.Tensor, theta: float, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        edge_weights(sq_dist, theta)
    assert str(caught.value).startswith(message)


@settings(deadline=None, max_examples=30)
@given(
    num_nodes=st.integers(1, 8),
    num_edges=st.integers(0, 20),
    num_coordinates=st.integers(1, 5),
    offset=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 2**16),
)
def test_edge_sq_dist_matches_oracle(
    num_nodes: int, num_edges: int, num_coordinates: int, offset: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    z = (offset + rng.standard_normal((num_nodes, num_coordinates))).astype("float32")
    row, col = rng.integers(num_nodes, size=(2, num_edges))
    out = edge_sq_dist(torch.from_numpy(z), torch.from_numpy(np.stack([row, col])))
    expected = ((z[row].astype("float64") - z[col]) ** 2).sum(1)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5)


@pytest.mark.usefixtures("chunk")
def test_edge_sq_dist_derivatives_match_finite_differences(
    generator: torch.Generator,
) -> None:
    z = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)

    def curved(z: torch.Tensor) -> torch.Tensor:
        # Squared distances alone have a constant second derivative.
        return edge_sq_dist(z, EDGES).pow(1.5).sum()

    def gradient(z: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(curved(z), z, create_graph=True)[0]

    assert torch.autograd.gradcheck(lambda z: edge_sq_dist(z, EDGES), (z,))
    assert torch.autograd.gradgradcheck(lambda z: edge_sq_dist(z, EDGES), (z,))
    assert torch.autograd.gradgradcheck(curved, (z,))
    assert torch.autograd.gradgradcheck(gradient, (z,))  # third order


def test_edge_sq_dist_does_not_depend_on_chunks(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    z = torch.randn(50, 4, generator=generator, requires_grad=True)
    edges = torch.randint(50, (2, 400), generator=generator)
    outputs = []
    for size in (1, 37, 2**18):
        monkeypatch.setattr(weights, "_CHUNK_ELEMENTS", size)
        sq_dist = edge_sq_dist(z, edges)
        outputs.append((sq_dist, *torch.autograd.grad(sq_dist.sum(), z)))
    for sq_dist, grad in outputs[1:]:
        assert torch.equal(sq_dist, outputs[0][0])
        torch.testing.assert_close(grad, outputs[0][1])


def test_edge_sq_dist_at_duplicates_is_zero_with_its_gradient() -> None:
    z = torch.full((2, 3), 1e4 + 0.1, requires_grad=True)
    sq_dist = edge_sq_dist(z, torch.tensor([[0, 1], [1, 0]]))
    assert sq_dist.tolist() == [0.0, 0.0]
    (grad,) = torch.autograd.grad(sq_dist.sum(), z)
    assert torch.equal(grad, torch.zeros(2, 3))


def test_edge_sq_dist_never_holds_all_coordinates_of_all_edges(
    generator: torch.Generator,
) -> None:
    # 40 million coordinates at once would be 160 MB.
    z = torch.randn(100, 400, generator=generator, requires_grad=True)
    edges = torch.randint(100, (2, 100_000), generator=generator)
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                sizes.append(out.numel())
            return out

    with Watch():
        edge_sq_dist(z, edges).sum().backward()
    assert max(sizes) <= 2**18


def test_edge_sq_dist_teaches_a_distance(generator: torch.Generator) -> None:
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    sigma = torch.eye(3, dtype=torch.float64)
    distance = Mahalanobis(sigma, learnable=True)
    edge_weights(edge_sq_dist(distance.embed(x), EDGES), 0.1).sum().backward()
    # d/dA of sum exp(-theta |A' u|^2) is -2 theta sum w u u' A, with A A' = I.
    u = (x[EDGES[0]] - x[EDGES[1]]).numpy()
    w = np.exp(-0.1 * (u**2).sum(1))
    factor = distance.factor.detach().numpy()
    expected = -0.2 * np.einsum("e,ei,ej->ij", w, u, u) @ factor
    np.testing.assert_allclose(distance.factor.grad, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("z", "edges", "message"),
    [
        (torch.zeros(2, 1), [[0], [2]], "'edge_index' must hold node indices from 0"),
        (torch.zeros(2, 1), [[0, 1, 1]], "'edge_index' must have shape [2, num_edges]"),
        (torch.zeros(2), [[0], [1]], "'z' must be 2-dimensional (got shape (2,))"),
        (torch.zeros(2, 1) * 1j, [[0], [1]], "'z' must hold real numbers (got torch."),
    ],
)
def test_edge_sq_dist_rejects_bad_input(
    z: torch.Tensor, edges: list[list[int]], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        edge_sq_dist(z, torch.tensor(edges))
    assert str(caught.value).startswith(message)
