import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import KNNIndex, SimilarityGraph
from tests.oracles_knn import brute_force_reach


def _brute_force(z_new, z, k, mutual=False, tau=math.inf):
    """Pairs, their squared distances and scales, from the definition."""
    apart = np.stack([np.sqrt(((z - row) ** 2).sum(-1)) for row in z])
    np.fill_diagonal(apart, math.inf)
    squares = np.stack([((row - z) ** 2).sum(-1) for row in z_new])
    dist = np.sqrt(squares)
    known_reach = np.minimum(brute_force_reach(apart, k), tau)
    own_reach = np.minimum(brute_force_reach(dist, k), tau)
    same = 1.0 + 1e-13 * z.shape[1]
    near = dist <= own_reach[:, None] * same, dist <= known_reach * same
    inside = (near[0] & near[1] if mutual else near[0] | near[1]) & (dist <= tau)
    row, col = np.nonzero(inside)
    return (
        row,
        col,
        squares[row, col],
        np.maximum(own_reach[row], known_reach[col]),
        own_reach,
    )


def _assert_equal(found, expected, rtol):
    np.testing.assert_array_equal(found.row, expected[0])
    np.testing.assert_array_equal(found.col, expected[1])
    np.testing.assert_allclose(found.sq_dist.double(), expected[2], rtol=rtol)
    np.testing.assert_allclose(found.scale, expected[3], rtol=1e-12)


def test_knn_index():
    index = KNNIndex(torch.tensor([[0.0], [1.0], [3.0]]), 1)
    assert str(index) == "KNNIndex(num_nodes=3, k=1)"
    assert index.scale.tolist() == [1.0, 1.0, 2.0]
    found = index.query(torch.tensor([[1.5], [9.0]]))
    # The query at 1.5 is nearest to 1, and nearer to 3 than its nearest is.
    assert found.row.tolist() == [0, 0, 1]
    assert found.col.tolist() == [1, 2, 2]
    assert found.sq_dist.tolist() == [0.25, 2.25, 36.0]
    assert found.scale.tolist() == [1.0, 2.0, 6.0]
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
    expected = _brute_force(z_new, z, k, mutual, tau)
    if kind == "far queries" and dtype == torch.float64:
        # All known samples are equally far, up to rounding.
        np.testing.assert_allclose(index.reach(x_new), expected[4], rtol=1e-12)
        return
    _assert_equal(
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
    found = own.query(torch.randn(30, 3, generator=generator))
    assert torch.bincount(found.row).tolist() == [4] * 30


def test_knn_index_of_a_function(generator):
    x = torch.randint(5, (60, 3), generator=generator).float() * 0.1
    x_new = torch.randint(5, (20, 3), generator=generator).float() * 0.1
    manhattan = CallableDistance(lambda a, b: (a.unsqueeze(1) - b).abs().sum(-1))
    apart, dist = manhattan(x, x).fill_diagonal_(math.inf), manhattan(x_new, x)
    known_reach, own_reach = apart.kthvalue(3).values, dist.kthvalue(3).values
    for mutual in (False, True):
        near = dist <= own_reach.unsqueeze(1), dist <= known_reach
        expected = near[0] & near[1] if mutual else near[0] | near[1]
        index = KNNIndex(x, 3, distance=manhattan, mutual=mutual)
        found = index.query(x_new)
        assert torch.equal(torch.stack(found[:2]), expected.nonzero().T)
        assert torch.equal(found.sq_dist, dist[found.row, found.col].square())
        capped = KNNIndex(x, 3, distance=manhattan, mutual=mutual, tau=0.1)
        found = capped.query(x_new)
        wanted = (expected & (dist <= 0.1)).nonzero().T
        assert torch.equal(torch.stack(found[:2]), wanted)
    few = KNNIndex(x[:2], 3, distance=manhattan).query(x_new[:1])
    assert few.scale.tolist() == [math.inf] * 2


def test_knn_index_keeps_copies(generator):
    x = torch.randn(40, 3, generator=generator)
    distance = SensitiveSubspace(torch.eye(3)[:1])
    index = KNNIndex(x, 3, distance=distance)
    x_new = torch.randn(5, 3, generator=generator)
    before = index.query(x_new)
    x.zero_()
    for old, new in zip(before, index.query(x_new), strict=True):
        assert torch.equal(old, new)


def test_no_queries():
    found = KNNIndex(torch.zeros(3, 2), 1).query(torch.zeros(0, 2))
    assert [part.numel() for part in found] == [0, 0, 0, 0]
    assert (found.row.dtype, found.sq_dist.dtype) == (torch.int64, torch.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: KNNIndex(x[:0], 1), "'x' must have at least 1 rows (got 0)"),
        (lambda x: KNNIndex(x, 0), "'k' must be at least 1 (got 0)"),
        (
            lambda x: KNNIndex(x, 1, scale=torch.zeros(2)),
            "'scale' must have one entry per row of 'x' (got 2 for 3)",
        ),
        (
            lambda x: KNNIndex(x, 1).query(torch.zeros(1, 3)),
            "'x_new' must have 2 columns",
        ),
    ],
)
def test_knn_index_rejects(call, message):
    with pytest.raises(ValueError, match="must") as caught:
        call(torch.zeros(3, 2))
    assert message in str(caught.value)
