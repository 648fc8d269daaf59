"""Every fold as newcomers: the numbers, their errors and the choice, from NumPy."""

import math
import re
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import GroupKFold, KFold

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Mahalanobis
from pyg_glif.graph import SimilarityGraph
from pyg_glif.links import Logit
from pyg_glif.model_selection import RiskControl, TunePoint, TuneResult, evaluate, tune
from tests import oracles, oracles_inductive as oracle

TAUS, LAMS, THETA = (0.4, 0.8), (0.1, 1.0, 10.0), 0.5


def problem(
    size: int = 90, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noisy scores, so that smoothing helps at first and hurts in the end."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(size, 2, generator=generator, dtype=dtype)
    labels = (x[:, 0] > 0).long()
    noise = 0.15 * torch.randn(size, generator=generator, dtype=dtype)
    return x, (0.5 + 0.15 * x[:, 0] + noise).clamp(0.01, 0.99), labels


def splits(size: int = 90) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(KFold(3, shuffle=True, random_state=0).split(np.zeros(size)))


def by_formula(
    x: np.ndarray, y: np.ndarray, tau: float, lam: float, normalization: str | None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs of everybody as a newcomer, and of the fitted people of every fold."""
    out, fitted = y.copy(), []
    for known, new in splits(len(x)):
        W = oracle.fitted_weights(x[known], tau, THETA)
        outer = oracle.weights(x[new], x[known], tau, THETA)
        f = oracles.smooth(W, y[known], lam, normalization)
        f = f.reshape(len(f), -1)
        y_new = y[new].reshape(len(new), -1)
        out[new] = oracle.update(W, outer, y_new, f, lam, normalization)[:, 0]
        fitted.append(f[:, 0])
    return out, fitted


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_numbers_and_errors_match_formulas(normalization: str | None) -> None:
    x, y, labels = problem()
    lams = (0.05, 0.3) if normalization == "nrw" else LAMS  # where there is a minimum
    found = tune(
        x,
        y,
        labels,
        taus=TAUS,
        lams=lams,
        theta=THETA,
        normalization=normalization,
        cv=splits(),
    )
    assert found.num_folds == 3
    assert [(p.tau, p.lam) for p in found.points] == [
        (t, m) for t in TAUS for m in lams
    ]
    X, Y, truth = x.numpy(), y.numpy(), labels.numpy()
    right_before = ((Y > 0.5) == truth).astype(float)
    W = oracle.fitted_weights(X, max(TAUS), THETA)
    for point in found.points:
        f, fitted = by_formula(X, Y, point.tau, point.lam, normalization)
        right = ((f > 0.5) == truth).astype(float)
        assert point.score == pytest.approx(right.mean())
        assert point.score_se == pytest.approx(right.std(ddof=1) / math.sqrt(90))
        loss = right_before - right
        assert point.loss == pytest.approx(loss.mean())
        assert point.loss_se == pytest.approx(loss.std(ddof=1) / math.sqrt(90))
        # Everybody's gaps to the people who were fitted when they came.
        u, n = np.zeros(90), np.zeros(90)
        for (known, new), f_known in zip(splits(), fitted, strict=True):
            weight = W[np.ix_(new, known)]
            u[new] = (weight * (f[new][:, None] - f_known[None]) ** 2).sum(1)
            n[new] = weight.sum(1)
        ratio = u.sum() / n.sum()
        assert point.unfairness == pytest.approx(ratio, rel=1e-4)
        error = math.sqrt(90 / 89 * ((u - ratio * n) ** 2).sum()) / n.sum()
        assert point.unfairness_se == pytest.approx(error, rel=1e-3)
    base = found.baseline
    assert (base.lam, base.loss, base.loss_se) == (0.0, 0.0, 0.0)
    assert base.score == pytest.approx(right_before.mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fitting_the_folds_by_hand_gives_the_reported_numbers(
    dtype: torch.dtype,
) -> None:
    """With whole numbers pairs sit at every radius, and outputs at the threshold."""
    moved = 0
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(5, (100, 3), generator=generator).to(dtype)
        labels = (x[:, 0] > x[:, 1]).long()
        noise = torch.randint(3, (100,), generator=generator)
        y = (0.25 + 0.25 * noise).to(dtype) * 0.5 + 0.375 * labels
        sizes = {"ks": [3, 6]} if seed % 3 == 0 else {"taus": [1.0, 2.0**0.5]}
        folds = list(KFold(4, shuffle=True, random_state=seed).split(x))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The choice is the model")
            found = tune(
                x,
                y,
                labels,
                **sizes,
                lams=LAMS,
                thetas=[None, 0.3],
                max_loss=0.1,
                normalization="density" if seed % 5 == 0 else None,
                link=Logit() if seed % 2 else None,
                cv=folds,
            )
        moved += found.best.lam > 0
        assert found.best in found.points or found.best is found.baseline
        newcomers = y.clone()
        post = GLIFPostProcessor(**found.settings())
        for known, new in folds:
            newcomers[new] = post.fit(x[known], y[known]).transform(x[new], y[new])
        right = ((newcomers > 0.5).long() == labels).double()
        before = ((y > 0.5).long() == labels).double()
        assert found.best.score == pytest.approx(float(right.mean()), abs=1e-15)
        difference = before - right
        assert found.best.loss == pytest.approx(float(difference.mean()), abs=1e-15)
        error = float(difference.std()) / 10
        assert found.best.loss_se == pytest.approx(error, abs=1e-15)
    assert moved > 4  # or this tests nothing


@pytest.mark.parametrize("kind", ["several", "link", "nearest", "groups"])
def test_every_point_is_what_a_post_processor_does(kind: str) -> None:
    x, y, _ = problem()
    options = {"taus": TAUS}
    if kind == "several":
        y = torch.stack([0.6 - y, y, 0.3 * y], 1)
    if kind == "link":
        options["link"] = Logit()
    if kind == "nearest":
        options = {"ks": [4, 9]}
    groups = None
    if kind == "groups":
        groups = torch.arange(len(x)) % 3 // 2 + 4
        options["groups"] = groups
    gathered: list[torch.Tensor] = []

    def remember(outputs: torch.Tensor) -> float:
        gathered.append(outputs.clone())
        return 1.0

    with pytest.warns(UserWarning, match="The choice is the model as it is"):
        found = tune(
            x,
            y,
            score=lambda f: 0.0,
            unfairness=remember,
            lams=LAMS,
            cv=splits(),
            **options,
        )
    assert len(gathered) == 1 + len(found.points)
    assert torch.equal(gathered[0], y)
    for point, outputs in zip(found.points, gathered[1:], strict=True):
        post = GLIFPostProcessor(**found.settings(point))
        for known, new in splits():
            old, came = (None, None) if groups is None else (groups[known], groups[new])
            post.fit(x[known], y[known], groups=old)
            expected = post.transform(x[new], y[new], groups=came)
            torch.testing.assert_close(outputs[new], expected, rtol=1e-5, atol=1e-6)
            if groups is not None and point.lam > 0:
                assert len(set(post.shares_.values())) > 1  # or this tests nothing


@pytest.mark.parametrize("sizes", [{"taus": TAUS}, {"ks": [4, 9]}])
def test_groups_are_balanced_where_everybody_is_fitted(sizes: Any) -> None:
    x, y, _ = problem()
    groups = torch.arange(len(x)) % 3 // 2
    gathered: list[torch.Tensor] = []

    def remember(outputs: torch.Tensor) -> float:
        gathered.append(outputs.clone())
        return -float(len(gathered))  # the last is the best

    found = tune(
        x, y, score=lambda f: 0.0, unfairness=remember, cv=None, groups=groups, **sizes
    )
    with pytest.raises(ValueError, match="'groups' must not be given together"):
        tune(x, y, groups=groups, guarantee=RiskControl(0.1, 0.1))
    with pytest.raises(ValueError, match="'normalization' must be"):
        tune(x, y, score=lambda f: 0.0, groups=groups, normalization="nrw")
    for point, outputs in zip(found.points, gathered[1:], strict=False):
        post = GLIFPostProcessor(**found.settings(point))
        expected = post.fit(x, y, groups=groups).y_fair_
        torch.testing.assert_close(outputs, expected, rtol=1e-4, atol=1e-5)
    post = GLIFPostProcessor(**found.settings()).fit(x, y, groups=groups)
    torch.testing.assert_close(gathered[-1], post.y_fair_, rtol=1e-4, atol=1e-5)


def test_the_walk_stops_at_the_first_that_may_cost_too_much() -> None:
    stopped_early = 0
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(60, 1, generator=generator, dtype=torch.float64)
        labels = (x[:, 0] > 0).long()
        noise = 0.2 * torch.randn(60, generator=generator, dtype=torch.float64)
        y = 0.5 + 0.2 * x[:, 0] + noise
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The choice is the model")
            found, plain = (
                tune(x, y, labels, taus=(0.2, 2.0), lams=LAMS, rule=rule, cv=3)
                for rule in ("one_se", "best")
            )
        expected = found.baseline
        for point in sorted(found.points, key=lambda p: -p.unfairness):
            if point.unfairness >= found.baseline.unfairness:
                continue
            if point.loss + point.loss_se > 0.01:
                break
            expected = point
        assert found.best == expected
        cheap = [p for p in plain.points if p.loss <= 0.01 + 1e-9]
        fairest = min([plain.baseline, *cheap], key=lambda p: p.unfairness)
        assert plain.best == fairest
        stopped_early += plain.best.unfairness < found.best.unfairness
    assert stopped_early > 3  # or the rules are the same


def test_a_bad_distance_stops_no_other() -> None:
    x, y, labels = problem()
    far = Mahalanobis(torch.diag(torch.tensor([1e-6, 1e-6], dtype=torch.float64)))
    near = Mahalanobis(torch.eye(2, dtype=torch.float64))
    alone = tune(x, y, labels, distance=near, taus=[0.4], lams=LAMS, max_loss=0.05)
    both = tune(
        x,
        y,
        labels,
        distances={"all alike": far, "as they are": near},
        distance=near,
        taus=[0.4],
        lams=LAMS,
        max_loss=0.05,
    )
    assert both.best.distance == "as they are"
    assert both.settings()["distance"] is near
    assert (both.best.lam, both.best.loss) == (alone.best.lam, alone.best.loss)
    # Judged on one graph, that of 'distance'.
    assert both.best.unfairness == alone.best.unfairness
    assert [p.distance for p in both.points] == ["all alike"] * 3 + ["as they are"] * 3
    assert "| tau | distance | lam |" in both.to_markdown()


def test_attribute_counts_unlike_decisions_across_it() -> None:
    x, y, labels = problem()
    sex = np.where(np.arange(90) % 3 == 0, "man", "woman")
    options = {"taus": TAUS, "lams": (1.0,), "theta": THETA, "cv": splits()}
    found = tune(x, y, labels, sensitive=sex, max_loss=0.5, **options)
    assert found.names[1] == "unlike decisions of similar people across the attribute"
    X, Y = x.numpy(), y.numpy()
    near = oracle.fitted_weights(X, max(TAUS), 0.0) * (sex[:, None] != sex[None])
    for point in (found.baseline, *found.points):
        f, fitted = by_formula(X, Y, point.tau, point.lam, None)
        unlike = pairs = 0.0
        for (known, new), f_known in zip(splits(), fitted, strict=True):
            part = near[np.ix_(new, known)]
            differ = (f[new] > 0.5)[:, None] != (f_known > 0.5)[None]
            unlike, pairs = unlike + (part * differ).sum(), pairs + part.sum()
        assert point.unfairness == pytest.approx(unlike / pairs)
    everybody = tune(x, y, labels, sensitive=sex, **options | {"cv": None})
    differ = (Y > 0.5)[:, None] != (Y > 0.5)[None]
    share = (near * differ).sum() / near.sum()
    assert everybody.baseline.unfairness == pytest.approx(share)
    gaps = tune(
        x, y, score=lambda f: 0.0, sensitive=sex, **options | {"cv": None}
    ).baseline.unfairness
    assert gaps == pytest.approx((near * np.abs(Y[:, None] - Y)).sum() / near.sum())


def test_own_scores_have_errors_from_folds() -> None:
    x, y, _ = problem()
    target = x[:, 0].sigmoid()

    def closeness(outputs: torch.Tensor) -> float:
        return -float((outputs - target).square().mean())

    found = tune(
        x, y, score=closeness, taus=[0.4], lams=[1.0], theta=THETA, cv=splits()
    )
    (point,) = found.points
    f, _ = by_formula(x.numpy(), y.numpy(), 0.4, 1.0, None)
    each = (f - target.numpy()) ** 2 - (y - target).numpy() ** 2
    parts = [each[new].sum() / 90 for _, new in splits()]
    assert point.loss == pytest.approx(sum(parts), rel=1e-4)
    error = math.sqrt(3 * np.var(parts, ddof=1))
    assert point.loss_se == pytest.approx(error, rel=1e-4)
    assert point.score_se is None


def test_people_of_a_group_come_together() -> None:
    x, y, labels = problem()
    clusters = np.array([f"household {at // 3}" for at in range(90)])
    options = {"taus": [3.0], "lams": [1.0], "theta": THETA, "max_loss": 1.0}
    came: list[torch.Tensor] = []

    def remember(outputs: torch.Tensor) -> float:
        came.append(outputs != y)
        return float(outputs.std())

    tune(x, y, score=remember, clusters=clusters, **options)
    # Errors of the score come from folds smoothed alone: those are the newcomers.
    folds = [new for new in came if 0 < int(new.sum()) < 90]
    assert len(folds) >= 5
    for new in folds:
        assert bool((new.view(30, 3).sum(1) % 3 == 0).all())
    again = tune(x, y, labels, clusters=clusters, cv=GroupKFold(5), **options)
    assert again.num_folds == 5
    # Members of a household count as one where errors are estimated.
    copies = tune(
        x.repeat(2, 1),
        y.repeat(2),
        labels.repeat(2),
        clusters=np.arange(180) % 90,
        **options,
    )
    single = float(copies.baseline.score_se)
    right = ((y > 0.5) == labels).double()
    assert single == pytest.approx(float(right.std()) / math.sqrt(90), rel=1e-9)
    with pytest.raises(ValueError, match="'cv' must not split a cluster"):
        tune(x, y, labels, clusters=clusters, cv=splits(), **options)
    with pytest.raises(ValueError, match="number of clusters with new samples, 2 "):
        tune(x, y, labels, clusters=np.arange(90) % 2, **options)


def test_folds_are_balanced_and_follow_the_generator() -> None:
    x, y, _ = problem()
    came: list[torch.Tensor] = []

    def remember(outputs: torch.Tensor) -> float:
        came.append(torch.nonzero(outputs != y)[:, 0])
        return 0.0

    tuned = partial(tune, x, y, unfairness=lambda f: 0.0, taus=[9.0], lams=[1.0])
    ignore = pytest.warns(UserWarning, match="nothing tried is fairer. Try a larger")
    with ignore:
        tuned(score=remember)
    # The loss is taken from folds smoothed alone: each changes its own newcomers.
    folds = [rows for rows in came if 0 < len(rows) < 90][:5]
    assert torch.equal(torch.cat(folds).sort().values, torch.arange(90))
    assert [len(rows) for rows in folds] == [18] * 5
    first = [rows.tolist() for rows in came]
    came.clear()
    with ignore:
        tuned(score=remember)
    assert [rows.tolist() for rows in came] == first
    came.clear()
    with ignore:
        tuned(score=remember, generator=torch.Generator().manual_seed(1))
    assert [rows.tolist() for rows in came] != first


def test_people_without_a_label_are_neighbours_only() -> None:
    x, y, labels = problem()
    mask = torch.arange(90) >= 30
    found = tune(
        x, y, labels, mask=mask, taus=[0.4], lams=[1.0], theta=THETA, cv=4, max_loss=1
    )
    folds = [
        (np.setdiff1d(np.arange(90), new), new)
        for new in np.array_split(np.arange(30, 90), 4)
    ]
    given = tune(
        x,
        y,
        labels,
        mask=mask,
        taus=[0.4],
        lams=[1.0],
        theta=THETA,
        cv=folds,
        max_loss=1,
    )
    right = ((y > 0.5) == labels).double()[30:]
    for result in (found, given):
        assert result.baseline.score == pytest.approx(float(right.mean()))
    outputs = y.clone()
    post = GLIFPostProcessor(tau=0.4, lam=1.0, theta=THETA)
    for known, new in folds:
        outputs[new] = post.fit(x[known], y[known]).transform(x[new], y[new])
    right = ((outputs > 0.5) == labels).double()[30:]
    assert given.points[0].score == pytest.approx(float(right.mean()))


def test_references_are_fitted_and_newcomers_keep_their_outputs() -> None:
    x, y, labels = problem()
    generator = torch.Generator().manual_seed(1)
    references = []
    for _, new in splits():
        other = (y + 0.1 * torch.randn(90, generator=generator)).clamp(0.01, 0.99)
        other[new] = math.nan  # never looked at
        references.append(other)
    options = {"taus": TAUS, "lams": LAMS, "max_loss": 0.5, "link": Logit()}
    found = tune(x, y, labels, references=references, cv=splits(), **options)
    before = ((y > 0.5) == labels).double()
    assert found.baseline.score == pytest.approx(float(before.mean()))
    post, outputs = GLIFPostProcessor(**found.settings()), y.clone()
    for (known, new), other in zip(splits(), references, strict=True):
        outputs[new] = post.fit(x[known], other[known]).transform(x[new], y[new])
    right = ((outputs > 0.5) == labels).double()
    assert found.best.lam > 0
    assert found.best.score == pytest.approx(float(right.mean()))
    # And that is not what the model's own outputs give.
    same = tune(x, y, labels, references=[y] * 3, cv=splits(), **options)
    plain = tune(x, y, labels, cv=splits(), **options)
    assert same.points == plain.points != found.points


def test_the_order_of_people_does_not_matter() -> None:
    x, y, labels = problem()
    order = torch.randperm(90, generator=torch.Generator().manual_seed(5))
    place = order.argsort().numpy()
    moved = [(place[known], place[new]) for known, new in splits()]
    options = {"taus": TAUS, "lams": LAMS, "max_loss": 0.05}
    one = tune(x, y, labels, cv=splits(), **options)
    two = tune(x[order], y[order], labels[order], cv=moved, **options)
    for a, b in zip(one.points, two.points, strict=True):
        assert (a.score, a.loss) == (b.score, b.loss)
        assert a.unfairness == pytest.approx(b.unfairness, rel=1e-5)


def test_the_model_is_kept_where_nothing_is_cheap_enough() -> None:
    x, y, labels = problem()
    y = 0.5 + 0.4 * (labels - 0.5)  # right in every case
    message = (
        r"nothing tried is fairer at a loss within 0\. The cheapest, tau=3, lam=10"
    )
    with pytest.warns(UserWarning, match=message):
        found = tune(x, y, labels, taus=[3.0], lams=[10.0], max_loss=0.0)
    assert found.best is found.baseline
    assert found.settings()["lam"] == 0.0


def test_result_tells_errors() -> None:
    x, y, labels = problem()
    found = tune(x, y, labels, ks=[5], lams=[0.1, 1.0], max_loss=0.2)
    assert found.settings() == {
        "k": 5,
        "lam": found.best.lam,
        "theta": None,
        "distance": None,
        "normalization": None,
        "solver": None,
        "link": None,
    }
    header = found.to_markdown().splitlines()[0]
    assert header == "| k | lam | accuracy | loss | squared gap of similar people |"
    assert f"± {found.best.loss_se:.2g}" in found.to_markdown()
    record = found.to_dict()
    assert record["best"]["loss_se"] == found.best.loss_se
    assert (record["rule"], record["num_folds"]) == ("one_se", 5)
    assert record["best"]["tau"] == "Infinity"
    assert repr(found.best).startswith(f"TunePoint(k=5, lam={found.best.lam:g}, score=")
    assert isinstance(found, TuneResult)
    assert isinstance(found.best, TunePoint)


def test_a_strength_beyond_shared_products_is_solved_alone() -> None:
    """Rounding would hide how good a common solve of these is."""
    x, y, labels = problem()
    found = tune(
        x, y, labels, taus=TAUS, lams=(1.0, 1e13), theta=THETA, cv=splits(), rule="best"
    )
    for point in found.points:
        outputs, _ = by_formula(x.numpy(), y.numpy(), point.tau, point.lam, None)
        right = (outputs > 0.5) == labels.numpy()
        assert point.score == pytest.approx(right.mean())


def test_a_graph_that_is_known_is_not_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, labels = problem()
    options = {"taus": TAUS, "lams": LAMS, "max_loss": 0.2}
    expected = tune(x, y, labels, **options)
    graph = SimilarityGraph.search(x, 1.5)  # a larger radius has them all
    monkeypatch.setattr(SimilarityGraph, "search", None)
    found = tune(x, y, labels, **options, graph=graph)
    assert found.points == expected.points
    assert found.best == expected.best


def test_beyond_ten_thousand_the_choice_is_what_the_sweep_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, labels = problem()
    options = {"taus": TAUS, "lams": LAMS, "max_loss": 0.2}
    solved = tune(x, y, labels, **options)
    monkeypatch.setattr(evaluate, "_MANY", 80)
    found = tune(x, y, labels, **options)
    assert found.best.lam == solved.best.lam > 0
    assert found.best.score == solved.best.score
    assert found.best.unfairness == pytest.approx(solved.best.unfairness, rel=1e-5)


def test_limits_of_the_loss_grow_as_newcomers_get_fewer() -> None:
    x, y, labels = problem()
    found = tune(x, y, labels, taus=TAUS, lams=LAMS, max_loss=0.2)
    best, quantile = found.best, 1.959963984540054
    assert (found.num_scored, best.lam > 0) == (90, True)
    low, high = found.loss_interval()
    assert low == pytest.approx(best.loss - quantile * best.loss_se)
    assert high == pytest.approx(best.loss + quantile * best.loss_se)
    # As many newcomers again: twice the variance.
    low, high = found.loss_interval(90)
    assert high - low == pytest.approx(2 * quantile * 2**0.5 * best.loss_se)
    assert (low + high) / 2 == pytest.approx(best.loss)
    low, high = found.loss_interval(30, level=0.5)
    assert high - low == pytest.approx(2 * 0.6744897501960817 * 2 * best.loss_se)
    with pytest.raises(ValueError, match=re.escape("'num_new' must be at least 1")):
        found.loss_interval(0)
    with pytest.raises(ValueError, match="'cv' must not have been None"):
        tune(x, y, labels, taus=TAUS, lams=LAMS, cv=None).loss_interval()


def test_plot_draws_the_choice_and_its_errors() -> None:
    pytest.importorskip("matplotlib")
    x, y, labels = problem()
    found = tune(x, y, labels, taus=TAUS, lams=LAMS, max_loss=0.2)
    figure = found.plot()
    (axes,) = figure.axes
    assert found.best.describe() in axes.get_title()
    assert f"± {found.best.loss_se:.4f}" in axes.get_title()
    assert "squared gap of similar people" in axes.get_xlabel()
    chosen = axes.containers[-1]
    (mark,) = chosen.lines[0].get_xydata()
    assert tuple(mark) == (found.best.unfairness, found.best.score)
    across, up = (bars.get_segments()[0] for bars in chosen.lines[2])
    assert up[1][1] - up[0][1] == pytest.approx(2 * found.best.loss_se)
    assert across[1][0] - across[0][0] == pytest.approx(2 * found.best.unfairness_se)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"cv": 1}, ValueError, "'cv' must be at least 2 (got 1)"),
        (
            {"cv": 7},
            ValueError,
            "'cv' must be at most the number of samples that can be new, 6 (got 7)"
            ". Pass fewer folds, or 'None' to score who was fitted",
        ),
        (
            {"graph": SimilarityGraph.search(torch.zeros(5, 1), 1.0), "taus": [1.0]},
            ValueError,
            "'graph' must be of a radius, with the 6 rows of 'x' (got "
            "SimilarityGraph(num_nodes=5, num_edges=20, tau=1))",
        ),
        (
            {"graph": SimilarityGraph.nearest(torch.zeros(6, 1), 1), "taus": [1.0]},
            ValueError,
            "'graph' must be of a radius, with the 6 rows of 'x' (got "
            "SimilarityGraph(num_nodes=6, num_edges=30, k=1))",
        ),
        (
            {"graph": SimilarityGraph.search(torch.zeros(6, 1), 1.0), "taus": None},
            ValueError,
            "'taus' must be given with 'graph' (got None)",
        ),
        (
            {"graph": SimilarityGraph.search(torch.zeros(6, 1), 1.0), "taus": [2.0]},
            ValueError,
            "'tau' must be at most the radius of the graph, 1 (got 2). Search at the "
            "largest radius",
        ),
        (
            {"cv": "five"},
            TypeError,
            "'cv' must be a number of folds, a splitter of scikit-learn or pairs of "
            "row numbers (got 'five')",
        ),
        (
            {"cv": [([0, 1], [2, 3])]},
            ValueError,
            "'cv' must have at least 2 folds (got 1)",
        ),
        (
            {"cv": [([0, 1], [2, 3]), ([0, 1], [3, 4])]},
            ValueError,
            "'cv' must make nobody a newcomer twice (got row 3 in 2 folds). Use "
            "'KFold' or a number",
        ),
        (
            {"cv": [([0, 1, 2], [2, 3]), ([0, 1], [4])]},
            ValueError,
            "'cv' must not fit newcomers (got row 2 on both sides of fold 0)",
        ),
        (
            {"cv": [([0, 1], []), ([0, 1], [4])]},
            ValueError,
            "'cv' must have new people in every fold (got none in fold 0)",
        ),
        (
            {"cv": [([0, 1], [9]), ([0, 1], [4])]},
            ValueError,
            "'cv' must hold node indices from 0 to 5 (got 9)",
        ),
        (
            {"clusters": [0, 1]},
            ValueError,
            "'clusters' must have one entry per row (got shape (2,) for 6)",
        ),
        (
            {"sensitive": [0] * 6},
            ValueError,
            "'sensitive' must take at least two values (got [0] only)",
        ),
        (
            {"labels": [1] * 6},
            ValueError,
            "'labels' must take at least two values (got [1] only)",
        ),
        (
            {"sensitive": [0, 1] * 3, "pairs": [[0, 1]]},
            ValueError,
            "'pairs' must not be given together with 'sensitive'",
        ),
        (
            {"thetas": []},
            ValueError,
            "'thetas' must hold at least one number (got none)",
        ),
        ({"thetas": [-1]}, ValueError, "'thetas' must be non-negative (got -1.0)"),
        (
            {"ks": [3]},
            ValueError,
            "'ks' must not be given together with 'taus'",
        ),
        (
            {"ks": [], "taus": None},
            ValueError,
            "'ks' must hold at least one number (got none)",
        ),
        ({"ks": [0], "taus": None}, ValueError, "'ks' must be at least 1 (got 0)"),
        (
            {"distances": {}},
            ValueError,
            "'distances' must hold at least one distance (got none)",
        ),
        (
            {"references": [[0.5] * 6] * 3},
            ValueError,
            "'references' must come with folds of your own (got none in 'cv'). Pass "
            "pairs of row numbers or a splitter",
        ),
        (
            {"references": [[0.5] * 6], "cv": KFold(2)},
            ValueError,
            "'references' must have one set of outputs per fold, 2 (got 1)",
        ),
        (
            {"references": [[0.5] * 5] * 2, "cv": KFold(2)},
            ValueError,
            "'references' must have the shape of 'y_hat', (6,) (got (5,))",
        ),
        (
            {"rule": "luck"},
            ValueError,
            "'rule' must be one of 'one_se', 'best' (got 'luck')",
        ),
    ],
)
def test_tune_rejects(change: dict[str, object], error: type, message: str) -> None:
    options = {
        "x": torch.arange(6.0).unsqueeze(1),
        "y_hat": [0.1, 0.2, 0.3, 0.7, 0.8, 0.9],
        "labels": [0, 1, 1, 0, 1, 1],
        "taus": [1.0],
        "cv": 3,
        **change,
    }
    with pytest.raises(error) as caught:
        tune(**options)
    assert str(caught.value) == message
