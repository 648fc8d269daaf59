import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from scipy.spatial import cKDTree
from sklearn.neighbors import kneighbors_graph

from pyg_glif import fair_knn_graph
from pyg_glif.distances import CallableDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.graph import SimilarityGraph, _knn_candidates, _search, weights
from tests.graph.clouds import KINDS, cloud
from tests.oracles_knn import brute_force_nearest, exact_nearest

STRATEGIES = ("auto", "projected", "plain")


def _manhattan(x1, x2):
    return (x1.unsqueeze(1) - x2).abs().sum(-1)


def _assert_exact(z, k, batch=None, mutual=False, tau=None, **kwargs):
    """Edges equal to float64 brute force, distances to their stated accuracy."""
    expected, sq_expected, scale = brute_force_nearest(
        z.double().numpy(),
        k,
        mutual=mutual,
        tau=math.inf if tau is None else tau,
        batch=None if batch is None else batch.numpy(),
    )
    graph = SimilarityGraph.nearest(z, k, batch=batch, mutual=mutual, tau=tau, **kwargs)
    assert graph.edge_index.dtype == torch.int64
    assert graph.sq_dist.dtype == z.dtype
    assert graph.edge_index.shape == expected.shape
    np.testing.assert_array_equal(graph.edge_index.numpy(), expected)
    rtol = 1e-12
    if z.dtype == torch.float32:
        rtol = 1e-5 if z.size(1) <= 64 else 2e-6 * (z.size(1) + 16)
    tiny = 1e-36 if z.dtype == torch.float32 else 1e-300
    # Squares that the dtype cannot hold come back as infinite.
    sq_expected[sq_expected > torch.finfo(z.dtype).max] = np.inf
    np.testing.assert_allclose(
        graph.sq_dist.double(), sq_expected, rtol=rtol, atol=tiny
    )
    np.testing.assert_allclose(graph.scale, scale, rtol=1e-12)


def test_fair_knn_graph():
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    edge_index, sq_dist = fair_knn_graph(x, 1)
    assert edge_index.tolist() == [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
    assert sq_dist.tolist() == [1.0, 1.0, 4.0, 4.0, 16.0, 16.0]
    assert fair_knn_graph(x, 1, mutual=True)[0].tolist() == [[0, 1], [1, 0]]
    # 'tau' includes its boundary, and leaves the last one isolated.
    assert fair_knn_graph(x, 1, tau=2.0)[1].tolist() == [1.0, 1.0, 4.0, 4.0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_fair_knn_graph_of_few_nodes(num_nodes, strategy):
    x = torch.arange(num_nodes).float().view(-1, 1)
    for k in (1, 5):
        edge_index, sq_dist = fair_knn_graph(x, k, strategy=strategy)
        assert edge_index.shape == (2, 2 if num_nodes == 2 else 0)
        assert sq_dist.shape == (2 if num_nodes == 2 else 0,)
    scale = SimilarityGraph.nearest(x, 1, strategy=strategy).scale
    assert scale.tolist() == {0: [], 1: [math.inf], 2: [1.0, 1.0]}[num_nodes]


def test_fair_knn_graph_keeps_all_ties():
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    edge_index, _ = fair_knn_graph(x, 1)
    assert edge_index[:, edge_index[0] == 0].tolist() == [[0] * 4, [1, 2, 3, 4]]
    # More duplicates than k: each is joined to all others, and to no other.
    x = torch.cat([torch.zeros(6, 2), torch.ones(1, 2)])
    edge_index, _ = fair_knn_graph(x, 2)
    degree = torch.bincount(edge_index[0])
    assert degree.tolist() == [6] * 7  # the last one counts all six as tied
    assert torch.bincount(fair_knn_graph(x, 2, mutual=True)[0][0]).tolist() == [5] * 6
    assert fair_knn_graph(torch.zeros(3, 0), 1)[0].size(1) == 6


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    num_nodes=st.sampled_from([2, 3, 40, 130, 300]),
    num_features=st.sampled_from([1, 2, 3, 17, 150]),
    k=st.sampled_from([1, 2, 7, 60]),
    mutual=st.booleans(),
    cap=st.sampled_from([None, "pair", "quantile"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    num_graphs=st.sampled_from([None, 1, 4]),
    strategy=st.sampled_from(STRATEGIES),
    tile_size=st.sampled_from([1, 7, 64, 256]),
    seed=st.integers(0, 10**6),
)
@example("ordinary", 1500, 20, 5, False, None, torch.float32, 3, "auto", 256, 0)
def test_fair_knn_graph_equals_brute_force(
    kind,
    num_nodes,
    num_features,
    k,
    mutual,
    cap,
    dtype,
    num_graphs,
    strategy,
    tile_size,
    seed,
):
    z = cloud(kind, num_nodes, num_features, dtype, seed, copies=6)
    generator = np.random.default_rng(seed)
    i, j = z[torch.from_numpy(generator.integers(num_nodes, size=(2, 50)))].double()
    dist = np.sqrt(((i - j).numpy() ** 2).sum(1))
    tau = None
    if cap is not None:
        tau = float({"pair": dist[0], "quantile": np.quantile(dist, 0.3)}[cap])
    batch = None
    if num_graphs is not None:
        batch = torch.from_numpy(generator.integers(num_graphs, size=num_nodes) * 10**9)
    _assert_exact(z, k, batch, mutual, tau, strategy=strategy, tile_size=tile_size)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.tuples(*[st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.7])] * 3),
        min_size=2,
        max_size=12,
    ),
    k=st.integers(1, 4),
    unit=st.sampled_from([1.0, 2.0**-500, 2.0**500]),
    strategy=st.sampled_from(STRATEGIES),
)
def test_ties_in_exact_arithmetic_are_all_kept(rows, k, unit, strategy):
    x = torch.tensor(rows, dtype=torch.float64) * unit
    edge_index, _ = fair_knn_graph(x, k, strategy=strategy)
    edges = set(map(tuple, edge_index.T.tolist()))
    exact = exact_nearest(np.array(rows), k)
    assert exact <= edges
    # Beyond them only pairs that float64 rounding makes as near.
    nearly, _, _ = brute_force_nearest(np.array(rows), k)
    assert edges <= set(map(tuple, nearly.T.tolist()))


@pytest.mark.parametrize("strategy", ["projected", "plain"])
def test_fair_knn_graph_does_not_depend_on_threads(strategy, generator):
    # Many ties, so that pairs are evaluated again on the way.
    z = torch.randint(3, (1500, 6), generator=generator).float()
    before, results = torch.get_num_threads(), []
    try:
        for num_threads in (1, 2, 5):
            torch.set_num_threads(num_threads)
            with torch.inference_mode(num_threads == 5):
                results.append(fair_knn_graph(z, 7, strategy=strategy, tile_size=32))
            assert torch.get_num_threads() == num_threads
    finally:
        torch.set_num_threads(before)
    for edge_index, sq_dist in results[1:]:
        assert torch.equal(edge_index, results[0][0])
        assert torch.equal(sq_dist, results[0][1])


def test_what_goes_wrong_in_a_thread_is_raised(generator, monkeypatch):
    def broken(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(_search, "finish", broken)
    z = torch.randn(600, 3, generator=generator)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(RuntimeError, match="no room"):
            fair_knn_graph(z, 3, strategy="projected", tile_size=16)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fair_knn_graph_equals_other_libraries(strategy, dtype, generator):
    x = torch.randn(3000, 6, generator=generator, dtype=dtype)
    k = 7
    dist, nearest = cKDTree(x.numpy()).query(x.numpy(), k + 1)
    pairs = np.zeros((3000, 3000), dtype=bool)
    pairs[np.repeat(np.arange(3000), k), nearest[:, 1:].ravel()] = True
    edge_index, sq_dist = fair_knn_graph(x, k, strategy=strategy)
    np.testing.assert_array_equal(edge_index, np.stack(np.nonzero(pairs | pairs.T)))
    graph = kneighbors_graph(x.double().numpy(), k, mode="distance")
    reference = graph.minimum(graph.T)
    reference.sort_indices()
    edge_index, sq_dist = fair_knn_graph(x, k, mutual=True, strategy=strategy)
    np.testing.assert_array_equal(edge_index, np.stack(reference.nonzero()))
    np.testing.assert_allclose(sq_dist.sqrt(), reference.data, rtol=1e-5)
    scale = SimilarityGraph.nearest(x, k, strategy=strategy).scale
    np.testing.assert_allclose(scale, dist[:, -1], rtol=1e-6)


@pytest.mark.parametrize("strategy", ["projected", "plain"])
@pytest.mark.parametrize("kind", ["ordinary", "clusters", "duplicates"])
def test_bounds_may_shrink_at_any_time(strategy, kind, monkeypatch):
    monkeypatch.setattr(_knn_candidates, "_FEWEST", 10)
    monkeypatch.setattr(_knn_candidates, "_UNRESOLVED", 1)  # evaluate early and often
    monkeypatch.setattr(_search, "_SAMPLE", 4)
    for dtype in (torch.float32, torch.float64):
        z = cloud(kind, 400, 12, dtype, 3, copies=6)
        _assert_exact(z, 3, strategy=strategy, tile_size=16)


@pytest.mark.parametrize("mutual", [False, True])
def test_fair_knn_graph_of_a_function(mutual, generator):
    x = torch.randint(4, (70, 3), generator=generator).float() * 0.1
    batch = torch.randint(2, (70,), generator=generator)
    dist = _manhattan(x, x).double()
    dist[batch.unsqueeze(1) != batch] = math.inf
    dist.fill_diagonal_(math.inf)
    scale = dist.kthvalue(3, dim=1).values
    is_near = dist <= scale.unsqueeze(1)
    expected = is_near & is_near.T if mutual else is_near | is_near.T
    graph = SimilarityGraph.nearest(
        x, 3, distance=CallableDistance(_manhattan), batch=batch, mutual=mutual
    )
    assert torch.equal(graph.edge_index, expected.nonzero().T)
    assert torch.equal(graph.scale, scale)
    row, col = graph.edge_index
    assert torch.equal(graph.sq_dist, _manhattan(x, x)[row, col].square())
    capped = fair_knn_graph(
        x, 3, distance=CallableDistance(_manhattan), batch=batch, mutual=mutual, tau=0.1
    )
    wanted = (expected & (_manhattan(x, x) <= 0.1)).nonzero().T
    assert torch.equal(capped[0], wanted)
    assert torch.equal(graph.within(0.1).edge_index, wanted)


def test_fair_knn_graph_uses_the_distance(generator):
    x = torch.randn(120, 4, generator=generator, dtype=torch.float64)
    for distance in (
        SensitiveSubspace(torch.eye(4)[:1]),
        Mahalanobis(torch.diag(torch.tensor([4.0, 1.0, 0.0, 9.0]))),
    ):
        expected, _, _ = brute_force_nearest(distance.embed(x).numpy(), 5)
        edge_index, _ = fair_knn_graph(x, 5, distance=distance)
        np.testing.assert_array_equal(edge_index, expected)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_coarse_products_change_nothing(precision, generator):
    x = torch.randn(500, 30, generator=generator)
    expected, _, _ = brute_force_nearest(x.double().numpy(), 4)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for strategy in STRATEGIES:
            edge_index, _ = fair_knn_graph(x, 4, strategy=strategy)
            np.testing.assert_array_equal(edge_index, expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_scales_reach_where_weights_and_laplacians_need_them(generator):
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64)
    x[:8] = x[0]  # eight duplicates: their scale is zero
    graph = SimilarityGraph.nearest(x, 5)
    dist = torch.cdist(x, x)
    row, col = graph.edge_index
    scale = torch.maximum(graph.scale[row], graph.scale[col])
    share = dist[row, col] / scale
    share[scale == 0] = 0.0
    weight = graph.weights()
    torch.testing.assert_close(weight, (-weights.DECAY * share.square()).exp())
    assert graph.scale[:8].tolist() == [0.0] * 8
    assert bool((weight >= math.exp(-weights.DECAY) * (1 - 1e-9)).all())
    torch.testing.assert_close(graph.to_data().edge_weight, weight)
    degree = torch.zeros(60, dtype=torch.float64).index_add_(0, row, weight)
    torch.testing.assert_close(graph.laplacian().to_dense().diagonal(), degree)
    # A number is the usual kernel.
    usual = (-0.3 * dist[row, col].square()).exp()
    torch.testing.assert_close(graph.weights(0.3), usual)


def test_within_is_the_search_with_a_cap(generator):
    x = torch.randint(6, (150, 3), generator=generator).float() * 0.1
    graph = SimilarityGraph.nearest(x, 6)
    for tau in (0.0, 0.1, 0.25, 0.4):
        capped = SimilarityGraph.nearest(x, 6, tau=tau)
        smaller = graph.within(tau)
        assert torch.equal(smaller.edge_index, capped.edge_index)
        assert torch.equal(smaller.scale, capped.scale)
        assert torch.equal(smaller.weights(), capped.weights())
    assert str(graph).endswith("k=6)")
    assert str(capped).endswith("k=6, tau=0.4)")


def test_weights_of_fewer_than_k_samples_are_one():
    graph = SimilarityGraph.nearest(torch.tensor([[0.0], [5.0]]), 3)
    assert graph.scale.tolist() == [math.inf] * 2
    assert graph.weights().tolist() == [1.0, 1.0]


def test_memory_is_checked_before_the_search():
    x = torch.zeros(3000, 2)
    x[0] = 1.0
    with pytest.raises(MemoryBudgetError) as caught:
        fair_knn_graph(x, 5, memory_budget=2**28)
    assert str(caught.value).startswith("'k' = 5 gives up to 9e+06 edges")
    assert str(caught.value).endswith("Lower 'k', or join duplicates first")
    x = torch.arange(3000.0).view(-1, 1)
    assert fair_knn_graph(x, 5, memory_budget=2**28)[0].size(1) < 10 * 3000
    # Graphs of fewer than k others: no sample outside of them counts.
    batch = torch.arange(3000) // 4
    edge_index, _ = fair_knn_graph(x, 5, batch=batch, memory_budget=2**28)
    assert edge_index.size(1) == 3 * 3000


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"k": 0}, "'k' must be at least 1 (got 0)"),
        ({"k": 1.5}, "'k' must be a whole number (got 1.5)"),
        ({"k": 1, "tau": -1.0}, "'tau' must be non-negative (got -1.0)"),
        ({"k": 1, "strategy": "fast"}, "'strategy' must be one of 'auto', 'projected'"),
    ],
)
def test_fair_knn_graph_rejects(kwargs, message):
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        fair_knn_graph(torch.zeros(3, 1), **kwargs)
    assert str(caught.value).startswith(message)
