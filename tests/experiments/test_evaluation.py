import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from experiments.evaluation import (
    NUM_BINS,
    EvaluatedSamples,
    disagreement,
    log_odds,
    nearest_pairs,
    pairs_within,
)
from tests import oracles_decisions as oracles

NUM = 80


def some_people(seed: int, num_versions: int = 2) -> tuple[torch.Tensor, ...]:
    """Coordinates on a coarse grid, so that there are ties, outputs, truth, group."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randint(0, 6, (NUM, 2), generator=generator).double() / 4
    outputs = torch.randn(NUM, num_versions, generator=generator).double()
    y = torch.randint(0, 2, (NUM,), generator=generator)
    group = torch.randint(0, 2, (NUM,), generator=generator)
    return z, outputs, y, group


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.25, 0.6]), st.integers(1, 3))
def test_measures_match_their_definitions(
    seed: int, tau: float, num_versions: int
) -> None:
    z, outputs, y, group = some_people(seed, num_versions)
    found = pairs_within(z, tau, group, None)
    expected = oracles.pairs(z.numpy(), tau, group.numpy())
    assert set(zip(*found.tolist(), strict=True)) == expected
    assert found.size(1) == len(expected)
    told = EvaluatedSamples(y, group, {"near": found}).measure(outputs, alone=0.25)
    own, truth, side = outputs[:, 0].numpy(), y.numpy(), group.numpy()
    yes = own > 0
    assert told["accuracy"] == pytest.approx(np.mean(yes == truth))
    assert told["auc"] == pytest.approx(oracles.auc(own, truth), abs=1e-6)
    p = 1 / (1 + np.exp(-own))
    error = oracles.calibration_error(p, truth, NUM_BINS)
    assert told["calibration_error"] == pytest.approx(error, abs=1e-6)
    flip = oracles.flip_consistency(outputs.numpy())
    assert told["flip_consistency"] == pytest.approx(flip)
    assert told["unlike_near"] == pytest.approx(oracles.disagreement(own, expected))
    gap = yes[side == 1].mean() - yes[side == 0].mean()
    assert told["acceptance_gap"] == pytest.approx(gap)
    good = truth == 1
    gap = yes[good & (side == 1)].mean() - yes[good & (side == 0)].mean()
    assert told["true_positive_gap"] == pytest.approx(gap)
    assert told["alone"] == 0.25


def test_decisions_without_scores_have_no_auc() -> None:
    _, outputs, y, group = some_people(1)
    told = EvaluatedSamples(y, group, {}).measure(outputs.sign(), scores=False)
    assert math.isnan(told["auc"])
    assert math.isnan(told["calibration_error"])
    assert math.isnan(told["alone"])
    assert (
        told["accuracy"] == EvaluatedSamples(y, group, {}).measure(outputs)["accuracy"]
    )


def test_no_pairs_no_answer() -> None:
    assert math.isnan(disagreement(torch.ones(3), torch.empty(2, 0, dtype=torch.long)))


def test_outputs_that_are_none_are_refused() -> None:
    _, outputs, y, group = some_people(1)
    outputs[3, 1] = math.nan
    with pytest.raises(ValueError, match=r"'outputs' must be finite \(got NaN\)"):
        EvaluatedSamples(y, group, {}).measure(outputs)


def test_the_first_people_keep_the_pairs_among_them() -> None:
    z, _, y, group = some_people(2)
    all_of_them = EvaluatedSamples(
        y, group, {"near": pairs_within(z, 0.3, group, None)}
    )
    some = all_of_them.first(30)
    expected = oracles.pairs(z[:30].numpy(), 0.3, group[:30].numpy())
    assert set(zip(*some.pairs["near"].tolist(), strict=True)) == expected
    assert torch.equal(some.y, y[:30])
    assert torch.equal(some.group, group[:30])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.integers(0, 400))
def test_nearest_pairs_are_the_nearest(seed: int, num_pairs: int) -> None:
    z, _, _, group = some_people(seed)
    found = nearest_pairs(z, num_pairs, group, None)
    points, side = z.numpy(), group.numpy()
    dist = {
        pair: np.sqrt(((points[pair[0]] - points[pair[1]]) ** 2).sum())
        for pair in oracles.pairs(points, np.inf, side)
    }
    ordered = sorted(dist.values())
    last = ordered[min(num_pairs, len(ordered)) - 1] if num_pairs else -1
    expected = {pair for pair, far in dist.items() if far <= last}
    assert set(zip(*found.tolist(), strict=True)) == expected
    assert found.size(1) == len(expected) >= min(num_pairs, len(dist))


def test_log_odds_of_certainty_are_finite() -> None:
    told = log_odds(torch.tensor([0.0, 0.5, 0.75, 1.0]))
    expected = [np.log(1e-6 / (1 - 1e-6)), 0.0, np.log(3), np.log((1 - 1e-6) / 1e-6)]
    np.testing.assert_allclose(told, expected, atol=1e-9)
