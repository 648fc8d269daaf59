"""Shared neighbors against dense matrices and scikit-learn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import pairwise_distances

from pyg_glif.graph import structural_similarity


def _graph(seed, n, share=0.2):
    rng = np.random.default_rng(seed)
    dense = np.triu(rng.random((n, n)) < share, 1)
    return dense | dense.T


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    n=st.integers(2, 30),
    kind=st.sampled_from(["cosine", "jaccard"]),
    loops=st.booleans(),
)
def test_structural_similarity_matches_scikit_learn(seed, n, kind, loops):
    dense = _graph(seed, n)
    rows = dense | np.eye(n, dtype=bool) if loops else dense
    metric = {"cosine": "cosine", "jaccard": "jaccard"}[kind]
    data = rows if kind == "jaccard" else rows.astype(float)
    expected = 1.0 - pairwise_distances(data, metric=metric)
    expected[(rows.astype(int) @ rows.T) == 0] = 0.0  # two empty rows share nothing
    np.fill_diagonal(expected, 0.0)
    edge_index = torch.tensor(np.stack(np.nonzero(dense)))
    index, value = structural_similarity(edge_index, n, kind=kind, self_loops=loops)
    dense_result = np.zeros((n, n))
    dense_result[tuple(index.numpy())] = value.numpy()
    np.testing.assert_allclose(dense_result, expected, atol=1e-12)
    flat = index[0] * n + index[1]
    assert bool((flat.diff() > 0).all())
    assert bool((index[0] != index[1]).all())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**16), n=st.integers(2, 30), k=st.integers(1, 5))
def test_most_similar_keep_ties_and_either_side(seed, n, k):
    edge_index = torch.tensor(np.stack(np.nonzero(_graph(seed, n))))
    index, value = structural_similarity(edge_index, n)
    dense = np.zeros((n, n))
    dense[tuple(index.numpy())] = value.numpy()
    kth = np.sort(dense, axis=1)[:, ::-1][:, min(k, n - 1) - 1]
    keep = (dense > 0) & ((dense >= kth[:, None]) | (dense >= kth[None, :]))
    index, value = structural_similarity(edge_index, n, k=k)
    dense_result = np.zeros((n, n))
    dense_result[tuple(index.numpy())] = value.numpy()
    np.testing.assert_array_equal(dense_result, np.where(keep, dense, 0.0))


def test_blocks_of_rows_do_not_matter(monkeypatch):
    edge_index = torch.tensor(np.stack(np.nonzero(_graph(3, 40))))
    whole = structural_similarity(edge_index, 40, k=3)
    monkeypatch.setattr("pyg_glif.graph.structural._ROWS", 7)
    blocks = structural_similarity(edge_index, 40, k=3)
    assert all(map(torch.equal, blocks, whole))


def test_graph_without_edges_has_no_similar_nodes():
    empty = torch.empty(2, 0, dtype=torch.long)
    for nodes in (0, 3):
        index, value = structural_similarity(empty, nodes)
        assert index.shape == (2, 0)
        assert value.shape == (0,)


def test_structural_similarity_refuses_bad_input():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="'kind' must be"):
        structural_similarity(edge_index, kind="dice")
    with pytest.raises(ValueError, match="'k' must be"):
        structural_similarity(edge_index, k=0)
    with pytest.raises(ValueError, match="both directions"):
        structural_similarity(torch.tensor([[0], [1]]))
