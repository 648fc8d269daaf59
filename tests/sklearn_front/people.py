"""People, models and formulas for the tests of the estimators."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

Array = NDArray[Any]


def frame(num: int = 120, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    """Numbers, categories, gaps and a sensitive column; who was given a loan."""
    random = np.random.default_rng(seed)
    df = pd.DataFrame(
        {
            "income": random.normal(3.0, 1.0, num).round(2),
            "years": random.integers(0, 9, num),
            "job": random.choice(["clerk", "cook", "nurse"], num),
            "sex": random.choice(["f", "m"], num),
        }
    )
    score = df["income"] + 0.2 * df["years"] + 0.8 * (df["sex"] == "m") - 4.3
    y = random.random(num) < 1 / (1 + np.exp(-2 * score))
    return df, np.where(y, "yes", "no")


def pipeline() -> Pipeline:
    """A linear model of the frame."""
    hot = OneHotEncoder(handle_unknown="ignore")
    columns = make_column_transformer((hot, ["job", "sex"]), remainder="passthrough")
    return make_pipeline(columns, LogisticRegression())


class Untrainable(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that must not be trained."""

    def fit(self, X: Any, y: Any) -> "Untrainable":
        raise AssertionError("trained before the input was checked")

    def predict_proba(self, X: Any) -> Array:
        raise AssertionError("asked before the input was checked")


def log_odds(p: Array) -> Array:
    return np.log(p) - np.log1p(-p)


def weights(z: Array, others: Array, tau: float, c: float) -> Array:
    """Dense weights of people and others, from the formula."""
    square = ((z[:, None] - others[None]) ** 2).sum(-1)
    return np.where(square <= tau**2, np.exp(-c * square / tau**2), 0.0)


def smoothed(z: Array, eta: Array, tau: float, lam: float, c: float) -> Array:
    """The solution for fitted people, dense."""
    w = weights(z, z, tau, c)
    np.fill_diagonal(w, 0.0)
    lap = np.diag(w.sum(1)) - w
    return np.linalg.solve(np.eye(len(z)) + lam * lap, eta)


def updated(
    z: Array, eta: Array, fitted: Array, f: Array, tau: float, lam: float, c: float
) -> Array:
    """One step for newcomers."""
    w = lam * weights(z, fitted, tau, c)
    pull = w @ f
    total = 1.0 + w.sum(1)
    return (eta + pull) / (total if eta.ndim == 1 else total[:, None])
