"""Laws of all metric classes: batches, merged in any order, give the whole."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif import metrics
from pyg_glif.distances import CallableDistance
from pyg_glif.graph import fair_radius_graph

SIZES = (5, 12, 20)


def manhattan(x1: Tensor, x2: Tensor) -> Tensor:
    return (x1.unsqueeze(1) - x2).abs().sum(-1)


class Samples:
    """Samples with three graphs, one per batch, and no edge between them."""

    def __init__(self, seed: int, batch: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        number = torch.arange(3).repeat_interleave(torch.tensor(SIZES))
        rows = torch.ones_like(number).bool() if batch is None else number == batch
        n = len(number)
        self.x = torch.randn(n, 2, generator=generator, dtype=torch.float64)[rows]
        self.y = torch.randn(n, 3, generator=generator, dtype=torch.float64)[rows]
        # The first batch lacks groups, and groups are spread over all of them.
        self.group = (torch.arange(n) % 3).where(number > 0, 0)[rows]
        self.edges, self.sq_dist = fair_radius_graph(self.x, 1.0, batch=number[rows])


class Case(NamedTuple):
    metric: Callable[[], metrics.GroupGap | Any]
    arguments: Callable[[Samples], tuple[Tensor, ...]]
    function: Callable[[Samples], Any]
    differentiable: bool
    higher_is_better: bool | None


DISTANCE = CallableDistance(manhattan)
CASES = {
    "gap": Case(
        metrics.GroupGap,
        lambda s: (s.y, s.group),
        lambda s: metrics.group_gap(s.y, s.group),
        True,
        None,
    ),
    "std": Case(
        metrics.GroupStd,
        lambda s: (s.y, s.group),
        lambda s: metrics.group_std(s.y, s.group),
        True,
        False,
    ),
    "one group": Case(
        metrics.GroupStd, lambda s: (s.y,), lambda s: s.y.std(0), True, False
    ),
    "consistency": Case(
        metrics.PredictionConsistency,
        lambda s: (s.y, s.group),
        lambda s: metrics.prediction_consistency(s.y, s.group),
        False,
        True,
    ),
    "knn": Case(
        lambda: metrics.KNNConsistency(k=3, distance=DISTANCE),
        lambda s: (s.x, s.y),
        lambda s: metrics.knn_consistency(s.x, s.y, 3, distance=DISTANCE),
        False,
        True,
    ),
    "violations": Case(
        lambda: metrics.LipschitzViolations(1.5, distance=DISTANCE, rtol=0.1),
        lambda s: (s.x, s.y),
        lambda s: torch.tensor(
            metrics.lipschitz_violations(
                s.x, s.y, 1.5, distance=DISTANCE, rtol=0.1
            ).share
        ),
        False,
        False,
    ),
    "ratios": Case(
        lambda: metrics.LocalLipschitz(0.9),
        lambda s: (s.y, s.edges, s.sq_dist),
        lambda s: metrics.local_lipschitz(
            s.y, s.edges, s.sq_dist, quantiles=[0.9]
        ).quantiles[0],
        False,
        False,
    ),
    "largest ratio": Case(
        metrics.LocalLipschitz,
        lambda s: (s.y, s.edges, s.sq_dist),
        lambda s: metrics.local_lipschitz(s.y, s.edges, s.sq_dist).max,
        False,
        False,
    ),
    "energy": Case(
        metrics.LaplacianEnergy,
        lambda s: (s.y, s.edges, s.sq_dist),
        lambda s: metrics.laplacian_energy(s.y, s.edges, s.sq_dist),
        True,
        False,
    ),
    "disparity": Case(
        lambda: metrics.GroupDisparity(3, "pairs"),
        lambda s: (s.y, s.edges, s.group, s.sq_dist),
        lambda s: metrics.group_disparity(
            s.y, s.edges, s.group, s.sq_dist, definition="pairs"
        ),
        False,
        False,
    ),
    "ndcg": Case(
        lambda: metrics.RankingNDCG(k=4),
        lambda s: (s.x, s.y),
        lambda s: metrics.ranking_ndcg(s.y, s.x, k=4),
        False,
        True,
    ),
    "err": Case(
        lambda: metrics.RankingERR(k=4, outputs="cosine"),
        lambda s: (s.x, s.y),
        lambda s: metrics.ranking_err(s.y, s.x, k=4, outputs="cosine"),
        False,
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None, max_examples=5)
@given(
    order=st.permutations(range(3)),
    merged=st.lists(st.booleans(), min_size=2, max_size=2),
    seed=st.integers(0, 99),
)
def test_batches_give_the_whole(
    name: str, order: list[int], merged: list[bool], seed: int
) -> None:
    case = CASES[name]
    metric, other = case.metric(), case.metric()
    for number, elsewhere in zip(order, [False, *merged], strict=True):
        target = other if elsewhere else metric
        target.update(*case.arguments(Samples(seed, number)))
    if other.update_called:
        metric.merge_state(other)
    whole = Samples(seed)
    expected = case.function(whole)
    close = {"rtol": 1e-6, "atol": 1e-7, "check_dtype": False}
    torch.testing.assert_close(metric.compute(), expected, **close)
    metric.reset()
    torch.testing.assert_close(metric(*case.arguments(whole)), expected, **close)
    assert metric.is_differentiable == case.differentiable
    assert metric.higher_is_better == case.higher_is_better
    assert str(metric).startswith(f"{type(metric).__name__}(")


def test_groups_beyond_the_number_are_refused() -> None:
    samples = Samples(0)
    with pytest.raises(ValueError, match="'group' must hold node indices from 0 to 1"):
        metrics.GroupDisparity(2).update(samples.y, samples.edges, samples.group)
