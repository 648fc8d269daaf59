"""Layers, losses and derivatives of functions against dense matrices."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric import EdgeIndex

from experiments.baselines import inform_debias
from pyg_glif import GLIFConv, LaplacianLoss, glif_smooth, glif_solve, laplacian_penalty
from pyg_glif.solvers import CG, Auto

from .harness import Campaign, Case, default_dtype

Array = NDArray[np.float64]


def _run(case: Case) -> None:
    parts = [_cache, _cache, _transforms, _loss, _columns, _inform]
    with default_dtype(case.pick([torch.float32, torch.float32, torch.float64])):
        case.pick(parts)(case)


def _graph(case: Case, size: int) -> Array:
    """A symmetric matrix of weights, some people alone."""
    W = np.triu(case.rng.uniform(0.1, 2.0, size=(size, size)), 1)
    W *= case.rng.random((size, size)) < case.rng.uniform(0.1, 0.9)
    return W + W.T


def _system(W: Array, lam: float, form: str | None) -> Array:
    """``I + lam L``; ``"density"`` with its scale."""
    if form == "density":
        d = W.sum(1) + 1.0
        lam, W = lam * d.mean(), W / np.sqrt(np.outer(d, d))
    return np.eye(len(W)) + lam * (np.diag(W.sum(1)) - W)


def _edges(W: Array, order: NDArray[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    i, j = np.nonzero(W)
    order = order[order < len(i)]
    edges = torch.from_numpy(np.stack([i[order], j[order]]))
    return edges, torch.from_numpy(W[i[order], j[order]])


def _forms(W: Array, edges: torch.Tensor, weight: torch.Tensor) -> dict[str, Any]:
    """The same graph in all forms that layers take, with its weights if apart."""
    dense = torch.from_numpy(W.copy())
    size = (len(W), len(W))
    return {
        "coo": (edges, weight),
        "sparse coo": (dense.to_sparse_coo(), None),
        "sparse csr": (dense.to_sparse_csr(), None),
        "EdgeIndex": (EdgeIndex(edges, sparse_size=size), weight),
    }


def _cache(case: Case) -> None:
    """A layer that keeps its graph, while graphs come, go and change in place."""
    form, lam = case.pick([None, "density"]), float(10.0 ** case.rng.uniform(-2, 1))
    learn = case.chance(0.3)
    conv = GLIFConv(
        lam=lam,
        normalization=form,
        cached=True,
        learn_lam=learn,
        solver=Auto(rtol=1e-9),
    )
    size = case.pick([3, 8, 20])
    graphs = []
    for _ in range(3):
        W = _graph(case, size)
        order = case.rng.permutation(np.count_nonzero(W))
        kind = case.pick(["coo", "sparse coo", "sparse csr", "EdgeIndex"])
        graphs.append([W, kind, *_forms(W, *_edges(W, order))[kind]])
    story = []
    for _ in range(12):
        entry = case.pick(graphs)
        W, kind, edges, weight = entry
        event = case.pick(["call", "call", "scale", "copy", "train", "other lam"])
        if event == "scale" and weight is not None:
            weight.mul_(2.0)
            entry[0] = W = W * 2.0
        elif event == "copy":
            conv = copy.deepcopy(conv)
        elif event == "train" and conv.log_lam is not None:
            with torch.no_grad():
                conv.log_lam.add_(0.1)
        elif event == "other lam":
            conv.reset_parameters()
        story.append(f"{event} {kind}")
        y = case.rng.normal(size=(size, 2))
        got = conv(torch.from_numpy(y), edges, weight).detach().numpy()
        strength = float(torch.as_tensor(conv.lam).detach())
        want = np.linalg.solve(_system(W, strength, form), y)
        off = float(np.abs(got - want).max())
        case.count("layer calls")
        detail = f"{off:.1e} after {story}, {form}, learned {learn}"
        if not case.check(off <= 1e-5, "a cached layer smooths otherwise", detail):
            return


def _transforms(case: Case) -> None:
    """Jacobians, directional derivatives and maps over functions of torch.func."""
    size, form = case.pick([2, 5]), case.pick([None, "density"])
    lam = float(10.0 ** case.rng.uniform(-2, 1))
    W = _graph(case, size)
    edges, weight = _edges(W, np.arange(size * size))
    R = np.linalg.inv(_system(W, lam, form))
    y = torch.from_numpy(case.rng.normal(size=size))
    v = torch.from_numpy(case.rng.normal(size=size))

    def smooth(signal: torch.Tensor) -> torch.Tensor:
        return glif_smooth(
            signal, edges, weight, lam=lam, normalization=form, solver=Auto(rtol=1e-12)
        )

    ways: dict[str, Callable[[], tuple[Any, Array]]] = {
        "jacrev": lambda: (torch.func.jacrev(smooth)(y), R),
        "jvp": lambda: (torch.func.jvp(smooth, (y,), (v,))[1], R @ v.numpy()),
        "vjp": lambda: (torch.func.vjp(smooth, y)[1](v)[0], R @ v.numpy()),
        "vmap": lambda: (
            torch.func.vmap(smooth)(torch.stack([y, v])),
            np.stack([R @ y.numpy(), R @ v.numpy()]),
        ),
        "hessian": lambda: (
            torch.func.hessian(lambda s: (smooth(s) ** 2).sum())(y),
            2 * R @ R,
        ),
        "jacobian": lambda: (torch.autograd.functional.jacobian(smooth, y), R),
    }
    kind = case.pick(list(ways))
    case.count("function transforms")
    try:
        got, want = ways[kind]()
    except (NotImplementedError, RuntimeError) as error:
        # A clear error names the function and what to use instead.
        clear = "glif_smooth" in str(error)
        case.check(
            clear, f"{kind} raises", f"{type(error).__name__}: {str(error)[:150]}"
        )
        return
    off = float(np.abs(got.detach().numpy() - want).max())
    case.check(off <= 1e-7, f"{kind} off", f"{off:.1e}, {form}, lam={lam}")


def _loss(case: Case) -> None:
    """The penalty is the formula, and its gradient twice the product."""
    size = case.pick([2, 6, 15])
    W = _graph(case, size)
    edges, weight = _edges(W, case.rng.permutation(np.count_nonzero(W)))
    f = torch.tensor(case.rng.normal(size=(size, 3)), requires_grad=True)
    L = np.diag(W.sum(1)) - W
    value = f.detach().numpy()
    want = float((value * (L @ value)).sum())
    call = case.pick([laplacian_penalty, LaplacianLoss()])
    got = call(f, edges, weight)
    got.backward()
    case.count("losses")
    found = float(got.detach())
    off = abs(found - want) / (1 + abs(want))
    case.check(off <= 1e-9, "the penalty is another", f"{found} for {want}")
    off = float(np.abs(f.grad.numpy() - 2 * L @ value).max())
    case.check(
        off <= 1e-9 * (1 + np.abs(L).max()), "its gradient is another", f"{off:.1e}"
    )


def _columns(case: Case) -> None:
    """Blocks of columns: dependent, zero, of unlike magnitude, more than people."""
    size = case.pick([5, 40, 150])
    W = _graph(case, size)
    edges, weight = _edges(W, np.arange(size * size))
    num = case.pick([1, 3, 40, 70])
    y = case.rng.normal(size=(size, num))
    kind = case.pick(["dependent", "zero", "magnitudes", "constants", "one row"])
    if kind == "dependent":
        y = y[:, :1] * case.rng.normal(size=num) + 0.0 * y
    elif kind == "zero":
        y[:, case.rng.random(num) < 0.7] = 0.0
    elif kind == "magnitudes":
        y *= 10.0 ** case.rng.uniform(-200, 100, size=num)
    elif kind == "constants":
        y = np.tile(case.rng.normal(size=num), (size, 1))
    else:
        y[1:] = 0.0
    lam, form = float(10.0 ** case.rng.uniform(-3, 6)), case.pick([None, "density"])
    solver = case.pick([Auto(), CG(), CG(preconditioner=None), CG(deflate=True)])
    context = f"{kind} {y.shape}, lam={lam:.1e}, {form}, {solver}"
    try:
        found = glif_solve(
            torch.from_numpy(y),
            edges,
            weight,
            lam=lam,
            normalization=form,
            solver=solver,
        )
    except Exception as error:
        case.refused(error, f"columns ({kind})")
        return
    case.count("blocks of columns")
    want = np.linalg.solve(_system(W, lam, form), y)
    gap = found.value.numpy() - want
    scale = np.abs(y).max(0)
    scale[scale == 0] = 1.0
    error = np.linalg.norm(gap / scale, axis=0)
    # Dense solves in float64 err themselves by the condition number.
    allowed = 1.1e-6 * np.linalg.norm(y / scale, axis=0) + 1e-13 * lam * W.sum(1).max()
    worst = int((error - allowed).argmax())
    detail = (
        f"column {worst}: {error[worst]:.1e} beyond {allowed[worst]:.1e}; {context}"
    )
    case.check((error <= allowed).all(), "a column misses its tolerance", detail)


def _inform(case: Case) -> None:
    """InFoRM's formula, from all kinds of matrices."""
    size = case.pick([2, 7, 20])
    W = _graph(case, size)
    y, alpha = case.rng.normal(size=(size, 2)), float(10.0 ** case.rng.uniform(-2, 1))
    full = W + np.diag(case.rng.random(size))  # the diagonal does not matter
    edges, weight = _edges(W, np.arange(size * size))
    kind = case.pick(["dense", "array", "sparse", "csr", "edges"])
    given: dict[str, Any] = {
        "dense": torch.from_numpy(full),
        "array": full,
        "sparse": torch.from_numpy(full).to_sparse_coo(),
        "csr": torch.from_numpy(full).to_sparse_csr(),
        "edges": edges,
    }
    options = {"edge_weight": weight} if kind == "edges" else {}
    got = inform_debias(torch.from_numpy(y), given[kind], alpha, **options)
    case.count("debiased results")
    off = float(np.abs(got.numpy() - np.linalg.solve(_system(W, alpha, None), y)).max())
    case.check(off <= 1e-5, "inform_debias off", f"{off:.1e}, {kind}, {size} nodes")


CAMPAIGN = Campaign("layers", _run, 40, 1.0)
