import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import RadiusIndex, fair_radius_graph
from pyg_glif.graph._estimates import choose_basis


def _squares(z_new, z):
    return np.stack([((row - z) ** 2).sum(-1) for row in z_new])


def _brute_force(z_new, z, tau):
    squares = _squares(z_new, z)
    row, col = np.nonzero(np.sqrt(squares) <= tau)
    return row, col, squares[row, col]


def _assert_exact(index, x_new, z_new, z, tau):
    row, col, sq_dist = index.query(x_new)
    expected = _brute_force(z_new.double().numpy(), z.double().numpy(), tau)
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


def test_radius_index_keeps_copies(generator):
    x = torch.randn(100, 3, generator=generator)
    function = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).norm(dim=2))
    for distance in (None, function):
        known = x.clone()
        index = RadiusIndex(known, 1.0, distance=distance)
        before = index.query(x)
        known.zero_()
        for one, other in zip(before, index.query(x), strict=True):
            assert torch.equal(one, other)


def test_radius_index_with_pruning(generator):
    scale = torch.arange(1, 301).float().pow(-0.75)
    z = torch.randn(3000, 300, generator=generator) * scale
    new = torch.randn(300, 300, generator=generator) * scale
    index = RadiusIndex(z, 0.8)
    assert choose_basis(index._points, 0.8) is not None  # or this tests nothing
    _assert_exact(index, new, new, z, 0.8)
    one = [index.query(row.unsqueeze(0)) for row in new[:20]]
    row, col, _ = index.query(new[:20])
    assert torch.equal(col, torch.cat([part[1] for part in one]))
    assert row.bincount(minlength=20).tolist() == [part[0].numel() for part in one]


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


def test_radius_index_of_no_queries():
    row, col, sq_dist = RadiusIndex(torch.zeros(3, 2), 1.0).query(torch.zeros(0, 2))
    assert row.shape == col.shape == sq_dist.shape == (0,)
    assert row.dtype == col.dtype == torch.int64


def test_radius_index_rejects():
    index = RadiusIndex(torch.zeros(3, 2), 1.0)
    with pytest.raises(ValueError, match="'x_new' must"):
        index.query(torch.zeros(3, 5))
    with pytest.raises(TypeError, match="'x_new' must"):
        index.query(torch.zeros(3, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match="'x_new' must be finite"):
        index.query(torch.full((1, 2), math.nan))
    with pytest.raises(ValueError, match=r"'x' must have at least 1 rows \(got 0\)"):
        RadiusIndex(torch.zeros(0, 2), 1.0)
    with pytest.raises(ValueError, match=r"'tau' must be non-negative \(got -1.0\)"):
        RadiusIndex(torch.zeros(3, 2), -1.0)
    with pytest.raises(TypeError, match="Wrap a function in 'CallableDistance'"):
        RadiusIndex(torch.zeros(3, 2), 1.0, distance=torch.cdist)


def test_within_is_the_query_of_a_smaller_index(generator):
    x = torch.randn(1500, 40, generator=generator)
    x_new = torch.randn(30, 40, generator=generator)
    wide = RadiusIndex(x, 9.0)
    dist = np.sqrt(_squares(x_new[:1].double().numpy(), x.double().numpy())[0])
    for tau in (7.5, float(np.sort(dist)[5]), 9.0):  # the second is that of a pair
        found = wide.within(x_new, wide.query(x_new), tau)
        row, col, _ = _brute_force(x_new.double().numpy(), x.double().numpy(), tau)
        np.testing.assert_array_equal(found[0], row)
        np.testing.assert_array_equal(found[1], col)
        expected = RadiusIndex(x, tau).query(x_new)[2]
        torch.testing.assert_close(found[2], expected)
    endless = RadiusIndex(x, math.inf)
    all_pairs = endless.query(x_new)
    assert endless.within(x_new, all_pairs, math.inf) is all_pairs


@pytest.mark.parametrize("num_new", [2, 7, 64, 256])
@pytest.mark.parametrize("entries", [1, 1 << 14, 1 << 22])
def test_a_few_queries_of_different_clusters(num_new, entries, monkeypatch):
    generator = torch.Generator().manual_seed(num_new)
    monkeypatch.setattr("pyg_glif.graph.index._BLOCK_ENTRIES", entries)
    monkeypatch.setattr("pyg_glif.graph.index._LEAVES", 4)
    centres = 4.0 * torch.randn(12, 80, generator=generator)
    spread = torch.arange(1, 81) ** -1.0
    label = torch.randint(12, (5000 + num_new,), generator=generator)
    noise = spread * torch.randn(len(label), 80, generator=generator)
    x = centres[label] + noise
    x, x_new = x[num_new:], x[:num_new]
    x_new[-1] = 100.0  # far from all samples
    index = RadiusIndex(x, 1.0)
    assert index._search.screen is not None
    _assert_exact(index, x_new, x_new, x, 1.0)
