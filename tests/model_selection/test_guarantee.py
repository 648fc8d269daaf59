"""Strength with a guarantee: the test, the sequence, and the promise itself."""

import contextlib
import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Euclidean, Mahalanobis
from pyg_glif.model_selection import Guarantee, RiskControl, TunePoint, tune
from pyg_glif.model_selection.risk_control import p_value, upper_bound

BETS = 0.999 * np.geomspace(1 / 64, 1, 7)


def oracle(losses: list[float], limit: float) -> float:
    """The p-value by its definition, one person after the other."""
    held, least = [1.0] * len(BETS), 1.0
    for loss in losses:
        for which, bet in enumerate(BETS):
            held[which] *= 1 + bet * (limit - loss) / (1 - limit)
        least = min(least, len(BETS) / sum(held))
    return least


@pytest.mark.parametrize("limit", [0.02, 0.2])
def test_p_value_is_what_the_formula_says(limit: float) -> None:
    rng = np.random.default_rng(0)
    for values in ([-1.0, 0.0, 1.0], [0.0, 0.25, 1.0]):
        losses = rng.choice(values, size=80, p=[0.05, 0.9, 0.05])
        assert p_value(losses, limit) == pytest.approx(oracle(losses.tolist(), limit))


def test_p_value_is_one() -> None:
    assert p_value(np.array([]), 0.1) == 1.0
    assert p_value(np.ones(50), 0.1) == 1.0


@pytest.mark.parametrize(
    ("values", "chances", "limit"),
    [
        ([-1.0, 0.0, 1.0], [0.02, 0.94, 0.04], 0.02),  # few decisions change
        ([-1.0, 0.0, 1.0], [0.2, 0.55, 0.25], 0.05),
        ([0.0, 1.0], [0.95, 0.05], 0.05),
        ([0.0, 0.1, 0.6], [0.8, 0.1, 0.1], 0.07),
    ],
)
def test_p_value_is_valid_at_the_limit(
    values: list[float], chances: list[float], limit: float
) -> None:
    assert np.dot(values, chances) == pytest.approx(limit)  # the hypothesis is true
    rng, num = np.random.default_rng(1), 1500
    found = [p_value(rng.choice(values, 200, p=chances), limit) for _ in range(num)]
    for level in (0.05, 0.1, 0.2):
        allowed = level + 3 * math.sqrt(level * (1 - level) / num)
        assert np.mean(np.array(found) <= level) <= allowed


def test_upper_bound_is_where_the_test_begins_to_reject() -> None:
    losses = np.random.default_rng(2).choice([-1.0, 0.0, 1.0], 300, p=[0.1, 0.8, 0.1])
    bound = upper_bound(losses, 0.1)
    assert losses.mean() < bound < 1.0
    for limit in np.linspace(-0.9, 0.99, 40):
        assert (p_value(losses, limit) <= 0.1) == (limit >= bound)


@pytest.mark.parametrize(("alpha", "delta"), [(0.05, 0.1), (0.01, 0.05), (0.4, 0.3)])
def test_number_needed_is_the_smallest(alpha: float, delta: float) -> None:
    num = RiskControl(alpha, delta).num_needed
    assert p_value(np.zeros(num), alpha) <= delta < p_value(np.zeros(num - 1), alpha)


def settings(num: int) -> list[TunePoint]:
    status: Any = None
    return [TunePoint(1.0, float(lam), 0.0, -lam, status) for lam in range(num)]


def test_sequence_goes_by_the_pilot_and_ends_at_the_first_failure() -> None:
    # What the pilot says, and what is true, of five settings; the fourth is unlucky.
    promised = [0.0, 0.02, 0.01, 0.03, 0.2]
    measured = [0.0, 0.0, 0.0, 0.5, 0.0]

    def constant(means: list[float], num: int) -> Any:
        return lambda point: {"loss": np.full(num, means[int(point.lam)])}

    control = RiskControl(alpha=0.1)
    pilot, losses = constant(promised, 30), constant(measured, 200)
    order = sorted(settings(5), key=lambda point: -control.promise(pilot(point)))
    tests = control.certify(order, losses)
    assert [test.point.lam for test in tests] == [0, 2, 1, 3]
    assert [test.certified for test in tests] == [True, True, True, False]


def test_both_risks_must_pass() -> None:
    losses = {"loss": np.zeros(300), "unlike": np.full(300, 0.3)}
    control = RiskControl({"loss": 0.05, "unlike": 0.2})
    (test,) = control.certify(settings(1), lambda _: losses)
    assert not test.certified
    assert test.p_value == test.p_values["unlike"] == 1.0
    assert test.p_values["loss"] < 0.01
    assert test.num_needed is None
    wider = RiskControl({"loss": 0.05, "unlike": 0.4})
    (test,) = wider.certify(settings(1), lambda _: losses)
    assert test.certified


def people(num: int, seed: int, noise: float = 0.8) -> tuple[Tensor, Tensor, Tensor]:
    """Features, a score that is off at random, and the truth that is smooth."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(num, 1, generator=generator, dtype=torch.float64)
    p = torch.sigmoid(6 * torch.sin(9 * x[:, 0]))
    labels = (torch.rand(num, generator=generator) < p).long()
    logit = 6 * torch.sin(9 * x[:, 0])
    y = logit + noise * 3 * torch.randn(num, generator=generator, dtype=torch.float64)
    return x, torch.sigmoid(y), labels


@pytest.mark.parametrize("size", [{"taus": [0.02, 0.05]}, {"ks": [5, 10]}])
def test_numbers_are_those_of_the_fit_that_is_deployed(size: dict[str, Any]) -> None:
    x, y, labels = people(500, 0)
    control = RiskControl({"loss": 0.05, "unlike": 0.3}, delta=0.1, share=0.4)
    found = tune(x, y, labels, **size, lams=[0.1, 1.0], guarantee=control)
    promise = found.guarantee
    assert promise is not None
    assert promise.chosen is not None
    assert promise.chosen.point == found.best
    rows = torch.cat([promise.fitted, promise.set_aside])
    assert torch.equal(rows.sort().values, torch.arange(500))
    assert len(promise.set_aside) == promise.num_units == 200
    reach = GLIFPostProcessor(**{**found.settings(), **_largest(size)})
    for test in promise.tests:
        post = GLIFPostProcessor(**found.settings(test.point))
        post.fit(x[promise.fitted], y[promise.fitted])
        aside = promise.set_aside
        after, before = post.transform(x[aside], y[aside]) > 0.5, y[aside] > 0.5
        right = labels[aside].bool()
        lost = (before == right).double() - (after == right).double()
        assert test.risks["loss"] == pytest.approx(float(lost.mean()), abs=1e-12)
        # Peers are those of the largest size, whatever the setting.
        reach.fit(x[promise.fitted], y[promise.fitted])
        info = reach.transform_info(x[aside], y[aside])
        fair, peers = post.y_fair_ > 0.5, info.neighbors
        unlike = torch.zeros(len(aside), dtype=torch.float64)
        differ = (after[peers.row] != fair[peers.col]).double() * peers.weight
        unlike.index_add_(0, peers.row, differ)
        total = torch.zeros_like(unlike).index_add_(0, peers.row, peers.weight)
        unlike = torch.where(total > 0, unlike / total, 0.0)
        assert test.risks["unlike"] == pytest.approx(float(unlike.mean()), abs=1e-9)


def _largest(size: dict[str, Any]) -> dict[str, Any]:
    return {"tau": 0.05} if "taus" in size else {"k": 10}


def test_the_choice_is_the_fairest_that_is_certified() -> None:
    x, y, labels = people(600, 1)
    found = tune(x, y, labels, guarantee=RiskControl(0.05, share=0.4))
    promise = found.guarantee
    assert promise is not None
    assert found.best in {test.point for test in promise.certified}
    assert found.best.unfairness == min(t.point.unfairness for t in promise.certified)
    assert all(test.p_value <= 0.1 for test in promise.certified)
    text = promise.to_text()
    assert "loss of accuracy at most 0.05: certified at level 0.9" in text
    assert found.to_dict()["guarantee"]["num_certified"] == len(promise.certified)


def test_order_does_not_depend_on_those_set_aside() -> None:
    x, y, labels = people(500, 2)
    options: dict[str, Any] = {"guarantee": RiskControl(0.1), "taus": None}
    first = tune(x, y, labels, **options).guarantee
    assert first is not None
    # Everything about them changes, even where they are.
    x, y, labels = x.clone(), y.clone(), labels.clone()
    x[first.set_aside] += 0.3
    y[first.set_aside] = 0.9
    labels[first.set_aside] = 1
    with quiet():
        second = tune(x, y, labels, **options).guarantee
    assert second is not None
    both = min(len(first.tests), len(second.tests))
    assert both > 1
    for one, other in zip(first.tests, second.tests, strict=False):
        assert one.point == other.point


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing may qualify in some draws, which is no failure."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No setting qualifies")
        yield


def test_promise_is_kept_by_most_draws_and_broken_where_newcomers_differ() -> None:
    """Risks of certified settings among very many newcomers, over draws of people."""
    control, draws = RiskControl(alpha=0.03, delta=0.2, share=0.5), 8
    x_new, y_new, labels_new = people(2000, 10_001)
    broken = shifted = 0
    for seed in range(draws):
        x, y, labels = people(500, seed)
        with quiet():
            found = tune(
                x,
                y,
                labels,
                taus=[0.05, 0.3],
                lams=[0.03, 0.3, 3.0],
                cv=2,
                guarantee=control,
            )
        rows = found.guarantee.fitted  # type: ignore[union-attr]
        post = GLIFPostProcessor(**found.settings()).fit(x[rows], y[rows])
        right, before = labels_new.bool(), y_new > 0.5
        lost = (before == right).double()
        lost -= ((post.transform(x_new, y_new) > 0.5) == right).double()
        broken += float(lost.mean()) > 0.03
        # Newcomers for whom the model is always right, and peers are no guide.
        turned = labels_new * 0.2 + 0.4
        after = post.transform(x_new, turned) > 0.5
        shifted += float((after != right).double().mean()) > 0.03
    assert broken / draws <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / draws)
    assert shifted / draws > 0.5


def test_groups_are_not_split_and_count_once() -> None:
    x, y, labels = people(600, 3)
    clusters = torch.arange(600) // 3
    control = RiskControl(0.1, share=0.4)
    promise = tune(x, y, labels, clusters=clusters, guarantee=control).guarantee
    assert promise is not None
    assert promise.num_units == 80
    assert not set(clusters[promise.fitted].tolist()) & set(
        clusters[promise.set_aside].tolist()
    )


def test_people_without_a_label_are_fitted() -> None:
    x, y, labels = people(600, 4)
    mask = torch.arange(600) % 3 > 0
    promise = tune(x, y, labels, mask=mask, guarantee=RiskControl(0.1)).guarantee
    assert promise is not None
    assert bool(mask[promise.set_aside].all())
    assert len(promise.set_aside) == 120
    assert len(promise.fitted) == 480


def test_no_setting_qualifies() -> None:
    x, y, labels = people(600, 5)
    control = RiskControl(0.02, risk="unlike", share=0.5)
    with pytest.warns(UserWarning, match="No setting qualifies for share of peers"):
        found = tune(x, y, labels, taus=[0.05], lams=[1e-4], guarantee=control)
    assert found.best == found.baseline
    assert found.guarantee is not None
    assert found.guarantee.chosen is None
    assert found.guarantee.certified == ()
    assert "Allow more by 'alpha'" in found.guarantee.to_text()


def test_no_setting_qualifies_but_more_people_would_show_it() -> None:
    losses = {"loss": np.array([0.0, 1.0] + [0.0] * 88)}
    control = RiskControl(alpha=0.05)
    tests = control.certify(settings(1), lambda _: losses)
    rows = torch.arange(90)
    text = Guarantee(control, tests, None, rows, rows, 90).to_text()
    (num,) = re.findall(r"about (\d+) people set aside would show it", text)
    assert int(num) == tests[0].num_needed
    # That many like these are enough, and not by much.
    many = np.tile(losses["loss"], 9)
    assert p_value(many[: int(num)], 0.05) <= 0.1
    assert 90 < int(num) < 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "'alpha' must be positive (got 0.0)"),
        ({"alpha": 1.0}, "'alpha' must be below 1.0 (got 1.0)"),
        ({"alpha": -0.1}, "'alpha' must be positive (got -0.1)"),
        (
            {"alpha": {"loss": 0.1, "unlike": 1.5}},
            "'alpha' must be below 1.0 (got 1.5)",
        ),
        ({"alpha": math.nan}, "'alpha' must be finite (got nan)"),
        ({"delta": 1.0}, "'delta' must be below 1.0 (got 1.0)"),
        ({"delta": 0.0}, "'delta' must be positive (got 0.0)"),
        ({"share": 0.0}, "'share' must be positive (got 0.0)"),
        ({"risk": "lost"}, "'risk' must be of 'loss', 'unlike' (got 'lost')"),
        ({"risk": ()}, "'risk' must name at least one risk (got none)"),
        (
            {"alpha": {"loss": 0.1}, "risk": ("loss", "unlike")},
            "'alpha' must have a number for each of ['loss', 'unlike'] (got ['loss'])",
        ),
    ],
)
def test_bad_promises(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        RiskControl(**options)


def test_risks_have_names() -> None:
    with pytest.raises(TypeError, match=re.escape("'risk' must be a str (got int)")):
        RiskControl(risk=3)  # type: ignore[arg-type]


def test_too_few_people() -> None:
    x, y, labels = people(60, 6)
    message = (
        "'guarantee' must have at least 199 people set aside for alpha (loss 0.02) and "
        "delta 0.1 (got 18 of 60). Bring 664 people, or raise 'share' or 'alpha'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        tune(x, y, labels, guarantee=RiskControl(0.02))


def test_nobody_is_set_aside() -> None:
    x, y, labels = people(60, 6)
    message = (
        "'guarantee' must have at least 38 people set aside for alpha (loss 0.1) and "
        "delta 0.1 (got 0 of 60). Bring 38000 people, or raise 'share' or 'alpha'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        tune(x, y, labels, guarantee=RiskControl(0.1, share=0.001))
    nobody = torch.zeros(60, dtype=torch.bool)
    message = "'mask' must select at least one row (got none)"
    with pytest.raises(ValueError, match=re.escape(message)):
        tune(x, y, labels, mask=nobody, guarantee=RiskControl(0.1))


def test_what_cannot_be_set_aside_is_refused() -> None:
    x, y, labels = people(200, 7)
    control = RiskControl(0.1)
    message = "'unfairness' must not be given together with 'guarantee'"
    with pytest.raises(ValueError, match=message):
        tune(x, y, labels, unfairness=lambda out: 0.0, guarantee=control)
    with pytest.raises(TypeError, match="'guarantee' must be a RiskControl"):
        tune(x, y, labels, guarantee=0.1)  # type: ignore[arg-type]


def test_peers_across_an_attribute_and_pairs_among_the_fitted() -> None:
    x, y, labels = people(400, 8)
    sensitive = torch.arange(400) % 2
    control = RiskControl(0.4, risk="unlike", share=0.4)
    options: dict[str, Any] = {"taus": [0.05], "lams": [0.3], "guarantee": control}
    found = tune(x, y, labels, sensitive=sensitive, **options)
    promise = found.guarantee
    assert promise is not None
    test = next(one for one in promise.tests if one.point.lam == 0.3)
    rows, aside = promise.fitted, promise.set_aside
    post = GLIFPostProcessor(**found.settings(test.point)).fit(x[rows], y[rows])
    after, fair = post.transform(x[aside], y[aside]) > 0.5, post.y_fair_ > 0.5
    near = torch.cdist(x[aside], x[rows]) <= 0.05
    near &= sensitive[aside].unsqueeze(1) != sensitive[rows]
    unlike = (near & (after.unsqueeze(1) != fair)).double().sum(1)
    unlike = unlike / near.double().sum(1).clamp(min=1)
    assert test.risks["unlike"] == pytest.approx(float(unlike.mean()))
    # Pairs of which one was set aside are left out.
    pairs = torch.stack([torch.arange(399), torch.arange(1, 400)], 1)
    assert tune(x, y, labels, pairs=pairs, **options).guarantee is not None


def test_distances_and_decays_are_settings_too() -> None:
    x, y, labels = people(400, 9)
    x = torch.cat([x, torch.rand_like(x)], 1)
    found = tune(
        x,
        y,
        labels,
        distances={"first": Mahalanobis(torch.diag(torch.tensor([1.0, 1e-9]).double())),
                   "both": Euclidean()},
        thetas=[0.0, None],
        lams=[0.1, 1.0],
        taus=[0.05],
        guarantee=RiskControl(0.1, share=0.4),
    )  # fmt: skip
    promise = found.guarantee
    assert promise is not None
    assert {point.distance for point in found.points} == {"first", "both"}
    rows, aside = promise.fitted, promise.set_aside
    right, before = labels[aside].bool(), y[aside] > 0.5
    for test in promise.tests:
        post = GLIFPostProcessor(**found.settings(test.point)).fit(x[rows], y[rows])
        after = post.transform(x[aside], y[aside]) > 0.5
        lost = (before == right).double() - (after == right).double()
        assert test.risks["loss"] == pytest.approx(float(lost.mean()), abs=1e-12)
