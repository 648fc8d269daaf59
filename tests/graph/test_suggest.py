import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import fair_radius_graph, suggest, suggest_tau
from tests.oracles_radius import brute_force_distances


def test_suggest_tau_gives_at_least_the_degree(generator):
    x = torch.randn(200, 5, generator=generator)
    for degree in (0.5, 3, 40, 199):
        tau = suggest_tau(x, degree)
        edge_index, _ = fair_radius_graph(x, tau)
        assert edge_index.size(1) >= degree * 200
        smaller, _ = fair_radius_graph(x, tau * (1 - 1e-9))
        assert smaller.size(1) < degree * 200


def _edges_at_the_rank(dist, num_edges):
    """Edges of the smallest radius that has enough, ties by rounding included."""
    kth = np.sort(dist)[math.ceil(num_edges - 1e-9) - 1]
    return int((dist <= kth * (1.0 + 1e-14)).sum())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", [1.0, 0.1, 1 / 3, 1e-25, 1e20])
def test_suggest_tau_includes_the_pairs_it_was_read_from(unit, dtype):
    """Categorical features: whole shells of pairs at one distance."""
    generator = np.random.default_rng(7)
    for _ in range(300):
        num_nodes, num_features = generator.integers(4, 20), generator.integers(1, 6)
        levels = generator.integers(2, 4)
        x = generator.integers(levels, size=(num_nodes, num_features)) * unit
        x = torch.tensor(x + generator.choice([0.0, 7.3 * unit]), dtype=dtype)
        batch = None
        if generator.random() < 0.3:
            batch = torch.from_numpy(generator.choice([5, 10**15], num_nodes))
        same = np.ones((num_nodes, num_nodes), bool)
        if batch is not None:
            same = batch.numpy()[:, None] == batch.numpy()
        np.fill_diagonal(same, False)
        dist = brute_force_distances(x.double().numpy())[same]
        degree = generator.uniform(0.1, 1.0) * len(dist) / num_nodes
        if len(dist) == 0:
            continue
        tau = suggest_tau(x, degree, batch=batch)
        edge_index, _ = fair_radius_graph(x, tau, batch=batch)
        expected = _edges_at_the_rank(dist, degree * num_nodes)
        assert edge_index.size(1) == expected


@pytest.mark.parametrize("num_features", [3, 300])
@pytest.mark.parametrize("num_nodes", [1900, 2500])
def test_suggest_tau_includes_its_pairs_in_a_sample(num_nodes, num_features, generator):
    """All pairs and a sample, by differences and by products: a tie is never cut."""
    few = torch.randint(3, (40, num_features), generator=generator).double() * 0.1
    x = few[torch.randint(40, (num_nodes,), generator=generator)] + 1e3
    exact = brute_force_distances(x[:400].numpy())
    for degree in (1.0, 60.0, 400.0):
        tau = suggest_tau(x, degree)
        shell = np.unique(exact[np.abs(exact - tau) <= 1e-9 * (1.0 + tau)])
        assert shell.size  # every shell is there among 400 of them
        assert tau >= shell.max() * (1.0 - 1e-15)
        edge_index, _ = fair_radius_graph(x, tau)
        floor = degree if num_nodes <= 2048 else 0.8 * degree
        assert edge_index.size(1) >= floor * num_nodes


def test_suggest_tau_of_a_function_includes_its_pairs(generator):
    x = torch.randint(3, (60, 4), generator=generator).float() * 0.1
    manhattan = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).abs().sum(2))
    dist = manhattan(x, x)[~torch.eye(60, dtype=torch.bool)].sort().values
    for degree in (1, 5, 20, 59):
        tau = suggest_tau(x, degree, distance=manhattan)
        assert tau == float(dist[degree * 60 - 1])
        edge_index, _ = fair_radius_graph(x, tau, distance=manhattan)
        assert edge_index.size(1) == int((dist <= tau).sum()) >= degree * 60


@pytest.mark.parametrize("batched", [False, True])
def test_suggest_tau_from_a_sample(batched, generator):
    x = torch.randn(6000, 8, generator=generator)
    batch = torch.randint(3, (6000,), generator=generator) if batched else None
    tau = suggest_tau(x, 20, batch=batch)
    edge_index, _ = fair_radius_graph(x, tau, batch=batch)
    # Degrees vary by about their mean from node to node: 3% noise from 1,024 nodes.
    assert edge_index.size(1) / 6000 == pytest.approx(20, rel=0.1)


def test_suggest_tau_is_repeatable_and_follows_its_generator(generator):
    x = torch.randn(5000, 4, generator=generator)
    assert suggest_tau(x, 10) == suggest_tau(x, 10)
    first = suggest_tau(x, 10, generator=torch.Generator().manual_seed(1))
    assert first == suggest_tau(x, 10, generator=torch.Generator().manual_seed(1))
    assert first != suggest_tau(x, 10, generator=torch.Generator().manual_seed(2))


def test_suggest_tau_uses_the_distance(generator):
    x = torch.randn(300, 3, generator=generator)
    distance = SensitiveSubspace(torch.eye(3)[:1])
    rest = x[:, 1:].double().numpy()
    dist = np.sqrt(((rest[:, None] - rest) ** 2).sum(-1))
    others = np.sort(dist[~np.eye(300, dtype=bool)])
    assert suggest_tau(x, 7, distance=distance) == pytest.approx(others[7 * 300 - 1])
    called = CallableDistance(lambda a, b: torch.cdist(a[:, 1:], b[:, 1:]))
    assert suggest_tau(x, 7, distance=called) == pytest.approx(
        others[7 * 300 - 1], rel=1e-5
    )


def test_suggest_tau_rejects():
    x = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"'target_degree' must be positive \(got 0"):
        suggest_tau(x, 0)
    message = r"'target_degree' must be at most 3 for these rows \(got 4\)"
    with pytest.raises(ValueError, match=message):
        suggest_tau(x, 4)
    with pytest.raises(ValueError, match=r"'x' must have at least 2 rows \(got 1\)"):
        suggest_tau(x[:1], 1)
    message = r"'target_degree' must be at most 1 for these rows \(got 2\)"
    with pytest.raises(ValueError, match=message):
        suggest_tau(x, 2, batch=torch.tensor([0, 1, 1, 0]))


def test_suggest_tau_refuses_distances_beyond_float64():
    x = torch.tensor([[0.0], [1e200], [3e200]], dtype=torch.float64)
    message = "'x' must have distances whose square float64 can hold (got inf)"
    with pytest.raises(ValueError, match="float64 can hold") as caught:
        suggest_tau(x, 1)
    assert str(caught.value) == f"{message}. Divide the features"
    assert suggest_tau(x / 1e100, 1) == pytest.approx(2e100)


@settings(deadline=None, max_examples=60)
@given(
    num_nodes=st.integers(2, 60),
    num_features=st.sampled_from([1, 3, 20]),
    coverage=st.sampled_from([0.01, 0.3, 0.5, 0.9, 1.0]),
    least=st.integers(1, 3),
    tied=st.booleans(),
    seed=st.integers(0, 10**6),
)
@example(52, 3, 0.5, 1, False, 206)
@example(18, 3, 0.3, 2, False, 54)
@example(30, 20, 0.5, 2, False, 455)
def test_coverage_is_reached_and_no_sooner(
    num_nodes, num_features, coverage, least, tied, seed
):
    generator = np.random.default_rng(seed)
    z = generator.standard_normal((num_nodes, num_features))
    z = 0.1 * np.round(z) if tied else z
    x = torch.from_numpy(z)
    dist = brute_force_distances(z)
    np.fill_diagonal(dist, np.inf)
    if least >= num_nodes:
        message = r"'coverage' must be at most 0 for these rows"
        with pytest.raises(ValueError, match=message):
            suggest_tau(x, coverage=coverage, min_neighbors=least)
        return
    reach = np.sort(np.sort(dist, axis=1)[:, least - 1])
    wanted = reach[int(np.ceil(coverage * num_nodes - 1e-9)) - 1]
    tau = suggest_tau(x, coverage=coverage, min_neighbors=least)
    assert tau == pytest.approx(wanted, rel=1e-12)
    edge_index, _ = fair_radius_graph(x, tau)
    degree = torch.bincount(edge_index[0], minlength=num_nodes)
    assert float((degree >= least).double().mean()) >= coverage - 1e-9
    if tau > 0:
        edge_index, _ = fair_radius_graph(x, tau * (1 - 1e-9))
        degree = torch.bincount(edge_index[0], minlength=num_nodes)
        assert float((degree >= least).double().mean()) < coverage


def test_coverage_respects_batch_and_distance(generator):
    x = torch.randn(80, 3, generator=generator)
    batch = torch.randint(3, (80,), generator=generator)
    manhattan = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).abs().sum(2))
    for distance in (None, SensitiveSubspace(torch.eye(3)[:1]), manhattan):
        tau = suggest_tau(x, coverage=0.9, batch=batch, distance=distance)
        edge_index, _ = fair_radius_graph(x, tau, batch=batch, distance=distance)
        assert 80 - edge_index[0].unique().numel() == 8  # isolated
    batch = torch.tensor([0, 0, 1])
    message = "'coverage' must be at most 0.666667 for these rows (got 1)"
    with pytest.raises(ValueError, match="for these rows") as caught:
        suggest_tau(x[:3], coverage=1.0, batch=batch)
    rest = "The others have fewer than 'min_neighbors' neighbors"
    assert str(caught.value) == f"{message}. {rest}"


def test_coverage_from_a_sample(generator, monkeypatch):
    x = torch.randn(3000, 4, generator=generator)
    monkeypatch.setattr(suggest, "_ALL_NODES", 2000)
    monkeypatch.setattr(suggest, "_SAMPLED_NODES", 1500)
    manhattan = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).abs().sum(2))
    for distance in (None, manhattan):
        tau = suggest_tau(x, coverage=0.8, min_neighbors=2, distance=distance)
        edge_index, _ = fair_radius_graph(x, tau, distance=distance)
        degree = torch.bincount(edge_index[0], minlength=3000)
        # A share of 1,500 samples: a standard error of one hundredth.
        share = float((degree >= 2).double().mean())
        assert share == pytest.approx(0.8, abs=0.03)
        other = torch.Generator().manual_seed(5)
        again = suggest_tau(
            x, coverage=0.8, min_neighbors=2, distance=distance, generator=other
        )
        assert again != tau


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "one of 'target_degree' and 'coverage' must be given, and not both"),
        ({"target_degree": 1, "coverage": 0.5}, "and not both (got 1 and 0.5)"),
        ({"coverage": 0.0}, "'coverage' must be positive (got 0.0)"),
        ({"coverage": 1.5}, "'coverage' must be at most 1 (got 1.5)"),
        (
            {"coverage": 0.5, "min_neighbors": 0},
            "'min_neighbors' must be at least 1 (got 0)",
        ),
    ],
)
def test_suggest_tau_wants_one_aim(kwargs, message):
    with pytest.raises(ValueError, match="must be") as caught:
        suggest_tau(torch.zeros(4, 1), **kwargs)
    assert message in str(caught.value)
