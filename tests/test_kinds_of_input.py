"""Public functions take features, outputs and labels of every kind alike.

One table of calls and one of kinds; what a call gives on float64 tensors is what it
gives on anything else that holds the same numbers.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from pyg_glif import (
    GLIFPostProcessor,
    fair_knn_graph,
    fair_radius_graph,
    glif_path,
    metric_learning,
    metrics,
    suggest_tau,
)
from pyg_glif.audit import AuditData, Bootstrap, audit
from pyg_glif.baselines import lipschitz_projection
from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.graph import KNNIndex, RadiusIndex, SimilarityGraph
from pyg_glif.model_selection import tune

# Truth values, so that every kind can hold them; no two rows alike in all of them.
X = np.array([[(i >> b) & 1 for b in range(4)] for i in range(12)])
Y = (X[:, 0] ^ X[:, 2]).copy()
LABEL = (X[:, 1] | X[:, 3]).copy()
GROUP = X[:, 3].copy()
BLIND = SensitiveSubspace(torch.eye(4, dtype=torch.float64)[:1])
SCALED = Mahalanobis(torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])).double())
EDGES, SQ_DIST = fair_radius_graph(torch.from_numpy(X).double(), 1.0)
FEW = Bootstrap(num_samples=10)


def frozen(value: np.ndarray) -> np.ndarray:
    out = value.astype(float)
    out.setflags(write=False)
    return out


def pandas_of(dtype: str) -> Callable[[np.ndarray], Any]:
    def make(value: np.ndarray) -> Any:
        pandas = pytest.importorskip("pandas")
        if value.ndim == 1:
            return pandas.Series(value).astype(dtype)
        names = [f"c{at}" for at in range(value.shape[1])]
        return pandas.DataFrame(value, columns=names).astype(dtype)

    return make


def mixed(value: np.ndarray) -> Any:
    """A frame whose columns are of different kinds."""
    if value.ndim == 1:
        return pandas_of("int8")(value)
    kinds = {"c0": "int8", "c1": "bool", "c2": "float32", "c3": "Int64"}
    return pandas_of("int64")(value).astype(kinds)


def polars_of(value: np.ndarray) -> Any:
    polars = pytest.importorskip("polars")
    if value.ndim == 1:
        return polars.Series("y", value)
    return polars.DataFrame({f"c{at}": value[:, at] for at in range(value.shape[1])})


KINDS: dict[str, Callable[[np.ndarray], Any]] = {
    "float64": lambda a: a.astype(np.float64),
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "int8": lambda a: a.astype(np.int8),
    "uint16": lambda a: a.astype(np.uint16),
    "uint64": lambda a: a.astype(np.uint64),
    "int64": lambda a: a.astype(np.int64),
    "bool": lambda a: a.astype(bool),
    "read-only": frozen,
    "big-endian": lambda a: a.astype(">f8"),
    "columns first": lambda a: np.asfortranarray(a.astype(float)),
    "object": lambda a: a.astype(object),
    "lists": lambda a: a.tolist(),
    "pandas": pandas_of("float64"),
    "pandas int8": pandas_of("int8"),
    "pandas bool": pandas_of("bool"),
    "pandas Int64": pandas_of("Int64"),
    "pandas boolean": pandas_of("boolean"),
    "pandas mixed": mixed,
    "polars": polars_of,
    "torch int64": torch.from_numpy,
    "torch uint8": lambda a: torch.from_numpy(a.astype(np.uint8)),
    "torch bool": lambda a: torch.from_numpy(a.astype(bool)),
    "torch float16": lambda a: torch.from_numpy(a).half(),
    "torch bfloat16": lambda a: torch.from_numpy(a).bfloat16(),
}
# Name -> a call with features, outputs, labels, groups and features in reverse.
CALLS: dict[str, Callable[..., Any]] = {
    "Euclidean.embed": lambda x, y, c, g, r: Euclidean().embed(x),
    "SensitiveSubspace.embed": lambda x, y, c, g, r: BLIND.embed(x),
    "Mahalanobis.embed": lambda x, y, c, g, r: SCALED.embed(x),
    "Euclidean": lambda x, y, c, g, r: Euclidean()(x, x),
    "Mahalanobis": lambda x, y, c, g, r: SCALED(x, x),
    "CallableDistance": lambda x, y, c, g, r: CallableDistance(torch.cdist)(x, x),
    "fair_radius_graph": lambda x, y, c, g, r: fair_radius_graph(x, 1.0, batch=g),
    "SimilarityGraph.search": lambda x, y, c, g, r: (
        SimilarityGraph.search(x, 1.0).sq_dist
    ),
    "RadiusIndex": lambda x, y, c, g, r: RadiusIndex(x, 1.0).query(x),
    "fair_knn_graph": lambda x, y, c, g, r: fair_knn_graph(x, 2, batch=g),
    "SimilarityGraph.nearest": lambda x, y, c, g, r: (
        SimilarityGraph.nearest(x, 2).scale
    ),
    "KNNIndex": lambda x, y, c, g, r: KNNIndex(x, 2).query(x),
    "suggest_tau": lambda x, y, c, g, r: suggest_tau(x, 3.0, distance=SCALED),
    "suggest_tau, coverage": lambda x, y, c, g, r: suggest_tau(x, coverage=0.5),
    "SensitiveSVD": lambda x, y, c, g, r: (
        metric_learning.SensitiveSVD(1).fit(x).embed(x)
    ),
    "FACE": lambda x, y, c, g, r: metric_learning.FACE(1).fit(x, g).embed(x),
    "EXPLORE": lambda x, y, c, g, r: (
        metric_learning.EXPLORE(penalty=0.1).fit(x, r, c).embed(x)
    ),
    "LogisticSubspace": lambda x, y, c, g, r: (
        metric_learning.LogisticSubspace().fit(x, c).embed(x)
    ),
    "tune": lambda x, y, c, g, r: [
        point.score for point in tune(x, y, c, taus=[1.0], lams=[1.0], cv=None).points
    ],
    "knn_consistency": lambda x, y, c, g, r: metrics.knn_consistency(x, y, 2),
    "knn_deviation": lambda x, y, c, g, r: metrics.knn_deviation(x, y, 2),
    "group_gap": lambda x, y, c, g, r: metrics.group_gap(y, c),
    "group_std": lambda x, y, c, g, r: metrics.group_std(y, g),
    "prediction_consistency": lambda x, y, c, g, r: metrics.prediction_consistency(
        c, g
    ),
    "laplacian_energy": lambda x, y, c, g, r: metrics.laplacian_energy(y, EDGES),
    "local_lipschitz": lambda x, y, c, g, r: metrics.local_lipschitz(y, EDGES, SQ_DIST)[
        1
    ],
    "lipschitz_violations": lambda x, y, c, g, r: metrics.lipschitz_violations(
        x, y, 0.7, bins=[0.0, 1.5]
    )[2],
    "audit": lambda x, y, c, g, r: [
        measure.before.value
        for measure in audit(
            AuditData(x, y, graph=SimilarityGraph.search(x, 1.0)),
            sensitive={"sex": c},
            variants=g,
            threshold=0.5,
            bootstrap=FEW,
        ).measures
    ],
    "GLIFPostProcessor": lambda x, y, c, g, r: (
        GLIFPostProcessor(tau=1.0).fit(x, y).transform(x, y)
    ),
    "GLIFPostProcessor.audit": lambda x, y, c, g, r: [
        measure.after.value
        for measure in GLIFPostProcessor(tau=1.0)
        .fit(x, y)
        .audit(sensitive={"sex": c}, variants=g, bootstrap=FEW)
        .measures
    ],
    "glif_path": lambda x, y, c, g, r: [
        point.value
        for point in glif_path(y, EDGES, SQ_DIST, lams=[0.5, 1.0], theta=0.0)
    ],
    "lipschitz_projection": lambda x, y, c, g, r: (
        lipschitz_projection(x, y, 0.5, rtol=1e-9).value
    ),
}


def numbers(found: Any) -> Iterator[np.ndarray]:
    """All that a call returned, as arrays."""
    if isinstance(found, (list, tuple)):
        for part in found:
            yield from numbers(part)
    else:
        found = found.double() if isinstance(found, torch.Tensor) else found
        yield np.asarray(found, dtype=np.float64)


@pytest.mark.parametrize("call", CALLS)
def test_every_kind_gives_the_same_numbers(call: str) -> None:
    given = [torch.from_numpy(X).double(), torch.from_numpy(Y).double()]
    labels = [torch.from_numpy(LABEL), torch.from_numpy(GROUP)]
    expected = list(numbers(CALLS[call](*given, *labels, given[0].flip(0))))
    for name, kind in KINDS.items():
        parts = [kind(part) for part in (X, Y)]
        # Labels are whole numbers in tensors; elsewhere 1.0 is one as well.
        whole = "torch float" in name or "torch bfloat" in name
        parts += [part if whole else kind(part) for part in (LABEL, GROUP)]
        found = list(numbers(CALLS[call](*parts, kind(X[::-1].copy()))))
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            # Outputs come back in the precision they came in.
            close = {"float16": 1e-3, "bfloat16": 1e-2}.get(name.split()[-1], 2e-5)
            np.testing.assert_allclose(one, other, rtol=close, atol=close, err_msg=name)


@pytest.mark.parametrize("kind", ["bool", "lists", "pandas boolean", "polars"])
def test_masks_of_every_kind(kind: str) -> None:
    chosen = KINDS[kind](LABEL)
    found = metrics.lipschitz_violations(X, Y, 0.7, mask=chosen)
    few = metrics.lipschitz_violations(X[LABEL == 1], Y[LABEL == 1], 0.7)
    assert found.num_violations == few.num_violations > 0
    with pytest.raises(TypeError, match="'mask' must hold truth values"):
        metrics.lipschitz_violations(X, Y, 0.7, mask=np.arange(12))


def test_results_are_what_outputs_were() -> None:
    pandas = pytest.importorskip("pandas")
    y = pandas.Series(Y, index=list("abcdefghijkl"), name="score")
    found = metrics.knn_deviation(X, y, 2)
    assert isinstance(found, pandas.Series)
    assert (found.name, found.index.tolist()) == ("score", y.index.tolist())
    found = lipschitz_projection(X, y, 0.5).value
    assert isinstance(found, pandas.Series)
    assert isinstance(metrics.knn_deviation(X, Y, 2), np.ndarray)
    x = torch.from_numpy(X)
    assert isinstance(metrics.knn_deviation(X, x[:, 0], 2), torch.Tensor)


def test_gradients_pass_through_every_kind_of_float() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([[1.0, 2.0, 0.0, 1.0]], dtype=dtype, requires_grad=True)
        SCALED.embed(x).sum().backward()
        assert x.grad is not None
        assert float(x.grad.abs().sum()) > 0.0


TEXT = {"age": [1, 2, 3], "job": ["a", "b", "c"]}
GAPS = {"age": [1.0, None, 3.0], "pay": [None, 1.0, 2.0]}
FRAME_CALLS = [
    lambda x: Euclidean().embed(x),
    lambda x: Euclidean()(x, x),
    lambda x: fair_radius_graph(x, 1.0),
    lambda x: suggest_tau(x, 1.0),
    lambda x: metric_learning.SensitiveSVD(1).fit(x),
    lambda x: tune(x, [0.1, 0.2, 0.3], [0, 1, 0]),
    lambda x: metrics.knn_consistency(x, [0.1, 0.2, 0.3], 1),
    lambda x: GLIFPostProcessor(tau=1.0).fit(x, [0.1, 0.2, 0.3]),
]


@pytest.mark.parametrize("package", ["pandas", "polars"])
@pytest.mark.parametrize("call", FRAME_CALLS)
def test_unusable_columns_are_named_with_a_way_out(call: Any, package: str) -> None:
    frames = pytest.importorskip(package)
    with pytest.raises(TypeError, match=r"'job' of .*tables.FairTable"):
        call(frames.DataFrame(TEXT))
    message = r"1 in 'age' from row 1, 1 in 'pay' from row 0.*tables.FairTable"
    with pytest.raises(ValueError, match=message):
        call(frames.DataFrame(GAPS))


LEARNERS: dict[str, Callable[[Any], Any]] = {
    "SensitiveSVD": lambda x: metric_learning.SensitiveSVD(1).fit(x),
    "FACE": lambda x: metric_learning.FACE(1).fit(x, GROUP),
    "EXPLORE": lambda x: metric_learning.EXPLORE(penalty=0.1).fit(
        x[:6], x[x.columns[::-1]][6:], LABEL[:6]
    ),
    "LogisticSubspace": lambda x: metric_learning.LogisticSubspace().fit(x, LABEL),
    "TaskEffect": lambda x: metric_learning.TaskEffect().fit(x, LABEL),
    "TaskEffect over FACE": lambda x: metric_learning.TaskEffect(
        metric_learning.FACE(1).fit(x, GROUP)
    ).fit(x[x.columns[::-1]], LABEL),
}


@pytest.mark.parametrize("package", ["pandas", "polars"])
@pytest.mark.parametrize("learner", LEARNERS)
def test_distances_know_their_columns_by_name(learner: str, package: str) -> None:
    frames = pytest.importorskip(package)
    values = X + 0.1 * np.arange(48).reshape(12, 4) % 0.7  # no two columns alike
    names = ["a", "b", "c", "d"]
    frame = frames.DataFrame({n: values[:, at] for at, n in enumerate(names)})
    turned = frame[["c", "a", "d", "b"]]
    distance = LEARNERS[learner](frame)
    assert distance.feature_names == tuple(names)
    plain = torch.from_numpy(values)
    calls: list[Callable[[Any], Any]] = [
        distance.embed,
        lambda x: distance(x, turned),
        lambda x: fair_radius_graph(x, 1.0, distance=distance),
        lambda x: suggest_tau(x, 3.0, distance=distance),
        lambda x: metrics.knn_deviation(x, Y, 2, distance=distance),
        lambda x: RadiusIndex(x, 1.0, distance=distance).query(x),
        lambda x: SimilarityGraph.nearest(x, 2, distance=distance).sq_dist,
        lambda x: (
            GLIFPostProcessor(distance=distance, target_degree=3)
            .fit(x, Y)
            .transform(x, Y)
        ),
        lambda x: GLIFPostProcessor(distance=distance, tau=1.0).fit(x, Y).y_fair_,
    ]
    for call in calls:
        # A tensor has the order of the fit.
        expected = list(numbers(call(plain)))
        for one, other in zip(numbers(call(turned)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match="'x' must have the columns of the fit"):
        distance.embed(
            frame.rename({"a": "z"}) if package == "polars" else frame[["a"]]
        )
