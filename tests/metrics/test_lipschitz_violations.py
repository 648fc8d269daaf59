import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif.distances import CallableDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.graph import fair_radius_graph
from pyg_glif.metrics import (
    Violations,
    group_std,
    knn_deviation,
    laplacian_energy,
    lipschitz_violations,
    local_lipschitz,
)
from tests import oracles_metrics as oracle

EDGES = [0.0, 0.5, 1.0, 2.0, 3.0]


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    return (x1.unsqueeze(1) - x2).abs().sum(-1)


def check(found: Violations, dist: np.ndarray, y: np.ndarray, lipschitz: float) -> None:
    """Every count equals the one made pair by pair."""
    pairs = oracle.violations(dist, y.reshape(len(y), -1), lipschitz)
    assert found.num_violations == len(pairs)
    assert found.num_pairs == len(y) * (len(y) - 1) // 2
    assert found.share == len(pairs) / found.num_pairs
    flat = list(itertools.chain.from_iterable(pairs))
    assert found.by_sample.tolist() == np.bincount(flat, minlength=len(y)).tolist()
    if found.bin_edges.numel():
        edges = found.bin_edges.tolist()
        for counts, among in (
            (found.bin_violations, pairs),
            (found.bin_pairs, list(itertools.combinations(range(len(y)), 2))),
        ):
            bins = [oracle.bin_of(float(dist[p]), edges) for p in among]
            assert counts.tolist() == [bins.count(b) for b in range(len(edges) - 1)]


def test_lipschitz_violations() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    y = torch.tensor([0.0, 5.0, 2.0, 0.5])
    found = lipschitz_violations(x, y, 1.0, bins=[0, 1, 5])
    # (0, 2): 2 > 1, (2, 3): 1.5 > 1, (0, 3): duplicates; (0, 1) is exactly at 5.
    assert (found.num_violations, found.num_pairs, found.share) == (3, 6, 0.5)
    assert found.by_sample.tolist() == [2, 0, 2, 2]
    assert found.bin_pairs.tolist() == [1, 5]
    assert found.bin_violations.tolist() == [1, 2]
    torch.testing.assert_close(
        found.bin_share, torch.tensor([1.0, 0.4], dtype=torch.float64)
    )


def test_without_bins_there_are_none() -> None:
    found = lipschitz_violations(torch.eye(3), torch.arange(3.0), 1.0)
    assert found.bin_edges.numel() == found.bin_pairs.numel() == 0
    assert found.bin_violations.numel() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("tile_size", [7, 512])
def test_lipschitz_violations_match_oracle(
    generator: torch.Generator, dtype: torch.dtype, offset: float, tile_size: int
) -> None:
    x = torch.randn(60, 4, dtype=dtype, generator=generator) + offset
    x[50:] = x[:10]  # duplicates, half of them with equal outputs
    y = torch.randn(60, 2, dtype=dtype, generator=generator)
    y[50:55] = y[:5]
    dist = oracle.distances(x.double().numpy())
    for lipschitz in (0.0, 0.3, 1.0, 50.0):
        found = lipschitz_violations(x, y, lipschitz, bins=EDGES, tile_size=tile_size)
        check(found, dist, y.double().numpy(), lipschitz)


@settings(deadline=None, max_examples=40)
@given(
    x=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12
    ),
    values=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    scale=st.sampled_from([1.0, 2.0**-90, 2.0**90]),
    tile_size=st.integers(1, 13),
)
def test_pairs_exactly_at_the_bound_or_an_edge(
    x: list[tuple[int, int]], values: list[int], scale: float, tile_size: int
) -> None:
    """On a lattice most pairs are ties, which no rounding may decide."""
    points = torch.tensor(x, dtype=torch.float64) * scale
    y = torch.tensor(values[: len(x)], dtype=torch.float64)
    edges = [e * scale for e in EDGES]
    found = lipschitz_violations(
        points, y, 1.0 / scale, bins=edges, tile_size=tile_size
    )
    check(found, oracle.distances(points.numpy()), y.numpy(), 1.0 / scale)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 999), low=st.floats(0, 3), more=st.floats(0, 3))
def test_a_larger_constant_allows_more(seed: int, low: float, more: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(30, 2, generator=generator)
    y = torch.randn(30, generator=generator)
    few = lipschitz_violations(x, y, low + more)
    many = lipschitz_violations(x, y, low)
    assert few.num_violations <= many.num_violations
    assert bool((few.by_sample <= many.by_sample).all())
    order = torch.randperm(30, generator=generator)
    turned = lipschitz_violations(x[order], y[order], low)
    assert torch.equal(turned.by_sample, many.by_sample[order])
    constant = torch.full((30, 3), 0.1)
    assert lipschitz_violations(x, constant, low).num_violations == 0


def test_mask_counts_pairs_within_it(generator: torch.Generator) -> None:
    x = torch.randn(40, 3, generator=generator)
    y = torch.randn(40, generator=generator)
    mask = torch.rand(40, generator=generator) < 0.4
    found = lipschitz_violations(x, y, 0.8, mask=mask, bins=EDGES)
    subset = lipschitz_violations(x[mask], y[mask], 0.8, bins=EDGES)
    assert found.num_violations == subset.num_violations > 0
    assert found.num_pairs == subset.num_pairs
    assert torch.equal(found.by_sample[mask], subset.by_sample)
    assert not found.by_sample[~mask].any()
    assert torch.equal(found.bin_violations, subset.bin_violations)


def test_every_kind_of_distance(generator: torch.Generator) -> None:
    x = torch.randn(25, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(25, 2, dtype=torch.float64, generator=generator)
    for distance in (
        CallableDistance(manhattan),
        Mahalanobis(torch.diag(torch.tensor([1.0, 4.0, 0.0]))),
        SensitiveSubspace(torch.tensor([[0.0, 0.0, 1.0]])),
    ):
        dist = distance(x, x).detach().numpy()
        found = lipschitz_violations(
            x, y, 1.1, distance=distance, bins=EDGES, tile_size=9
        )
        check(found, dist, y.numpy(), 1.1)


def test_rtol_forgives_rounding(generator: torch.Generator) -> None:
    x = torch.randn(50, 1, generator=generator)
    y = 3.0 * x  # Lipschitz with 3, but for the rounding of the product
    assert lipschitz_violations(x, y, 3.0).num_violations > 0
    assert lipschitz_violations(x, y, 3.0, rtol=1e-3).num_violations == 0


def test_extreme_units_do_not_overflow(generator: torch.Generator) -> None:
    x = torch.randn(20, 3, dtype=torch.float64, generator=generator)
    y = torch.randn(20, dtype=torch.float64, generator=generator)
    expected = lipschitz_violations(x, y, 1.0).by_sample
    for a, b in ((2.0**600, 1.0), (2.0**-600, 2.0**-600), (1.0, 2.0**500)):
        found = lipschitz_violations(x * a, y * b, b / a)
        assert torch.equal(found.by_sample, expected)


def test_metrics_take_outputs_of_any_layout():
    """A transposed or strided block of outputs has no flat view."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(20, 2, generator=generator)
    y = torch.rand(3, 20, generator=generator).T
    edge_index, sq_dist = fair_radius_graph(x, 2.0)
    for metric in (
        lambda v: knn_deviation(x, v, k=3),
        lambda v: lipschitz_violations(x, v, 0.3).by_sample,
        lambda v: local_lipschitz(v, edge_index, sq_dist).by_sample,
        lambda v: laplacian_energy(v, edge_index),
        lambda v: group_std(v, edge_index.new_zeros(20)),
    ):
        assert torch.equal(metric(y), metric(y.contiguous()))
