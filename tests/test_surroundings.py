"""Results do not depend on torch's global switches: default dtype, autocast, TF32."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.baselines import inform_debias
from pyg_glif import (
    GLIFConv,
    GLIFPostProcessor,
    LaplacianLoss,
    edge_weights,
    fair_radius_graph,
    glif_path,
    glif_smooth,
    laplacian_penalty,
    suggest_tau,
)
from pyg_glif.baselines import (
    Auditor,
    SenSeIRegularizer,
    SenSRLoss,
    lipschitz_projection,
)
from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.graph import RadiusIndex, SimilarityGraph, annotator_graph, edge_sq_dist
from pyg_glif.graph._pruning import Workspace
from pyg_glif.metric_learning import EXPLORE, FACE, LogisticSubspace, SensitiveSVD
from pyg_glif.metrics import (
    bootstrap_interval,
    group_gap,
    group_std,
    knn_consistency,
    laplacian_energy,
    lipschitz_violations,
    local_lipschitz,
    prediction_consistency,
)
from pyg_glif.model_selection import tune
from pyg_glif.solvers import CG, Cholesky, CoordinateDescent
from tests.oracles_radius import brute_force_edges


def data(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Features, outputs and groups; enough samples for every search."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1100, 6, generator=generator, dtype=torch.float64)
    y = torch.rand(1100, generator=generator, dtype=torch.float64)
    return x.to(dtype), y.to(dtype), (x[:, 0] + 0.5 * x[:, 3] > 0).long()


def tensors(value: object) -> list[Tensor]:
    """All tensors in a result, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [part for item in value for part in tensors(item)]
    if hasattr(value, "__dict__"):
        return [part for item in vars(value).values() for part in tensors(item)]
    return [torch.tensor(value)] if isinstance(value, (int, float)) else []


def manhattan(a: Tensor, b: Tensor) -> Tensor:
    return (a.unsqueeze(1) - b).abs().sum(2)


def blind(x: Tensor) -> SensitiveSubspace:
    return SensitiveSubspace(torch.eye(6, dtype=x.dtype)[:1])


def model(x: Tensor) -> Tensor:
    return torch.stack([x[:, 1] + x[:, 0].sin(), x[:, 2] * x[:, 0]], dim=1)


def layer(x: Tensor, normalization: Any) -> tuple[Tensor, Tensor]:
    # Large enough for iterations that start in float32.
    conv = GLIFConv(lam=0.1, normalization=normalization, learn_lam=True)
    out = conv(x.repeat(1, 5), *graph(x))
    LaplacianLoss(normalization)(out, *graph(x)).backward()
    assert conv.log_lam is not None
    assert conv.log_lam.grad is not None
    return out.detach(), conv.log_lam.grad


Case = Callable[[Tensor, Tensor, Tensor], object]


def graph(x: Tensor) -> tuple[Tensor, Tensor]:
    return fair_radius_graph(x, 1.2)


CASES: dict[str, Case] = {
    **{
        f"search, {strategy}": lambda x, y, g, strategy=strategy: fair_radius_graph(
            x, 1.2, batch=g, strategy=strategy
        )
        for strategy in ("auto", "projected", "plain")
    },
    "search, function": lambda x, y, g: fair_radius_graph(
        x[:300], 1.2, distance=CallableDistance(manhattan)
    ),
    "search, subspace": lambda x, y, g: fair_radius_graph(
        x, 1.2, distance=SensitiveSubspace(x[:2])
    ),
    "search, Mahalanobis": lambda x, y, g: fair_radius_graph(
        x, 1.2, distance=Mahalanobis(torch.eye(6, dtype=x.dtype))
    ),
    "index": lambda x, y, g: RadiusIndex(x, 1.2).query(x[:50]),
    "suggest_tau": lambda x, y, g: suggest_tau(x, 10.0),
    "within": lambda x, y, g: SimilarityGraph.search(x, 1.2).within(1.0).edge_index,
    "annotators": lambda x, y, g: annotator_graph([[(0, 1)], [(1, 2)]], 3),
    "edge_sq_dist": lambda x, y, g: edge_sq_dist(x, graph(x)[0]),
    **{
        f"smooth, {solver}": lambda x, y, g, solver=solver: glif_smooth(
            y, graph(x)[0], edge_weights(graph(x)[1], 1e-4), lam=0.5, solver=solver
        )
        for solver in (CG(), Cholesky(), CoordinateDescent(throw=False))
    },
    "smooth, density, batch": lambda x, y, g: glif_smooth(
        y,
        fair_radius_graph(x, 1.2, batch=g)[0],
        normalization="density",
        batch=g,
    ),
    "penalty": lambda x, y, g: laplacian_penalty(y, graph(x)[0]),
    "path": lambda x, y, g: [
        point.value for point in glif_path(y, *graph(x), lams=[0.1], taus=[0.5, 1.2])
    ],
    "tune": lambda x, y, g: [
        (point.score, point.unfairness)
        for point in tune(x[:200], y[:200], g[:200], taus=[1.0], lams=[0.1, 1.0]).points
    ],
    "post-processor": lambda x, y, g: (
        GLIFPostProcessor(tau=1.2).fit(x[:900], y[:900]).transform(x[900:], y[900:])
    ),
    "knn": lambda x, y, g: knn_consistency(x, y),
    "energy": lambda x, y, g: laplacian_energy(y, *graph(x)),
    "violations": lambda x, y, g: lipschitz_violations(x, y, 0.2, bins=[0, 1, 2]),
    "local": lambda x, y, g: local_lipschitz(y, *graph(x)),
    "gap": lambda x, y, g: group_gap(y, g),
    "std": lambda x, y, g: group_std(y, g),
    "consistency": lambda x, y, g: prediction_consistency((y > 0.5).long(), g),
    "bootstrap": lambda x, y, g: bootstrap_interval(
        lambda rows: y[rows].mean(), len(y), num_samples=20
    ),
    "projection": lambda x, y, g: lipschitz_projection(x[:60], y[:60], 0.2).value,
    "inform": lambda x, y, g: inform_debias(x, graph(x)[0], 0.7),
    "auditor": lambda x, y, g: (
        Auditor().search(lambda x: model(x).sum(1), x, Euclidean(), 1.0).x
    ),
    "SenSeI": lambda x, y, g: SenSeIRegularizer(blind(x))(model, x),
    "SenSR": lambda x, y, g: SenSRLoss(blind(x))(model, x, g),
    **{
        f"layer, {form}": lambda x, y, g, form=form: layer(x, form)
        for form in (None, "nrw", "density")
    },
    "SVD": lambda x, y, g: SensitiveSVD(num_components=2).fit(x).embed(x),
    "FACE": lambda x, y, g: FACE(num_factors=2).fit(x, g).embed(x),
    "logistic": lambda x, y, g: LogisticSubspace().fit(x, g).embed(x),
    "EXPLORE": lambda x, y, g: (
        EXPLORE(penalty=0.01).fit(x[:99], x[99:198], (y[:99] > 0.5).long()).embed(x)
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_default_float64_changes_nothing(
    name: str, dtype: torch.dtype, double_by_default: None
) -> None:
    case, arguments = CASES[name], data(dtype)
    wide = tensors(case(*arguments))
    torch.set_default_dtype(torch.float32)
    narrow = tensors(case(*arguments))
    assert len(wide) == len(narrow) > 0
    for one, other in zip(wide, narrow, strict=True):
        if one.dim():  # plain numbers become tensors of the default dtype above
            assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, check_dtype=False)


EXACT = [
    name
    for name in CASES
    if name.startswith("search")
    or name in ("index", "suggest_tau", "within", "path", "tune", "post-processor")
    or name in ("knn", "violations", "local", "gap", "std", "projection")
]


@pytest.mark.parametrize("name", EXACT)
def test_autocast_changes_nothing(name: str) -> None:
    case, arguments = CASES[name], data(torch.float32)
    full = tensors(case(*arguments))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = tensors(case(*arguments))
    for one, other in zip(full, mixed, strict=True):
        assert torch.equal(one, other)


@pytest.fixture
def coarse_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products of matrices as hardware has them that rounds factors to bfloat16."""
    within = Workspace.within

    def rounded(self: Workspace, a: Tensor, b: Tensor, *rest: Any) -> Any:
        return within(self, a.bfloat16().float(), b.bfloat16().float(), *rest)

    monkeypatch.setattr(Workspace, "within", rounded)
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("strategy", ["projected", "plain"])
def test_coarse_products_cost_no_edge(strategy: str, coarse_products: None) -> None:
    x, _, _ = data(torch.float32)
    expected, squares = brute_force_edges(x[:400].double().numpy(), 1.5)
    torch.set_float32_matmul_precision("medium")
    edge_index, sq_dist = fair_radius_graph(x[:400], 1.5, strategy=strategy)
    np.testing.assert_array_equal(edge_index, expected)
    np.testing.assert_allclose(sq_dist, squares, rtol=1e-5)
    torch.set_float32_matmul_precision("highest")
    edge_index, _ = fair_radius_graph(x[:400], 1.5, strategy=strategy)
    assert edge_index.size(1) < expected.shape[1]  # or this tests nothing
