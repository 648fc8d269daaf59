import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import edge_weights, fair_radius_graph
from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import SimilarityGraph, weights
from pyg_glif.laplacian import LaplacianOperator
from tests.oracles_radius import brute_force_distances, brute_force_edges


def test_similarity_graph():
    x = torch.tensor([[0.0], [1.0], [3.0]])
    graph = SimilarityGraph.search(x, 2.0)
    assert str(graph) == "SimilarityGraph(num_nodes=3, num_edges=4, tau=2)"
    assert graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert graph.sq_dist.tolist() == [1.0, 1.0, 4.0, 4.0]
    assert (graph.num_nodes, graph.num_edges, graph.tau) == (3, 4, 2.0)
    smaller = graph.within(1.5)
    assert smaller.edge_index.tolist() == [[0, 1], [1, 0]]
    assert smaller.tau == 1.5
    assert smaller.within(0.0).num_edges == 0
    weight = graph.weights(0.5)
    torch.testing.assert_close(weight, torch.tensor([-0.5, -0.5, -2.0, -2.0]).exp())


def test_default_weights_fall_to_the_same_share_at_every_radius():
    graph = SimilarityGraph.search(torch.tensor([[0.0], [1.0], [3.0]]), 2.0)
    c = weights.DECAY
    expected = torch.tensor([-c / 4, -c / 4, -c, -c]).exp()
    torch.testing.assert_close(graph.weights(), expected)
    torch.testing.assert_close(graph.to_data().edge_weight, expected)
    degree = torch.tensor([-c / 4, -c / 4, -c]).exp()
    degree[1] += math.exp(-c)
    diagonal = graph.laplacian().to_dense().diagonal()
    torch.testing.assert_close(diagonal, degree, check_dtype=False)
    at_radius = torch.tensor([-c, -c]).exp()
    torch.testing.assert_close(graph.within(1.0).weights(), at_radius)
    for tau in (0.0, math.inf):  # no scale, no decay
        graph = SimilarityGraph.search(torch.tensor([[0.0], [0.0]]), tau)
        assert graph.weights().tolist() == [1.0, 1.0]


@pytest.mark.parametrize("batched", [False, True])
def test_similarity_graph_is_the_graph_of_fair_radius_graph(batched, generator):
    x = torch.randn(1500, 4, generator=generator)
    batch = torch.randint(3, (1500,), generator=generator) if batched else None
    graph = SimilarityGraph.search(x, 0.8, batch=batch)
    edge_index, sq_dist = fair_radius_graph(x, 0.8, batch=batch)
    assert torch.equal(graph.edge_index, edge_index)
    assert torch.equal(graph.sq_dist, sq_dist)


def _tied(kind, num_nodes, num_features, dtype, seed):
    """Samples with many equal distances, on scales where squares fit and not."""
    generator = np.random.default_rng(seed)
    whole = generator.integers(4, size=(num_nodes, num_features))
    x = {
        "whole": lambda: whole,
        "tenths": lambda: whole / 10 + 7.3,
        "thirds": lambda: whole / 3 - 2e3,
        "tiny": lambda: whole * 1e-22,
        "huge": lambda: whole * 1e21,
        "ordinary": lambda: generator.normal(size=whole.shape),
    }[kind]()
    return torch.tensor(x, dtype=dtype)


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(["whole", "tenths", "thirds", "tiny", "huge", "ordinary"]),
    num_nodes=st.sampled_from([2, 5, 60]),
    num_features=st.sampled_from([1, 3, 9, 80]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 10**6),
)
def test_within_finds_the_edges_of_a_search(kind, num_nodes, num_features, dtype, seed):
    """At radii that are distances of pairs, and one step to either side of them."""
    x = _tied(kind, num_nodes, num_features, dtype, seed)
    graph = SimilarityGraph.search(x, math.inf)
    dist = brute_force_distances(x.double().numpy())
    chosen = np.random.default_rng(seed).choice(dist.ravel(), 3)
    for tau in [0.0, *chosen, *np.nextafter(chosen, np.inf), *np.nextafter(chosen, 0)]:
        part = graph.within(float(tau))
        fresh, _ = fair_radius_graph(x, float(tau))
        assert torch.equal(part.edge_index, fresh)
        if num_features < 8:  # one order of summation only
            expected, _ = brute_force_edges(x.double().numpy(), float(tau))
            np.testing.assert_array_equal(part.edge_index.numpy(), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_within_of_a_function_goes_by_what_it_returned(dtype, generator):
    x = torch.randint(5, (40, 3), generator=generator).to(dtype) * 0.1
    manhattan = CallableDistance(
        lambda a, b: (a.unsqueeze(1) - b).abs().sum(2)  # no rounding by the block
    )
    graph = SimilarityGraph.search(x, 1.0, distance=manhattan)
    dist = manhattan(x, x)
    for tau in {*dist.unique().tolist(), 0.1, 0.3}:
        if tau <= 1.0:
            part = graph.within(tau)
            inside = (dist <= tau).fill_diagonal_(False)
            assert torch.equal(part.edge_index, inside.nonzero().T)
            assert torch.equal(part.sq_dist, dist[inside].square())
            again = part.within(tau / 2)
            assert torch.equal(again.edge_index, graph.within(tau / 2).edge_index)


def test_within_in_fair_space_and_after_the_features_have_changed(generator):
    x = torch.randn(100, 5, generator=generator)
    for distance in (None, SensitiveSubspace(torch.eye(5)[:2])):
        known = x.clone()
        graph = SimilarityGraph.search(known[:, :], 3.0, distance=distance)
        known.zero_()
        expected, _ = fair_radius_graph(x, 1.0, distance=distance)
        assert torch.equal(graph.within(1.0).edge_index, expected)


def test_within_without_coordinates_goes_by_squares():
    edges, sq_dist = torch.tensor([[0, 1], [1, 0]]), torch.tensor([4.0, 4.0])
    graph = SimilarityGraph(edges, sq_dist, 2, 3.0)
    assert graph.within(2.0).num_edges == 2
    assert graph.within(math.nextafter(2.0, 0.0)).num_edges == 0


def test_within_rejects_radii_beyond_the_search():
    graph = SimilarityGraph.search(torch.zeros(3, 1), 2.0)
    message = (
        "'tau' must be at most the radius of the graph, 2 (got 3). "
        "Search at the largest radius"
    )
    with pytest.raises(ValueError, match="must be at most the radius") as caught:
        graph.within(3.0)
    assert str(caught.value) == message
    with pytest.raises(ValueError, match=r"'tau' must be non-negative \(got -1.0\)"):
        graph.within(-1.0)


@pytest.mark.parametrize("normalization", [None, "nrw", "density"])
@pytest.mark.parametrize("batched", [False, True])
def test_laplacian_equals_the_checked_operator(normalization, batched, generator):
    x = torch.randn(60, 3, generator=generator)
    batch = torch.randint(3, (60,), generator=generator) * 10**15 if batched else None
    graph = SimilarityGraph.search(x, 1.0, batch=batch)
    lap = graph.laplacian(0.3, normalization)
    checked = LaplacianOperator(
        graph.edge_index,
        edge_weights(graph.sq_dist, 0.3),
        60,
        normalization=normalization,
        batch=batch,
    )
    assert torch.equal(lap.to_dense(), checked.to_dense())
    assert torch.equal(lap.lam_scale, checked.lam_scale)
    assert torch.equal(lap.pattern.reverse, checked.pattern.reverse)
    with pytest.raises(ValueError, match="'normalization' must be one of None"):
        graph.laplacian(0.3, "rw")


def test_laplacian_passes_gradients_to_theta(generator):
    x = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    graph = SimilarityGraph.search(x, 1.5)
    y = torch.randn(20, generator=generator, dtype=torch.float64)

    def energy(theta):
        return graph.laplacian(theta, "density").quadratic(y)

    theta = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(energy, (theta,))


def test_to_data(generator):
    x = torch.randn(30, 2, generator=generator)
    batch = torch.tensor([7] * 10 + [3] * 20)
    graph = SimilarityGraph.search(x, 1.0, batch=batch)
    data = graph.to_data(theta=0.2)
    assert data.num_nodes == 30
    assert torch.equal(data.edge_index, graph.edge_index)
    assert torch.equal(data.edge_weight, edge_weights(graph.sq_dist, 0.2))
    assert data.batch.tolist() == [1] * 10 + [0] * 20
    assert data.is_undirected()
    assert "batch" not in SimilarityGraph.search(x, 1.0).to_data()


@settings(deadline=None, max_examples=30)
@given(
    degrees=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_degree_summary(degrees, seed):
    # Samples on a line, in runs of which all are joined to all others of the run.
    place = np.repeat(np.arange(len(degrees)) * 10.0, np.array(degrees) + 1)
    x = torch.from_numpy(np.random.default_rng(seed).permutation(place)).view(-1, 1)
    graph = SimilarityGraph.search(x, 1.0)
    expected = (x == x.T).sum(1).numpy() - 1
    assert graph.degrees().tolist() == expected.tolist()
    summary = graph.degree_summary()
    assert summary.mean == pytest.approx(expected.mean())
    for share, degree in summary.quantiles.items():
        assert degree == np.quantile(expected, share, method="higher")
    assert summary.isolated.tolist() == np.flatnonzero(expected == 0).tolist()


def test_degree_summary_without_nodes():
    summary = SimilarityGraph.search(torch.zeros(0, 2), 1.0).degree_summary()
    assert (summary.mean, summary.quantiles) == (0.0, {})
    assert summary.isolated.numel() == 0


@given(
    seed=st.integers(0, 2**31 - 1),
    size=st.integers(1, 30),
    radius=st.floats(0.0, 3.0),
    whole=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_subgraph_is_the_graph_of_a_search_among_its_nodes(
    seed: int, size: int, radius: float, whole: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, (size, 3), generator=generator).double()
    batch = None if whole else torch.arange(size) % 2
    some = torch.rand(size, generator=generator) < 0.6
    graph = SimilarityGraph.search(x, radius, batch=batch).subgraph(some)
    labels = None if batch is None else batch[some]
    expected = SimilarityGraph.search(x[some], radius, batch=labels)
    assert torch.equal(graph.edge_index, expected.edge_index)
    assert torch.equal(graph.sq_dist, expected.sq_dist)
    assert (graph.num_nodes, graph.tau) == (int(some.sum()), radius)
    smaller = graph.within(radius / 2)
    assert torch.equal(smaller.edge_index, expected.within(radius / 2).edge_index)


def test_subgraph_rejects_graphs_of_nearest_neighbors():
    graph = SimilarityGraph.nearest(torch.tensor([[0.0], [1.0], [3.0]]), 1)
    message = (
        "'subgraph' must be called on a radius graph (got 1 nearest neighbors). "
        "Search anew"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        graph.subgraph(torch.tensor([True, True, False]))


EDGES = torch.tensor([[0, 0, 1, 2], [1, 2, 0, 0]])
SQ_DIST = torch.tensor([1.0, 4.0, 1.0, 4.0])
WRONG = {
    "out of range": {"edge_index": EDGES + 1},
    "negative": {"edge_index": EDGES - 1},
    "one-directional": {"edge_index": EDGES[:, :3], "sq_dist": SQ_DIST[:3]},
    "doubled": {
        "edge_index": EDGES[:, [0, 0, 1, 2, 3]],
        "sq_dist": SQ_DIST[[0, 0, 1, 2, 3]],
    },
    "out of order": {"edge_index": EDGES.flip(1), "sq_dist": SQ_DIST.flip(0)},
    "self-loop": {"edge_index": torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])},
    "three rows": {"edge_index": EDGES[[0, 1, 1]]},
    "int32": {"edge_index": EDGES.int()},
    "floats": {"edge_index": EDGES.float()},
    "no tensor": {"edge_index": EDGES.tolist()},
    "NaN": {"sq_dist": SQ_DIST * torch.nan},
    "infinite": {"sq_dist": SQ_DIST * torch.inf},
    "negative distance": {"sq_dist": -SQ_DIST},
    "beyond the radius": {"sq_dist": 2 * SQ_DIST},
    "other in reverse": {"sq_dist": torch.tensor([1.0, 4.0, 0.5, 4.0])},
    "too few distances": {"sq_dist": SQ_DIST[:3]},
    "whole distances": {"sq_dist": SQ_DIST.long()},
    "too few nodes": {"num_nodes": 2},
    "no count": {"num_nodes": 3.0},
    "negative radius": {"tau": -1.0},
    "no radius": {"tau": math.nan},
    "graphs joined": {"batch": torch.tensor([0, 0, 1])},
    "gap in batch": {"batch": torch.tensor([2, 2, 2])},
    "scale without k": {"scale": torch.ones(3).double()},
    "k without scale": {"k": 1},
    "short scale": {"k": 1, "scale": torch.ones(2).double()},
    "NaN in scale": {"k": 1, "scale": torch.full((3,), math.nan).double()},
    "scale beyond the radius": {"k": 1, "scale": torch.full((3,), 9.0).double()},
    "k below one": {"k": 0, "scale": torch.ones(3).double()},
}


@pytest.mark.parametrize("name", WRONG)
def test_the_constructor_checks_what_no_search_finds(name: str) -> None:
    right = {"edge_index": EDGES, "sq_dist": SQ_DIST, "num_nodes": 3, "tau": 2.0}
    graph = SimilarityGraph(**right)
    with pytest.raises((TypeError, ValueError), match="' must "):
        SimilarityGraph(**{**right, **WRONG[name]})
    # Nor can a sound graph be changed into such a one.
    if {"edge_index", "sq_dist"} & WRONG[name].keys():
        with pytest.raises((TypeError, ValueError), match="' must "):
            replace(graph, **WRONG[name])


@pytest.mark.parametrize("k", [None, 4])
def test_the_constructor_takes_what_a_search_finds(k: int | None) -> None:
    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    graph = (
        SimilarityGraph.search(x, 1.0) if k is None else SimilarityGraph.nearest(x, k)
    )
    again = SimilarityGraph(
        graph.edge_index, graph.sq_dist, 50, graph.tau, k=k, scale=graph.scale
    )
    assert torch.equal(again.weights(), graph.weights())
