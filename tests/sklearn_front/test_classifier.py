"""The classifier against its formulas, written out in NumPy."""

import re
import warnings
from typing import Any, ClassVar
from unittest.mock import ANY

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from pyg_glif.errors import SimilarityWarning
from pyg_glif.graph.weights import DECAY
from pyg_glif.links import Logit
from pyg_glif.model_selection import RiskControl
from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor
from tests.sklearn_front.people import (
    Untrainable,
    frame,
    log_odds,
    pipeline,
    smoothed,
    updated,
)

NEW, TRUTH = frame(40, seed=1)


def numbers(num_classes: int = 2) -> tuple[Any, Any, Any]:
    """Numbers of 90 people, their class, and numbers of 20 newcomers."""
    random = np.random.default_rng(3)
    x = random.normal(size=(110, 3))
    y = np.digitize(x @ [1.0, 0.5, 1.0] + 0.5 * random.normal(size=110), [0.0, 0.8])
    return x[:90], np.minimum(y[:90], num_classes - 1), x[90:]


def fitted(**params: Any) -> GLIFClassifier:
    df, y = frame()
    options = {"sensitive": ["sex"], "tau": 0.8, "lam": 0.5, "random_state": 0}
    return GLIFClassifier(pipeline(), **{**options, **params}).fit(df, y)


def test_two_classes_follow_the_formulas() -> None:
    x, y, new = numbers()
    folds = list(StratifiedKFold(3, shuffle=True, random_state=5).split(x, y))
    model = LogisticRegression()
    ours = GLIFClassifier(model, sensitive=[1], tau=0.5, lam=0.7, cv=folds)
    ours.fit(x, y)

    model = clone(model).fit(x, y)
    # The partial dependence of linear log-odds is a column times its coefficient.
    scale = model.coef_[0, [0, 2]]
    # It is constant beyond the people of the fit.
    inside = new.clip(x.min(0), x.max(0))
    z, z_new = (v[:, [0, 2]] * scale for v in (x, inside))
    reference = cross_val_predict(model, x, y, cv=folds, method="decision_function")
    f = smoothed(z, reference, 0.5, 0.7, DECAY)
    expected = updated(z_new, model.decision_function(new), z, f, 0.5, 0.7, DECAY)

    np.testing.assert_allclose(ours.decision_function(new), expected, rtol=1e-5)
    p = 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(ours.predict_proba(new), np.stack([1 - p, p], 1), 1e-5)
    np.testing.assert_array_equal(ours.predict(new), (expected > 0).astype(int))


def test_several_classes_follow_the_formulas() -> None:
    x, y, new = numbers(3)
    folds = list(StratifiedKFold(3, shuffle=True, random_state=5).split(x, y))
    model = LogisticRegression()
    ours = GLIFClassifier(model, sensitive=[1], tau=0.9, lam=0.7, cv=folds)
    names = np.array(["high", "low", "middle"])
    ours.fit(x, names[y])

    z, z_new = (ours.table_.transform(pd.DataFrame(v)).numpy() for v in (x, new))
    model = clone(model).fit(x, names[y])
    method = "predict_log_proba"
    reference = cross_val_predict(model, x, names[y], cv=folds, method=method)
    f = smoothed(z, reference, 0.9, 0.7, DECAY)
    eta = updated(z_new, model.predict_log_proba(new), z, f, 0.9, 0.7, DECAY)
    p = np.exp(eta) / np.exp(eta).sum(1, keepdims=True)

    assert z.shape[1] == 6
    np.testing.assert_allclose(ours.predict_proba(new), p, rtol=1e-5)
    np.testing.assert_array_equal(ours.predict(new), names[p.argmax(1)])
    np.testing.assert_allclose(ours.decision_function(new), np.log(p), rtol=1e-5)


def test_the_reference_is_out_of_fold_and_the_model_is_trained_on_all() -> None:
    df, y = frame()
    ours = fitted(cv=4, lam=0.0)  # outputs stay as they are
    seed = np.random.RandomState(0).randint(2**31 - 1)
    folds = StratifiedKFold(4, shuffle=True, random_state=seed)
    p = cross_val_predict(pipeline(), df, y, cv=folds, method="predict_proba")
    np.testing.assert_allclose(ours.post_.y_fair_, p[:, 1], rtol=1e-10)
    alone = pipeline().fit(df, y).predict_proba(NEW)
    np.testing.assert_array_equal(ours.estimator_.predict_proba(NEW), alone)


def test_without_strength_it_is_the_model() -> None:
    ours = fitted(lam=0.0)
    expected = ours.estimator_.predict_proba(NEW)
    np.testing.assert_array_equal(ours.predict_proba(NEW)[:, 1], expected[:, 1])


def test_who_has_no_peer_keeps_the_output_of_the_model() -> None:
    ours = fitted(tau=0.35)
    alone = ours.num_neighbors(NEW) == 0
    assert 0 < alone.sum() < len(NEW)
    before, after = ours.estimator_.predict_proba(NEW), ours.predict_proba(NEW)
    np.testing.assert_array_equal(before[alone, 1], after[alone, 1])
    assert (before[~alone, 1] != after[~alone, 1]).all()


def test_peers_do_not_depend_on_the_sensitive_column() -> None:
    twin = NEW.assign(sex=NEW["sex"].map({"f": "m", "m": "f"}))
    ours = fitted()
    np.testing.assert_array_equal(ours.num_neighbors(NEW), ours.num_neighbors(twin))
    model = ours.estimator_
    gaps = [
        np.abs(m.predict_proba(NEW) - m.predict_proba(twin)).mean()
        for m in (model, ours)
    ]
    assert gaps[1] < 0.5 * gaps[0]


def test_the_strength_is_tuned() -> None:
    ours = fitted(lam="tune", max_loss=0.05)
    assert ours.post_.lam == ours.tune_.best.lam > 0
    assert ours.tune_.best.loss <= 0.05
    assert ours.tune_.best.tau == ours.post_.tau_ == 0.8
    again = ours.set_params(lam=0.5).fit(*frame())
    assert not hasattr(again, "tune_")


def test_a_share_of_people_has_a_neighbour() -> None:
    ours = fitted(tau=None, coverage=0.9)
    assert 0.9 <= 1 - ours.post_.num_isolated_ / 120 < 0.95


def test_the_nearest_count() -> None:
    ours = fitted(tau=None, k=3)
    # Beside one's own nearest, those who would have one among theirs.
    peers = ours.num_neighbors(NEW)
    assert peers.min() == 3
    assert peers.max() > 3
    assert ours.audit(NEW, num_nearest=None).facts["num_isolated"] == 0


def test_explanations_add_up_to_the_decision() -> None:
    ours, rows = fitted(), NEW[:4]
    own = log_odds(ours.estimator_.predict_proba(rows)[:, 1])
    reference = log_odds(fitted(lam=0.0).post_.y_fair_.numpy())
    found = ours.explain(rows)
    for at, one in enumerate(found):
        index, weight = one.index.numpy(), one.weight.numpy()
        outputs = np.where(index < 0, own[at], reference[index])
        total = float(weight @ outputs)
        assert total == pytest.approx(ours.decision_function(rows)[at], rel=1e-4)
        assert weight.sum() == pytest.approx(1.0)
    assert [len(one.index) for one in ours.explain(rows, top=2)] == [2] * 4


def test_an_audit_compares_model_and_correction() -> None:
    ours = fitted()
    report = ours.audit(NEW, TRUTH)
    model = ours.estimator_
    assert report.facts["num_samples"] == 40
    assert report.facts["accuracy_before"] == accuracy_score(TRUTH, model.predict(NEW))
    assert report.facts["accuracy_after"] == accuracy_score(TRUTH, ours.predict(NEW))
    alone = (ours.num_neighbors(NEW) == 0).sum()
    assert report.facts["num_without_fitted_neighbors"] == alone
    p, men = ours.predict_proba(NEW)[:, 1], (NEW["sex"] == "m").to_numpy()
    gap = report["gap_by_sex"].after
    assert gap is not None
    assert gap.value == pytest.approx(p[men].mean() - p[~men].mean())
    assert "accuracy_after" not in ours.audit(NEW, num_nearest=None).facts


def test_weights_reach_the_model() -> None:
    df, y = frame()
    weight = np.linspace(0.1, 3.0, len(df))
    columns = ["income", "years"]
    ours = GLIFClassifier(LogisticRegression(), lam=1.0)
    ours.fit(df[columns], y, sample_weight=weight)
    alone = LogisticRegression().fit(df[columns], y, weight)
    np.testing.assert_array_equal(ours.estimator_.coef_, alone.coef_)
    piped = GLIFClassifier(pipeline(), lam=1.0)
    piped.fit(df, y, logisticregression__sample_weight=weight)
    alone = pipeline().fit(df, y, logisticregression__sample_weight=weight)
    np.testing.assert_array_equal(piped.estimator_[-1].coef_, alone[-1].coef_)


def test_weights_of_classes_go_by_name() -> None:
    df, y = frame()
    model = LogisticRegression(class_weight={"no": 1.0, "yes": 5.0})
    ours = GLIFClassifier(model, lam=1.0).fit(df[["income", "years"]], y)
    assert list(ours.classes_) == ["no", "yes"]
    assert ours.predict_proba(NEW[["income", "years"]])[:, 1].mean() > 0.6


@pytest.mark.parametrize("hard", [False, True])
def test_certain_models_stay_finite(hard: bool) -> None:
    df, y = frame()
    tree = DecisionTreeClassifier(max_depth=None if hard else 4, random_state=0)
    ours = GLIFClassifier(tree, lam=1.0, tau=1.0, random_state=0)
    ours.fit(df[["income", "years"]], y)
    found = ours.decision_function(NEW[["income", "years"]])
    assert np.isfinite(found).all()
    assert len(np.unique(found)) > 2


def test_the_model_may_be_frozen() -> None:
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator
    df, y = frame()
    model = pipeline().fit(NEW, TRUTH)
    ours = GLIFClassifier(frozen(model), lam=0.0).fit(df, y)
    np.testing.assert_array_equal(ours.post_.y_fair_, model.predict_proba(df)[:, 1])
    np.testing.assert_array_equal(
        ours.estimator_.predict_proba(df), model.predict_proba(df)
    )
    with pytest.raises(ValueError, match=r"must have the classes \['a', 'b'\] \(got"):
        GLIFClassifier(frozen(model)).fit(df, np.where(y == "no", "a", "b"))


def test_what_is_averaged() -> None:
    ours = fitted(link="identity")
    assert ours.post_.link is None
    assert fitted(link=Logit(0.1)).post_.link == Logit(0.1)
    with pytest.warns(SimilarityWarning, match="almost everybody"):
        everybody = fitted(link="identity", lam=1e6, tau=50.0)
    # The mean stays, and everybody has it.
    mean = fitted(link="identity", lam=0.0).post_.y_fair_.mean()
    np.testing.assert_allclose(everybody.predict_proba(NEW)[:, 1], mean, rtol=1e-3)


def test_polars_gives_what_pandas_gives() -> None:
    df, y = frame()
    columns = ["income", "years"]
    options = {"sensitive": ["years"], "lam": 0.5, "random_state": 0}
    ours = GLIFClassifier(LogisticRegression(), **options).fit(df[columns], y)
    theirs = clone(ours).fit(pl.from_pandas(df[columns]), pl.Series(y))
    expected = ours.predict_proba(NEW[columns])
    found = theirs.predict_proba(pl.from_pandas(NEW[columns]))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert list(theirs.table_.feature_names_in_) == columns


def test_positions_name_columns() -> None:
    x, y, new = numbers()
    named = pd.DataFrame(x, columns=list("abc"))
    options = {"lam": 0.5, "random_state": 0}
    by_name = GLIFClassifier(LogisticRegression(), sensitive=["c"], **options)
    expected = by_name.fit(named, y).predict_proba(pd.DataFrame(new, columns=[*"abc"]))
    for last in (2, -1, np.int64(2)):
        ours = GLIFClassifier(LogisticRegression(), sensitive=[last], **options)
        np.testing.assert_allclose(ours.fit(x, y).predict_proba(new), expected)
        np.testing.assert_allclose(
            ours.fit(named, y).predict_proba(named[:20]),
            by_name.predict_proba(named[:20]),
        )
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_allclose(by_name.predict_proba(new), expected)


def test_gaps_and_categories_go_where_the_model_takes_them() -> None:
    df, y = frame()
    df["job"] = df["job"].astype("category")
    df.loc[::7, "income"] = np.nan
    model = HistGradientBoostingClassifier(
        categorical_features=["job"], max_iter=5, min_samples_leaf=5
    )
    ours = GLIFClassifier(model, sensitive=["sex"], lam=1.0, tau=1.0, ignore=["years"])
    df["sex"] = df["sex"] == "m"
    assert np.isfinite(ours.fit(df, y).predict_proba(df)).all()


DF, Y = frame()


@pytest.mark.parametrize(
    ("params", "data", "error", "message"),
    [
        ({"sensitive": ["sexx"]}, {}, ValueError, r"'sensitive' must .*'sexx'.*'sex'"),
        ({"sensitive": "sex"}, {}, TypeError, "'sensitive' must be a sequence"),
        ({"sensitive": [9]}, {}, ValueError, "'sensitive' must .*9"),
        ({"ignore": ["wage"]}, {}, ValueError, "'ignore' must .*'wage'"),
        ({"sensitive": [*DF]}, {}, ValueError, "must leave a column that counts"),
        ({"equivalent": {"job": [("cook", "chef")]}}, {}, ValueError, "'chef'"),
        ({}, {"X": DF.assign(job=None)}, ValueError, "columns without values.*'job'"),
        (
            {"ignore": ["income", "years"], "sensitive": ["sex"]},
            {"X": DF.assign(job="cook")},
            ValueError,
            "a column that counts and that varies",
        ),
        (
            {},
            {"y": np.full(120, "yes")},
            ValueError,
            "two classes .got one class, 'yes",
        ),
        ({}, {"y": np.array(["rare", *Y[1:]])}, ValueError, "twice .got 'rare' once"),
        ({}, {"y": Y[1:]}, ValueError, "inconsistent numbers of samples"),
        ({}, {"sample_weight": np.ones(3)}, ValueError, "inconsistent numbers of"),
        ({}, {"sample_weight": np.ones(120)}, ValueError, "'sample_weight' must"),
        ({}, {"X": DF[:1], "y": Y[:1]}, ValueError, "at least two people .got 1 sam"),
        (
            {"lam": "auto"},
            {},
            ValueError,
            "'lam' must be a number or 'tune' .got 'auto",
        ),
        ({"lam": -1.0}, {}, ValueError, "'lam' must be"),
        ({"max_loss": -1.0}, {}, ValueError, "'max_loss' must be"),
        ({"coverage": 2.0}, {}, ValueError, "'coverage' must be"),
        ({"tau": -1.0}, {}, ValueError, "'tau' must be"),
        ({"cv": 1}, {}, ValueError, "'cv' must be"),
        ({"link": "probit"}, {}, ValueError, "'link' must be"),
        ({"scale": "rank"}, {}, ValueError, "'scale' must be"),
        (
            {"cv": KFold(2)},
            {"y": np.sort(Y)},
            ValueError,
            "'cv' must leave every class",
        ),
    ],
)
def test_bad_input_is_found_before_any_training(
    params: Any, data: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        GLIFClassifier(Untrainable(), **params).fit(**{"X": DF, "y": Y, **data})


def test_a_model_needs_probabilities() -> None:
    message = r"must have 'predict_proba' \(got LinearSVC\). Wrap it in 'sklearn.cal"
    with pytest.raises(TypeError, match=message):
        GLIFClassifier(LinearSVC()).fit(*frame())
    columns = ["income", "years"]
    df, y = frame()
    ours = GLIFClassifier(CalibratedClassifierCV(LinearSVC(dual="auto")), lam=1.0)
    assert set(ours.fit(df[columns], y).predict(NEW[columns])) <= {"no", "yes"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda df: df.assign(wage=1.0), "unseen at fit time:\n- wage"),
        (
            lambda df: df.drop(columns="job"),
            "seen at fit time, yet now missing:\n- job",
        ),
        (lambda df: df[["sex", "job", "years", "income"]], "same order"),
    ],
)
def test_new_people_have_the_columns_of_the_fit(change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted().predict(change(NEW))


@pytest.mark.filterwarnings("ignore::pyg_glif.errors.SimilarityWarning")
def test_the_model_must_have_reasons() -> None:
    df, y = frame()
    message = r"depend on a column that counts \(got the same coordinates for everybody"
    for model in (DummyClassifier(), DecisionTreeClassifier(min_samples_leaf=100)):
        with pytest.raises(ValueError, match=message):
            GLIFClassifier(model).fit(df[["income", "years"]], y)


def test_repr() -> None:
    ours = GLIFClassifier(LogisticRegression(), sensitive=["sex"])
    expected = "GLIFClassifier(estimator=LogisticRegression(), sensitive=['sex'])"
    assert repr(ours) == expected


def test_no_sensitive_columns_may_be_given_as_none() -> None:
    df, y = frame()
    options = {"tau": 0.8, "lam": 0.5, "random_state": 0}
    none, empty = (
        GLIFClassifier(pipeline(), sensitive=given, **options).fit(df, y)
        for given in (None, ())
    )
    expected = empty.predict_proba(NEW)
    np.testing.assert_array_equal(none.predict_proba(NEW), expected)
    assert none.audit(NEW, num_worst=0).setup["sensitive"] == []
    assert none.table_.summary() == empty.table_.summary()
    assert none.table_.to_config() == empty.table_.to_config() | {"params": ANY}
    assert clone(none).sensitive is None


BAD = {
    "infinite": lambda df: df.assign(income=np.inf),
    "empty": lambda df: df.assign(job=None),
    "text": lambda df: df.assign(job=[f"job {i}" for i in range(len(df))]),
    "objects": lambda df: df.assign(job=[{1}] * len(df)),
    "constant": lambda df: df.assign(income=1, years=1, job="cook"),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_messages_about_the_frame_say_x(change: Any) -> None:
    df, y = frame()
    with pytest.raises((ValueError, TypeError), match=r"^'X' must"):
        GLIFClassifier(Untrainable(), sensitive=["sex"]).fit(change(df), y)


def test_messages_about_new_frames_say_x(tmp_path: Any) -> None:
    ours = fitted()
    ours.save(tmp_path / "fit.safetensors")
    again = GLIFClassifier.load(tmp_path / "fit.safetensors", estimator=ours.estimator_)
    for model in (ours, again):
        with pytest.raises(TypeError, match="'X' must have columns of the same kinds"):
            model.predict(NEW.assign(years="many"))
        with pytest.warns(UserWarning, match="'X' has values that the fit has not"):
            model.predict(NEW.assign(job="pilot"))


def test_warnings_of_a_choice_name_parameters_of_the_estimator() -> None:
    """The model as it is, because nothing is allowed to be lost, or near."""
    df, y = frame(200)
    texts = []
    for params in ({"max_loss": 0.0}, {"tau": 1e-9}):
        ours = GLIFClassifier(pipeline(), sensitive=["sex"], cv=3, **params)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            ours.fit(df, y)
        texts += [str(one.message) for one in found]
    told = " ".join(texts)
    assert "nothing tried is fairer" in told
    named = set(re.findall(r"'(\w+)'", told))
    assert named <= {*GLIFClassifier(None).get_params(deep=False)}


@pytest.mark.parametrize("dtype", [object, "str", "string"])
def test_text_that_a_model_takes_as_categories_only(dtype: Any) -> None:
    df, y = frame()
    df = df.astype({"job": dtype, "sex": dtype})
    boosted = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5)
    ours = GLIFClassifier(boosted, sensitive=["sex"], lam=1.0, cv=3)
    message = "'estimator' must take the text in 'job', 'sex' (got HistGradient"
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ours.fit(df, y)
    remedy = str(caught.value).partition("Pass '")[2].removesuffix("'")
    ours.fit(eval(remedy, {"X": df}), y)  # as the message says
    assert ours.n_features_in_ == 4


class _NumbersOnly(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that takes no text, and counts rows it was trained on."""

    rows: ClassVar[list[int]] = []

    def fit(self, X: Any, y: Any) -> "_NumbersOnly":
        np.asarray(X.to_numpy(), dtype=float)
        self.rows.append(len(X))
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        p = 1 / (1 + np.exp(-np.asarray(X["income"], dtype=float)))
        return np.stack([1 - p, p], 1)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_text_that_a_model_does_not_take_fails_before_training(kind: str) -> None:
    df, y = frame()
    _NumbersOnly.rows.clear()
    given = pl.from_pandas(df) if kind == "polars" else df
    with pytest.raises(ValueError, match="Put an encoder before it, as 'skrub"):
        GLIFClassifier(_NumbersOnly(), lam=1.0).fit(given, y)
    assert max(_NumbersOnly.rows) <= 40  # tried without the text, on a few rows


def test_failures_that_are_not_about_text_are_those_of_the_model() -> None:
    df, y = frame()
    with pytest.raises(AssertionError, match="trained before"):
        GLIFClassifier(Untrainable(), lam=1.0).fit(df, y)


class _Threads(LogisticRegression):  # type: ignore[misc]
    """A model that notes how many threads it has."""

    seen: ClassVar[set[int]] = set()

    def fit(self, X: Any, y: Any) -> "_Threads":
        self.seen.update(one["num_threads"] for one in threadpool_info())
        out: _Threads = super().fit(X, y)
        return out


@pytest.mark.parametrize("is_few", [True, False])
def test_models_of_few_samples_have_one_thread(
    is_few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, _ = numbers()
    if not is_few:
        monkeypatch.setattr("pyg_glif.sklearn._base._FEW_PEOPLE", 50)
    _Threads.seen.clear()
    with threadpool_limits(2):
        before = torch.get_num_threads()
        GLIFClassifier(_Threads(), sensitive=[1], lam=1.0, cv=3).fit(x, y)
        assert torch.get_num_threads() == before == 2
    # A library whose threads are fixed from outside keeps to that.
    assert max(_Threads.seen) == (1 if is_few else 2)


@pytest.mark.parametrize(
    "model",
    [
        GLIFClassifier(LogisticRegression(), sensitive=[1]),
        GLIFClassifier(
            LogisticRegression(), guarantee=RiskControl(0.2, share=0.4), rehearse=False
        ),
        GLIFRegressor(LinearRegression(), sensitive=[1]),
    ],
    ids=["classifier", "guarantee", "regressor"],
)
def test_two_fits_without_a_random_state_are_equal(model: Any) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(150, 3))
    y = (x.sum(1) + random.normal(size=150) > 0).astype(int)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for _ in range(2):
            np.random.random(3)  # noqa: NPY002  (the state that folds must not use)
            fit = clone(model).fit(x, y)
            found.append((fit.post_.lam, fit.post_.tau_, fit.predict(x).tolist()))
    assert found[0] == found[1]
