"""Radius searches, pair by pair against brute force."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_glif import fair_radius_graph, suggest_tau
from pyg_glif.distances import (
    CallableDistance,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
)
from pyg_glif.graph import RadiusIndex

from .harness import Campaign, Case, default_dtype
from .points import (
    Distances,
    hostile_batch,
    hostile_points,
    hostile_radius,
    rare_points,
)

# From here on the search may choose to project; brute force takes a second.
_LARGE = 1300


def _promised(dtype: torch.dtype, num_features: int) -> float:
    """What ``fair_radius_graph`` promises about squared distances."""
    if dtype == torch.float64:
        return (num_features + 2) * 2.0**-52
    return 1e-5 if num_features <= 64 else 2e-6 * (num_features + 16)


def _run(case: Case) -> None:
    parts = [_graph, _graph, _graph, _large, _index, _suggestion, _within, _metrics]
    with default_dtype(case.pick([torch.float32, torch.float32, torch.float64])):
        case.pick(parts)(case)


def _context(case: Case, **facts: Any) -> str:
    words = [f"{name}={value}" for name, value in facts.items()]
    return ", ".join([*words, f"default {torch.get_default_dtype()}"])


def _graph(case: Case, largest: int = 200) -> None:
    """All strategies on one set of points."""
    x, what = hostile_points(case, largest)
    distance = _distance(case, x)
    _compare(case, x, what, distance, case.pick(["auto", "projected", "plain"]))


def _large(case: Case) -> None:
    """Enough points for the default search to choose."""
    x, what = hostile_points(case, _LARGE)
    if len(x) > 300:
        _compare(case, x[:, :8], what, None, "auto")
    else:
        _compare(case, x, what, None, "projected")


def _distance(case: Case, x: NDArray[np.floating]) -> FairDistance | None:
    """Mostly none, else one of the package's own, its coordinates taken as given."""
    width = x.shape[1]
    kind = case.pick(["none"] * 5 + ["matrix", "subspace", "callable"])
    if width == 0 or not len(x):
        return None
    if kind == "matrix":
        factor = case.rng.integers(-2, 3, size=(width, width)) * 1.0
        matrix = torch.tensor(factor @ factor.T + np.eye(width))
        return Mahalanobis(matrix)
    if kind == "subspace" and width > 1:
        return SensitiveSubspace(torch.tensor(np.eye(1, width)))
    if kind == "callable":
        return CallableDistance(_manhattan)
    return None


def _manhattan(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a.unsqueeze(1) - b).abs().sum(-1)


def _compare(
    case: Case,
    x: NDArray[np.floating],
    what: str,
    distance: FairDistance | None,
    strategy: str,
) -> None:
    """One search against brute force."""
    given = torch.from_numpy(np.ascontiguousarray(x))
    if isinstance(distance, CallableDistance):
        dist = _manhattan(given, given)
        low = high = dist.double().numpy()
        square, promised = low * low, 4 * torch.finfo(dist.dtype).eps
    else:
        z = given if distance is None else distance.embed(given).detach()
        found = Distances(z.numpy(), z.numpy())
        low, high, square = found.low, found.high, found.square
        promised = _promised(z.dtype, z.size(1))
    tau = hostile_radius(case, low)
    if isinstance(distance, CallableDistance):  # judged in its own precision
        tau = float(torch.tensor(tau, dtype=given.dtype))
    batch = hostile_batch(case, len(x))
    tile = case.pick([1, 7, 64, 256, 1000]) if len(x) <= 300 else 256
    kind = type(distance).__name__
    context = _context(
        case, points=what, tau=repr(tau), strategy=strategy, tile=tile, distance=kind
    )
    try:
        edges, sq_dist = fair_radius_graph(
            given,
            tau,
            distance=distance,
            batch=None if batch is None else torch.from_numpy(batch),
            strategy=strategy,
            tile_size=tile,
            progress=False,
        )
    except Exception as error:
        case.refused(error, f"search (default {torch.get_default_dtype()})")
        return
    same = np.ones((len(x), len(x)), dtype=bool)
    if batch is not None:
        same = batch[:, None] == batch[None]
    np.fill_diagonal(same, False)
    case.count("searches")
    group = "with batch" if batch is not None else "without batch"
    _judge(
        case,
        edges.numpy(),
        sq_dist,
        (low, high, square),
        same,
        tau,
        promised,
        group,
        context,
    )
    order = edges[0] * max(1, len(x)) + edges[1]
    case.check((order.diff() > 0).all(), "edges out of order", context)
    case.check(sq_dist.dtype == given.dtype, "dtype of sq_dist", context)


def _judge(
    case: Case,
    pairs: NDArray[np.int64],
    sq_dist: torch.Tensor,
    truth: tuple[NDArray[np.float64], ...],
    allowed: NDArray[np.bool_],
    tau: float,
    promised: float,
    group: str,
    context: str,
) -> None:
    """Missing pairs, surplus pairs and wrong distances."""
    low, high, square = truth
    got = np.zeros(low.shape, dtype=bool)
    got[pairs[0], pairs[1]] = True
    case.count("edges", pairs.shape[1])
    lost = allowed & (high <= tau) & ~got
    surplus = got & ~(allowed & (low <= tau))
    total = int((allowed & (high <= tau)).sum())
    num = f"{int(lost.sum())} of {total}"
    case.check(not lost.any(), f"pairs lost ({group})", f"{num}; {context}")
    num = f"{int(surplus.sum())} beyond {total}"
    case.check(not surplus.any(), f"surplus pairs ({group})", f"{num}; {context}")
    want = square[pairs[0], pairs[1]]
    info = torch.finfo(sq_dist.dtype)
    value = sq_dist.double().numpy()
    with np.errstate(invalid="ignore"):
        error = np.abs(value - want)
    # Squares beyond the dtype's range become infinite or lose digits below it.
    over = want > info.max
    inside = ~over
    case.check((value[over] >= info.max).all(), "sq_dist beyond its range", context)
    excess = error[inside] - promised * want[inside]
    if excess.size:
        relative = error[inside] / np.maximum(want[inside], info.tiny)
        case.worst(f"sq_dist error, {info.bits} bit", relative.max())
        detail = f"relative error {relative.max():.1e}; {context}"
        case.check(
            (excess <= info.tiny).all(), "sq_dist less exact than promised", detail
        )


def _index(case: Case) -> None:
    """Newcomers among known people, on scales of their own."""
    x, what = hostile_points(case, case.pick([200, _LARGE]))
    if case.chance(0.4):
        x, what = rare_points(case, _LARGE), "rare"
    if not len(x):
        return
    width = x.shape[1]
    new = x[case.rng.integers(len(x), size=case.pick([0, 1, 20]))]
    kind = case.pick(["same", "far", "small", "shifted"])
    if kind in ("far", "small"):
        power = case.rng.uniform(5, 25) * (1 if kind == "far" else -1)
        extra = new * x.dtype.type(10.0**power)
        new = np.concatenate([new, extra, np.zeros((1, width), x.dtype)])
    elif kind == "shifted":
        new = new + np.spacing(np.abs(new)).astype(x.dtype)
    if not np.isfinite(new).all():
        return
    truth = Distances(new, x)
    tau = hostile_radius(case, truth.low)
    context = _context(case, points=what, newcomers=kind, tau=repr(tau))
    try:
        index = RadiusIndex(torch.from_numpy(x), tau)
        row, col, sq_dist = index.query(torch.from_numpy(new), progress=False)
    except Exception as error:
        case.refused(error, f"index (default {torch.get_default_dtype()})")
        return
    case.count("queries", len(new))
    pairs = torch.stack([row, col]).numpy()
    allowed = np.ones(truth.low.shape, dtype=bool)
    found = (truth.low, truth.high, truth.square)
    promised = _promised(sq_dist.dtype, x.shape[1])
    _judge(case, pairs, sq_dist, found, allowed, tau, promised, "index", context)


def _suggestion(case: Case) -> None:
    """The suggested radius gives the degree, and no smaller one does."""
    x, what = hostile_points(case, 200)
    if len(x) < 2:
        return
    batch = hostile_batch(case, len(x)) if case.chance(0.3) else None
    truth = Distances(x, x)
    same = ~np.eye(len(x), dtype=bool)
    if batch is not None:
        same &= batch[:, None] == batch[None]
    most = same.sum() / len(x)
    target = float(min(most, case.pick([0.5, 1, 3, 5, 10, 1.37])))
    if target <= 0:
        return
    context = _context(case, points=what, target=target, batch=batch is not None)
    given = torch.from_numpy(x)
    groups = None if batch is None else torch.from_numpy(batch)
    try:
        tau = suggest_tau(given, target, batch=groups)
        edges, _ = fair_radius_graph(given, tau, batch=groups, progress=False)
    except Exception as error:
        case.refused(error, "suggest_tau")
        return
    case.count("suggestions")
    wanted = target * len(x) * (1 - 1e-9)
    inside = int((same & (truth.low <= tau)).sum())
    detail = f"{inside} pairs of {wanted:g} at {tau!r}; {context}"
    case.check(inside >= wanted, "suggested radius too small", detail)
    case.check(edges.size(1) >= wanted, "suggested radius loses its pairs", detail)
    smaller = int((same & (truth.high < tau * (1 - 1e-12))).sum())
    detail = f"{smaller} pairs of {wanted:g} below {tau!r}; {context}"
    case.check(smaller < wanted, "suggested radius too large", detail)


def _within(case: Case) -> None:
    """A smaller radius of a similarity graph equals a search of its own."""
    try:
        from pyg_glif.graph import SimilarityGraph
    except ImportError:
        return
    x, what = hostile_points(case, 150)
    distance, batch = _distance(case, x), hostile_batch(case, len(x))
    given = torch.from_numpy(x)
    options = {
        "distance": distance,
        "batch": None if batch is None else torch.from_numpy(batch),
        "progress": False,
    }
    dist = Distances(x, x).low
    if isinstance(distance, CallableDistance):
        dist = _manhattan(given, given).double().numpy()
    elif distance is not None:
        z = distance.embed(given).detach().numpy()
        dist = Distances(z, z).low
    large = hostile_radius(case, dist)
    small = min(large, hostile_radius(case, dist))
    kind = type(distance).__name__
    context = _context(case, points=what, tau=large, within=repr(small), distance=kind)
    try:
        graph = SimilarityGraph.search(given, large, **options)
        found = graph.within(small)
        fresh, fresh_sq = fair_radius_graph(given, small, **options)
    except Exception as error:
        case.refused(error, "SimilarityGraph")
        return
    case.count("graphs cut down")
    same = torch.equal(found.edge_index, fresh)
    num = f"{found.edge_index.size(1)} edges, a search finds {fresh.size(1)}"
    if case.check(same, "within differs from a search", f"{num}; {context}"):
        close = torch.allclose(found.sq_dist, fresh_sq, rtol=1e-5, equal_nan=True)
        case.check(close, "within keeps other distances", context)


def _metrics(case: Case) -> None:
    """Others that search: points without features, or with hostile ones."""
    from pyg_glif.baselines import lipschitz_projection
    from pyg_glif.metrics import knn_consistency

    x, what = hostile_points(case, 30)
    size = case.pick([3, 12, 30])
    x = x[:size]
    if case.chance(0.5):
        x, what = np.zeros((size, 0), np.float32), "no features"
    if len(x) < 3:
        return
    y = case.rng.random(len(x)).astype(x.dtype)
    truth = Distances(x, x)
    context = _context(case, points=what)
    given = torch.from_numpy(x)
    outputs = torch.from_numpy(y)
    try:
        consistency = float(knn_consistency(given, outputs, k=2))
        case.count("metrics")
    except Exception as error:
        case.refused(error, "knn_consistency")
    else:
        tight, loose = (_consistency(truth, y, 2, same) for same in (1e-14, 1e-10))
        if abs(tight - loose) < 1e-9:  # else rounding decides who is nearest
            detail = f"{consistency}, by brute force {tight}; {context}"
            off = abs(consistency - tight)
            case.check(off <= 1e-5, "knn_consistency off", detail)
    if truth.low.max() > 1e12:
        return
    lipschitz = 0.5 / max(float(np.median(truth.low)), 1e-6)
    try:
        out = lipschitz_projection(given, outputs, lipschitz)
        case.count("projections")
    except Exception as error:
        case.refused(error, "lipschitz_projection")
        return
    f = out.value.double().numpy()
    excess = np.abs(f[:, None] - f[None]) - lipschitz * truth.high
    detail = f"excess {excess.max():.1e}; {context}"
    case.check(excess.max() <= 1e-4, "lipschitz_projection violates", detail)


def _consistency(truth: Distances, y: NDArray[Any], k: int, same: float) -> float:
    """One minus the mean gap to the k nearest; the last places are shared by ties."""
    total = 0.0
    for i, row in enumerate(truth.low):
        others = np.delete(np.arange(len(row)), i)
        last = np.sort(row[others])[k - 1]
        ties = others[np.abs(row[others] - last) <= same * last]
        nearer = others[row[others] < last * (1 - same)]
        left = (k - len(nearer)) * y[ties].astype(float).mean()
        total += abs(y[i] - (y[nearer].astype(float).sum() + left) / k)
    return 1.0 - total / len(y)


CAMPAIGN = Campaign("search", _run, 160, 3.0)
