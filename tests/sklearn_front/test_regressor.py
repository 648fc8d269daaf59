"""The regressor against its formulas, written out in NumPy."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict

from pyg_glif.graph.weights import DECAY
from pyg_glif.links import Log
from pyg_glif.sklearn import GLIFRegressor
from tests.sklearn_front.people import smoothed, updated


def people() -> tuple[Any, Any, Any]:
    """Numbers of 90 people, what is true of them, and numbers of 20 newcomers."""
    random = np.random.default_rng(3)
    x = random.normal(size=(110, 3))
    y = x @ [1.0, 0.5, -1.0] + 0.5 * random.normal(size=110)
    return x[:90], y[:90], x[90:]


@pytest.mark.parametrize("link", ["identity", "log"])
def test_outputs_follow_the_formulas(link: Any) -> None:
    x, y, new = people()
    y = y + 20.0  # positive
    folds = list(KFold(3, shuffle=True, random_state=5).split(x))
    model = LinearRegression()
    options = {"sensitive": [1], "tau": 0.5, "lam": 0.7, "cv": folds, "link": link}
    ours = GLIFRegressor(model, **options).fit(x, y)

    model = clone(model).fit(x, y)
    # The partial dependence of a linear output is a column times its coefficient,
    # constant beyond the people of the fit.
    inside = new.clip(x.min(0), x.max(0))
    z, z_new = (v[:, [0, 2]] * model.coef_[[0, 2]] for v in (x, inside))
    dual, back = (np.log, np.exp) if link == "log" else (np.array, np.array)
    reference = dual(cross_val_predict(model, x, y, cv=folds))
    f = smoothed(z, reference, 0.5, 0.7, DECAY)
    eta = updated(z_new, dual(model.predict(new)), z, f, 0.5, 0.7, DECAY)
    np.testing.assert_allclose(ours.predict(new), back(eta), rtol=1e-5)
    assert ours.table_.unit_ == "output"


def test_the_strength_is_tuned_by_the_share_of_variance_explained() -> None:
    x, y, _ = people()
    ours = GLIFRegressor(LinearRegression(), random_state=0, max_loss=0.02).fit(x, y)
    assert ours.tune_.best.loss <= 0.02
    assert ours.tune_.baseline.score == pytest.approx(
        r2_score(y, clone(ours).set_params(lam=0.0).fit(x, y).post_.y_fair_)
    )
    assert ours.score(x, y) == pytest.approx(r2_score(y, ours.predict(x)))


def test_an_audit_has_the_score_before_and_after() -> None:
    x, y, _ = people()
    ours = GLIFRegressor(LinearRegression(), lam=1.0, sensitive=[1]).fit(x, y)
    facts = ours.audit(x, y).facts
    assert facts["r2_before"] == pytest.approx(ours.estimator_.score(x, y))
    assert facts["r2_after"] == pytest.approx(ours.score(x, y))


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"estimator": LogisticRegression()},
            TypeError,
            "a regressor .got LogisticReg",
        ),
        ({"link": "logit"}, ValueError, "'link' must be"),
        ({"sensitive": [5]}, ValueError, "'sensitive' must"),
        ({"k": 3, "tau": 1.0}, ValueError, "'k' must be given without 'tau'"),
    ],
)
def test_bad_input(params: Any, error: type[Exception], message: str) -> None:
    x, y, _ = people()
    with pytest.raises(error, match=message):
        GLIFRegressor(**{"estimator": LinearRegression(), **params}).fit(x, y)


def test_outputs_must_be_positive_for_their_logarithm() -> None:
    x, y, _ = people()
    with pytest.raises(ValueError, match="must be positive"):
        GLIFRegressor(LinearRegression(), link=Log(), lam=1.0).fit(x, y)
