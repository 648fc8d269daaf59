"""What ``tune`` and ``glif_path`` report, against dense solves by brute force."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_glif import GLIFPostProcessor, fair_radius_graph, glif_path
from pyg_glif.model_selection import tune

from .harness import Campaign, Case
from .points import Distances

try:
    from pyg_glif.graph import SimilarityGraph
except ImportError:  # code of before there was one
    SimilarityGraph = None

_THETA = 0.05


def _run(case: Case) -> None:
    case.pick([_tune, _path])(case)


def _people(case: Case) -> tuple[NDArray[Any], NDArray[Any], str]:
    """Whole-numbered features, where many pairs are equally far apart, or others."""
    size, width = case.pick([20, 60, 120]), case.pick([2, 3, 6])
    kind = case.pick(["integers", "integers", "tenths", "normal"])
    if kind == "normal":
        x = case.rng.normal(size=(size, width))
    else:
        x = case.rng.integers(0, case.pick([4, 12]), size=(size, width)) * 1.0
        x /= 10.0 if kind == "tenths" else 1.0
    dtype = case.pick([np.float32, np.float64])
    y = case.rng.random(size).astype(dtype)
    return x.astype(dtype), y, f"{kind} {x.shape} {np.dtype(dtype)}"


def _smoothed(
    inside: NDArray[np.bool_], square: NDArray[Any], y: NDArray[Any], lam: float
) -> NDArray[np.float64]:
    """The dense solution on a graph."""
    W = np.where(inside, np.exp(-_THETA * square), 0.0)
    np.fill_diagonal(W, 0.0)
    A = np.eye(len(y)) + lam * (np.diag(W.sum(1)) - W)
    return np.linalg.solve(A, y.astype(np.float64))


def _radii(case: Case, truth: Distances) -> list[float]:
    """Radii on ties and beside them."""
    ties = np.unique(truth.low[truth.low > 0])[:40]
    chosen = case.rng.choice(ties, size=min(3, len(ties)), replace=False)
    beside = [
        float(np.nextafter(case.pick(list(chosen)), side)) for side in (0.0, np.inf)
    ]
    return sorted({*map(float, chosen), *beside})


def _tune(case: Case) -> None:
    """The chosen setting, fitted again, gives the reported numbers."""
    x, y, what = _people(case)
    labels = case.rng.integers(0, 2, size=len(y))
    first = case.rng.integers(0, len(y), size=40)
    step = case.rng.integers(1, len(y), size=40)
    pairs = np.stack([first, (first + step) % len(y)], axis=1)
    truth = Distances(x, x)
    taus = None if case.chance(0.5) else _radii(case, truth)
    found = tune(
        x,
        y,
        labels,
        pairs=pairs,
        taus=taus,
        lams=(0.1, 1.0, 10.0),
        max_loss=1.0,
        theta=_THETA,
        cv=None,
        progress=False,
    )
    for point in (found.best, case.pick(found.points), found.points[-1]):
        if point.lam == 0.0:
            continue
        context = f"{what}, tau={point.tau!r}, lam={point.lam}, own taus {taus is None}"
        post = GLIFPostProcessor(tau=point.tau, lam=point.lam, theta=_THETA)
        f = np.asarray(post.fit_transform(x, y), dtype=np.float64)
        case.count("refits")
        if np.abs(f - 0.5).min() < 1e-5:  # a decision within the solver's tolerance
            continue
        decision = f > 0.5
        score = float((decision == labels).mean())
        unfair = float((decision[pairs[:, 0]] != decision[pairs[:, 1]]).mean())
        ok = abs(score - point.score) < 1e-9 and abs(unfair - point.unfairness) < 1e-9
        got = f"reported {point.score}, {point.unfairness}; refit {score}, {unfair}"
        case.check(ok, "a refit gives other numbers than tune", f"{got}; {context}")


def _path(case: Case) -> None:
    """Every point of a path against a dense solve at its radius.

    A similarity graph is cut by the distances themselves, plain tensors by the squared
    distances as they are given.
    """
    x, y, what = _people(case)
    truth = Distances(x, x)
    taus = _radii(case, truth)
    given = torch.from_numpy(x)
    edges, sq_dist = fair_radius_graph(given, max(taus), progress=False)
    graph: tuple[Any, ...] = (edges, sq_dist)
    square = np.full(truth.square.shape, np.inf)
    square[tuple(edges.numpy())] = sq_dist.double().numpy()
    low = high = np.sqrt(square)
    if SimilarityGraph is not None and case.chance(0.7):
        graph = (SimilarityGraph.search(given, max(taus), progress=False),)
        low, high, what = truth.low, truth.high, f"{what}, SimilarityGraph"
    path = glif_path(
        torch.from_numpy(y),
        *graph,
        lams=[0.1, 3.0],
        taus=taus,
        theta=_THETA,
        progress=False,
    )
    for point in path:
        inside = low <= point.tau
        if (inside != (high <= point.tau)).any():  # float64 cannot tell
            continue
        want = _smoothed(inside, truth.square, y, point.lam)
        case.count("points of a path")
        off = float(np.abs(point.value.double().numpy() - want).max())
        case.worst("path error", off)
        detail = f"{off:.1e} at tau={point.tau!r}, lam={point.lam}; {what}"
        case.check(off <= 1e-4, "a path keeps other edges than its radius", detail)


CAMPAIGN = Campaign("refit", _run, 12, 1.0)
