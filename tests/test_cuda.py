"""Calls on a CUDA device give what they give on the CPU.

One row per part of the package, not per function: parts differ in how they create and
move tensors. Rows are run on the CPU everywhere; the comparison needs a device and is
skipped, with a reason, where there is none.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif import (
    FairKNNGraph,
    FairRadiusGraph,
    GLIFConv,
    GLIFPostProcessor,
    GLIFSmooth,
    baselines,
    distances,
    glif_path,
    glif_smooth,
    graph,
    links,
    methods,
    metric_learning,
    metrics,
    solvers,
)
from pyg_glif.audit import AuditData, Bootstrap, audit
from pyg_glif.guarantees import certify, sensitivity
from pyg_glif.model_selection import tune
from pyg_glif.monitoring import DriftReference, TreatmentMonitor

N, F, TAU = 60, 3, 1.0


class Samples:
    """The same samples on any device: drawn on the CPU, then moved."""

    def __init__(self, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(N, F, generator=generator, dtype=torch.float32)
        y = torch.rand(N, 2, generator=generator, dtype=torch.float32)
        self.device = device
        self.x, self.y = x.to(device), y.to(device)
        self.p = (self.y / self.y.sum(1, keepdim=True)).contiguous()
        self.score = self.y[:, 0].contiguous()
        self.label = (self.x[:, 0] > 0).long()
        self.group = torch.arange(N, device=device) // 2
        self.edges, self.sq_dist = graph.fair_radius_graph(self.x, TAU)
        self.weight = graph.edge_weights(self.sq_dist, 0.5)
        basis = torch.eye(F, device=device, dtype=torch.float32)[:1]
        self.blind = distances.SensitiveSubspace(basis)

    def model(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Linear(F, 2, dtype=torch.float32).to(self.device)

    def smooth(self, **options: Any) -> Tensor:
        """Smoothed outputs and the gradients that reach outputs, weights, ``lam``."""
        link = options.pop("link", None)
        y = (self.y if link is None else self.p).clone().requires_grad_()
        weight = self.weight.clone().requires_grad_()
        lam = torch.tensor(0.5, device=self.device, requires_grad=True)
        out = glif_smooth(y, self.edges, weight, lam=lam, link=link, **options)
        assert isinstance(out, Tensor)
        out.square().sum().backward()
        grads = [g.detach().flatten() for g in (y.grad, weight.grad, lam.grad)]
        return torch.cat([out.detach().flatten(), *grads])


def _robust(p: Samples) -> list[Tensor]:
    auditor = baselines.Auditor(num_subspace_steps=2, num_full_steps=2)
    sensei = baselines.SenSeIRegularizer(p.blind, auditor=auditor).to(p.device)
    sensr = baselines.SenSRLoss(p.blind, auditor=auditor).to(p.device)
    return [sensei(p.model(), p.x), sensr(p.model(), p.x, p.label)]


def _post(p: Samples) -> tuple[Tensor, ...]:
    post = GLIFPostProcessor(distance=p.blind, tau=TAU, lam=0.5).fit(p.x, p.score)
    explanation, new = post.explain(0), post.explain_new(p.x[:1] + 0.01)
    before = (
        post.y_fair_,
        post.graph_.edge_weight,
        post.transform(p.x + 0.01, p.score),
        post.transform(p.x + 0.01, p.score, joint=True),
        explanation.weight,
        explanation.index,
        new.weight,
        new.dist,
    )
    return (*before, post.partial_fit(p.x[:9] + 0.01, p.score[:9]).y_fair_)


def _guarantees(p: Samples) -> list[Tensor]:
    """Results for queries and for samples that leave, with standard deviations."""
    post = GLIFPostProcessor(tau=TAU, lam=0.5).fit(p.x, p.score, y_std=p.score + 0.5)
    new = {"y_std": 0.7}
    bound = certify(post.fit_, p.x + 0.01, 0.1, p.score, **new)
    info = post.transform_info(p.x + 0.01, p.score, with_std=True, **new)
    value, std = info.value, info.uncertainty.std
    share = info.certificate.own_share.to(p.device)
    out = [value, std, share, bound.gap.to(p.device), sensitivity(post.fit_).own]
    return [*out, post.forget([0, 1]).y_fair_]


def _monitored(p: Samples) -> tuple[Tensor, ...]:
    post = GLIFPostProcessor(tau=TAU, lam=0.5).fit(p.x, p.score)
    info = post.transform_info(p.x + 0.01, p.score)
    fair = info.value
    monitor = TreatmentMonitor(0.5, drift=DriftReference.of(post))
    assert monitor.watch(fair, info) == N
    return info.neighbors.disparity(fair), info.neighbors.nearest()


def _audit(p: Samples) -> Tensor:
    before, after = p.score, p.score.mean().expand(N).contiguous()
    similar = graph.SimilarityGraph.search(p.x, TAU)
    few = Bootstrap(num_samples=20)
    data = AuditData(p.x, before, after, graph=similar)
    report = audit(data, variants=p.group, bootstrap=few)
    values = [m.before.value for m in report.measures]
    return torch.tensor(values, device=p.device)


def _tune(p: Samples) -> Tensor:
    grid = {"taus": (0.5, 1.0), "lams": (0.1, 1.0)}
    fitted = tune(p.x, p.p, p.label, cv=None, **grid)
    new = tune(p.x, p.p, p.label, cv=2, max_loss=1.0, **grid)
    scores = [q.score for result in (fitted, new) for q in result.points]
    return torch.tensor(scores, device=p.device)


def _metric(metric: Any, *batch: Tensor) -> Tensor:
    metric = metric.to(batch[0].device)
    metric.update(*batch)
    return metric.compute()


def _learned(p: Samples) -> Tensor:
    metric = distances.Mahalanobis(
        torch.eye(F, device=p.device, dtype=torch.float32), learnable=True
    )
    sq_dist = graph.edge_sq_dist(metric.embed(p.x), p.edges)
    graph.edge_weights(sq_dist, 1.0).sum().backward()
    assert metric.factor.grad is not None
    return metric.factor.grad


# Part of the package -> a call of it.
CASES: dict[str, Callable[[Samples], Any]] = {
    "radius search": lambda p: [
        graph.fair_radius_graph(p.x, TAU, strategy=s, batch=p.group % 2)  # type: ignore[arg-type]
        for s in ("auto", "plain", "projected")
    ],
    "nearest search": lambda p: [
        graph.fair_knn_graph(p.x, 3, strategy=s, batch=p.group % 2)  # type: ignore[arg-type]
        for s in ("auto", "plain", "projected")
    ],
    "queries": lambda p: (
        graph.RadiusIndex(p.x, TAU).query(p.x + 0.01),
        graph.KNNIndex(p.x, 3).query(p.x + 0.01),
        graph.SimilarityGraph.nearest(p.x, 3).weights(),
    ),
    "distances": lambda p: (
        _learned(p),
        distances.TaskDistance(p.blind, torch.sin)(p.x, p.x),
        graph.fair_radius_graph(
            p.x, TAU, distance=distances.CallableDistance(torch.cdist)
        ),
    ),
    "normalizations": lambda p: [
        p.smooth(normalization=form) for form in (None, "density", "nrw")
    ],
    "solvers": lambda p: [
        p.smooth(solver=solver)
        for solver in (
            solvers.CG(),
            solvers.Cholesky(),
            solvers.CoordinateDescent(epochs=200, rtol=1e-5),
        )
    ],
    "links": lambda p: [
        p.smooth(link=link) for link in (links.Log(), links.Logit(), links.Softmax())
    ],
    "methods": lambda p: (
        methods.smooth_worst_case(p.y, [(p.edges, p.weight), p.edges]).value,
        methods.smooth_balanced(p.score, p.edges, p.weight, groups=p.label).value,
        methods.smoothing_std(p.y, p.edges, p.weight).std,
        [q.value for q in glif_path(p.y, p.edges, p.sq_dist, lams=(0.1, 1), taus=(1,))],
    ),
    "layers": lambda p: (
        GLIFConv(lam=0.5).to(p.device)(p.y, p.edges, p.weight),
        GLIFSmooth(0.5)(FairRadiusGraph(TAU)(Data(x=p.x, y_hat=p.score))).y_fair,
        FairKNNGraph(3)(Data(x=p.x, y_hat=p.score)).edge_weight,
    ),
    "post-processor": _post,
    "guarantees": _guarantees,
    "monitor": _monitored,
    "metrics": lambda p: (
        metrics.knn_deviation(p.x, p.score),
        metrics.lipschitz_violations(p.x, p.score, 0.3).by_sample,
        metrics.local_lipschitz(p.score, p.edges, p.sq_dist).quantiles,
        metrics.ranking_ndcg(p.score, p.x, k=3),
        _metric(metrics.GroupGap(), p.score, p.label),
        _metric(metrics.GroupDisparity(), p.score, p.edges, p.label, p.weight),
    ),
    "metric learning": lambda p: (
        metric_learning.FACE(num_factors=1).fit(p.x, p.group).embed(p.x),
        metric_learning.LogisticSubspace().fit(p.x, p.label).embed(p.x),
        metric_learning.TaskEffect(p.blind).fit(p.x, p.label).embed(p.x),
        metric_learning.EXPLORE(penalty=0.1)
        .fit(p.x[:30], p.x[30:], p.label[:30] == p.label[30:])
        .sigma,
    ),
    "robust training": _robust,
    "projection": lambda p: baselines.lipschitz_projection(p.x, p.score, 0.3).value,
    "audit": _audit,
    "tune": _tune,
}


def tensors(result: Any) -> Iterator[Tensor]:
    """All tensors of a result."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from tensors(part)


@pytest.mark.parametrize("name", CASES)
def test_the_row_is_a_valid_call(name: str) -> None:
    first, second = (list(tensors(CASES[name](Samples("cpu")))) for _ in range(2))
    assert first
    for value, again in zip(first, second, strict=True):
        assert value.numel() > 0
        assert torch.isfinite(value.double()).all()
        torch.testing.assert_close(value, again, rtol=0, atol=0)


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_cuda_gives_what_the_cpu_gives(name: str) -> None:
    expected = list(tensors(CASES[name](Samples("cpu"))))
    values = list(tensors(CASES[name](Samples("cuda"))))
    for value, other in zip(values, expected, strict=True):
        assert value.device.type == "cuda"
        assert value.dtype == other.dtype
        # Sums are taken in another order: single precision and a solver's tolerance.
        torch.testing.assert_close(value.cpu(), other, rtol=1e-3, atol=1e-4)
