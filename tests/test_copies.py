"""Whatever was fitted and used can be copied, pickled and sent to other processes.

One table of objects, each after it has done all that it does, at a size at which every
strategy of the search has its turn. A copy answers as the original does.
"""

import copy
import io
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif import (
    AnnotatorGraph,
    FairKNNGraph,
    FairRadiusGraph,
    GLIFConv,
    GLIFPostProcessor,
    GLIFSmooth,
    LaplacianLoss,
    glif_solve,
    metrics,
)
from pyg_glif.distances import Mahalanobis, SensitiveSubspace, TaskDistance
from pyg_glif.graph import KNNIndex, RadiusIndex, SimilarityGraph
from pyg_glif.guarantees import certify
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Logit
from pyg_glif.model_selection import tune
from pyg_glif.monitoring import DriftReference, TreatmentMonitor
from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor
from pyg_glif.solvers import CG
from pyg_glif.tables import FairTable

SIZE = 1_600  # beyond what is compared without an index
Use = Callable[[Any], Any]


@cache
def samples() -> tuple[Tensor, Tensor]:
    """Features and outputs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SIZE, 6, generator=generator)
    return x, torch.rand(SIZE, generator=generator)


@cache
def graph() -> SimilarityGraph:
    """Who is similar."""
    return SimilarityGraph.search(samples()[0], 1.2)


@cache
def table() -> tuple[pd.DataFrame, Any]:
    """Columns of a table, and a class for each row."""
    random = np.random.default_rng(0)
    df = pd.DataFrame({"a": random.normal(size=SIZE), "b": random.normal(size=SIZE)})
    df["c"] = random.integers(0, 2, SIZE)
    return df, (df["a"] + random.normal(size=SIZE) > 0).astype(int).to_numpy()


def post(**params: Any) -> tuple[Any, Use]:
    """A post-processor, and all that it can be asked."""
    x, y = samples()

    def use(post: GLIFPostProcessor) -> Any:
        few, one = slice(0, 20), slice(0, 1)
        out = [
            post.transform(x[one], y[one]),  # searched for in another way than a few
            post.transform_info(x[few], y[few]).value,
            post.transform(x, y),
            post.transform(x[few], y[few], joint=True),
            post.transform_info(x[one], y[one], with_std=True).uncertainty.std,
            post.explain(0).weight,
            post.explain_new(x[one]).weight,
        ]
        if post.k is None:
            out.append(certify(post.fit_, x[few], 0.1).gap)
        post.summary()
        return out

    return GLIFPostProcessor(**params).fit(x, y), use


def queried(index: Any) -> Any:
    """What an index finds for one sample, for some and for many."""
    x = samples()[0]
    return [part for num in (1, 20, SIZE) for part in index.query(x[:num] + 0.01)]


def smoothed(transform: Any) -> Any:
    """The graph and the outputs that a transform makes."""
    x, y = samples()
    data = Data(x=x[:200], y_hat=y[:200], edge_index=torch.tensor([[0, 1], [1, 0]]))
    return [value for _, value in sorted(transform(data).to_dict().items())]


def embedded(distance: Any) -> Any:
    """Coordinates."""
    return distance.embed(samples()[0])


def of_rows(*names: str) -> Use:
    """What a metric computes once it has seen rows."""
    x, y = samples()
    group = (x[:, 0] > 0).long()
    edges = graph().edge_index
    seen = {"x": x, "y": y, "group": group, "sensitive": group, "edges": edges}
    seen["sq_dist"] = graph().sq_dist

    def use(metric: Any) -> Any:
        if not metric.update_called:
            metric.update(*(seen[name] for name in names))
        return metric.compute()

    return use


def monitor() -> tuple[Any, Use]:
    """A monitor that has seen samples."""
    x, y = samples()
    fit = GLIFPostProcessor(tau=1.2).fit(x, y)
    found = TreatmentMonitor(0.1, drift=DriftReference.of(fit))
    found.observe(fit, x[:50], y[:50])
    return found, lambda one: (one.to_dict(), one.update([0.2]), one.num)


def estimator(kind: Any, **params: Any) -> tuple[Any, Use]:
    """An estimator, and what it predicts."""
    df, y = table()
    model = kind(LogisticRegression(), sensitive=["c"], cv=2, **params)
    if kind is GLIFRegressor:
        from sklearn.linear_model import LinearRegression

        model.set_params(estimator=LinearRegression())
    return model.fit(df, y), lambda one: [one.predict(df[:num]) for num in (1, SIZE)]


def tuned() -> Any:
    """Strengths that were tried."""
    df, y = table()
    x = torch.tensor(df[["a", "b"]].to_numpy())
    return tune(
        x, torch.tensor(y).double() * 0.8 + 0.1, labels=y, lams=[0.1, 1.0], cv=2
    )


OBJECTS: dict[str, Callable[[], tuple[Any, Use]]] = {
    "post, radius": lambda: post(tau=1.2, link=Logit()),
    "post, nearest": lambda: post(k=5),
    "post, distance": lambda: post(
        target_degree=10, distance=SensitiveSubspace(torch.eye(6)[:1])
    ),
    "RadiusIndex": lambda: (RadiusIndex(samples()[0], 1.2), queried),
    "KNNIndex": lambda: (KNNIndex(samples()[0], 5), queried),
    "SimilarityGraph": lambda: (graph(), lambda one: one.within(0.9).weights()),
    "LaplacianOperator": lambda: (
        LaplacianOperator(graph().edge_index, graph().weights(), SIZE),
        lambda one: one.matmul(samples()[1].double().unsqueeze(1)),
    ),
    "Solution": lambda: (
        glif_solve(samples()[1], graph().edge_index, lam=1.0, solver=CG()),
        lambda one: (one.value, one.error_bound, one.status),
    ),
    "Mahalanobis": lambda: (Mahalanobis(torch.eye(6)), embedded),
    "TaskDistance": lambda: (
        TaskDistance(
            Mahalanobis(torch.eye(6)), torch.nn.Linear(6, 1).requires_grad_(False)
        ),
        embedded,
    ),
    "FairTable": lambda: (
        FairTable(scale="standard", sensitive=["c"]).fit(table()[0]),
        lambda one: one.transform(table()[0]),
    ),
    "KNNConsistency": lambda: (metrics.KNNConsistency(), of_rows("x", "y")),
    "LipschitzViolations": lambda: (
        metrics.LipschitzViolations(1.0),
        of_rows("x", "y"),
    ),
    "GroupGap": lambda: (metrics.GroupGap(), of_rows("y", "sensitive")),
    "LaplacianEnergy": lambda: (metrics.LaplacianEnergy(), of_rows("y", "edges")),
    "LocalLipschitz": lambda: (
        metrics.LocalLipschitz(),
        of_rows("y", "edges", "sq_dist"),
    ),
    "GLIFConv": lambda: (
        GLIFConv(lam=1.0),
        lambda one: one(samples()[1], graph().edge_index),
    ),
    "LaplacianLoss": lambda: (
        LaplacianLoss(),
        lambda one: one(samples()[1], graph().edge_index),
    ),
    "FairRadiusGraph": lambda: (FairRadiusGraph(1.2, overwrite=True), smoothed),
    "FairKNNGraph": lambda: (FairKNNGraph(5, overwrite=True), smoothed),
    "AnnotatorGraph": lambda: (
        AnnotatorGraph(torch.tensor([[0, 1], [2, 3]]), overwrite=True),
        smoothed,
    ),
    "GLIFSmooth": lambda: (GLIFSmooth(1.0), smoothed),
    "TreatmentMonitor": monitor,
    "TuneResult": lambda: (tuned(), lambda one: (repr(one), one.best)),
    "GLIFClassifier": lambda: estimator(GLIFClassifier, lam=1.0),
    "GLIFClassifier, nearest": lambda: estimator(GLIFClassifier, lam=1.0, k=5),
    "GLIFRegressor": lambda: estimator(GLIFRegressor, lam=1.0),
}


def by_pickle(value: Any) -> Any:
    """A copy by way of bytes."""
    return pickle.loads(pickle.dumps(value))


def by_joblib(value: Any) -> Any:
    """A copy by way of a file."""
    file = io.BytesIO()
    joblib.dump(value, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize("name", OBJECTS)
def test_copies_of_what_was_used_answer_the_same(name: str) -> None:
    value, use = OBJECTS[name]()
    use(value)
    copies = [make(value) for make in (by_pickle, by_joblib, copy.deepcopy)]
    expected = use(value)
    for one in copies:
        assert_same(use(one), expected)


def assert_same(found: Any, expected: Any) -> None:
    """The same bits, in any nesting of lists."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, (Tensor, np.ndarray)):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    else:
        assert repr(found) == repr(expected)


def test_a_copy_of_a_monitor_has_a_connection_of_its_own(tmp_path: Path) -> None:
    found = TreatmentMonitor(0.1, journal=tmp_path / "journal.db")
    found.update([0.2, 0.3], id=["a", "b"])
    other = copy.deepcopy(found)
    other.update([0.4], id=["c"])
    found.refresh()
    assert found.num == other.num == 3
    found.close()
    other.close()


def test_estimators_travel_between_processes() -> None:
    df, y = table()
    model = GLIFClassifier(LogisticRegression(), sensitive=["c"], lam=1.0, cv=2)
    # Jobs that score have used what they send back.
    found = cross_validate(model, df, y, cv=2, n_jobs=2, return_estimator=True)
    for one in found["estimator"]:
        assert one.predict(df[:5]).shape == (5,)
    search = GridSearchCV(model, {"lam": [0.1, 1.0]}, cv=2).fit(df, y)
    again = by_pickle(search)
    np.testing.assert_array_equal(again.predict(df), search.predict(df))
