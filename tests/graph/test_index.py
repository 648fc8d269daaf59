import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import KNNIndex, RadiusIndex, SimilarityGraph, fair_radius_graph
from pyg_glif.graph._estimates import choose_basis
from tests.oracles_knn import brute_force_reach

L2 = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).norm(dim=2))


def _squares(z_new, z):
    return np.stack([((row - z) ** 2).sum(-1) for row in z_new])


def _radius_oracle(z_new, z, tau):
    squares = _squares(z_new, z)
    row, col = np.nonzero(np.sqrt(squares) <= tau)
    return row, col, squares[row, col]


def _assert_exact(index, x_new, z_new, z, tau):
    row, col, sq_dist = index.query(x_new)
    expected = _radius_oracle(z_new.double().numpy(), z.double().numpy(), tau)
    np.testing.assert_array_equal(row, expected[0])
    np.testing.assert_array_equal(col, expected[1])
    width = z.size(1)
    rtol = 1e-5 if width <= 64 else 2e-6 * (width + 16)
    rtol = rtol if z.dtype == torch.float32 else 1e-12
    squares = expected[2].copy()
    squares[squares > torch.finfo(z.dtype).max] = np.inf
    np.testing.assert_allclose(sq_dist.double(), squares, rtol=rtol, atol=1e-36)


def test_radius_index(generator):
    x = torch.randn(50, 3, generator=generator)
    index = RadiusIndex(x, 1.0)
    assert str(index) == "RadiusIndex(num_nodes=50, tau=1)"
    row, col, sq_dist = index.query(x)
    # Each sample is its own neighbor; the others are the edges of the graph.
    assert torch.equal(row[row == col], torch.arange(50))
    edge_index, _ = fair_radius_graph(x, 1.0)
    assert torch.equal(torch.stack([row, col])[:, row != col], edge_index)
    assert not bool(sq_dist[row == col].any())


@settings(deadline=None, max_examples=60)
@given(
    num_known=st.sampled_from([1, 2, 90, 1500]),
    num_new=st.sampled_from([1, 2, 70, 400]),
    num_features=st.sampled_from([1, 3, 40]),
    offset=st.sampled_from([0.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    radius=st.sampled_from(["zero", "infinite", "pair", "quantile"]),
    seed=st.integers(0, 10**6),
)
def test_radius_index_equals_brute_force(
    num_known, num_new, num_features, offset, dtype, radius, seed
):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(num_known, num_features, generator=generator, dtype=dtype) + offset
    z_new = torch.randn(num_new, num_features, generator=generator, dtype=dtype)
    z_new = 1.5 * z_new + offset
    z_new[0] = z[-1]
    dist = np.sqrt(_squares(z_new.double().numpy(), z.double().numpy()))
    tau = {
        "zero": 0.0,
        "infinite": math.inf,
        "pair": float(np.random.default_rng(seed).choice(dist.ravel())),
        "quantile": float(np.quantile(dist, 0.1)),
    }[radius]
    _assert_exact(RadiusIndex(z, tau), z_new, z_new, z, tau)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_known", [40, 1500])
@pytest.mark.parametrize("scale", [1e-30, 1e-19, 1e16, 1e19, 1e30])
def test_radius_index_across_scales(scale, num_known, dtype, generator):
    """Queries on another scale than the known samples, and a radius on each."""
    z = torch.randn(num_known, 3, generator=generator, dtype=dtype)
    new = torch.randn(20, 3, generator=generator, dtype=dtype)
    new[5:] *= scale
    new[-1] = z[3]
    dist = np.sqrt(_squares(new.double().numpy(), z.double().numpy()))
    for tau in (0.0, 0.5, float(np.median(dist[5:-1])), float(dist[7, 9]), scale, 1e40):
        _assert_exact(RadiusIndex(z, tau), new, new, z, tau)
        _assert_exact(RadiusIndex(new, tau), z[:50], z[:50], new, tau)


@pytest.mark.parametrize("tau", [1e155, 1.7e308])
def test_radius_index_takes_radii_whose_square_overflows(tau):
    z = torch.tensor([[0.0], [1e150]], dtype=torch.float64)
    row, col, _ = RadiusIndex(z, tau).query(z)
    assert row.tolist() == [0, 0, 1, 1]
    assert col.tolist() == [0, 1, 0, 1]


def test_radius_index_with_pruning(generator):
    scale = torch.arange(1, 301).float().pow(-0.75)
    z = torch.randn(3000, 300, generator=generator) * scale
    new = torch.randn(300, 300, generator=generator) * scale
    index = RadiusIndex(z, 0.8)
    assert choose_basis(index._points, 0.8) is not None  # or this tests nothing
    _assert_exact(index, new, new, z, 0.8)
    single = [index.query(row.unsqueeze(0)) for row in new[:20]]
    row, col, _ = index.query(new[:20])
    assert torch.equal(col, torch.cat([part[1] for part in single]))
    assert row.bincount(minlength=20).tolist() == [part[0].numel() for part in single]


@pytest.mark.parametrize("num_near", [0, 300])
def test_queries_far_from_all_samples(num_near, generator):
    # Whole tiles of them have no box of known samples in reach.
    known = torch.randn(3000, 64, generator=generator) * 2.0 ** -torch.arange(64.0)
    far = 50.0 * torch.eye(64)[:1] + torch.randn(600, 64, generator=generator)
    new = torch.cat([known[:num_near] + 0.01, far])
    index = RadiusIndex(known, 0.3)
    assert index._search.screen is not None
    _assert_exact(index, new, new, known, 0.3)


def test_radius_index_in_fair_space(generator):
    x = torch.randn(200, 8, generator=generator)
    new = torch.randn(30, 8, generator=generator)
    distance = SensitiveSubspace(torch.randn(2, 8, generator=generator))
    index = RadiusIndex(x, 2.0, distance=distance)
    _assert_exact(index, new, distance.embed(new), distance.embed(x), 2.0)


def test_radius_index_with_a_function(generator):
    x = torch.randn(700, 2, generator=generator)
    new = torch.randn(300, 2, generator=generator)
    distance = CallableDistance(lambda a, b: torch.cdist(a, b, p=1.0))
    row, col, sq_dist = RadiusIndex(x, 0.5, distance=distance).query(new)
    dist = (new.unsqueeze(1) - x).abs().sum(2)
    expected = (dist <= 0.5).nonzero(as_tuple=True)
    assert torch.equal(row, expected[0])
    assert torch.equal(col, expected[1])
    torch.testing.assert_close(sq_dist, dist[expected].square())


def test_within_is_the_query_of_a_smaller_index(generator):
    x = torch.randn(1500, 40, generator=generator)
    x_new = torch.randn(30, 40, generator=generator)
    wide = RadiusIndex(x, 9.0)
    dist = np.sqrt(_squares(x_new[:1].double().numpy(), x.double().numpy())[0])
    for tau in (7.5, float(np.sort(dist)[5]), 9.0):  # the second is that of a pair
        pairs = wide.within(x_new, wide.query(x_new), tau)
        row, col, _ = _radius_oracle(x_new.double().numpy(), x.double().numpy(), tau)
        np.testing.assert_array_equal(pairs[0], row)
        np.testing.assert_array_equal(pairs[1], col)
        expected = RadiusIndex(x, tau).query(x_new)[2]
        torch.testing.assert_close(pairs[2], expected)
    endless = RadiusIndex(x, math.inf)
    all_pairs = endless.query(x_new)
    assert endless.within(x_new, all_pairs, math.inf) is all_pairs


@pytest.mark.parametrize("num_new", [2, 7, 64, 256])
@pytest.mark.parametrize("entries", [1, 1 << 14, 1 << 22])
def test_a_few_queries_of_different_clusters(num_new, entries, monkeypatch):
    generator = torch.Generator().manual_seed(num_new)
    monkeypatch.setattr("pyg_glif.graph.index._BLOCK_ENTRIES", entries)
    monkeypatch.setattr("pyg_glif.graph.index._LEAVES", 4)
    centers = 4.0 * torch.randn(12, 80, generator=generator)
    spread = torch.arange(1, 81) ** -1.0
    label = torch.randint(12, (5000 + num_new,), generator=generator)
    noise = spread * torch.randn(len(label), 80, generator=generator)
    x = centers[label] + noise
    x, x_new = x[num_new:], x[:num_new]
    x_new[-1] = 100.0  # far from all samples
    index = RadiusIndex(x, 1.0)
    assert index._search.screen is not None
    _assert_exact(index, x_new, x_new, x, 1.0)


# --- Nearest neighbors -------------------------------------------------------


def _knn_oracle(z_new, z, k, mutual=False, tau=math.inf):
    """Pairs, their squared distances and scales, from the definition."""
    known_dist = np.stack([np.sqrt(((z - row) ** 2).sum(-1)) for row in z])
    np.fill_diagonal(known_dist, math.inf)
    squares = np.stack([((row - z) ** 2).sum(-1) for row in z_new])
    dist = np.sqrt(squares)
    known_reach = np.minimum(brute_force_reach(known_dist, k), tau)
    own_reach = np.minimum(brute_force_reach(dist, k), tau)
    same = 1.0 + 1e-13 * z.shape[1]
    is_near = dist <= own_reach[:, None] * same, dist <= known_reach * same
    inside = (is_near[0] & is_near[1] if mutual else is_near[0] | is_near[1]) & (
        dist <= tau
    )
    row, col = np.nonzero(inside)
    return (
        row,
        col,
        squares[row, col],
        np.maximum(own_reach[row], known_reach[col]),
        own_reach,
    )


def _assert_nearest(pairs, expected, rtol):
    np.testing.assert_array_equal(pairs.row, expected[0])
    np.testing.assert_array_equal(pairs.col, expected[1])
    np.testing.assert_allclose(pairs.sq_dist.double(), expected[2], rtol=rtol)
    np.testing.assert_allclose(pairs.scale, expected[3], rtol=1e-12)


def test_knn_index():
    index = KNNIndex(torch.tensor([[0.0], [1.0], [3.0]]), 1)
    assert str(index) == "KNNIndex(num_nodes=3, k=1)"
    assert index.scale.tolist() == [1.0, 1.0, 2.0]
    pairs = index.query(torch.tensor([[1.5], [9.0]]))
    # The query at 1.5 is nearest to 1, and nearer to 3 than its nearest is.
    assert pairs.row.tolist() == [0, 0, 1]
    assert pairs.col.tolist() == [1, 2, 2]
    assert pairs.sq_dist.tolist() == [0.25, 2.25, 36.0]
    assert pairs.scale.tolist() == [1.0, 2.0, 6.0]
    assert index.reach(torch.tensor([[1.5], [9.0]])).tolist() == [0.5, 6.0]


@settings(deadline=None, max_examples=60)
@given(
    num_known=st.sampled_from([1, 2, 90, 1500]),
    num_new=st.sampled_from([1, 2, 70]),
    num_features=st.sampled_from([1, 3, 40]),
    kind=st.sampled_from(["ordinary", "grid", "offset", "far queries"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    k=st.sampled_from([1, 4, 20]),
    mutual=st.booleans(),
    cap=st.sampled_from([None, 1.0, 3.0]),
    seed=st.integers(0, 10**6),
)
def test_knn_index_equals_brute_force(
    num_known, num_new, num_features, kind, dtype, k, mutual, cap, seed
):
    generator = torch.Generator().manual_seed(seed)
    size = (num_known + num_new, num_features)
    rows = torch.randn(size, generator=generator, dtype=dtype)
    if kind == "grid":
        rows = rows.round()
    if kind == "offset":
        rows = rows + 1e4
    x, x_new = rows[:num_known], rows[num_known:]
    if kind == "far queries":
        x_new = x_new * 2.0**70 if dtype == torch.float64 else x_new * 2.0**20
    index = KNNIndex(x, k, mutual=mutual, tau=cap)
    tau = math.inf if cap is None else cap
    z_new, z = x_new.double().numpy(), x.double().numpy()
    expected = _knn_oracle(z_new, z, k, mutual, tau)
    if kind == "far queries" and dtype == torch.float64:
        # All known samples are equally far, up to rounding.
        np.testing.assert_allclose(index.reach(x_new), expected[4], rtol=1e-12)
        return
    _assert_nearest(
        index.query(x_new), expected, 1e-5 if dtype == torch.float32 else 1e-9
    )
    np.testing.assert_allclose(index.reach(x_new), expected[4], rtol=1e-12)


def test_results_do_not_depend_on_other_queries(generator):
    x = torch.randn(1300, 20, generator=generator)
    x_new = torch.randn(9, 20, generator=generator)
    graph = SimilarityGraph.nearest(x, 5)
    index = KNNIndex(x, 5, scale=graph.scale)
    together = index.query(x_new)
    for row in range(9):
        single = index.query(x_new[row : row + 1])
        rows = together.row == row
        assert torch.equal(single.col, together.col[rows])
        assert torch.equal(single.scale, together.scale[rows])
        torch.testing.assert_close(single.sq_dist, together.sq_dist[rows])


def test_known_scales_are_those_of_the_graph(generator):
    x = torch.randn(200, 3, generator=generator)
    assert torch.equal(KNNIndex(x, 4).scale, SimilarityGraph.nearest(x, 4).scale)
    own = KNNIndex(x, 4, scale=torch.zeros(200))
    pairs = own.query(torch.randn(30, 3, generator=generator))
    assert torch.bincount(pairs.row).tolist() == [4] * 30


def test_knn_index_of_a_function(generator):
    x = torch.randint(5, (60, 3), generator=generator).float() * 0.1
    x_new = torch.randint(5, (20, 3), generator=generator).float() * 0.1
    manhattan = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).abs().sum(-1))
    known_dist, dist = manhattan(x, x).fill_diagonal_(math.inf), manhattan(x_new, x)
    known_reach, own_reach = known_dist.kthvalue(3).values, dist.kthvalue(3).values
    for mutual in (False, True):
        is_near = dist <= own_reach.unsqueeze(1), dist <= known_reach
        expected = is_near[0] & is_near[1] if mutual else is_near[0] | is_near[1]
        index = KNNIndex(x, 3, distance=manhattan, mutual=mutual)
        pairs = index.query(x_new)
        assert torch.equal(torch.stack(pairs[:2]), expected.nonzero().T)
        assert torch.equal(pairs.sq_dist, dist[pairs.row, pairs.col].square())
        capped = KNNIndex(x, 3, distance=manhattan, mutual=mutual, tau=0.1)
        pairs = capped.query(x_new)
        wanted = (expected & (dist <= 0.1)).nonzero().T
        assert torch.equal(torch.stack(pairs[:2]), wanted)
    few = KNNIndex(x[:2], 3, distance=manhattan).query(x_new[:1])
    assert few.scale.tolist() == [math.inf] * 2


# --- Both --------------------------------------------------------------------

INDICES = [(RadiusIndex, 1.0), (KNNIndex, 3)]


@pytest.mark.parametrize(("kind", "setting"), INDICES)
@pytest.mark.parametrize("distance", [None, SensitiveSubspace(torch.eye(3)[:1]), L2])
def test_an_index_keeps_copies(kind, setting, distance, generator):
    x = torch.randn(100, 3, generator=generator)
    known = x.clone()
    index = kind(known, setting, distance=distance)
    before = index.query(x)
    known.zero_()
    assert before[0].numel() > 0
    assert all(map(torch.equal, before, index.query(x)))


@pytest.mark.parametrize(("kind", "setting"), INDICES)
def test_no_queries_have_no_pairs(kind, setting):
    pairs = kind(torch.zeros(3, 2), setting).query(torch.zeros(0, 2))
    assert {part.numel() for part in pairs} == {0}
    dtypes = [part.dtype for part in pairs]
    assert dtypes[:3] == [torch.int64, torch.int64, torch.float32]


@pytest.mark.parametrize(("kind", "setting"), INDICES)
@pytest.mark.parametrize(
    ("query", "message"),
    [
        (torch.zeros(3, 5), "'x_new' must have 2 columns"),
        (torch.zeros(3, 2).double(), "'x_new' must"),
        (torch.full((1, 2), math.nan), "'x_new' must be finite"),
    ],
)
def test_queries_that_cannot_be_compared_are_refused(kind, setting, query, message):
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        kind(torch.zeros(3, 2), setting).query(query)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: RadiusIndex(x[:0], 1.0), "'x' must have at least 1 rows (got 0)"),
        (lambda x: RadiusIndex(x, -1.0), "'tau' must be non-negative (got -1.0)"),
        (
            lambda x: RadiusIndex(x, 1.0, distance=torch.cdist),
            "'distance' must be a FairDistance",
        ),
        (lambda x: KNNIndex(x[:0], 1), "'x' must have at least 1 rows (got 0)"),
        (lambda x: KNNIndex(x, 0), "'k' must be at least 1 (got 0)"),
        (
            lambda x: KNNIndex(x, 1, scale=torch.zeros(2)),
            "'scale' must have one entry per row of 'x' (got 2 for 3)",
        ),
    ],
)
def test_bad_settings_are_refused(build, message):
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        build(torch.zeros(3, 2))
    assert str(caught.value).startswith(message)
