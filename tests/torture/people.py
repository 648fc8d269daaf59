"""The post-processor against dense formulas: fits, newcomers, explanations."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_glif import GLIFPostProcessor
from pyg_glif.errors import ConvergenceError
from pyg_glif.links import Logit

from .harness import Campaign, Case, default_dtype
from .points import Distances

Array = NDArray[np.float64]


def _run(case: Case) -> None:
    parts = [_newcomers, _jointly, _sequence, _explanations, _threads, _unchanged]
    parts.append(_audits)
    with default_dtype(case.pick([torch.float32, torch.float32, torch.float64])):
        case.pick(parts)(case)


@dataclass
class _Setting:
    """Parameters, and the dense formulas they stand for."""

    tau: float
    theta: float
    lam: float
    form: str | None
    logit: bool

    def post(self) -> GLIFPostProcessor:
        """The thing under test."""
        return GLIFPostProcessor(
            tau=self.tau,
            theta=self.theta,
            lam=self.lam,
            normalization=self.form,
            link=Logit() if self.logit else None,
        )

    def weights(self, a: NDArray[Any], b: NDArray[Any]) -> Array:
        """Weights between two sets; the radius is chosen away from all distances."""
        found = Distances(a, b)
        return np.where(found.low <= self.tau, np.exp(-self.theta * found.square), 0.0)

    def own_weights(self, x: NDArray[Any]) -> Array:
        """Weights within a set."""
        W = self.weights(x, x)
        np.fill_diagonal(W, 0.0)
        return W

    def dual(self, y: NDArray[Any]) -> Array:
        y = y.astype(np.float64)
        return np.log(y) - np.log1p(-y) if self.logit else y

    def primal(self, eta: Array) -> Array:
        return 1.0 / (1.0 + np.exp(-eta)) if self.logit else eta


@dataclass
class _Degrees:
    """Degrees of the fitted, which stay: with the self-weight, and after scaling."""

    d: Array
    total: Array
    scale: float


def _degrees(W: Array, form: str | None) -> _Degrees:
    d = W.sum(1) + 1.0
    total = (W / np.sqrt(np.outer(d, d))).sum(1) + 1.0 / d
    return _Degrees(d, total, 1.0 if form is None else float(d.mean()))


def _matrix(W: Array, form: str | None) -> tuple[Array, Array]:
    """Diagonal ``a`` and the rest ``V`` of the Laplacian."""
    if form is None:
        return W.sum(1), W
    found = _degrees(W, form)
    V = W / np.sqrt(np.outer(found.d, found.d))
    if form == "density":
        return V.sum(1), V
    return V.sum(1) / found.total, V * (1 / found.total[:, None] + 1 / found.total) / 2


def _fit(setting: _Setting, W: Array, y: Array) -> Array:
    """Smoothed dual coordinates of the fitted."""
    a, V = _matrix(W, setting.form)
    mu = setting.lam * _degrees(W, setting.form).scale
    return np.linalg.solve(np.eye(len(W)) + mu * (np.diag(a) - V), y)


def _new(
    setting: _Setting, W: Array, f: Array, Wo: Array, Wi: Array, y: Array
) -> Array:
    """Newcomers: ``Wo`` their weights to the fitted, ``Wi`` among themselves."""
    known, form = _degrees(W, setting.form), setting.form
    mu = setting.lam * known.scale
    if form is None:
        outer, inner, a = Wo, Wi, Wo.sum(1) + Wi.sum(1)
    else:
        d = Wo.sum(1) + Wi.sum(1) + 1.0
        outer = Wo / np.sqrt(np.outer(d, known.d))
        inner = Wi / np.sqrt(np.outer(d, d))
        a = outer.sum(1) + inner.sum(1)
        if form == "nrw":
            total = a + 1.0 / d
            a = a / total
            outer = outer * (1 / total[:, None] + 1 / known.total) / 2
            inner = inner * (1 / total[:, None] + 1 / total) / 2
    A = np.eye(len(y)) + mu * (np.diag(a) - inner)
    return np.linalg.solve(A, y + mu * outer @ f)


def _people(
    case: Case, size: int, num_new: int
) -> tuple[_Setting, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], str]:
    """A setting, people to fit and newcomers."""
    rng, dtype = case.rng, case.pick([np.float32, np.float64])
    width = case.pick([1, 2, 4])
    kind = case.pick(["normal", "lattice"])
    x = rng.normal(size=(size + num_new, width))
    if kind == "lattice":
        x = np.round(x * 2)
    x = x.astype(dtype)
    near = np.unique(Distances(x, x).low)
    place = int(rng.integers(len(near) - 1)) if len(near) > 1 else 0
    tau = float((near[place] + near[min(place + 1, len(near) - 1)]) / 2)
    form = case.pick([None, None, "density", "nrw"])
    lam = float(10.0 ** rng.uniform(-2, 2)) if form != "nrw" else 0.01
    setting = _Setting(tau, case.pick([0.0, 0.1, 2.0]), lam, form, case.chance(0.3))
    shape = (size + num_new,) if case.chance(0.5) else (size + num_new, 2)
    y = (0.02 + 0.96 * rng.random(shape)).astype(dtype)
    what = f"{kind} {x.shape} {np.dtype(dtype)}, {setting}, default "
    what += str(torch.get_default_dtype())
    return setting, x[:size], x[size:], y[:size], y[size:], what


def _close(case: Case, kind: str, got: Any, want: Array, what: str) -> None:
    """Compares within what the default tolerance of the solver allows."""
    got = np.asarray(got, dtype=np.float64)
    off = float(np.abs(got - want.reshape(got.shape)).max()) if got.size else 0.0
    case.worst(f"{kind} error", off)
    case.check(off <= 2e-5, f"{kind} off", f"{off:.1e}; {what}")


def _fitted(
    case: Case, setting: _Setting, x: NDArray[Any], y: NDArray[Any], what: str
) -> GLIFPostProcessor | None:
    """A fit, none where ``"nrw"`` has no minimum."""
    try:
        return setting.post().fit(x, y)
    except ConvergenceError as error:
        case.check(setting.form == "nrw", "a fit fails", f"{error}; {what}")
        return None


def _columns(setting: _Setting, y: NDArray[Any]) -> Array:
    return setting.dual(y).reshape(len(y), -1)


def _newcomers(case: Case) -> None:
    """The inductive step, all at once and one by one."""
    setting, x, x_new, y, y_new, what = _people(case, 25, 8)
    post = _fitted(case, setting, x, y, what)
    if post is None:
        return
    W = setting.own_weights(x)
    f = _fit(setting, W, _columns(setting, y))
    _close(case, "fit", post.y_fair_, setting.primal(f), what)
    got = post.transform(x_new, y_new)
    want = np.concatenate(
        [
            _new(setting, W, f, near[None], np.zeros((1, 1)), row[None])
            for near, row in zip(
                setting.weights(x_new, x), _columns(setting, y_new), strict=True
            )
        ]
    )
    _close(case, "newcomer", got, setting.primal(want), what)
    one = np.concatenate(
        [post.transform(x_new[i : i + 1], y_new[i : i + 1]) for i in range(len(y_new))]
    )
    off = float(np.abs(one - got).max())
    limit = 10 * float(np.finfo(x.dtype).eps)
    case.check(off <= limit, "a newcomer depends on the others", f"{off:.1e}; {what}")
    alone = setting.weights(x_new, x).sum(1) == 0
    case.check(np.array_equal(got[alone], y_new[alone]), "alone but changed", what)
    case.count("newcomers", len(y_new))


def _jointly(case: Case) -> None:
    """Newcomers solved for together."""
    setting, x, x_new, y, y_new, what = _people(case, 25, 12)
    post = _fitted(case, setting, x, y, what)
    if post is None:
        return
    W = setting.own_weights(x)
    f = _fit(setting, W, _columns(setting, y))
    outer, inner = setting.weights(x_new, x), setting.own_weights(x_new)
    want = _new(setting, W, f, outer, inner, _columns(setting, y_new))
    try:
        got = post.transform(x_new, y_new, joint=True)
    except ConvergenceError as error:
        case.check(setting.form == "nrw", "joint fails", f"{error}; {what}")
        return
    _close(case, "joint", got, setting.primal(want), what)
    case.count("newcomers together", len(y_new))


def _sequence(case: Case) -> None:
    """Several ``partial_fit`` give what one fit on everybody gives."""
    setting, x, x_new, y, y_new, what = _people(case, 15, 20)
    post = _fitted(case, setting, x, y, what)
    everybody = np.concatenate([x, x_new]), np.concatenate([y, y_new])
    fresh = _fitted(case, setting, *everybody, what)
    if post is None or fresh is None:
        return
    cuts = np.sort(case.rng.integers(0, len(y_new) + 1, size=3))
    try:
        for first, last in zip([0, *cuts], [*cuts, len(y_new)], strict=True):
            post.partial_fit(x_new[first:last], y_new[first:last])
            post.transform(x[:2], y[:2])  # whatever is kept must be renewed
    except ConvergenceError as error:
        case.check(setting.form == "nrw", "partial_fit fails", f"{error}; {what}")
        return
    case.count("sequences")
    same = torch.equal(post.graph_.edge_index, fresh.graph_.edge_index)
    case.check(same, "partial_fit has other edges", what)
    _close(case, "partial_fit", post.y_fair_, fresh.y_fair_.double().numpy(), what)
    after = [p.transform(x[:5], y[:5]) for p in (post, fresh)]
    want = np.asarray(after[1], dtype=np.float64)
    _close(case, "after partial_fit", after[0], want, what)


def _explanations(case: Case) -> None:
    """Rows of the inverse: shares that sum to one and give the output."""
    setting, x, x_new, y, y_new, what = _people(case, 20, 2)
    post = _fitted(case, setting, x, y, what)
    if post is None:
        return
    W = setting.own_weights(x)
    a, V = _matrix(W, setting.form)
    mu = setting.lam * _degrees(W, setting.form).scale
    R = np.linalg.inv(np.eye(len(W)) + mu * (np.diag(a) - V))
    i = int(case.rng.integers(len(y)))
    found = post.explain(i)
    row = np.zeros(len(y))
    row[found.index.numpy()] = found.weight.numpy()
    off = float(np.linalg.norm(row - R[i]))
    # Weights of float32 features come from squared distances in float32.
    slack = found.error_bound + (1e-6 if x.dtype == np.float32 else 1e-9)
    case.check(off <= slack, "explain off", f"{off:.1e} beyond {slack:.1e}; {what}")
    total = float(found.weight.sum())
    if setting.form != "nrw":
        case.check(
            abs(total - 1) <= 1e-9, "explain sums to another", f"{total}; {what}"
        )
        case.check((found.weight >= 0).all(), "explain has negative shares", what)
    new = post.explain_new(x_new[:1])
    shares = dict(zip(new.index.tolist(), new.weight.tolist(), strict=True))
    eta = _columns(setting, y)
    own = shares.pop(-1, 0.0) * _columns(setting, y_new)[:1]
    value = own + sum(weight * eta[j] for j, weight in shares.items())
    got = post.transform(x_new[:1], y_new[:1])
    _close(case, "explain_new", got, setting.primal(np.asarray(value)), what)
    near = Distances(x[i : i + 1], x[found.index.numpy()])
    off = float(np.abs(found.dist.double().numpy() - near.low[0]).max())
    case.check(off <= 1e-5, "explain has other distances", f"{off:.1e}; {what}")
    case.count("explanations", 2)


def _unchanged(case: Case) -> None:
    """Nobody at lam=0, and nobody who is alone, whatever the link clamps."""
    setting, x, x_new, _, _, what = _people(case, 15, 6)
    y = np.round(case.rng.random(len(x))).astype(x.dtype)
    y_new = np.round(case.rng.random(len(x_new))).astype(x.dtype)
    link = case.pick([None, Logit(eps=0.01), Logit()])
    lam = case.pick([0.0, 1.0])
    post = GLIFPostProcessor(tau=setting.tau, lam=lam, link=link)
    if case.chance(0.5):
        post.fit(x[:8], y[:8]).partial_fit(x[8:], y[8:])
    else:
        post.fit(x, y)
    what = f"lam={lam}, {link}, {what}"
    near, near_new = setting.own_weights(x), setting.weights(x_new, x)
    among = setting.own_weights(x_new)
    for kind, got, given, weights in (
        ("fitted", post.y_fair_.numpy(), y, near),
        ("new", post.transform(x_new, y_new), y_new, near_new),
        (
            "joint",
            post.transform(x_new, y_new, joint=True),
            y_new,
            np.concatenate([near_new, among], axis=1),
        ),
    ):
        keep = (weights.sum(1) == 0) | (lam == 0.0)
        same = np.array_equal(np.asarray(got)[keep], given[keep])
        case.check(same, f"{kind} people change without a reason", what)
        case.count("people left alone", int(keep.sum()))


def _audits(case: Case) -> None:
    """What a report says about the fitted, recomputed."""
    setting, x, _, y, _, what = _people(case, 25, 1)
    setting.form, setting.logit = None, False
    y = y.reshape(len(y), -1)[:, 0]
    post = setting.post().fit(x, y)
    sex = case.rng.integers(0, 2, size=len(y))
    sex[:2] = 0, 1
    report = post.audit(sensitive={"sex": sex}, num_nearest=None).to_dict()
    W = setting.own_weights(x)
    f = _fit(setting, W, y.astype(np.float64)[:, None])[:, 0]
    facts, measures = report["facts"], {m["name"]: m for m in report["measures"]}
    case.count("audits")
    inside = Distances(x, x).low <= setting.tau
    np.fill_diagonal(inside, False)
    pairs = int(inside.sum()) // 2
    case.check(facts["num_edges"] == pairs, "audit: other edges", what)
    alone = int((inside.sum(1) == 0).sum())
    case.check(facts["num_isolated"] == alone, "audit: others are isolated", what)
    L = np.diag(W.sum(1)) - W
    for when, value in (("before", y.astype(np.float64)), ("after", f)):
        energy = float(value @ L @ value)
        gap = float(value[sex == 1].mean() - value[sex == 0].mean())
        for name, want in (("laplacian_energy", energy), ("gap_by_sex", gap)):
            got = measures[name][when]["value"]
            off = abs(got - want) / (1.0 + abs(want))
            case.check(off <= 2e-5, f"audit: {name} off", f"{got} for {want}; {what}")
    moved = float(np.abs(f - y).mean())
    off = abs(facts["mean_movement"] - moved)
    case.check(off <= 2e-5, "audit: movement off", f"{off:.1e}; {what}")


def _threads(case: Case) -> None:
    """Threads that share a fit get what one gets."""
    setting, x, x_new, y, y_new, what = _people(case, 25, 10)
    post = _fitted(case, setting, x, y, what)
    twin = _fitted(case, setting, x, y, what)
    if post is None or twin is None:
        return
    want = twin.transform(x_new, y_new), twin.explain(0).weight

    def use(_: int) -> bool:
        got = post.transform(x_new, y_new), post.explain(0).weight
        return np.array_equal(got[0], want[0]) and torch.equal(got[1], want[1])

    with ThreadPoolExecutor(4) as pool:
        same = all(pool.map(use, range(8)))
    case.check(same, "threads that share a fit disagree", what)
    case.count("calls by threads", 8)


CAMPAIGN = Campaign("people", _run, 40, 1.5)
