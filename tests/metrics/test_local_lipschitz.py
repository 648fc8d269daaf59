import math

import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.graph import fair_radius_graph
from pyg_glif.metrics import local_lipschitz
from tests import oracles_metrics as oracle

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 3], [1, 0, 2, 1, 3, 2, 3, 4]])


def test_local_lipschitz() -> None:
    y = torch.tensor([0.0, 3.0, 3.0, 4.0, 4.0])
    sq_dist = torch.tensor([4.0, 4.0, 1.0, 1.0, 0.25, 0.25, 0.0, 0.0])
    found = local_lipschitz(y, EDGES, sq_dist, quantiles=[0, 0.5, 0.75, 1], num_worst=2)
    assert float(found.max) == 2.0  # of (2, 3); duplicates with equal outputs have 0
    assert found.quantiles.tolist() == [0.0, 0.0, 1.5, 2.0]
    assert found.worst_pairs.tolist() == [[2, 3], [0, 1]]
    assert found.worst_ratios.tolist() == [2.0, 1.5]
    assert found.by_sample.tolist() == [1.5, 1.5, 2.0, 2.0, 0.0]
    assert found.num_edges == 8


def test_duplicates_with_other_outputs_are_infinite() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    y, sq_dist = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 0.0, 0.0, 0.0])
    found = local_lipschitz(y, edge_index, sq_dist, quantiles=[0.5, 0.51])
    assert float(found.max) == math.inf
    assert found.quantiles.tolist() == [0.0, math.inf]
    assert found.by_sample.tolist() == [math.inf, math.inf, 0.0]
    assert found.worst_pairs.tolist() == [[0, 1], [1, 2]]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 999), num_worst=st.integers(0, 30))
def test_local_lipschitz_matches_oracle(seed: int, num_worst: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(4, (15, 2), generator=generator).double()
    y = torch.randint(3, (15, 2), generator=generator).double()
    edge_index, sq_dist = fair_radius_graph(x, tau=1.5)
    levels = [0.0, 0.1, 0.5, 0.99, 1.0]
    found = local_lipschitz(
        y, edge_index, sq_dist, quantiles=levels, num_worst=num_worst
    )
    ratio = oracle.ratios(y.numpy(), edge_index.numpy(), sq_dist.numpy())
    np.testing.assert_allclose(float(found.max), max(ratio, default=0.0))
    if len(ratio):
        expected = np.quantile(ratio, levels, method="inverted_cdf")
        np.testing.assert_allclose(found.quantiles, expected)
    # Each pair once, largest first.
    upper = edge_index[0] < edge_index[1]
    count = min(num_worst, int(upper.sum()))
    expected = np.sort(ratio[upper.numpy()])[::-1][:count]
    np.testing.assert_allclose(found.worst_ratios, expected)
    assert found.worst_pairs.shape == (count, 2)
    assert len({tuple(p) for p in found.worst_pairs.tolist()}) == count
    lookup = {
        tuple(pair): r for pair, r in zip(edge_index.T.tolist(), ratio, strict=True)
    }
    listed = [lookup[tuple(pair)] for pair in found.worst_pairs.tolist()]
    np.testing.assert_allclose(found.worst_ratios, listed)
    for node in range(15):
        own = ratio[(edge_index[0] == node).numpy()]
        np.testing.assert_allclose(found.by_sample[node], max(own, default=0.0))


def test_one_direction_gives_the_same(generator: torch.Generator) -> None:
    x = torch.randn(30, 2, generator=generator)
    y = torch.randn(30, generator=generator)
    edge_index, sq_dist = fair_radius_graph(x, tau=1.0)
    half = edge_index[0] > edge_index[1]
    both = local_lipschitz(y, edge_index, sq_dist)
    once = local_lipschitz(y, edge_index[:, half], sq_dist[half])
    assert torch.equal(both.quantiles, once.quantiles)
    assert torch.equal(both.worst_pairs, once.worst_pairs)
    assert torch.equal(both.by_sample, once.by_sample)


def test_repeated_edges_and_loops_take_no_place_among_the_worst() -> None:
    edge_index = torch.tensor([[0, 1, 0, 1, 0, 2, 2], [1, 0, 1, 0, 1, 2, 0]])
    y, sq_dist = torch.tensor([0.0, 9.0, 1.0]), torch.ones(7)
    found = local_lipschitz(y, edge_index, sq_dist, num_worst=2)
    assert found.worst_pairs.tolist() == [[0, 1], [0, 2]]
    assert found.worst_ratios.tolist() == [9.0, 1.0]
    everything = local_lipschitz(y, edge_index, sq_dist, num_worst=9)
    assert everything.worst_pairs.tolist() == [[0, 1], [0, 2]]


def test_a_graph_without_edges_has_no_ratios() -> None:
    edge_index, sq_dist = torch.empty(2, 0, dtype=torch.long), torch.empty(0)
    found = local_lipschitz(torch.tensor([1.0, 5.0]), edge_index, sq_dist)
    assert float(found.max) == 0.0
    assert found.quantiles.tolist() == [0.0, 0.0, 0.0]
    assert found.worst_pairs.shape == (0, 2)
    assert found.num_edges == 0
