"""A classifier whose strength is certified by people who were set aside."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_parameters_default_constructible

from pyg_glif.model_selection import RiskControl
from pyg_glif.sklearn import GLIFClassifier
from tests.sklearn_front.people import frame, pipeline


def people(num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.normal(size=(num, 3))
    noise = random.logistic(size=num)
    return x, np.where(x[:, 0] + 0.5 * x[:, 2] + 0.7 * noise > 0, "yes", "no")


def model(control: RiskControl | None = None) -> GLIFClassifier:
    return GLIFClassifier(
        LogisticRegression(),
        sensitive=[2],
        random_state=0,
        rehearse=False,
        guarantee=control,
    )


def test_those_set_aside_have_no_part_in_the_fit() -> None:
    x, y = people(500, 0)
    fitted = model(RiskControl(0.05, share=0.4)).fit(x, y)
    promise = fitted.guarantee_
    assert promise.chosen is not None
    assert len(promise.set_aside) == 200
    rows = np.sort(np.r_[promise.fitted.numpy(), promise.set_aside.numpy()])
    assert (rows == np.arange(500)).all()
    # A fit to the others with that strength is the same.
    alone = model().set_params(lam=promise.chosen.point.lam)
    kept = promise.fitted.numpy()
    alone.fit(x[kept], y[kept])
    new, _ = people(50, 1)
    np.testing.assert_allclose(fitted.predict_proba(new), alone.predict_proba(new))
    # And its risk among those set aside is the one reported.
    aside = promise.set_aside.numpy()
    before = alone.estimator_.predict(x[aside]) == y[aside]
    after = alone.predict(x[aside]) == y[aside]
    lost = before.astype(float) - after
    assert promise.chosen.risks["loss"] == pytest.approx(lost.mean())
    assert fitted.tune_.guarantee is promise
    assert fitted.tune_.best == promise.chosen.point


def test_no_strength_qualifies() -> None:
    x, y = people(400, 2)
    alone = model(RiskControl(0.1, share=0.5)).set_params(tau=1e-9)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        alone.fit(x, y)
        found = alone.predict_proba(x[:40])
    texts = [str(one.message) for one in told]
    assert any("Nothing tried is fairer than the model" in text for text in texts)
    assert alone.guarantee_.chosen is None
    given = alone.estimator_.predict_proba(x[:40])
    np.testing.assert_allclose(found, given, atol=1e-5)


def test_a_second_fit_without_a_promise_has_none() -> None:
    x, y = people(300, 3)
    fitted = model(RiskControl(0.1, share=0.4)).fit(x, y)
    fitted.set_params(guarantee=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted.fit(x, y)
    assert not hasattr(fitted, "guarantee_")
    assert len(fitted.post_.y_fair_) == 300


def test_weights_are_set_aside_with_their_people() -> None:
    x, y = people(300, 4)
    weight = np.where(np.arange(300) % 2, 1.0, 3.0)
    fitted = model(RiskControl(0.1, share=0.4)).fit(x, y, sample_weight=weight)
    kept = fitted.guarantee_.fitted.numpy()
    alone = LogisticRegression().fit(x[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_allclose(fitted.estimator_.coef_, alone.coef_)


@pytest.mark.parametrize("index", ["named", "counted"])
def test_a_guarantee_keeps_what_explanations_and_files_hold(
    index: str, tmp_path: Path
) -> None:
    df, y = frame(400)
    if index == "named":
        df.index = [f"p{i:03}" for i in range(400)]
    new, _ = frame(3, seed=1)
    plain = GLIFClassifier(
        pipeline(), sensitive=["sex"], k=20, max_loss=1.0, rehearse=False, cv=3
    )
    kinds = []
    for control in (None, RiskControl(0.2, share=0.4)):
        fitted = clone(plain).set_params(guarantee=control).fit(df, y)
        path = tmp_path / f"{control is None}.safetensors"
        fitted.save(path)
        again = GLIFClassifier.load(path, estimator=fitted.estimator_)
        for model in (fitted, again):
            explanations = model.explain(new)
            kinds.append(
                {
                    "ids": model.post_.ids_ is not None,
                    "metadata": sorted(model.post_.metadata_),
                    "reasons": [e.reasons is None for e in explanations],
                    "closest": [e.closest is None for e in explanations],
                    "contributors": [e.ids is None for e in explanations],
                }
            )
            if index == "named":
                rows = slice(None)
                if control is not None:
                    rows = fitted.guarantee_.fitted.numpy()
                assert list(model.post_.ids_) == df.index[rows].tolist()
    assert kinds[:2] == kinds[2:]
    assert not any(kinds[0]["reasons"] + kinds[0]["closest"])


def test_bad_promises() -> None:
    x, y = people(60, 5)
    with pytest.raises(ValueError, match="must have at least 399 people set aside"):
        model(RiskControl(0.01)).fit(x, y)
    fixed = model(RiskControl(0.1)).set_params(lam=1.0)
    with pytest.raises(ValueError, match="'lam' must be 'tune' with a 'guarantee'"):
        fixed.fit(x, y)
    wrong = model().set_params(guarantee=0.1)
    with pytest.raises(TypeError, match="'guarantee' must be a RiskControl"):
        wrong.fit(x, y)


def test_the_promise_is_a_parameter() -> None:
    control = RiskControl(0.05)
    assert clone(model(control)).guarantee == control
    check_parameters_default_constructible("GLIFClassifier", model())
    assert math.isclose(model(control).get_params()["guarantee"].delta, 0.1)
