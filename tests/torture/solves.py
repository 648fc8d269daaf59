"""Solves against decimal arithmetic: true errors, statuses, laws and gradients."""

import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_glif import glif_smooth, glif_solve
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.links import Link, Log, Logit, Softmax
from pyg_glif.solvers import (
    CG,
    Auto,
    Cholesky,
    CoordinateDescent,
    Solution,
    Solver,
    SolveStatus,
)

from .exact import (
    Exact,
    digits,
    error_norm,
    exact,
    exact_system,
    solve_complete,
    solve_dense,
    solve_forest,
)
from .harness import Campaign, Case, default_dtype
from .points import hostile_batch

_NORMALIZATIONS = (None, "density", "nrw")


def _run(case: Case) -> None:
    parts = [_small, _small, _small, _stiff, _stiff, _large, _long_rows]
    parts += [_laws, _links, _gradients, _batches]
    with default_dtype(case.pick([torch.float32, torch.float32, torch.float64])):
        case.pick(parts)(case)


@dataclass
class _Graph:
    """Edges once, as ``i < j``, and what the graph is."""

    kind: str
    num_nodes: int
    i: NDArray[np.int64]
    j: NDArray[np.int64]
    weight: NDArray[np.floating]

    def tensors(self, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
        """Both directions, shuffled."""
        ends = np.stack(
            [np.concatenate([self.i, self.j]), np.concatenate([self.j, self.i])]
        )
        weight = np.concatenate([self.weight, self.weight])
        order = case.rng.permutation(len(weight))
        return torch.from_numpy(ends[:, order]), torch.from_numpy(weight[order])

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Those without anybody of positive weight."""
        out = np.ones(self.num_nodes, dtype=bool)
        seen = self.weight > 0
        out[self.i[seen]] = out[self.j[seen]] = False
        return out

    def truth(self, y: Exact, lam: Decimal, normalization: str | None) -> Exact:
        """The solution."""
        if self.kind == "complete" and self.num_nodes > 40:
            weight = exact(self.weight[:1])[0]
            return solve_complete(self.num_nodes, weight, lam, y)
        system = exact_system(
            self.num_nodes, self.i, self.j, exact(self.weight), lam, normalization
        )
        forest = self.kind in ("path", "star", "tree", "pairs")
        return solve_forest(system, y) if forest else solve_dense(system, y)


def _edges(case: Case, kind: str, size: int) -> tuple[Any, Any]:
    """Ends of the edges of a kind of graph."""
    rng, nodes = case.rng, np.arange(size)
    if kind == "path":
        return nodes[:-1], nodes[1:]
    if kind == "star":
        return np.zeros(size - 1, dtype=np.int64), nodes[1:]
    if kind == "tree":
        return (rng.random(size - 1) * nodes[1:]).astype(np.int64), nodes[1:]
    if kind == "pairs":  # and a person on their own where the number is odd
        half = size // 2
        return nodes[: 2 * half : 2], nodes[1 : 2 * half : 2]
    i, j = np.triu_indices(size, 1)
    if kind == "random":
        keep = rng.random(len(i)) < rng.uniform(0.05, 0.6)
    elif kind == "barbell":
        half = size // 2
        keep = (i < half) == (j < half)
        keep |= (i == 0) & (j == size - 1)
    elif kind == "components":
        label = rng.integers(0, max(1, size // 3), size=size)
        keep = label[i] == label[j]
    else:
        keep = np.ones(len(i), dtype=bool)
    return i[keep], j[keep]


def _weights(case: Case, num: int) -> NDArray[np.floating]:
    """From all ones to weights that underflow."""
    rng = case.rng
    kind = case.pick(["ones", "uniform", "spread", "extreme", "tiny", "zeros"])
    if kind == "ones":
        weight = np.ones(num)
    elif kind == "uniform":
        weight = rng.uniform(0.1, 1.0, size=num)
    elif kind == "spread":
        weight = 10.0 ** rng.uniform(-8, 3, size=num)
    elif kind == "extreme":
        weight = 10.0 ** rng.uniform(-300, 8, size=num)
    elif kind == "tiny":
        weight = np.exp(-rng.uniform(0, 760, size=num))
    else:
        weight = rng.uniform(0.0, 1.0, size=num) * (rng.random(num) < 0.5)
    return weight.astype(case.pick([np.float32, np.float64, np.float64]))


def _small_graph(case: Case, largest: int = 36) -> _Graph:
    kinds = ["path", "star", "tree", "pairs", "random", "barbell", "components"]
    kind = case.pick([*kinds, "complete", "empty"])
    size = int(case.pick([2, 3, 4, 9, 20, largest]))
    i, j = _edges(case, kind, size)
    if kind == "empty":
        i, j = i[:0], j[:0]
    extra = case.pick([0, 0, 2])  # people without anybody
    return _Graph(kind, size + extra, i, j, _weights(case, len(i)))


def _large_graph(case: Case) -> _Graph:
    """Long rows and long paths, for which there is a closed form or elimination."""
    kind = case.pick(["path", "star", "tree", "pairs", "complete", "complete"])
    size = int(case.pick([300, 1000, 3000] if kind != "complete" else [200, 400, 800]))
    i, j = _edges(case, kind, size)
    weight = _weights(case, len(i))
    if kind == "complete":
        weight = np.full(len(i), case.pick([1.0, 0.7, 0.1, 1e-3, 1 / 3]))
    return _Graph(kind, size, i, j, weight)


def _outputs(case: Case, size: int) -> NDArray[np.floating]:
    """Signals of many sizes, as ``[N]`` or ``[N, C]``."""
    kind = case.pick(["normal", "probabilities", "offset", "scaled", "spike"])
    columns = int(case.pick([1, 1, 3]))
    y = case.rng.normal(size=(size, columns))
    if kind == "probabilities":
        y = case.rng.random((size, columns))
    elif kind == "offset":
        y += 1e6
    elif kind == "scaled":
        y *= 10.0 ** case.rng.uniform(-20, 20, size=columns)
    elif kind == "spike":
        y = np.zeros((size, columns))
        y[case.rng.integers(size)] = 1.0
    y = y[:, 0] if columns == 1 and case.chance(0.5) else y
    return y.astype(case.pick([np.float32, np.float64, np.float64]))


def _solver(case: Case, rtol: float, size: int) -> Solver:
    """Any solver, warning in place of raising."""
    kind = case.pick(["auto", "auto", "cg", "plain cg", "cholesky", "descent"])
    if kind == "auto":
        return Auto(rtol=rtol, throw=False)
    if kind == "cg":
        return CG(rtol=rtol, throw=False, deflate=case.pick([None, True, False]))
    if kind == "plain cg":
        return CG(rtol=rtol, throw=False, preconditioner=None)
    if kind == "cholesky":
        return Cholesky(rtol=rtol, throw=False)
    limit = case.pick([None, rtol])
    return CoordinateDescent(
        epochs=30, batch_size=max(3, size // 5), rtol=limit, throw=False, progress=False
    )


def _strength(case: Case) -> float:
    return float(case.pick([0.0, 10.0 ** case.rng.uniform(-8, 16), 1.0, 1e4, 1e14]))


def _smooth(
    case: Case, doing: str, y: NDArray[np.floating], graph: _Graph, **options: Any
) -> Solution | None:
    """A solution, or none where the call failed, which is reported."""
    edges, weight = graph.tensors(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = glif_solve(torch.from_numpy(y), edges, weight, **options)
    except Exception as error:
        case.refused(error, doing)
        return None
    case.count("solves")
    return found


def _small(case: Case) -> None:
    for _ in range(10):
        _certificate(case, _small_graph(case))


def _large(case: Case) -> None:
    _certificate(case, _large_graph(case))


def _long_rows(case: Case) -> None:
    """Sums of many equal terms, whose rounding errors do not average out."""
    size = int(case.pick([300, 300, 500, 500, 500, 800, 800, 2000]))
    i, j = _edges(case, "complete", size)
    weight = np.full(len(i), case.pick([0.7, 0.1, 1 / 3, 1e-3]))
    graph = _Graph("complete", size, i, j, weight)
    for _ in range(2):
        y = case.rng.normal(size=size) + case.pick([0.0, 0.5, 1e6])
        _certificate(case, graph, y, float(case.pick([1.0, 1e4, 1e8])))


def _stiff(case: Case) -> None:
    """Very few people, very strong smoothing: the one in 1 + lam d is nearly lost."""
    for _ in range(10):
        size = int(case.pick([2, 3, 4]))
        i, j = _edges(case, case.pick(["complete", "path"]), size)
        graph = _Graph("tiny", size, i, j, np.full(len(i), case.pick([1.0, 0.7, 3.0])))
        y = np.arange(1.0, size + 1) + case.pick([0.0, 0.1])
        _certificate(case, graph, y, float(10.0 ** case.rng.uniform(8, 16)))


def _certificate(
    case: Case,
    graph: _Graph,
    y: NDArray[np.floating] | None = None,
    lam: float | None = None,
) -> None:
    """True error within the bound; converged means within the tolerance."""
    y = _outputs(case, graph.num_nodes) if y is None else y
    lam = _strength(case) if lam is None else lam
    form = case.pick(_NORMALIZATIONS)
    rtol = float(case.pick([1e-6, 1e-6, 1e-3, 1e-10]))
    solver = _solver(case, rtol, graph.num_nodes)
    biggest = float(graph.weight.max()) if len(graph.weight) else 0.0
    context = (
        f"{graph.kind} of {graph.num_nodes}, weights to {biggest:.1e}, "
        f"{graph.weight.dtype}, lam={lam!r}, {form}, {solver}, y {y.shape} {y.dtype}"
    )
    found = _smooth(case, "solve", y, graph, lam=lam, normalization=form, solver=solver)
    if found is None:
        return
    if form == "nrw" and not _is_definite(case, graph, lam, found, context):
        return
    case.check(
        found.status is not SolveStatus.INDEFINITE or form == "nrw",
        "a PSD system is called indefinite",
        context,
    )
    columns = y.reshape(len(y), -1)
    with digits():
        truth = graph.truth(exact(columns), Decimal(lam), form)
        error = error_norm(found.value.reshape(len(y), -1).numpy(), truth)
        size = np.array([float((c * c).sum().sqrt()) for c in exact(columns).T])
        height = np.array([float((c * c).sum().sqrt()) for c in truth.T])
    bound = found.error_bound.numpy()
    case.count(f"solves {found.status.name}")
    _compare(case, error, bound, form, context)
    if found.status is SolveStatus.CONVERGED and form != "nrw":
        # What float32 outputs lose when they are rounded is no matter of the solver.
        cast = np.finfo(y.dtype).eps * height if y.dtype == np.float32 else 0.0
        allowed = rtol * size * (1 + 1e-6) + cast + np.finfo(y.dtype).tiny
        worst = float((error / np.maximum(allowed, 1e-300)).max())
        case.worst("error/tolerance where CONVERGED", worst)
        detail = f"{worst:.1e} times the tolerance; {context}"
        case.check(worst <= 1, "CONVERGED but off by more than the tolerance", detail)
    if lam == 0.0:
        same = np.array_equal(found.value.numpy(), y)
        case.check(same, "lam=0 changes outputs", context)


def _compare(
    case: Case,
    error: NDArray[np.float64],
    bound: NDArray[np.float64],
    form: str | None,
    context: str,
) -> None:
    """Errors of all columns against their bounds."""
    kind = "error/bound, nrw" if form == "nrw" else "error/bound"
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((error > 0) & np.isfinite(bound), error / bound, 0.0)
    worst = int(np.argmax(ratio))
    case.worst(kind, ratio[worst])
    detail = f"error {error[worst]:.2e}, bound {bound[worst]:.2e}; {context}"
    case.check(ratio[worst] <= 1.0 + 1e-12, f"{kind} above one", detail)


def _is_definite(
    case: Case, graph: _Graph, lam: float, found: Solution, context: str
) -> bool:
    """Whether ``"nrw"`` has a minimum, and the status agrees."""
    if graph.num_nodes > 400:  # no eigenvalues by hand
        return found.status is not SolveStatus.INDEFINITE
    W = np.zeros((graph.num_nodes, graph.num_nodes))
    W[graph.i, graph.j] = W[graph.j, graph.i] = graph.weight
    W += np.eye(len(W))
    D = W.sum(1)
    Wt = W / np.sqrt(np.outer(D, D))
    L = np.eye(len(W)) - Wt / Wt.sum(1)[:, None]
    eigenvalue = np.linalg.eigvalsh((L + L.T) / 2)[0]
    smallest = 1.0 + lam * D.mean() * eigenvalue
    doubt = 1e-6 + 1e-11 * lam * D.mean()
    if smallest < -doubt:
        ok = found.status is SolveStatus.INDEFINITE
        case.check(
            ok, "an indefinite system goes unnoticed", f"{smallest:.1e}; {context}"
        )
        case.count("indefinite")
        return False
    if smallest > doubt:
        ok = found.status is not SolveStatus.INDEFINITE
        case.check(ok, "a definite system is refused", f"{smallest:.1e}; {context}")
        return ok
    return False


def _laws(case: Case) -> None:
    """Identity, isolated people, constants, means, relabelling."""
    graph = _small_graph(case) if case.chance(0.8) else _large_graph(case)
    y, lam = _outputs(case, graph.num_nodes), _strength(case)
    form = case.pick([None, None, "density"])
    options = {"lam": lam, "normalization": form, "solver": Auto(throw=False)}
    context = f"{graph.kind} of {graph.num_nodes}, lam={lam!r}, {form}, {y.dtype}"
    found = _smooth(case, "law", y, graph, **options)
    if found is None:
        return
    case.count("laws")
    value, bound = found.value.double().numpy(), found.error_bound.numpy()
    alone = graph.alone
    same = np.array_equal(found.value.numpy()[alone], y[alone])
    case.check(same, "isolated people are changed", context)
    total = y.astype(np.longdouble).sum(0) - found.value.numpy().astype(
        np.longdouble
    ).sum(0)
    slack = np.sqrt(len(y)) * bound + 1e-15 * np.abs(y.astype(float)).sum(0)
    ok = (np.abs(np.atleast_1d(total)) <= np.atleast_1d(slack)).all()
    case.check(ok, "means are not kept", f"{total} beyond {slack}; {context}")
    order = case.rng.permutation(graph.num_nodes)
    place = np.argsort(order)
    moved = _Graph(
        graph.kind, graph.num_nodes, place[graph.i], place[graph.j], graph.weight
    )
    other = _smooth(case, "law", y[order], moved, **options)
    if other is not None:
        gap = np.linalg.norm(
            (other.value.double().numpy() - value[order]).reshape(len(y), -1), axis=0
        )
        limit = bound + other.error_bound.numpy()
        ok = (gap <= limit * (1 + 1e-9)).all()
        case.check(
            ok, "relabelling changes outputs", f"{gap} beyond {limit}; {context}"
        )
    constant = np.full_like(y, case.pick([0.0, 1.0, 0.3, -7e5]))
    fixed = _smooth(case, "law", constant, graph, **options)
    if fixed is not None:
        gap = np.linalg.norm(
            (fixed.value.double().numpy() - constant).reshape(len(y), -1), axis=0
        )
        ok = (gap <= fixed.error_bound.numpy()).all()
        case.check(ok, "constants are changed", f"{gap}; {context}")


def _links(case: Case) -> None:
    """Averages in dual coordinates; those alone are not touched, at lam=0 nobody is."""
    graph = _small_graph(case, 12)
    name, link = case.pick(
        [
            ("logit", Logit()),
            ("logit", Logit(eps=0.01)),
            ("softmax", Softmax()),
            ("softmax", Softmax(eps=0.01)),
            ("log", Log()),
        ]
    )
    size = graph.num_nodes
    y = case.rng.random((size, 3))
    if name != "log" and case.chance(0.7):
        y = np.round(y * case.pick([1, 2])) / 2  # hard labels
        y[:, 0] += y.sum(1) == 0
    if name == "softmax":
        y /= y.sum(1, keepdims=True)
    if name == "log":
        y = 10.0 ** (10 * y - 5)
    y = np.minimum(y, 1.0) if name == "logit" else y
    y = y.astype(case.pick([np.float32, np.float64]))
    lam = case.pick([0.0, 0.1, 1.0, 100.0])
    context = f"{graph.kind} of {size}, {link}, lam={lam}, {y.dtype}"
    found = _smooth(
        case,
        f"link {name}",
        y,
        graph,
        lam=lam,
        link=link,
        solver=Auto(rtol=1e-12, throw=False),
    )
    if found is None:
        return
    case.count("links")
    value = found.value.numpy()
    alone = graph.alone
    same = np.array_equal(value[alone], y[alone])
    case.check(same, "a link changes isolated people", context)
    if lam == 0.0:
        off = float(np.abs(value - y).max() / np.abs(y).max())
        case.check(
            off <= 1e-5, "a link changes outputs at lam=0", f"{off:.1e}; {context}"
        )
        return
    eta = _dual(link, y.astype(np.float64), np.finfo(y.dtype).eps)
    with digits():
        dual = graph.truth(exact(eta), Decimal(lam), None).astype(np.float64)
    truth = _primal(link, dual)
    off = np.abs(value - truth)[~alone]
    if off.size:
        scale = np.abs(truth)[~alone] if name == "log" else 1.0
        worst = float((off / scale).max())
        limit = 2e-5 if y.dtype == np.float32 else 1e-8
        case.check(worst <= limit, "a link averages wrongly", f"{worst:.1e}; {context}")


def _dual(link: Link, y: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    if isinstance(link, Logit):
        y = np.clip(y, link.eps or eps, 1 - (link.eps or eps))
        return np.log(y) - np.log1p(-y)
    if isinstance(link, Softmax):
        return np.log(np.maximum(y, link.eps or eps))
    return np.log(y)


def _primal(link: Link, eta: NDArray[np.float64]) -> NDArray[np.float64]:
    if isinstance(link, Logit):
        return 1.0 / (1.0 + np.exp(-eta))
    if isinstance(link, Softmax):
        out = np.exp(eta - eta.max(1, keepdims=True))
        return out / out.sum(1, keepdims=True)
    return np.exp(eta)


def _gradients(case: Case) -> None:
    """Derivatives in one direction, by differences of 1e-40 in 120 digits."""
    graph = _small_graph(case, 9)
    size, form = graph.num_nodes, case.pick(_NORMALIZATIONS)
    graph.weight = case.rng.uniform(0.1, 1.0, size=len(graph.i))
    lam = float(10.0 ** case.rng.uniform(-3, 1))
    y, c = case.rng.normal(size=(2, size, 2))
    dy, dw = case.rng.normal(size=(size, 2)), case.rng.normal(size=len(graph.i))
    dlam = float(case.rng.normal())
    context = f"{graph.kind} of {size}, lam={lam!r}, {form}"
    ends = np.stack(
        [np.concatenate([graph.i, graph.j]), np.concatenate([graph.j, graph.i])]
    )
    outputs = torch.tensor(y, requires_grad=True)
    half = torch.tensor(graph.weight, dtype=torch.float64, requires_grad=True)
    strength = torch.tensor(lam, dtype=torch.float64, requires_grad=True)
    try:
        f = glif_smooth(
            outputs,
            torch.from_numpy(ends),
            torch.cat([half, half]),
            lam=strength,
            normalization=form,
            solver=Auto(rtol=1e-12),
        )
        (f * torch.tensor(c)).sum().backward()
    except ConvergenceError as error:
        case.check(form == "nrw", "gradient does not converge", f"{error}; {context}")
        return
    case.count("gradients")
    got = float((outputs.grad * torch.tensor(dy)).sum()) + float(strength.grad) * dlam
    got += float((half.grad * torch.tensor(dw)).sum())
    with digits():
        step = Decimal(10) ** -40

        def loss(h: Decimal) -> Decimal:
            system = exact_system(
                size,
                graph.i,
                graph.j,
                exact(graph.weight) + h * exact(dw),
                Decimal(lam) + h * Decimal(dlam),
                form,
            )
            return (solve_dense(system, exact(y) + h * exact(dy)) * exact(c)).sum()

        want = float((loss(step) - loss(Decimal(0))) / step)
    off = abs(got - want) / (1.0 + abs(want))
    case.worst("gradient error", off)
    case.check(off <= 1e-7, "gradient off", f"{got} for {want}; {context}")


def _batches(case: Case) -> None:
    """Several graphs at once give what each gives on its own."""
    size = int(case.pick([6, 20]))
    batch = hostile_batch(case, size)
    if batch is None:
        return
    i, j = np.triu_indices(size, 1)
    keep = (batch[i] == batch[j]) & (case.rng.random(len(i)) < 0.7)
    i, j = i[keep], j[keep]
    graph = _Graph("random", size, i, j, case.rng.uniform(0.1, 1.0, size=len(i)))
    y, form = case.rng.normal(size=(size, 2)), case.pick([None, "density"])
    lam = case.pick([0.1, 1.0, 10.0])
    context = f"{len(np.unique(batch))} graphs, ids to {batch.max()}, {form}"
    found = _smooth(
        case,
        "batch",
        y,
        graph,
        lam=lam,
        normalization=form,
        batch=torch.from_numpy(batch),
        solver=Auto(rtol=1e-10),
    )
    if found is None:
        return
    case.count("batches")
    worst = 0.0
    for label in np.unique(batch):
        nodes = np.flatnonzero(batch == label)
        place = np.zeros(size, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        mine = batch[i] == label
        part = _Graph(
            "random", len(nodes), place[i[mine]], place[j[mine]], graph.weight[mine]
        )
        with digits():
            truth = part.truth(exact(y[nodes]), Decimal(lam), form)
            worst = max(worst, error_norm(found.value.numpy()[nodes], truth).max())
    case.check(
        worst <= 1e-7, "a batch differs from its members", f"{worst:.1e}; {context}"
    )


CAMPAIGN = Campaign("solves", _run, 50, 3.0)
