"""Pairwise fair features against SciPy's eigenvectors."""

import numpy as np
import pytest
import scipy.linalg
import torch

from experiments.baselines import pairwise_fair_features
from pyg_glif.laplacian import LaplacianOperator


def _graph(rng, n):
    weight = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    weight += weight.T
    edges = np.stack(np.nonzero(weight))
    return weight, (torch.tensor(edges), torch.tensor(weight[tuple(edges)]))


@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_pairwise_fair_features_are_the_smallest_eigenvectors(gamma):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25, 6))
    (one, neighbors), (two, similarity) = _graph(rng, 25), _graph(rng, 25)
    inner = sum(
        share * x.T @ (np.diag(w.sum(1)) - w) @ x / w.sum()
        for share, w in ((1 - gamma, one), (gamma, two))
    )
    vectors = scipy.linalg.eigh(inner)[1][:, :3]
    vectors *= np.sign(vectors[np.abs(vectors).argmax(0), range(3)])
    found = pairwise_fair_features(
        torch.tensor(x), neighbors, similarity, num_components=3, gamma=gamma
    )
    np.testing.assert_allclose(found.numpy(), x @ vectors, atol=1e-10)
    again = pairwise_fair_features(
        torch.tensor(x),
        LaplacianOperator(*neighbors, 25),
        LaplacianOperator(*similarity, 25),
        num_components=3,
        gamma=gamma,
    )
    torch.testing.assert_close(again, found)


def test_pairwise_fair_features_refuse_bad_input():
    x, graph = torch.eye(3), (torch.tensor([[0, 1], [1, 0]]), None)
    with pytest.raises(ValueError, match="'num_components' must be"):
        pairwise_fair_features(x, graph, graph, num_components=4)
    with pytest.raises(ValueError, match="'gamma' must be"):
        pairwise_fair_features(x, graph, graph, num_components=1, gamma=2.0)
