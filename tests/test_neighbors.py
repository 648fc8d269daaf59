"""Neighbor rules against brute force: graphs, weights, Laplacians, queries."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_glif import KNearest, Radius, suggest_tau
from pyg_glif.distances import Mahalanobis
from tests import oracles
from tests.oracles_inductive import (
    fitted_weights,
    kth_distance,
    nearest_weights,
    weights,
)
from tests.oracles_knn import brute_force_nearest
from tests.oracles_radius import brute_force_distances, brute_force_edges

DECAY = 2.0
NORMALIZATIONS = [None, "nrw", "density"]


@pytest.fixture
def x(generator: torch.Generator) -> Tensor:
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    x[7], x[39] = x[3], 50.0  # a duplicate and an isolated sample
    return x


@pytest.fixture
def x_new(generator: torch.Generator) -> Tensor:
    return torch.randn(9, 2, generator=generator, dtype=torch.float64)


def dense(rule: Radius | KNearest, x: Tensor, x_new: Tensor) -> np.ndarray:
    """Weights of new and known samples as a matrix."""
    found = rule.index(x).query(x_new)
    out = np.zeros((len(x_new), len(x)))
    out[found.row.numpy(), found.col.numpy()] = found.weight.numpy()
    return out


@pytest.mark.parametrize("theta", [None, 0.0, 0.7])
def test_radius_graph_and_laplacian_match_brute_force(
    x: Tensor, theta: float | None
) -> None:
    rule = Radius(0.8, theta=theta)
    graph = rule.graph(x)
    edges, sq_dist = brute_force_edges(x.numpy(), 0.8)
    assert np.array_equal(graph.edge_index.numpy(), edges)
    np.testing.assert_allclose(graph.sq_dist.numpy(), sq_dist, rtol=1e-12, atol=0)
    decay = DECAY / 0.8**2 if theta is None else theta
    expected = fitted_weights(x.numpy(), 0.8, decay)
    for normalization in NORMALIZATIONS:
        lap = rule.laplacian(graph, normalization)
        exact = oracles.laplacian(expected, normalization)
        exact *= oracles.lam_scale(expected, normalization)
        value = (lap @ torch.eye(len(x), dtype=x.dtype)) * lap.lam_scale
        np.testing.assert_allclose(value.numpy(), exact, atol=1e-10)


@pytest.mark.parametrize("theta", [None, 0.0, 0.7])
def test_radius_query_matches_brute_force(
    x: Tensor, x_new: Tensor, theta: float | None
) -> None:
    decay = DECAY / 0.8**2 if theta is None else theta
    expected = weights(x_new.numpy(), x.numpy(), 0.8, decay)
    found = dense(Radius(0.8, theta=theta), x, x_new)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("theta", [None, 0.7])
@pytest.mark.parametrize("tau", [None, 0.6])
@pytest.mark.parametrize("mutual", [False, True])
def test_k_nearest_graph_and_query_match_brute_force(
    x: Tensor, x_new: Tensor, mutual: bool, tau: float | None, theta: float | None
) -> None:
    rule = KNearest(4, mutual=mutual, tau=tau, theta=theta)
    graph, limit = rule.graph(x), math.inf if tau is None else tau
    edges, _, scale = brute_force_nearest(x.numpy(), 4, mutual=mutual, tau=limit)
    assert np.array_equal(graph.edge_index.numpy(), edges)
    apart = brute_force_distances(x.numpy())
    np.fill_diagonal(apart, math.inf)
    apart[apart > limit] = math.inf
    expected = nearest_weights(apart, scale, scale, mutual, theta, DECAY)
    degree = rule.laplacian(graph).diagonal
    np.testing.assert_allclose(degree.numpy(), expected.sum(1), rtol=1e-10)

    dist = np.sqrt(((x_new.numpy()[:, None] - x.numpy()[None]) ** 2).sum(-1))
    own_scale = kth_distance(dist, 4, limit)
    dist[dist > limit] = math.inf
    expected = nearest_weights(dist, own_scale, scale, mutual, theta, DECAY)
    np.testing.assert_allclose(dense(rule, x, x_new), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        (Radius(), {"target_degree": 20}),
        (Radius(target_degree=3), {"target_degree": 3}),
        (Radius(coverage=0.9), {"coverage": 0.9}),
    ],
)
def test_resolve_puts_the_suggested_radius_in(
    x: Tensor, rule: Radius, options: dict[str, float]
) -> None:
    resolved, tau = rule.resolve(x), suggest_tau(x, **options)
    assert (resolved.tau, resolved.theta) == (tau, pytest.approx(DECAY / tau**2))
    assert resolved.resolve(x) == resolved
    assert torch.equal(rule.graph(x).edge_index, resolved.graph(x).edge_index)


def test_resolve_of_the_nearest_checks_their_number(x: Tensor) -> None:
    assert KNearest(3).resolve(x) == KNearest(3, tau=math.inf)
    with pytest.raises(ValueError, match=r"'k' must be .*40"):
        KNearest(40).resolve(x)


def test_a_rule_uses_its_distance(x: Tensor, x_new: Tensor) -> None:
    first = torch.tensor([[1.0, 0.0], [0.0, 0.0]], dtype=x.dtype)
    other = x[:, :1], x_new[:, :1]
    for rule, plain in (
        (Radius(0.3, distance=Mahalanobis(first)), Radius(0.3)),
        (KNearest(2, distance=Mahalanobis(first)), KNearest(2)),
    ):
        assert torch.equal(rule.graph(x).edge_index, plain.graph(other[0]).edge_index)
        expected = dense(plain, *other)
        np.testing.assert_allclose(dense(rule, x, x_new), expected, rtol=1e-9)


@pytest.mark.parametrize("rule", [Radius(0.8), KNearest(3)])
def test_graphs_of_a_batch_are_those_of_its_members(
    x: Tensor, rule: Radius | KNearest
) -> None:
    batch = torch.tensor([0, 1]).repeat(20)
    row, col = rule.graph(x, batch=batch).edge_index
    for number in (0, 1):
        inside = batch[row] == number
        single = rule.graph(x[batch == number]).edge_index
        assert torch.equal(torch.stack([row[inside], col[inside]]) // 2, single)
        assert bool((batch[col[inside]] == number).all())


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: Radius(-1.0), "'tau' must be"),
        (lambda: Radius(theta=-1.0), "'theta' must be"),
        (lambda: Radius(target_degree=0), "'target_degree' must be"),
        (lambda: Radius(coverage=1.5), "'coverage' must be"),
        (lambda: KNearest(0), "'k' must be"),
        (lambda: KNearest(1, mutual="yes"), "'mutual' must be"),
        (lambda: Radius().weights(torch.ones(1)), "Call 'resolve'"),
        (lambda: KNearest(1).weights(torch.ones(1)), "'scale' must be given"),
    ],
)
def test_rules_refuse_bad_parameters(build, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build()
    with pytest.raises(TypeError, match="'distance' must be"):
        Radius(distance="euclidean")  # type: ignore[arg-type]
