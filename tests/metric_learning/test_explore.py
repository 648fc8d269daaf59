import math

import numpy as np
import pytest
import torch

from pyg_glif.distances import Mahalanobis
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.metric_learning import EXPLORE
from tests import oracles_metric_learning


def _pairs(
    generator: torch.Generator, num_pairs: int, rank: int = 2, num_features: int = 5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    """Judgements drawn from the model, under a planted metric of low rank."""

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    factor = normal(num_features, rank) / num_features**0.5
    x1, x2 = normal(num_pairs, num_features), normal(num_pairs, num_features)
    sigma = (factor @ factor.T).numpy()
    p = oracles_metric_learning.probability_similar((x1 - x2).numpy(), sigma)
    drawn = torch.rand(num_pairs, generator=generator, dtype=torch.float64)
    return x1, x2, drawn < torch.from_numpy(p), sigma


def _delta(x1: torch.Tensor, x2: torch.Tensor) -> np.ndarray:
    return (x1 - x2).double().numpy()


def test_explore_recovers_a_planted_metric(generator: torch.Generator) -> None:
    x1, x2, similar, sigma = _pairs(generator, 20_000)
    learner = EXPLORE()
    distance = learner.fit(x1, x2, similar)
    assert isinstance(distance, Mahalanobis)
    error = np.linalg.norm(distance.sigma.numpy() - sigma) / np.linalg.norm(sigma)
    assert error < 0.1
    top = np.linalg.eigh(sigma)[1][:, -2:].T
    found = np.linalg.eigh(distance.sigma.numpy())[1][:, -2:].T
    assert oracles_metric_learning.largest_angle(found, top) < 0.1


def test_explore_beats_euclidean_on_pairs_it_has_not_seen(
    generator: torch.Generator,
) -> None:
    x1, x2, similar, _ = _pairs(generator, 4_000)
    seen, unseen = slice(0, 2_000), slice(2_000, None)
    sigma = EXPLORE().fit(x1[seen], x2[seen], similar[seen]).sigma.numpy()
    delta, y = _delta(x1, x2)[unseen], similar[unseen].double().numpy()
    scales = np.geomspace(1e-3, 10, 50)
    euclidean = max(
        oracles_metric_learning.pair_log_likelihood(delta, y, scale * np.eye(5))
        for scale in scales  # the best of them, chosen on the very pairs
    )
    assert (
        oracles_metric_learning.pair_log_likelihood(delta, y, sigma) > euclidean + 0.05
    )


@pytest.mark.parametrize("penalty", [0.0, 0.2])
def test_explore_matches_oracle(penalty: float, generator: torch.Generator) -> None:
    x1, x2, similar, _ = _pairs(generator, 400)
    distance = EXPLORE(penalty=penalty, rtol=1e-7).fit(x1, x2, similar)
    y = similar.double().numpy()
    sigma, value = oracles_metric_learning.explore(_delta(x1, x2), y, penalty)
    np.testing.assert_allclose(distance.sigma, sigma, atol=1e-4 * sigma.max())
    fit = distance.fit_result
    # Both are minima of the same convex function: neither may be lower.
    assert fit.objective[-1] == pytest.approx(value, abs=1e-9)
    expected = oracles_metric_learning.pair_log_likelihood(
        _delta(x1, x2), y, distance.sigma.numpy()
    )
    assert fit.log_likelihood == pytest.approx(expected, abs=1e-10)


def test_shares_of_annotators_are_accepted(generator: torch.Generator) -> None:
    x1, x2, _, sigma = _pairs(generator, 300)
    share = torch.from_numpy(
        oracles_metric_learning.probability_similar(_delta(x1, x2), sigma)
    )
    # With exact probabilities the planted metric is the exact answer.
    distance = EXPLORE(rtol=1e-7).fit(x1, x2, share)
    np.testing.assert_allclose(distance.sigma, sigma, atol=1e-3 * sigma.max())


def test_objective_never_rises_and_is_convergent(generator: torch.Generator) -> None:
    x1, x2, similar, _ = _pairs(generator, 500)
    fit = EXPLORE().fit(x1, x2, similar).fit_result
    assert np.all(np.diff(fit.objective) <= 1e-12)
    assert fit.converged
    assert fit.residual <= 1e-5
    assert fit.num_iter == len(fit.objective)
    assert fit.num_directions == 5


def test_metric_is_positive_semi_definite(generator: torch.Generator) -> None:
    for seed in range(5):
        x1, x2, similar, _ = _pairs(generator.manual_seed(seed), 60, rank=1)
        sigma = EXPLORE(penalty=1e-3).fit(x1, x2, similar).sigma
        assert float(torch.linalg.eigvalsh(sigma)[0]) > -1e-12
        assert torch.equal(sigma, sigma.T)


def test_units_do_not_matter(generator: torch.Generator) -> None:
    x1, x2, similar, _ = _pairs(generator, 500)
    mix = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    mix = mix * torch.logspace(-3, 3, 5, dtype=torch.float64)
    learner = EXPLORE(rtol=1e-8)
    one = learner.fit(x1, x2, similar)
    other = learner.fit(x1 @ mix, x2 @ mix, similar)
    torch.testing.assert_close(
        other(x1 @ mix, x2[:9] @ mix), one(x1, x2[:9]), rtol=1e-4, atol=1e-4
    )


def test_order_of_pairs_and_of_their_members_does_not_matter(
    generator: torch.Generator,
) -> None:
    x1, x2, similar, _ = _pairs(generator, 200)
    order = torch.randperm(200, generator=generator)
    one = EXPLORE().fit(x1, x2, similar)
    other = EXPLORE().fit(x2[order], x1[order], similar[order])
    torch.testing.assert_close(other.sigma, one.sigma, rtol=1e-6, atol=1e-9)


def test_directions_without_differences_get_no_weight(
    generator: torch.Generator,
) -> None:
    x1, x2, similar, _ = _pairs(generator, 500)
    wide1 = torch.cat([x1, torch.ones(500, 1), x1[:, :1]], dim=1)
    wide2 = torch.cat([x2, torch.ones(500, 1), x2[:, :1]], dim=1)
    distance = EXPLORE().fit(wide1, wide2, similar)
    assert distance.fit_result.num_directions == 5
    assert float(distance.sigma[5].abs().max()) < 1e-12
    torch.testing.assert_close(
        distance(wide1, wide2[:7]),
        EXPLORE().fit(x1, x2, similar)(x1, x2[:7]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_huge_distances_do_not_overflow(generator: torch.Generator) -> None:
    x1, x2, similar, _ = _pairs(generator, 300)
    without = EXPLORE().fit(x1[1:], x2[1:], similar[1:])
    x1[0], similar[0] = 1e4, False  # exp(1e4**2) is far beyond float64
    distance = EXPLORE().fit(x1, x2, similar)
    assert math.isfinite(distance.fit_result.log_likelihood)
    assert distance.fit_result.num_iter < 300
    # A pair that is certainly dissimilar, and judged so, teaches nothing.
    torch.testing.assert_close(distance.sigma, without.sigma, rtol=0.01, atol=1e-3)


@pytest.mark.filterwarnings("ignore")  # of inFairness
def test_explore_approaches_what_infairness_approaches(
    generator: torch.Generator,
) -> None:
    x1, x2, similar, _ = _pairs(generator, 1_000)
    reference = pytest.importorskip("inFairness.distances")
    np.random.seed(0)  # noqa: NPY002 - its start is random
    peer = reference.EXPLOREDistance()
    peer.fit(x1.float(), x2.float(), similar.float(), iters=2_000, batchsize=1_000)
    ours = EXPLORE().fit(x1, x2, similar).sigma.numpy()
    expected = peer.sigma.squeeze().double().numpy()
    np.testing.assert_allclose(expected, ours, atol=0.02 * ours.max())
    delta, y = _delta(x1, x2), similar.double().numpy()
    found = oracles_metric_learning.pair_log_likelihood(delta, y, ours)
    assert (
        found >= oracles_metric_learning.pair_log_likelihood(delta, y, expected) - 1e-9
    )


def test_explore_reports_failure_to_converge(generator: torch.Generator) -> None:
    x1, x2, similar, _ = _pairs(generator, 100)
    message = (
        r"EXPLORE stopped after 2 iterations: relative residual .*, 'rtol' is 1e-05"
    )
    with pytest.raises(ConvergenceError, match=message):
        EXPLORE(max_iter=2).fit(x1, x2, similar)
    with pytest.warns(ConvergenceWarning, match=message) as caught:
        distance = EXPLORE(max_iter=2, throw=False).fit(x1, x2, similar)
    assert caught[0].filename == __file__
    assert not distance.fit_result.converged


def test_missing_estimate_is_reported(generator: torch.Generator) -> None:
    # The only similar pair differs in one direction; in the other nine a metric can
    # grow for ever.
    x1 = torch.zeros(30, 10)
    x2 = torch.randn(30, 10, generator=generator)
    similar = torch.arange(30) == 0
    with pytest.raises(ValueError, match="similar") as caught:
        EXPLORE().fit(x1, x2, similar)
    assert str(caught.value) == (
        "'similar' must judge pairs similar in all directions in which pairs differ "
        "(got 1 of 10). Add such pairs or pass 'penalty=1e-3'"
    )
    assert EXPLORE(penalty=1e-3).fit(x1, x2, similar).fit_result.converged
