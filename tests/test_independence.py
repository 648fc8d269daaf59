"""Results do not change when the memory of their arguments does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from experiments.baselines import inform_debias
from pyg_glif.audit import Bootstrap
from pyg_glif.baselines import Auditor, lipschitz_projection
from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.graph import RadiusIndex
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metric_learning import EXPLORE, FACE, LogisticSubspace, SensitiveSVD
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.transforms import AnnotatorGraph


class Scene:
    """Memory that a caller owns and will overwrite."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(30, 3, generator=generator, dtype=torch.float64)
        self.y = torch.rand(30, generator=generator, dtype=torch.float64)
        self.wide = torch.rand(30, 2, generator=generator, dtype=torch.float64)
        self.group = torch.arange(30) % 3
        self.half = torch.arange(30) % 2
        self.sigma = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
        self.factor = torch.eye(3, dtype=torch.float64)
        self.basis = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64)
        self.edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        self.weight = torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=torch.float64)
        self.pairs = torch.tensor([[0, 1], [2, 5]])
        self.judged = torch.tensor([0.5, 1.0])
        self.learned = Mahalanobis.from_factor(self.factor.clone(), learnable=True)

    def overwrite(self) -> None:
        """Sets all of it to zero."""
        for value in vars(self).values():
            parts = value.parameters() if isinstance(value, FairDistance) else [value]
            for part in parts:
                part.detach().zero_()


NEW_X = torch.tensor([[0.1, -0.2, 0.3], [1.0, 0.5, -0.5]], dtype=torch.float64)
NEW_Y = torch.tensor([0.2, 0.9], dtype=torch.float64)
Answer = Callable[[], Any]


def _answers(post: GLIFPostProcessor, path: Path | None = None) -> Any:
    """What a fit says about new and known samples, and what it saves."""
    y = NEW_Y if post.y_fair_.dim() == 1 else torch.stack([NEW_Y, 1 - NEW_Y], 1)
    report = post.audit(bootstrap=Bootstrap(num_samples=10), num_nearest=2)
    out = [
        post.transform(NEW_X, y),
        post.transform(NEW_X, y, joint=True),
        post.y_fair_,
        post.solution_.value,
        post.graph_.edge_index,
        post.graph_.edge_weight,
        post.explain(3).weight,
        post.explain_new(NEW_X[:1]).dist,
        report.deviation,
    ]
    return [part.tolist() for part in out]


def _fit(kind: Callable[[Tensor], Any], **params: Any) -> Callable[[Scene], Answer]:
    def build(scene: Scene) -> Answer:
        known = {k: getattr(scene, v) for k, v in params.items()}
        post = GLIFPostProcessor(tau=1.5, theta=0.3, **known)
        post.fit(kind(scene.x), kind(scene.y))
        return lambda: _answers(post)

    return build


def _frame(value: Tensor) -> Any:
    pandas = pytest.importorskip("pandas")
    kind = pandas.DataFrame if value.dim() == 2 else pandas.Series
    return kind(value.numpy(), copy=False)


def _black_box(scene: Scene) -> Answer:
    distance = CallableDistance(scene.learned)
    post = GLIFPostProcessor(tau=1.5, distance=distance).fit(scene.x, scene.wide)
    return lambda: _answers(post)


def _partial_fit(scene: Scene) -> Answer:
    post = GLIFPostProcessor(tau=1.5).fit(scene.x[:20].clone(), scene.y[:20].clone())
    post.partial_fit(scene.x[20:], scene.y[20:])
    return lambda: _answers(post)


def _loaded(scene: Scene) -> Answer:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fit"
        post = GLIFPostProcessor(tau=1.5, distance=scene.learned)
        post.fit(scene.x, scene.y).save(path, omit=["distance"])
        other = GLIFPostProcessor.load(path, distance=scene.learned)
    return lambda: _answers(other)


def _handed_out(scene: Scene) -> Answer:
    """The caller overwrites what the fit has handed out."""
    post = GLIFPostProcessor(tau=1.5).fit(scene.x, scene.wide)
    scene.y_fair, scene.graph = post.y_fair_, post.graph_.edge_index
    scene.sq_dist, scene.edge_weight = post.graph_.edge_sq_dist, post.graph_.edge_weight
    scene.value, scene.bound = post.solution_.value, post.solution_.error_bound
    scene.out = post.transform(scene.x, scene.wide)
    scene.isolated = post.transform(NEW_X + 99, scene.wide[:2])
    scene.deviation = post.audit(
        bootstrap=Bootstrap(num_samples=10), num_nearest=None
    ).deviation
    return lambda: _answers(post)


def _index(scene: Scene) -> Answer:
    index = RadiusIndex(scene.x, 1.5, distance=scene.learned)
    return lambda: [part.tolist() for part in index.query(NEW_X)]


def _euclidean_index(scene: Scene) -> Answer:
    index = RadiusIndex(scene.x, 1.5)
    return lambda: [part.tolist() for part in index.query(NEW_X)]


def _operator(normalization: Any) -> Callable[[Scene], Answer]:
    def build(scene: Scene) -> Answer:
        lap = LaplacianOperator(
            scene.edges,
            scene.weight,
            3,
            normalization=normalization,
            batch=torch.zeros(3).long(),
        )
        f = NEW_X.T.contiguous()
        return lambda: [
            (lap @ f).tolist(),
            lap.quadratic(f).tolist(),
            lap.to_dense().tolist(),
        ]

    return build


def _annotators(scene: Scene) -> Answer:
    graph = AnnotatorGraph([scene.pairs], weights=[scene.judged], combine="mean")

    def answer() -> Any:
        data = graph(Data(x=torch.zeros(6, 1)))
        return data.edge_index.tolist(), data.edge_weight.tolist()

    return answer


def _distance(build: Callable[[Scene], FairDistance]) -> Callable[[Scene], Answer]:
    def made(scene: Scene) -> Answer:
        distance = build(scene)
        fits = getattr(distance, "fit_result", None)
        fits = fits if isinstance(fits, tuple) else (fits,)

        def answer() -> Any:
            kept = [value for fit in fits if fit for value in vars(fit).values()]
            parts = [value.tolist() for value in kept if isinstance(value, Tensor)]
            return [distance(NEW_X, NEW_X).tolist(), *parts]

        return answer

    return made


def _result(compute: Callable[[Scene], Any]) -> Callable[[Scene], Answer]:
    """Results that could be views of the arguments."""

    def made(scene: Scene) -> Answer:
        result = compute(scene)
        return lambda: result.tolist()

    return made


def _audited(num_steps: int) -> Callable[[Scene], Answer]:
    auditor = Auditor(num_subspace_steps=num_steps, num_full_steps=num_steps)
    return _result(
        lambda s: auditor.search(lambda x: -x.square().sum(1), s.x, Euclidean(), 1.0).x
    )


OBJECTS: dict[str, Callable[[Scene], Answer]] = {
    "fit on tensors": _fit(lambda t: t),
    "fit on arrays": _fit(lambda t: t.numpy()),
    "fit on frames": _fit(_frame),
    "fit with a distance that is trained": _fit(lambda t: t, distance="learned"),
    "fit with a black box that is trained": _black_box,
    "partial_fit": _partial_fit,
    "load with a distance that is trained": _loaded,
    "what a fit hands out": _handed_out,
    "RadiusIndex": _index,
    "RadiusIndex without a distance": _euclidean_index,
    "LaplacianOperator": _operator(None),
    "LaplacianOperator, nrw": _operator("nrw"),
    "LaplacianOperator, density": _operator("density"),
    "AnnotatorGraph": _annotators,
    "Mahalanobis": _distance(lambda s: Mahalanobis(s.sigma)),
    "Mahalanobis.from_factor": _distance(lambda s: Mahalanobis.from_factor(s.factor)),
    "SensitiveSubspace": _distance(lambda s: SensitiveSubspace(s.basis)),
    "SensitiveSVD": _distance(lambda s: SensitiveSVD(1).fit(s.x)),
    "FACE": _distance(lambda s: FACE(1).fit(s.x, s.group)),
    "EXPLORE": _distance(
        lambda s: EXPLORE(penalty=0.1).fit(s.x[:15], s.x[15:], s.half[:15].bool())
    ),
    "LogisticSubspace": _distance(lambda s: LogisticSubspace().fit(s.x, s.half)),
    "SensitiveSVD of an array": _distance(
        lambda s: SensitiveSVD(1, center=True).fit(s.x.numpy())
    ),
    "FACE of arrays": _distance(lambda s: FACE(1).fit(s.x.numpy(), s.group.numpy())),
    **{
        f"projection, {bound}": _result(
            lambda s, bound=bound: lipschitz_projection(s.x, s.y, bound).value
        )
        for bound in (0.0, 0.5, 100.0, torch.inf)
    },
    **{
        f"inform, {alpha}": _result(
            lambda s, alpha=alpha: inform_debias(s.y[:3], s.edges, alpha)
        )
        for alpha in (0.0, 1.0)
    },
    "audit without steps": _audited(0),
    "audit": _audited(3),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_memory_of_the_caller_may_be_overwritten(name: str) -> None:
    scene = Scene()
    answer = OBJECTS[name](scene)
    before = answer()
    scene.overwrite()
    assert not scene.x.any()
    assert answer() == before
    # Also what is computed for the first time after the memory was overwritten.
    scene = Scene()
    answer = OBJECTS[name](scene)
    scene.overwrite()
    assert answer() == before


def test_a_view_is_enough_to_be_overwritten() -> None:
    buffer = np.random.default_rng(0).normal(size=(20, 3))
    post = GLIFPostProcessor(tau=1.5).fit(buffer[:, :2], buffer[:, 2])
    before = post.transform(np.zeros((1, 2)), np.zeros(1))
    buffer[:] = 0
    assert post.transform(np.zeros((1, 2)), np.zeros(1)) == before
