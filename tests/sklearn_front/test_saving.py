"""Files of the estimators."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor
from tests.sklearn_front.people import frame, pipeline

NEW, _ = frame(40, seed=1)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {
            "lam": 0.5,
            "tau": 0.8,
            "link": "identity",
            "equivalent": {"job": [("cook", "clerk")]},
        },
        {"k": 4, "ignore": [1], "max_loss": 0.01, "normalization": "density"},
        {"scale": "standard", "coverage": 0.8, "proxies": True, "max_loss": 0.1},
    ],
)
def test_what_is_loaded_predicts_the_same(params: Any, tmp_path: Path) -> None:
    df, y = frame()
    ours = GLIFClassifier(pipeline(), sensitive=["sex"], random_state=0, **params)
    ours.fit(df, y).save(tmp_path / "fit.safetensors")
    again = GLIFClassifier.load(tmp_path / "fit.safetensors", estimator=ours.estimator_)
    np.testing.assert_array_equal(again.predict_proba(NEW), ours.predict_proba(NEW))
    np.testing.assert_array_equal(again.predict(NEW), ours.predict(NEW))
    assert list(again.feature_names_in_) == list(df)
    assert again.n_features_in_ == 4
    assert again.sensitive == ("sex",)
    for name in ("tau", "lam", "k", "coverage", "max_loss", "normalization", "proxies"):
        assert getattr(again, name) == getattr(ours, name)
    with pytest.raises(ValueError, match="same order"):
        again.predict(NEW[NEW.columns[::-1]])
    # And can be fitted anew.
    np.testing.assert_array_equal(
        again.set_params(estimator=pipeline(), random_state=0).fit(df, y).predict(NEW),
        ours.predict(NEW),
    )


@pytest.mark.parametrize("labels", [["no", "yes"], [0, 1], [False, True], [1.0, 2.0]])
def test_classes_keep_their_kind(labels: list[Any], tmp_path: Path) -> None:
    df, y = frame()
    truth = np.array(labels)[(y == "yes").astype(int)]
    x = df[["income", "years"]].to_numpy()
    ours = GLIFClassifier(LogisticRegression(), lam=1.0, sensitive=[0]).fit(x, truth)
    ours.save(tmp_path / "fit.safetensors")
    again = GLIFClassifier.load(tmp_path / "fit.safetensors", estimator=ours.estimator_)
    assert again.classes_.dtype == truth.dtype
    np.testing.assert_array_equal(again.predict(x), ours.predict(x))
    assert not hasattr(again, "feature_names_in_")


def test_objects_as_classes_are_kept(tmp_path: Path) -> None:
    df, y = frame()
    x, path = df[["income", "years"]], tmp_path / "fit.safetensors"
    ours = GLIFClassifier(LogisticRegression(), lam=1.0).fit(x, y.astype(object))
    ours.save(path)
    again = GLIFClassifier.load(path, estimator=ours.estimator_)
    np.testing.assert_array_equal(again.predict(x), ours.predict(x))


def test_a_model_that_is_not_the_one_is_refused(tmp_path: Path) -> None:
    df, y = frame()
    x, path = df[["income", "years"]], tmp_path / "fit.safetensors"
    GLIFClassifier(LogisticRegression(), lam=1.0).fit(x, y).save(path)
    with pytest.raises(Exception, match="not fitted yet"):
        GLIFClassifier.load(path, estimator=LogisticRegression())
    other = LogisticRegression().fit(x[["income"]], y)
    with pytest.raises(ValueError, match=r"must take 2 columns \(got one that takes 1"):
        GLIFClassifier.load(path, estimator=other)
    other = LogisticRegression().fit(x, y == "no")
    with pytest.raises(ValueError, match=r"must have the classes \['no', 'yes'\]"):
        GLIFClassifier.load(path, estimator=other)
    other = LogisticRegression().fit(x[["years", "income"]], y)
    with pytest.raises(ValueError, match=r"columns .*'income', 'years'"):
        GLIFClassifier.load(path, estimator=other)


def test_a_file_of_another_class_is_refused(tmp_path: Path) -> None:
    df, y = frame()
    x, path = df[["income", "years"]], tmp_path / "fit.safetensors"
    ours = GLIFRegressor(LinearRegression(), lam=1.0).fit(x, y == "yes")
    ours.save(path)
    message = r"that 'GLIFClassifier.save' wrote \(got one that 'GLIFRegressor.save'"
    with pytest.raises(ValueError, match=message):
        GLIFClassifier.load(path, estimator=ours.estimator_)
    ours.post_.save(path)
    with pytest.raises(ValueError, match=r"got one that 'GLIFPostProcessor.save'"):
        GLIFRegressor.load(path, estimator=ours.estimator_)
