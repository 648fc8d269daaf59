"""Metrics and the Lipschitz projection against formulas in NumPy."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

from pyg_glif.baselines import lipschitz_projection
from pyg_glif.metrics import (
    GroupGap,
    GroupStd,
    PredictionConsistency,
    group_gap,
    group_std,
    lipschitz_violations,
    local_lipschitz,
    prediction_consistency,
)

from .harness import Campaign, Case, default_dtype
from .points import Distances, hostile_points

Array = NDArray[np.float64]


def _run(case: Case) -> None:
    parts = [_groups, _groups, _violations, _ratios, _projection]
    with default_dtype(case.pick([torch.float32, torch.float32, torch.float64])):
        case.pick(parts)(case)


def _groups(case: Case) -> None:
    """Gaps, spreads and agreement of groups with any labels, whole or in batches."""
    size = int(case.pick([2, 5, 60]))
    names = case.rng.integers(
        0, case.pick([3, 1000, 2**62]), size=int(case.pick([2, 5]))
    )
    group = names[case.rng.integers(len(names), size=size)]
    y = case.rng.normal(size=(size, 2)) + case.pick([0.0, 1e6])
    y = y.astype(case.pick([np.float32, np.float64]))
    kind = case.pick(["gap", "std", "consistency"])
    parts = [y[group == g].astype(np.float64) for g in np.unique(group)]
    large = [part for part in parts if len(part) > 1]
    if kind == "gap":
        if len(parts) < 2:
            return
        means = np.stack([part.mean(0) for part in parts])
        signed = means[1] - means[0]
        want = signed if len(parts) == 2 else means.max(0) - means.min(0)
        function, metric = group_gap, GroupGap()
    elif kind == "std":
        if not large:
            return
        want = np.mean([part.std(0, ddof=1) for part in large], axis=0)
        function, metric = group_std, GroupStd()
    else:
        if not large:
            return
        want = np.mean([len(np.unique(part.argmax(1))) == 1 for part in large])
        function, metric = prediction_consistency, PredictionConsistency()
    context = f"{kind}, {size} rows, labels to {group.max()}, {y.dtype}"
    given = torch.from_numpy(y), torch.from_numpy(group)
    values: list[Any] = [function(*given)]
    cut = int(case.rng.integers(size + 1))
    for part in (slice(0, cut), slice(cut, size)):
        if len(y[part]):
            metric.update(given[0][part], given[1][part])
    values.append(metric.compute())
    case.count("group measures", 2)
    limit = 1e-6 * (1 + np.abs(y).max() * (y.dtype == np.float32))
    for value in values:
        off = float(np.abs(value.numpy() - want).max())
        case.check(off <= limit, f"group {kind} off", f"{off:.1e}; {context}")


def _violations(case: Case) -> None:
    """Pairs that break a Lipschitz condition, counted one by one."""
    x, what = hostile_points(case, 60)
    if len(x) < 2:
        return
    truth = Distances(x, x)
    y = case.rng.integers(0, 4, size=len(x)).astype(x.dtype)
    upper = np.triu_indices(len(x), 1)
    gap = np.abs(y[:, None].astype(float) - y[None])[upper]
    low, high = truth.low[upper], truth.high[upper]
    middle = float(np.median(low))
    constant = float(1.0 / middle) if 0 < middle < 1e30 and 1 / middle < 1e30 else 1.0
    got = lipschitz_violations(
        torch.from_numpy(x), torch.from_numpy(y), constant, progress=False
    )
    case.count("pairs counted", len(gap))
    # Between the two, rounding decides.
    least = int((gap > constant * high * (1 + 1e-12)).sum())
    most = int((gap > constant * low * (1 - 1e-12)).sum())
    num = int(got.num_violations)
    detail = f"{num} not from {least} to {most}; {what}, L={constant:.3g}"
    case.check(least <= num <= most, "violations miscounted", detail)
    case.check(int(got.num_pairs) == len(gap), "pairs miscounted", detail)


def _ratios(case: Case) -> None:
    """Ratios over the edges of a graph."""
    size = int(case.pick([2, 10, 40]))
    num = int(case.rng.integers(1, 4 * size))
    i = case.rng.integers(size, size=num)
    j = (i + case.rng.integers(1, size, size=num)) % size
    edges = np.unique(np.sort(np.stack([i, j]), axis=0), axis=1)
    y = case.rng.integers(0, 3, size=(size, 2)) * 1.0
    square = case.rng.integers(0, 5, size=edges.shape[1]) * 1.0
    gap = np.sqrt(np.square(y[edges[0]] - y[edges[1]]).sum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(gap == 0, 0.0, gap / np.sqrt(square))
    got = local_lipschitz(
        torch.from_numpy(y),
        torch.from_numpy(edges),
        torch.from_numpy(square),
        quantiles=(0.5, 1.0),
        num_worst=3,
    )
    case.count("ratios", len(ratio))
    case.check(float(got.max) == ratio.max(), "largest ratio off", f"{got.max}")
    ordered = np.sort(ratio)
    middle = ordered[int(np.ceil(0.5 * len(ratio) - 1e-9)) - 1]
    found = float(
        got.quantiles[0.5] if isinstance(got.quantiles, dict) else got.quantiles[0]
    )
    case.check(found == middle, "median ratio off", f"{found} for {middle}")


def _projection(case: Case) -> None:
    """Nearest outputs under all constraints, against a solver of SciPy's."""
    size, width = int(case.pick([2, 4, 8])), int(case.pick([1, 2]))
    x = np.round(case.rng.normal(size=(size, width)), 1)
    if case.chance(0.3):
        x[-1] = x[0]
    y = case.rng.random(size)
    dist = Distances(x, x).low
    constant = float(case.pick([0.0, 0.1, 0.5, 10.0]))
    got = lipschitz_projection(torch.from_numpy(x), torch.from_numpy(y), constant)
    i, j = np.triu_indices(size, 1)
    A = np.zeros((len(i), size))
    A[np.arange(len(i)), i], A[np.arange(len(i)), j] = 1.0, -1.0
    limit = constant * dist[i, j]
    both = np.concatenate([limit, limit])
    best = minimize(
        lambda f: ((f - y) ** 2).sum(),
        np.full(size, y.mean()),
        jac=lambda f: 2 * (f - y),
        constraints=[LinearConstraint(np.concatenate([A, -A]), -np.inf, both)],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    f = got.value.numpy()
    case.count("projections")
    excess = float((np.abs(A @ f) - limit).max()) if len(i) else 0.0
    case.check(excess <= 1e-5, "a projection breaks a constraint", f"{excess:.1e}")
    claimed = max(excess, 0.0)
    ok = got.max_violation >= claimed - 1e-12
    case.check(ok, "a violation is hidden", f"{got.max_violation} for {claimed}")
    objective = float(((f - y) ** 2).sum())
    off = objective - best.fun
    context = f"{objective} for {best.fun}; {size} people, L={constant}"
    case.check(not best.success or off <= 1e-4, "a projection is not nearest", context)


CAMPAIGN = Campaign("measures", _run, 30, 0.7)
