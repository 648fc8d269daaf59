"""The public functions on a CUDA device give what they give on the CPU.

One table of calls, each a function of a device. Whether the calls themselves are right
is tested everywhere, on the CPU; the comparison needs a device and is skipped, with a
reason, where there is none. A new public function gets a row.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pandas
import pytest
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from torch import Tensor
from torch_geometric.data import Data

import experiments.baselines as rivals
from pyg_glif import (
    AnnotatorGraph,
    FairKNNGraph,
    FairRadiusGraph,
    GLIFConv,
    GLIFPostProcessor,
    GLIFSmooth,
    LaplacianLoss,
    baselines,
    distances,
    glif_path,
    glif_smooth,
    glif_solve,
    graph,
    laplacian_penalty,
    links,
    methods,
    metric_learning,
    metrics,
    solvers,
    transforms,
)
from pyg_glif.audit import AuditData, Bootstrap, audit
from pyg_glif.guarantees import certify, sensitivity
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.model_selection import tune
from pyg_glif.monitoring import DriftReference, TreatmentMonitor
from pyg_glif.neighbors import KNearest, Radius
from pyg_glif.sklearn import GLIFClassifier, GLIFRegressor
from pyg_glif.tables import FairTable

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


def _sensei(p: Samples, kind: type) -> Tensor:
    auditor = baselines.Auditor(num_subspace_steps=2, num_full_steps=2)
    term = kind(p.blind, auditor=auditor).to(p.device)
    model = p.model()
    out = term(model, p.x) if kind is baselines.SenSeIRegularizer else None
    return term(model, p.x, p.label) if out is None else out


def _post(p: Samples) -> tuple[Tensor, ...]:
    post = GLIFPostProcessor(distance=p.blind, tau=TAU, lam=0.5).fit(p.x, p.score)
    found, new = post.explain(0), post.explain_new(p.x[:1] + 0.01)
    before = (
        post.y_fair_,
        post.graph_.edge_weight,
        post.transform(p.x + 0.01, p.score),
        post.transform(p.x + 0.01, p.score, joint=True),
        found.weight,
        found.index,
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
    found = [value, std, share, bound.gap.to(p.device), sensitivity(post.fit_).own]
    return [*found, post.forget([0, 1]).y_fair_]


def _peers(p: Samples) -> tuple[Tensor, ...]:
    post = GLIFPostProcessor(tau=TAU, lam=0.5).fit(p.x, p.score)
    info = post.transform_info(p.x + 0.01, p.score)
    fair = info.value
    monitor = TreatmentMonitor(0.5, drift=DriftReference.of(post))
    assert monitor.watch(fair, info) == N
    return info.neighbors.disparity(fair), info.neighbors.nearest()


def _on(p: Samples, make: Any, *sizes: int) -> Tensor:
    """A layer with the same first weights on any device."""
    torch.manual_seed(0)
    out: Tensor = make(*sizes).to(p.x)(p.x, p.edges, p.weight)
    return out.detach()


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
    scores = [q.score for found in (fitted, new) for q in found.points]
    return torch.tensor(scores, device=p.device)


def _table(p: Samples) -> Tensor:
    x = pandas.DataFrame(p.x.cpu().numpy(), columns=list("abc"))
    table = FairTable(["a"]).fit(x, lambda df: 2 * df["b"] + df["a"])
    return table.transform(x).to(p.device)  # frames are on the CPU, and so are results


def _estimator(p: Samples, kind: type, model: Any) -> Tensor:
    x, y = p.x.cpu().numpy(), p.label.cpu().numpy()
    found = kind(model, sensitive=[1], lam=1.0, random_state=0).fit(x, y).predict(x)
    return torch.tensor(found, device=p.device)  # arrays are on the CPU


def _metric(metric: Any, *batch: Tensor) -> Tensor:
    metric = metric.to(batch[0].device)
    metric.update(*batch)
    return metric.compute()


def _interval(p: Samples) -> Tensor:
    found = metrics.bootstrap_interval(
        lambda rows: p.score[rows.to(p.device)].mean(), N, num_samples=50
    )
    return torch.tensor([float(found.low), float(found.high)], device=p.device)


def _data(p: Samples) -> Data:
    return Data(x=p.x, y_hat=p.score)


def _annotated(p: Samples) -> Data:
    return AnnotatorGraph([torch.tensor([[0, 1], [1, 2]], device=p.device)])(_data(p))


def _learned(p: Samples) -> Tensor:
    metric = distances.Mahalanobis(
        torch.eye(F, device=p.device, dtype=torch.float32), learnable=True
    )
    sq_dist = graph.edge_sq_dist(metric.embed(p.x), p.edges)
    graph.edge_weights(sq_dist, 1.0).sum().backward()
    assert metric.factor.grad is not None
    return metric.factor.grad


# Name of the public function or class -> a call of it.
CASES: dict[str, Callable[[Samples], Any]] = {
    "AnnotatorGraph": lambda p: _annotated(p).edge_weight,
    "Auditor": lambda p: baselines.SenSeIRegularizer(p.blind).audit(p.model(), p.x).x,
    "Auto": lambda p: p.smooth(solver=solvers.Auto()),
    "CG": lambda p: p.smooth(solver=solvers.CG()),
    "CallableDistance": lambda p: graph.fair_radius_graph(
        p.x, TAU, distance=distances.CallableDistance(torch.cdist)
    ),
    "Cholesky": lambda p: p.smooth(solver=solvers.Cholesky()),
    "CoordinateDescent": lambda p: p.smooth(
        solver=solvers.CoordinateDescent(epochs=200, rtol=1e-5)
    ),
    "EXPLORE": lambda p: (
        metric_learning.EXPLORE(penalty=0.1)
        .fit(
            p.x[::2].contiguous(), p.x[1::2].contiguous(), p.label[::2] == p.label[1::2]
        )
        .sigma
    ),
    "Euclidean": lambda p: distances.Euclidean()(p.x, p.x),
    "FACE": lambda p: metric_learning.FACE(num_factors=1).fit(p.x, p.group).embed(p.x),
    "FairKNNGraph": lambda p: FairKNNGraph(3)(_data(p)).edge_weight,
    "FairRadiusGraph": lambda p: FairRadiusGraph(TAU)(_data(p)).edge_weight,
    "FairSubgraph": lambda p: (
        transforms.FairSubgraph(p.edges, p.weight)(
            Data(n_id=torch.arange(0, N, 2, device=p.device), num_nodes=N // 2)
        ).fair_edge_weight
    ),
    "FairTable": _table,
    "GLIFConv": lambda p: GLIFConv(lam=0.5).to(p.device)(p.y, p.edges, p.weight),
    "GLIFClassifier": lambda p: _estimator(p, GLIFClassifier, LogisticRegression()),
    "GLIFPostProcessor": lambda p: (*_post(p), *_guarantees(p)),
    "certify": _guarantees,
    "sensitivity": _guarantees,
    "FittedNeighbors": _peers,
    "GLIFRegressor": lambda p: _estimator(p, GLIFRegressor, LinearRegression()),
    "GLIFSmooth": lambda p: GLIFSmooth(0.5)(FairRadiusGraph(TAU)(_data(p))).y_fair,
    "GroupDisparity": lambda p: _metric(
        metrics.GroupDisparity(), p.score, p.edges, p.label, p.weight
    ),
    "GroupEqualityLoss": lambda p: rivals.GroupEqualityLoss()(
        p.score, LaplacianOperator(p.edges, p.weight, N), p.label
    ),
    "GroupGap": lambda p: _metric(metrics.GroupGap(), p.score, p.label),
    "GroupStd": lambda p: _metric(metrics.GroupStd(), p.score, p.group),
    "Identity": lambda p: p.smooth(link=links.Identity()),
    "KNNConsistency": lambda p: _metric(metrics.KNNConsistency(), p.x, p.score),
    "KNearest": lambda p: KNearest(3).index(p.x).query(p.x + 0.01),
    "KNNIndex": lambda p: graph.KNNIndex(p.x, 3).query(p.x + 0.01),
    "LaplacianEnergy": lambda p: _metric(
        metrics.LaplacianEnergy("density"), p.score, p.edges, p.weight
    ),
    "LaplacianLoss": lambda p: LaplacianLoss("density")(p.y, p.edges, p.weight),
    "LipschitzViolations": lambda p: _metric(
        metrics.LipschitzViolations(0.5), p.x, p.score
    ),
    "LocalLipschitz": lambda p: _metric(
        metrics.LocalLipschitz(), p.score, p.edges, p.sq_dist
    ),
    "Log": lambda p: p.smooth(link=links.Log()),
    "LogisticSubspace": lambda p: (
        metric_learning.LogisticSubspace().fit(p.x, p.label).embed(p.x)
    ),
    "Logit": lambda p: p.smooth(link=links.Logit()),
    "Mahalanobis": _learned,
    "PredictionConsistency": lambda p: _metric(
        metrics.PredictionConsistency(), p.label, p.group
    ),
    "Radius": lambda p: Radius(TAU).index(p.x).query(p.x + 0.01),
    "RadiusIndex": lambda p: graph.RadiusIndex(p.x, TAU).query(p.x + 0.01),
    "SenSRLoss": lambda p: _sensei(p, baselines.SenSRLoss),
    "RankingERR": lambda p: _metric(metrics.RankingERR(3), p.x, p.score),
    "RankingLoss": lambda p: rivals.RankingLoss(3)(p.p, p.x),
    "RankingNDCG": lambda p: _metric(metrics.RankingNDCG(3), p.x, p.score),
    "SenSeIRegularizer": lambda p: _sensei(p, baselines.SenSeIRegularizer),
    "SensitiveSVD": lambda p: (
        metric_learning.SensitiveSVD(num_components=1).fit(p.x).embed(p.x)
    ),
    "SensitiveSubspace": lambda p: graph.fair_radius_graph(p.x, TAU, distance=p.blind),
    "SimilarityAttention": lambda p: _on(p, rivals.SimilarityAttention, F, 2),
    "SimilarityGraph": lambda p: (
        graph.SimilarityGraph(p.edges, p.sq_dist, N, TAU).within(0.5).weights(0.5)
    ),
    "Softmax": lambda p: p.smooth(link=links.Softmax()),
    "TaskDistance": lambda p: distances.TaskDistance(p.blind, torch.sin)(p.x, p.x),
    "TaskEffect": lambda p: (
        metric_learning.TaskEffect(p.blind).fit(p.x, p.label).embed(p.x)
    ),
    "structural_similarity": lambda p: graph.structural_similarity(p.edges),
    "annotator_graph": lambda p: graph.annotator_graph(
        [torch.tensor([[0, 1]], device=p.device)], N
    ),
    "audit": _audit,
    "bootstrap_interval": _interval,
    "decay_of": lambda p: graph.edge_weights(p.sq_dist, graph.decay_of(None, TAU)),
    "edge_sq_dist": lambda p: graph.edge_sq_dist(p.x, p.edges),
    "edge_weights": lambda p: graph.edge_weights(p.sq_dist, 2.0),
    "fair_knn_graph": lambda p: [
        graph.fair_knn_graph(p.x, 3, strategy=s, batch=p.group % 2)  # type: ignore[arg-type]
        for s in ("auto", "plain", "projected")
    ],
    "fair_radius_graph": lambda p: [
        graph.fair_radius_graph(p.x, TAU, strategy=s, batch=p.group % 2)  # type: ignore[arg-type]
        for s in ("auto", "plain", "projected")
    ],
    "smooth_worst_case": lambda p: (
        methods.smooth_worst_case(p.y, [(p.edges, p.weight), p.edges]).value
    ),
    "glif_path": lambda p: [
        point.value
        for point in glif_path(
            p.y, p.edges, p.sq_dist, lams=(0.1, 1.0), taus=(0.5, 1.0)
        )
    ],
    "smooth_balanced": lambda p: (
        methods.smooth_balanced(p.score, p.edges, p.weight, groups=p.label).value
    ),
    "smoothing_std": lambda p: methods.smoothing_std(p.y, p.edges, p.weight).std,
    "glif_solve": lambda p: glif_solve(p.y, p.edges, p.weight).error_bound,
    "glif_smooth": lambda p: [
        p.smooth(normalization=form) for form in (None, "density", "nrw")
    ],
    "group_disparity": lambda p: metrics.group_disparity(
        p.score, p.edges, p.label, p.weight
    ),
    "ranking_ndcg": lambda p: metrics.ranking_ndcg(p.score, p.x, k=3),
    "ranking_err": lambda p: metrics.ranking_err(p.score, p.x, k=3),
    "group_gap": lambda p: metrics.group_gap(p.score, p.label),
    "group_std": lambda p: metrics.group_std(p.score, p.group),
    "guide_head": lambda p: _on(p, rivals.guide_head, F),
    "inform_debias": lambda p: rivals.inform_debias(
        p.score, p.edges, alpha=0.5, edge_weight=p.weight
    ),
    "inform_debias_graph": lambda p: rivals.inform_debias_graph(
        lambda weight: p.score * weight.sum(),
        p.weight,
        LaplacianOperator(p.edges, p.weight, N),
        0.5,
    ),
    "pairwise_fair_features": lambda p: rivals.pairwise_fair_features(
        p.x, (p.edges, p.weight), (p.edges, None), num_components=2
    ),
    "knn_consistency": lambda p: metrics.knn_consistency(p.x, p.score),
    "knn_deviation": lambda p: metrics.knn_deviation(p.x, p.score),
    "laplacian_energy": lambda p: metrics.laplacian_energy(p.score, p.edges, p.weight),
    "laplacian_penalty": lambda p: laplacian_penalty(p.y, p.edges, p.weight),
    "lipschitz_projection": lambda p: (
        baselines.lipschitz_projection(p.x, p.score, 0.3).value
    ),
    "lipschitz_violations": lambda p: (
        metrics.lipschitz_violations(p.x, p.score, 0.3).by_sample
    ),
    "local_weights": lambda p: graph.SimilarityGraph.nearest(p.x, 3).weights(),
    "local_lipschitz": lambda p: (
        metrics.local_lipschitz(p.score, p.edges, p.sq_dist).quantiles
    ),
    "Peers": _peers,
    "prediction_consistency": lambda p: metrics.prediction_consistency(
        p.label, p.group
    ),
    "suggest_tau": lambda p: torch.tensor(graph.suggest_tau(p.x, 10), device=p.device),
    "tune": _tune,
}
# Parts whose every export needs a row. Kinds (distances, links, solvers) have their
# own tables of laws; the rows above are those that are there today.
MODULES = [
    "audit",
    "baselines",
    "explain",
    "fit",
    "functional",
    "graph",
    "guarantees",
    "methods",
    "metric_learning",
    "metrics",
    "model_selection",
    "neighbors",
    "nn",
    "postprocessing",
    "sklearn",
    "tables",
    "transforms",
]
# What holds results or is subclassed, and what the functions above are made of.
NO_CALL = {
    "AuditData", "AuditReport", "Bootstrap", "IntervalEstimate", "Explanation",
    "ListedPair", "ListedSample",
    "FairDistance",
    "Contribution", "Difference", "Fit", "FitSummary", "GroupTreatment", "Interval",
    "NeighborIndex", "NeighborPairs",
    "Lists", "Verdict",
    "Link", "LipschitzRatios", "LogisticFit", "Measure", "MetricFit", "Pair",
    "PathPoint", "Person", "Projection", "Solution", "SolveStatus", "Solver",
    "SubspaceFit", "System", "TransformInfo", "TunePoint", "TuneResult", "Violations",
    "AnnotatorEnergies", "Certificate", "NearbyBound", "Noise", "NoiseRoot",
    "Sensitivity", "Uncertainty", "noise_root", "own_shares", "smooth_worst_case",
    "WorstCase", "free_directions", "smooth", "smooth_outputs",
    "solve_parts",
    "Guarantee", "RiskControl", "RiskTest",
    "ColumnSummary", "TableSummary", "Balance", "balance", "group_energies",
    "group_sizes", "LinearFit",
}  # fmt: skip


def tensors(found: Any) -> Iterator[Tensor]:
    """All tensors of a result."""
    if isinstance(found, Tensor):
        yield found
    elif isinstance(found, (list, tuple)):
        for part in found:
            yield from tensors(part)


def public() -> set[str]:
    """Names that the modules above export, functions and classes."""
    found = set()
    for part in MODULES:
        module = importlib.import_module(f"pyg_glif.{part}")
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
        ]
        found |= {
            name
            for name in names
            if not name.startswith("_")
            and (
                inspect.isclass(getattr(module, name))
                or inspect.isroutine(getattr(module, name))
            )
        }
    return found


def test_every_public_name_has_a_row() -> None:
    assert public() - NO_CALL <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_the_row_is_a_valid_call(name: str) -> None:
    first, second = (list(tensors(CASES[name](Samples("cpu")))) for _ in range(2))
    assert first
    for one, other in zip(first, second, strict=True):
        assert one.numel() > 0
        assert torch.isfinite(one.double()).all()
        torch.testing.assert_close(one, other, rtol=0, atol=0)  # the same twice


@pytest.mark.cuda
@pytest.mark.parametrize("name", CASES)
def test_cuda_gives_what_the_cpu_gives(name: str) -> None:
    expected = list(tensors(CASES[name](Samples("cpu"))))
    found = list(tensors(CASES[name](Samples("cuda"))))
    for one, other in zip(found, expected, strict=True):
        assert one.device.type == "cuda"
        assert one.dtype == other.dtype
        # Sums are taken in another order: single precision and a solver's tolerance.
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)
