import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from scipy.spatial import cKDTree

from pyg_glif.distances import CallableDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.graph import fair_radius_graph
from pyg_glif.graph._estimates import choose_basis
from pyg_glif.graph._points import Points
from tests.graph.clouds import KINDS, cloud
from tests.oracles_radius import brute_force_distances, brute_force_edges

STRATEGIES = ("auto", "projected", "plain")


def _stated_rtol(num_features):
    """Relative error that the docstring states for float32."""
    return 1e-5 if num_features <= 64 else 2e-6 * (num_features + 16)


def _assert_exact(z, tau, batch=None, **kwargs):
    """Edges equal to float64 brute force, distances to their stated accuracy."""
    expected, sq_expected = brute_force_edges(
        z.double().numpy(), tau, None if batch is None else batch.numpy()
    )
    edge_index, sq_dist = fair_radius_graph(z, tau, batch=batch, **kwargs)
    assert edge_index.dtype == torch.int64
    assert sq_dist.dtype == z.dtype
    assert edge_index.shape == expected.shape
    np.testing.assert_array_equal(edge_index.numpy(), expected)
    rtol = _stated_rtol(z.size(1)) if z.dtype == torch.float32 else 1e-12
    tiny = 1e-36 if z.dtype == torch.float32 else 1e-300
    # Squares that the dtype cannot hold come back as infinite.
    sq_expected[sq_expected > torch.finfo(z.dtype).max] = np.inf
    np.testing.assert_allclose(sq_dist.double(), sq_expected, rtol=rtol, atol=tiny)


def test_fair_radius_graph():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0], [50.0, 0.0]])
    edge_index, sq_dist = fair_radius_graph(x, tau=4.0)
    assert edge_index.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]
    assert sq_dist.tolist() == [9.0, 16.0, 9.0, 16.0]
    edge_index, sq_dist = fair_radius_graph(x, tau=5.0)
    assert edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert sq_dist.tolist() == [25.0, 9.0, 25.0, 16.0, 9.0, 16.0]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_nodes", [0, 1, 2])
def test_fair_radius_graph_of_few_nodes(num_nodes, strategy):
    x = torch.arange(num_nodes).float().view(-1, 1)
    edge_index, sq_dist = fair_radius_graph(x, tau=1.0, strategy=strategy)
    assert edge_index.shape == (2, 2 if num_nodes == 2 else 0)
    assert sq_dist.shape == (2 if num_nodes == 2 else 0,)
    assert edge_index.dtype == torch.int64


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fair_radius_graph_without_columns_joins_all(strategy):
    edge_index, sq_dist = fair_radius_graph(torch.zeros(3, 0), 0.0, strategy=strategy)
    assert edge_index.tolist() == [[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]]
    assert sq_dist.tolist() == [0.0] * 6


@settings(deadline=None, max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    num_nodes=st.sampled_from([2, 3, 40, 130, 300]),
    num_features=st.sampled_from([1, 2, 3, 17, 150]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    radius=st.sampled_from(["zero", "infinite", "pair", "quantile"]),
    num_graphs=st.sampled_from([None, 1, 4]),
    strategy=st.sampled_from(STRATEGIES),
    tile_size=st.sampled_from([1, 7, 64, 256]),
    seed=st.integers(0, 10**6),
)
def test_fair_radius_graph_equals_brute_force(
    kind, num_nodes, num_features, dtype, radius, num_graphs, strategy, tile_size, seed
):
    z = cloud(kind, num_nodes, num_features, dtype, seed)
    generator = np.random.default_rng(seed)
    dist = brute_force_distances(z.double().numpy())
    tau = {
        "zero": 0.0,
        "infinite": math.inf,
        "pair": float(generator.choice(dist.ravel())),
        "quantile": float(np.quantile(dist, generator.random())),
    }[radius]
    batch = None
    if num_graphs is not None:
        batch = torch.from_numpy(generator.integers(num_graphs, size=num_nodes))
    _assert_exact(z, tau, batch, strategy=strategy, tile_size=tile_size)


@settings(deadline=None, max_examples=60)
@given(
    ids=st.lists(
        st.one_of(st.integers(0, 2**63 - 1), st.integers(0, 9)),
        min_size=1,
        max_size=6,
        unique=True,
    ),
    num_nodes=st.sampled_from([2, 50, 300]),
    num_features=st.sampled_from([1, 3, 20]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    strategy=st.sampled_from(STRATEGIES),
    seed=st.integers(0, 10**6),
)
@example(
    ids=[5, 2**60, 2**61, 2**62, 2**63 - 1],
    num_nodes=1200,
    num_features=20,
    dtype=torch.float32,
    strategy="projected",
    seed=0,
)
def test_fair_radius_graph_takes_any_batch_ids(
    ids, num_nodes, num_features, dtype, strategy, seed
):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(num_nodes, num_features))
    z = torch.tensor(z, dtype=dtype)
    batch = torch.from_numpy(generator.choice(np.array(ids, np.int64), num_nodes))
    tau = 0.8 * math.sqrt(num_features)
    edge_index, _ = fair_radius_graph(z, tau, batch=batch, strategy=strategy)
    rows = []
    for graph in ids:  # SciPy's tree, one graph at a time
        member = (batch == graph).nonzero().view(-1).numpy()
        if len(member):
            tree = cKDTree(z[member].double().numpy())
            pairs = tree.query_pairs(tau, output_type="ndarray")
            rows += [member[pairs], member[pairs[:, ::-1]]]
    expected = np.concatenate(rows)
    expected = expected[np.lexsort((expected[:, 1], expected[:, 0]))]
    np.testing.assert_array_equal(edge_index.T.numpy(), expected)
    if num_nodes < 100:
        called = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).norm(dim=2))
        edges, _ = fair_radius_graph(z.double(), tau, batch=batch, distance=called)
        np.testing.assert_array_equal(edges.T.numpy(), expected)


def _nearly_constant(num_changed, seed):
    """Rows that differ in few places, by columns of all scales."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(0, -20, 130, dtype=torch.float64)
    x = torch.zeros(1100, 130, dtype=torch.float64)
    noise = torch.randn(num_changed, 130, generator=generator, dtype=torch.float64)
    x[:num_changed] = 10.0 ** -(seed % 45) * noise * scale
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_changed", [0, 1, 3, 40])
def test_fair_radius_graph_of_nearly_constant_features(num_changed, dtype):
    """Products of tiny numbers vanish in float32, and factorisations with them."""
    for seed in (5, 11, 17, 23, 35, 41, 59, 65, 77):
        z = _nearly_constant(num_changed, seed).to(dtype)
        basis = choose_basis(Points.from_embedding(z, None), 1e-9, "projected")
        gram = basis.double().T @ basis.double()
        eye = torch.eye(basis.size(1), dtype=torch.float64)
        torch.testing.assert_close(gram, eye, atol=1e-5, rtol=0)
    some = z[:100]
    for tau in (0.0, float((some[0] - some[-1]).double().norm())):
        for strategy in STRATEGIES:
            _assert_exact(some, tau, strategy=strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [1e154, 1e155, 1e200, 1.7e308])
def test_fair_radius_graph_takes_radii_whose_square_overflows(tau, dtype, strategy):
    scales = [0.0, 1.0, 1e30] if dtype == torch.float32 else [0.0, 1.0, 1e100, 1e153]
    z = torch.tensor(scales, dtype=dtype).view(-1, 1)
    _assert_exact(z, tau, strategy=strategy)
    if dtype == torch.float64:
        # By the definition a square that float64 cannot hold is beyond every radius.
        far = torch.tensor([[0.0], [1e200]], dtype=dtype)
        assert fair_radius_graph(far, tau, strategy=strategy)[0].numel() == 0
        assert fair_radius_graph(far, math.inf, strategy=strategy)[0].numel() == 4


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("num_features", [2, 30, 64, 65, 200])
def test_sq_dist_is_as_accurate_as_stated(num_features, strategy, generator):
    """Two groups about the origin, in each of which float32 products cancel."""
    side = torch.ones(300, 1)
    side[::2] = -1.0
    worst = 0.0
    for share in (0.13, 0.16, 0.18, 0.2, 0.25, 1e-18):
        z = side + share * torch.randn(300, num_features, generator=generator)
        z = (z - side) if share == 1e-18 else z
        z[-1] = 1.0
        edge_index, sq_dist = fair_radius_graph(z, math.inf, strategy=strategy)
        exact = z.double()[edge_index[0]] - z.double()[edge_index[1]]
        exact = exact.square().sum(1)
        fine = exact > 1e-36  # float32 keeps all its digits
        error = (sq_dist.double() - exact).abs()[fine] / exact[fine]
        worst = max(worst, float(error.max()))
    assert worst <= _stated_rtol(num_features)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_features", [3, 90, 768])
def test_fair_radius_graph_keeps_pair_at_exactly_tau(
    num_features, dtype, strategy, generator
):
    z = torch.randn(60, num_features, generator=generator, dtype=dtype)
    dist = brute_force_distances(z.double().numpy())
    for i, j in [(0, 1), (5, 40), (58, 59)]:
        tau = float(dist[i, j])
        pairs = fair_radius_graph(z, tau, strategy=strategy)[0].T.tolist()
        assert [i, j] in pairs
        assert [j, i] in pairs
        below = float(np.nextafter(tau, 0.0)) * (1.0 - 1e-13)
        assert [i, j] not in fair_radius_graph(z, below, strategy=strategy)[
            0
        ].T.tolist()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-18, 1e-20, 1e-22])
def test_fair_radius_graph_tells_tiny_distances_apart(size, dtype, strategy, generator):
    """Squares that float32 loses, beside coordinates that need no scaling."""
    z = torch.randn(80, 3, generator=generator, dtype=torch.float64) * size
    z = torch.cat([z, torch.randn(40, 3, generator=generator).double()]).to(dtype)
    dist = brute_force_distances(z.double().numpy())[:80, :80]
    for share in (0.1, 0.5, 0.9):
        tau = float(np.quantile(dist, share))
        expected, _ = brute_force_edges(z.double().numpy(), tau)
        edge_index, _ = fair_radius_graph(z, tau, strategy=strategy)
        assert np.array_equal(edge_index.numpy(), expected)


def test_fair_radius_graph_accepts_radii_from_any_order_of_summation(generator):
    z = torch.randn(40, 500, generator=generator, dtype=torch.float64)
    for j in range(1, 40):
        squares = (z[0] - z[j]).square()
        orders = [squares.sum(), torch.tensor(np.sum(squares.numpy()))]
        orders.append(squares.cumsum(0)[-1])
        for total in orders:
            edge_index, _ = fair_radius_graph(z, float(total.sqrt()))
            assert [0, j] in edge_index.T.tolist()


def test_fair_radius_graph_is_sorted_and_symmetric(generator):
    z = torch.randn(500, 5, generator=generator)
    edge_index, sq_dist = fair_radius_graph(z, tau=1.0)
    key = edge_index[0] * 500 + edge_index[1]
    assert bool((key[1:] > key[:-1]).all())
    back = (edge_index[1] * 500 + edge_index[0]).argsort()
    assert torch.equal(edge_index.flip(0)[:, back], edge_index)
    assert torch.equal(sq_dist[back], sq_dist)
    assert not bool((edge_index[0] == edge_index[1]).any())


@pytest.mark.parametrize("num_threads", [1, 2])
def test_fair_radius_graph_does_not_depend_on_tiles_or_threads(num_threads, generator):
    z = torch.randn(1500, 40, generator=generator) * torch.linspace(2.0, 0.1, 40)
    tau = 2.0
    expected, _ = brute_force_edges(z.double().numpy(), tau)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_threads)
        for strategy in STRATEGIES:
            for tile_size in (33, 256, 5000):
                edge_index, _ = fair_radius_graph(
                    z, tau, strategy=strategy, tile_size=tile_size
                )
                assert np.array_equal(edge_index.numpy(), expected)
    finally:
        torch.set_num_threads(before)


def test_fair_radius_graph_has_no_cap():
    z = torch.zeros(200, 3)
    edge_index, sq_dist = fair_radius_graph(z, tau=0.0)
    assert edge_index.size(1) == 200 * 199
    assert not bool(sq_dist.any())


def test_fair_radius_graph_never_joins_two_graphs(generator):
    z = torch.randn(1, 8, generator=generator).expand(2500, 8).contiguous()
    batch = torch.randint(700, (2500,), generator=generator)
    for strategy in STRATEGIES:
        edge_index, _ = fair_radius_graph(z, 1.0, batch=batch, strategy=strategy)
        assert bool((batch[edge_index[0]] == batch[edge_index[1]]).all())
        count = torch.bincount(batch)
        assert edge_index.size(1) == int((count * (count - 1)).sum())


def test_fair_radius_graph_in_fair_space(generator):
    x = torch.randn(300, 12, generator=generator)
    basis = torch.randn(3, 12, generator=generator)
    distance = SensitiveSubspace(basis)
    _assert_exact(distance.embed(x), 3.0)
    fair, _ = fair_radius_graph(x, 3.0, distance=distance)
    expected, _ = brute_force_edges(distance.embed(x).double().numpy(), 3.0)
    assert np.array_equal(fair.numpy(), expected)
    # Moves along the sensitive directions change no neighbors.
    moved = x + torch.randn(300, 3, generator=generator) @ basis
    again, _ = fair_radius_graph(moved, 3.0, distance=distance)
    assert torch.equal(fair, again)


def test_fair_radius_graph_with_rank_deficient_metric(generator):
    x = torch.randn(200, 6, generator=generator, dtype=torch.float64)
    factor = torch.randn(6, 2, generator=generator, dtype=torch.float64)
    sigma = factor @ factor.T
    edge_index, sq_dist = fair_radius_graph(x, 1.5, distance=Mahalanobis(sigma))
    diff = (x.unsqueeze(1) - x).numpy()
    expected = np.einsum("ijk,kl,ijl->ij", diff, sigma.numpy(), diff)
    inside = np.sqrt(expected.clip(0)) <= 1.5
    np.fill_diagonal(inside, False)
    np.testing.assert_array_equal(edge_index.numpy(), np.stack(np.nonzero(inside)))
    np.testing.assert_allclose(sq_dist, expected[inside], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_graphs", [None, 3])
def test_fair_radius_graph_with_a_function(num_graphs, generator):
    x = torch.randn(1300, 3, generator=generator)
    batch = None
    if num_graphs is not None:
        batch = torch.randint(num_graphs, (1300,), generator=generator)
    manhattan = CallableDistance(lambda a, b: torch.cdist(a, b, p=1.0))
    edge_index, sq_dist = fair_radius_graph(x, 0.7, distance=manhattan, batch=batch)
    dist = (x.unsqueeze(1) - x).abs().sum(2)
    inside = (dist <= 0.7).fill_diagonal_(False)
    if batch is not None:
        inside &= batch.unsqueeze(1) == batch
    assert torch.equal(edge_index, inside.nonzero().T)
    torch.testing.assert_close(sq_dist, dist[inside].square())


def test_fair_radius_graph_ignores_gradients(generator):
    x = torch.randn(20, 3, generator=generator, requires_grad=True)
    edge_index, sq_dist = fair_radius_graph(x, 1.0)
    assert not edge_index.requires_grad
    assert not sq_dist.requires_grad


def test_fair_radius_graph_refuses_what_would_not_fit(generator):
    x = torch.randn(3000, 4, generator=generator)
    with pytest.raises(
        MemoryBudgetError, match=r"'tau' = 100 gives up to 9e\+06 edges"
    ):
        fair_radius_graph(x, 100.0, memory_budget=80 * 2**20)
    message = r"\('memory_budget' is 0\.0781 GiB\)\. About tau=([0-9.]+) would fit"
    with pytest.raises(MemoryBudgetError, match=message) as caught:
        fair_radius_graph(x, 100.0, memory_budget=80 * 2**20)
    tau = float(str(caught.value).split("tau=")[1].split()[0])
    edge_index, _ = fair_radius_graph(x, tau, memory_budget=80 * 2**20)
    assert edge_index.size(1) > 0
    with pytest.raises(MemoryBudgetError, match="No radius would fit"):
        fair_radius_graph(x, 1.0, memory_budget=1000)


BAD = [
    ({"tau": -1.0}, "'tau' must be non-negative (got -1.0)"),
    ({"tau": math.nan}, "'tau' must be finite (got nan)"),
    ({"tau": "1"}, "'tau' must be a number (got '1')"),
    ({"x": torch.zeros(3)}, "'x' must be 2-dimensional (got shape (3,))"),
    ({"x": torch.zeros(3, 2) * 1j}, "'x' must hold real numbers (got torch.complex64)"),
    ({"x": np.array([["a"], ["b"], ["c"]])}, "'x' must hold numbers (got <U1). Encode"),
    (
        {"x": torch.tensor([[0.0], [math.nan], [0.0]])},
        "'x' must be finite (got nan at index (1, 0), 1 such values)",
    ),
    ({"batch": torch.tensor([0, 0])}, "'batch' must have one entry per node (got"),
    ({"batch": torch.zeros(3)}, "'batch' must hold whole numbers (got torch.float32)"),
    ({"batch": torch.tensor([0, -1, 0])}, "'batch' must be non-negative (got -1)"),
    ({"tile_size": 0}, "'tile_size' must be at least 1 (got 0)"),
    ({"strategy": "fast"}, "'strategy' must be one of 'auto', 'projected', 'plain' ("),
    (
        {"distance": torch.cdist},
        "'distance' must be a FairDistance (got function). "
        "Wrap a function in 'CallableDistance'",
    ),
]


@pytest.mark.parametrize(("kwargs", "message"), BAD)
def test_fair_radius_graph_rejects(kwargs, message):
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        fair_radius_graph(**{"x": torch.zeros(3, 2), "tau": 1.0, **kwargs})
    assert str(caught.value).startswith(message)
