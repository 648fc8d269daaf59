"""The estimators among those of scikit-learn."""

import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from pyg_glif.sklearn import GLIFClassifier
from tests.sklearn_front.people import Array, frame, pipeline

COLUMNS = ["income", "years"]


def numbers() -> tuple[pd.DataFrame, Array]:
    df, y = frame()
    return df[COLUMNS], y


def test_a_grid_search_reaches_strength_and_model() -> None:
    df, y = numbers()
    ours = GLIFClassifier(DecisionTreeClassifier(random_state=0), random_state=0, cv=3)
    grid = {"lam": [0.0, 1.0], "estimator__max_depth": [1, 3]}
    found = GridSearchCV(ours, grid, cv=3).fit(df, y)
    assert found.best_estimator_.estimator_.max_depth in (1, 3)
    # Without strength the score is that of the model.
    rows = [p["lam"] == 0.0 for p in found.cv_results_["params"]]
    alone = [
        cross_val_score(
            DecisionTreeClassifier(max_depth=depth, random_state=0), df, y, cv=3
        ).mean()
        for depth in (1, 3)
    ]
    np.testing.assert_allclose(found.cv_results_["mean_test_score"][rows], alone)


def test_it_is_the_last_step_of_a_pipeline() -> None:
    df, y = numbers()
    last = GLIFClassifier(LogisticRegression(), sensitive=[1], lam=1.0, random_state=0)
    ours = make_pipeline(StandardScaler(), last).fit(df, y)
    expected = last.fit(StandardScaler().fit_transform(df), y)
    scaled = StandardScaler().fit(df).transform(df)
    np.testing.assert_array_equal(
        ours.predict_proba(df), expected.predict_proba(scaled)
    )
    assert cross_val_score(ours, df, y, scoring="roc_auc", cv=3).mean() > 0.7


def test_frames_of_a_step_before_keep_their_names() -> None:
    df, y = numbers()
    scaler = StandardScaler().set_output(transform="pandas")
    ours = make_pipeline(
        scaler, GLIFClassifier(LogisticRegression(), sensitive=["years"], lam=1.0)
    )
    ours.fit(df, y)
    assert list(ours[-1].feature_names_in_) == COLUMNS
    assert ours[-1].table_.sensitive == ["years"]


def test_it_is_evaluated_by_folds_and_trains_models_side_by_side() -> None:
    df, y = frame()
    ours = GLIFClassifier(pipeline(), sensitive=["sex"], max_loss=0.2, random_state=0)
    p = cross_val_predict(ours, df, y, cv=3, method="predict_proba")
    assert p.shape == (120, 2)
    alone = clone(ours).set_params(lam=1.0).fit(df, y).predict_proba(df)
    with joblib.parallel_backend("threading"):
        two = clone(ours).set_params(lam=1.0, n_jobs=2).fit(df, y)
    together = two.predict_proba(df)
    np.testing.assert_allclose(together, alone, rtol=1e-9)


def test_same_seed_same_numbers() -> None:
    df, y = frame()
    ours = GLIFClassifier(pipeline(), sensitive=["sex"], lam=1.0, random_state=3)
    first, second = (clone(ours).fit(df, y).predict_proba(df) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    other = ours.set_params(random_state=4).fit(df, y).predict_proba(df)
    assert (other != first).any()


def test_a_copy_predicts_the_same() -> None:
    df, y = frame()
    ours = GLIFClassifier(pipeline(), sensitive=["sex"], lam=1.0).fit(df, y)
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.predict_proba(df), ours.predict_proba(df))
    assert not hasattr(clone(ours), "post_")


class Noting(LogisticRegression):  # type: ignore[misc]
    """Keeps the weights that it was trained with."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Noting":
        self.seen_ = sample_weight
        super().fit(X, y, sample_weight)
        return self


def test_metadata_are_routed_by_request() -> None:
    df, y = numbers()
    weight, group = np.linspace(1.0, 2.0, len(df)), np.arange(len(df)) // 2
    with sklearn.config_context(enable_metadata_routing=True):
        model = Noting().set_fit_request(sample_weight=True)
        cv = GroupKFold(3).set_split_request(groups=True)
        ours = GLIFClassifier(model, cv=cv, lam=0.0)
        ours.set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        ours.fit(df, y, sample_weight=weight, groups=group)
        np.testing.assert_array_equal(ours.estimator_.seen_, weight)
        expected = cross_val_predict(
            model,
            df,
            y,
            cv=cv,
            method="predict_proba",
            params={"sample_weight": weight, "groups": group},
        )
        np.testing.assert_allclose(ours.post_.y_fair_, expected[:, 1])
        found = cross_val_score(
            ours, df, y, params={"sample_weight": weight, "groups": group}, cv=3
        )
        assert len(found) == 3
        with pytest.raises(TypeError, match="unexpected argument"):
            ours.fit(df, y, colour=weight)
