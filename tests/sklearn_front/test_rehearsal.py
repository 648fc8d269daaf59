"""Every fold comes to models and scales that have not seen it."""

import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict

from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor, _base
from pyg_glif.tables import FairTable
from tests.sklearn_front.people import (
    Array,
    frame,
    log_odds,
    pipeline,
    smoothed,
    weights,
)

FOLDS = StratifiedKFold(4, shuffle=True, random_state=0)


def told_by_hand(df: Any, y: Array, tau: float, c: float, lam: float) -> Array:
    """Who is right as a newcomer of a fold, from models without that fold."""
    folds = list(FOLDS.split(df, y))
    right = np.zeros(len(df), dtype=bool)
    for known, new in folds:
        model = clone(pipeline()).fit(df.iloc[known], y[known])
        eta = np.empty(len(df))
        for _, others in folds:
            rest = np.setdiff1d(known, others)
            two = clone(pipeline()).fit(df.iloc[rest], y[rest])
            eta[others] = log_odds(two.predict_proba(df.iloc[others])[:, 1])
        table = FairTable(["sex"], outputs="probabilities", random_state=TABLE_SEED)
        z = table.fit(df.iloc[known], model.predict_proba).transform(df).numpy()
        f = smoothed(z[known], eta[known], tau, lam, c)
        w = weights(z[new], z[known], tau, c)
        own = log_odds(model.predict_proba(df.iloc[new])[:, 1])
        after = (own + lam * w @ f) / (1 + lam * w.sum(1))
        right[new] = np.where(after > 0, "yes", "no") == y[new]
    return right


# What the estimator draws from 'random_state=0' for its table.
TABLE_SEED = int(np.random.RandomState(0).randint(2**31 - 1))


def test_losses_are_those_of_models_without_the_fold() -> None:
    df, y = frame(150)
    ours = GLIFClassifier(
        pipeline(), sensitive=["sex"], cv=FOLDS, tau=0.5, max_loss=1.0, random_state=0
    ).fit(df, y)
    before = cross_val_predict(pipeline(), df, y, cv=FOLDS) == y
    assert ours.tune_.baseline.score == pytest.approx(before.mean())
    assert ours.tune_.num_scored == 150
    changed = 0
    for point in ours.tune_.points:
        right = told_by_hand(df, y, 0.5, 2.0, point.lam)
        assert point.score == pytest.approx(right.mean(), abs=1e-12)
        lost = before.astype(float) - right
        assert point.loss == pytest.approx(lost.mean(), abs=1e-12)
        error = lost.std(ddof=1) / np.sqrt(150)
        assert point.loss_se == pytest.approx(error, abs=1e-12)
        changed += (before != right).sum()
    assert changed > 10  # or this tests nothing
    # The fit itself is the same with and without.
    plain = clone(ours).set_params(rehearse=False, lam=ours.post_.lam).fit(df, y)
    np.testing.assert_array_equal(ours.predict_proba(df), plain.predict_proba(df))


@pytest.mark.parametrize("options", [{}, {"k": 5}, {"tau": 0.0}])
def test_regressors_rehearse_too(options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    x = random.integers(0, 5, size=(90, 3)).astype(float)
    y = x[:, 0] + x[:, 2] + random.normal(size=90)
    folds = KFold(3, shuffle=True, random_state=0)
    ours = GLIFRegressor(
        LinearRegression(), sensitive=[2], cv=folds, max_loss=1.0, **options
    ).fit(x, y)
    expected = r2_score(y, cross_val_predict(LinearRegression(), x, y, cv=folds))
    assert ours.tune_.baseline.score == pytest.approx(expected)
    # Smoothing over the noise of a line changes its score, a little.
    losses = [point.loss for point in ours.tune_.points]
    assert any(losses)
    assert max(map(abs, losses)) < 0.5


@pytest.mark.parametrize(
    ("y", "cv", "missing"),
    [
        ([0, 1, 0, 1, 0, 1], 2, "three folds or more in which everybody comes once"),
        (
            [0, 1, 0, 1, 0, 1],
            [([2, 3], [0, 1]), ([4, 5], [2, 3]), ([0, 1], [4, 5])],
            "people who are fitted in both of every two folds",
        ),
        (
            [1, 0, 1, 0, 0, 0],
            KFold(3),
            "every class among those who are fitted in both of two folds",
        ),
    ],
)
def test_folds_that_leave_nothing_to_learn_from(
    y: list[int], cv: Any, missing: str
) -> None:
    x = np.arange(12.0).reshape(6, 2) % 5
    model = GLIFClassifier(
        LogisticRegression(), sensitive=[1], rehearse=True, cv=cv, max_loss=1.0, tau=9.0
    )
    message = f"'cv' must have {missing} if 'rehearse' is True"
    with pytest.raises(ValueError, match=re.escape(message)):
        model.fit(x, y)
    # They are no reason to fail if nobody asked for a rehearsal.
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "The choice is the model|Everybody|The radius"
        )
        assert model.set_params(rehearse=None).fit(x, y).tune_.num_scored == 6


def test_many_people_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_base, "_FEW_PEOPLE", 100)
    monkeypatch.setattr(_base, "Rehearsal", None)
    df, y = frame(101)
    ours = GLIFClassifier(pipeline(), sensitive=["sex"], max_loss=1.0, random_state=0)
    assert ours.fit(df, y).tune_.num_scored == 101


def test_a_fold_without_a_scale_of_its_own_ends_the_rehearsal() -> None:
    """A column that only the people of one fold have cannot be scaled without them."""
    df, y = frame(90)
    df["note"] = np.nan
    folds = list(FOLDS.split(df, y))
    df.loc[folds[0][1], "note"] = np.arange(len(folds[0][1]), dtype=float)
    model = DummyClassifier(strategy="prior")
    ours = GLIFClassifier(
        model, sensitive=["sex"], scale="standard", cv=FOLDS, tau=1.0, max_loss=1.0
    )
    fitted = ours.fit(df, y)
    assert fitted.tune_.num_scored == 90
    with pytest.raises(ValueError, match="note"):
        ours.set_params(rehearse=True).fit(df, y)
