from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.metrics import knn_consistency, knn_deviation
from tests import oracles_metrics as oracle


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    return (x1.unsqueeze(1) - x2).abs().sum(-1)


def test_knn_consistency() -> None:
    x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    y = torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert knn_deviation(x, y, 2).tolist() == [0.5, 1.0, 0.5, 0.5]
    assert float(knn_consistency(x, y, 2)) == 1.0 - 2.5 / 4.0


def test_ties_share_the_places_left() -> None:
    x = torch.tensor([[0.0], [1.0], [-1.0], [5.0]])
    y = torch.tensor([0.0, 1.0, 0.5, 0.0])
    assert float(knn_deviation(x, y, 1)[0]) == 0.75
    # Five duplicates: each has four equally near others for two places.
    y = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0])
    assert knn_deviation(torch.ones(5, 3), y, 2).tolist() == [0.25] * 4 + [1.0]


@settings(deadline=None, max_examples=40)
@given(
    x=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=4, max_size=9),
    k=st.integers(1, 3),
    seed=st.integers(0, 99),
    offset=st.sampled_from([0.0, 3000.0]),
)
def test_knn_deviation_matches_oracle(
    x: list[tuple[int, int]], k: int, seed: int, offset: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = torch.tensor(x, dtype=torch.float32) + offset
    y = torch.randn(len(x), 2, dtype=torch.float64, generator=generator)
    value = knn_deviation(points, y, k)
    dist = oracle.distances(points.double().numpy())
    np.testing.assert_allclose(value, oracle.knn_deviation(dist, y.numpy(), k))
    order = torch.randperm(len(x), generator=generator)
    torch.testing.assert_close(knn_deviation(points[order], y[order], k), value[order])


def test_tiles_do_not_matter(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(150, 5, generator=generator)
    x[100:] = x[:50]
    y = torch.rand(150, 3, generator=generator)
    whole = knn_deviation(x, y)
    module = import_module("pyg_glif.graph._search")
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 1000)
    torch.testing.assert_close(knn_deviation(x, y), whole)


def test_aif360_counts_the_sample_itself(generator: torch.Generator) -> None:
    x = torch.randn(80, 3, generator=generator)
    y = (torch.rand(80, generator=generator) < 0.5).float()
    k = 5
    search = NearestNeighbors(n_neighbors=k).fit(x.numpy())
    near = search.kneighbors(x.numpy(), return_distance=False)
    aif360 = 1.0 - np.abs(y.numpy() - y.numpy()[near].mean(axis=1)).mean()
    ours = float(knn_consistency(x, y, k - 1))
    assert aif360 == pytest.approx(1.0 - (k - 1) / k * (1.0 - ours), abs=1e-6)


def test_knn_consistency_laws(generator: torch.Generator) -> None:
    x = torch.randn(40, 3, generator=generator)
    assert float(knn_consistency(x, torch.full((40, 2), 7.0))) == 1.0
    y = torch.rand(40, 2, generator=generator)
    value = knn_consistency(x, y)
    assert 0.0 <= float(value) <= 1.0
    torch.testing.assert_close(knn_consistency(x, 1.0 - y), value)
    torch.testing.assert_close(knn_consistency(9.0 * x + 1.0, y), value)
    # All others: the deviation from the mean of the rest.
    rest = (y.sum(0) - y) / 39
    torch.testing.assert_close(knn_deviation(x, y, 39), (y - rest).abs())


def test_every_kind_of_distance(generator: torch.Generator) -> None:
    x = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    y = torch.rand(12, dtype=torch.float64, generator=generator)
    for distance in (
        CallableDistance(manhattan),
        SensitiveSubspace(torch.tensor([[1.0, 0.0, 0.0]])),
    ):
        expected = oracle.knn_deviation(distance(x, x).numpy(), y.numpy(), 3)
        value = knn_consistency(x, y, 3, distance=distance)
        assert float(value) == pytest.approx(1.0 - expected.mean())


def test_extreme_units_do_not_overflow(generator: torch.Generator) -> None:
    x = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    y = torch.rand(20, generator=generator)
    for unit in (2.0**-600, 2.0**600):
        torch.testing.assert_close(knn_deviation(x * unit, y), knn_deviation(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_knn_consistency_without_features(dtype):
    """All samples are equally near to each other."""
    y = torch.tensor([0.0, 1.0, 0.5], dtype=dtype)
    expected = 1.0 - (abs(0.0 - 0.75) + abs(1.0 - 0.25) + abs(0.5 - 0.5)) / 3.0
    for k in (1, 2):
        found = knn_consistency(torch.zeros(3, 0, dtype=dtype), y, k=k)
        assert float(found) == pytest.approx(expected)
