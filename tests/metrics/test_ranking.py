"""Rankings by output against plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metrics import ranking_err, ranking_ndcg


def _cosines(x):
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.maximum(unit @ unit.T, 0.0)


def _rankings(similar, y, k):
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        far = {j: np.linalg.norm(y[i] - y[j]) for j in others}
        ranked = sorted(others, key=lambda j: (far[j], j))[:k]
        best = sorted((similar[i, j] for j in others), reverse=True)[:k]
        if best[0] > 0:
            yield [similar[i, j] for j in ranked], best


def _ndcg(similar, y, k):
    out = []
    for gains, best in _rankings(similar, y, k):
        both = [
            sum((2**s - 1) / math.log2(r + 2) for r, s in enumerate(values))
            for values in (gains, best)
        ]
        out.append(both[0] / both[1])
    return np.mean(out) if out else np.nan


def _err(similar, y, k):
    out = []
    for gains, best in _rankings(similar, y, k):
        reached, total = 1.0, 0.0
        for r, s in enumerate(gains):
            stop = (2**s - 1) / 2 ** best[0]
            total += reached * stop / (r + 1)
            reached *= 1 - stop
        out.append(total)
    return np.mean(out) if out else np.nan


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**16), n=st.integers(3, 25), k=st.integers(1, 8))
def test_rankings_match_loops(seed, n, k):
    rng, k = np.random.default_rng(seed), min(k, n - 1)
    x, y = rng.normal(size=(n, 3)), rng.integers(-9, 9, (n, 2)) / 8
    similar = _cosines(x)
    tensors = torch.tensor(y), torch.tensor(x)
    assert float(ranking_ndcg(*tensors, k=k)) == pytest.approx(
        _ndcg(similar, y, k), nan_ok=True
    )
    assert float(ranking_err(*tensors, k=k)) == pytest.approx(
        _err(similar, y, k), nan_ok=True
    )


def test_rankings_by_graph_and_by_hand():
    # Nodes 0 and 1 are similar, and 2 and 3 half as much; outputs rank 1 for 0 only.
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    weight = torch.tensor([1.0, 1.0, 0.5, 0.5], dtype=torch.float64)
    y = torch.tensor([0.0, 1.0, 1.5, 9.0], dtype=torch.float64)
    # Nearest by output: 0 -> 1, 1 -> 2, 2 -> 1, 3 -> 2.
    value = ranking_ndcg(y, graph=(edges, weight), k=1)
    assert float(value) == pytest.approx(2 / 4)
    similar = np.zeros((4, 4))
    similar[tuple(edges.numpy())] = weight.numpy()
    dense = _err(similar, y.numpy()[:, None], 2)
    assert float(ranking_err(y, graph=(edges, weight), k=2)) == pytest.approx(dense)


def test_rankings_ignore_scale_and_skip_samples_without_a_similar_one():
    x, y = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 2]], torch.arange(4.0)
    assert ranking_ndcg(y, x, k=2) == ranking_ndcg(0.125 * y - 4, 8 * x, k=2)
    assert ranking_ndcg(y, x, k=1) == 1.0  # samples 2 and 3 have no similar one
    assert ranking_ndcg(y, torch.eye(4), k=1).isnan()


def test_cosine_of_outputs_is_that_of_redress():
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(20, 4)), rng.dirichlet([1, 1, 1], 20)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    value = ranking_ndcg(torch.tensor(y), torch.tensor(x), k=5, outputs="cosine")
    assert float(value) == pytest.approx(_ndcg(_cosines(x), unit, 5))


def test_blocks_of_rows_do_not_matter(monkeypatch):
    rng = np.random.default_rng(6)
    y, x = torch.tensor(rng.normal(size=50)), torch.tensor(rng.normal(size=(50, 3)))
    whole = ranking_ndcg(y, x)
    monkeypatch.setattr("pyg_glif.metrics.ranking._BLOCK_ENTRIES", 120)
    torch.testing.assert_close(ranking_ndcg(y, x), whole)
