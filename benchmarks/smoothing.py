"""From features to fair outputs: how long, how exact, next to the other ways?

Run ``python benchmarks/smoothing.py`` for everything (about half an hour on two
cores), or name parts: ``python benchmarks/smoothing.py small path``. Features as in
``radius_graph.py``, 28 output columns, lam = 10, average degree about 40. Every
contestant starts from features and outputs; the search is part of its time.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import report
import scipy.sparse
import scipy.sparse.linalg
import torch
from common import PeakMemory, in_fresh_process, interleaved, write
from data import embedding_like, outputs
from paper_descent import PaperDescent
from torch import Tensor

from pyg_glif import (
    edge_weights,
    fair_radius_graph,
    glif_path,
    glif_smooth,
    glif_solve,
    suggest_tau,
)
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import CG, Auto

LAM, DEGREE, THETA, RTOL = 10.0, 40, 1e-4, 1e-6
NORMALIZED_LAM = 0.1
PAPER_LAMS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]


def ours(z: Tensor, y_hat: Tensor, tau: float, normalization: Any = None) -> Tensor:
    edge_index, sq_dist = fair_radius_graph(z, tau)
    weight = edge_weights(sq_dist, THETA)
    lam = LAM if normalization is None else NORMALIZED_LAM
    return glif_smooth(y_hat, edge_index, weight, lam=lam, normalization=normalization)


def paper_descent(
    z: Tensor, y_hat: Tensor, tau: float, normalization: Any = None
) -> PaperDescent:
    lam = LAM if normalization is None else NORMALIZED_LAM
    return PaperDescent(z, y_hat, tau, normalization, lam=lam)


def faiss_scipy(z: Tensor, y_hat: Tensor, tau: float) -> np.ndarray:
    """FAISS range search, then SciPy's conjugate gradients column by column."""
    index = faiss.IndexFlatL2(z.size(1))
    index.add(z.numpy())
    limit = float(np.nextafter(tau * tau, np.inf))
    ptr, square, col = index.range_search(z.numpy(), limit)
    weight = np.exp(-THETA * square)
    W = scipy.sparse.csr_matrix((weight, col, ptr.astype(np.int64)))
    W.setdiag(0.0)
    deg = np.asarray(W.sum(1)).ravel()
    M = (scipy.sparse.diags(1.0 + LAM * deg) - LAM * W).tocsr()
    y = y_hat.numpy()
    columns = [scipy.sparse.linalg.cg(M, column, rtol=RTOL)[0] for column in y.T]
    return np.stack(columns, 1)


def dense_closed_form(z: Tensor, y_hat: Tensor, tau: float) -> Tensor:
    """Eq. 3.5 with dense matrices, as published."""
    square = torch.cdist(z, z).square()
    W = torch.where(square <= tau * tau, torch.exp(-THETA * square), 0.0)
    L = torch.diag(W.sum(1)) - W
    return torch.linalg.solve(torch.eye(len(z)) + LAM * L, y_hat)


def infairness_exact(z: Tensor, y_hat: Tensor, tau: float) -> Tensor:
    """The post-processor of inFairness, exact; it squares its threshold itself."""
    from inFairness.distances import SquaredEuclideanDistance
    from inFairness.postprocessing import GraphLaplacianIF

    distance = SquaredEuclideanDistance()
    distance.fit(num_dims=z.size(1))
    model = GraphLaplacianIF(distance, is_output_probas=False)
    model.add_datapoints(z, y_hat)
    found = model.postprocess("exact", lambda_param=LAM, scale=THETA, threshold=tau)
    return found.y_solution


def gather_scatter(z: Tensor, y_hat: Tensor, tau: float) -> Tensor:
    """Jacobi-scaled conjugate gradients on gather-scatter message passing."""
    edge_index, sq_dist = fair_radius_graph(z, tau)
    weight = edge_weights(sq_dist, THETA)
    row, col = edge_index
    deg = torch.zeros(len(z)).index_add_(0, row, weight)
    inverse = (1.0 + LAM * deg).reciprocal().unsqueeze(1)

    def product(p: Tensor) -> Tensor:
        messages = weight.unsqueeze(1) * p[col]
        mixed = torch.zeros_like(p).index_add_(0, row, messages)
        return p + LAM * (deg.unsqueeze(1) * p - mixed)

    x = y_hat.clone()
    r = y_hat - product(x)
    p = inverse * r
    energy = (r * p).sum(0)
    goal = RTOL * torch.linalg.vector_norm(y_hat, dim=0)
    for _ in range(500):
        if bool((torch.linalg.vector_norm(r, dim=0) <= goal).all()):
            break
        image = product(p)
        step = energy / (p * image).sum(0)
        x, r = x + step * p, r - step * image
        z_new = inverse * r
        last, energy = energy, (r * z_new).sum(0)
        p = z_new + energy / last * p
    return x


def relative_error(f: Any, exact: Tensor) -> float:
    """Worst column's error against a solution certified to 1e-10."""
    f = torch.as_tensor(f).double()
    error = torch.linalg.vector_norm(f - exact, dim=0)
    return float((error / torch.linalg.vector_norm(exact, dim=0)).max())


def certified(z: Tensor, y_hat: Tensor, tau: float, theta: float = THETA) -> Tensor:
    edge_index, sq_dist = fair_radius_graph(z, tau)
    weight = edge_weights(sq_dist, theta).double()
    return glif_smooth(
        y_hat.double(), edge_index, weight, lam=LAM, solver=Auto(rtol=1e-10)
    )


def small(repeats: int) -> list[dict[str, Any]]:
    """7,870 rows, where even the dense methods run."""
    z, y_hat = embedding_like(7870), outputs(7870)
    tau = suggest_tau(z, DEGREE)
    ours(z, y_hat, tau)
    runs: dict[str, Callable[[], Any]] = {
        "pyg_glif": lambda: ours(z, y_hat, tau),
        "pyg_glif density": lambda: ours(z, y_hat, tau, "density"),
        "dense closed form": lambda: dense_closed_form(z, y_hat, tau),
        "FAISS + SciPy cg": lambda: faiss_scipy(z, y_hat, tau),
        "gather-scatter cg": lambda: gather_scatter(z, y_hat, tau),
    }
    seconds = interleaved(runs, repeats)
    once: dict[str, Callable[[], Any]] = {
        "coordinate descent": lambda: paper_descent(z, y_hat, tau).run(),
        "coordinate descent nrw": lambda: paper_descent(z, y_hat, tau, "nrw").run(),
        "inFairness exact": lambda: infairness_exact(z, y_hat, tau),
    }
    found = {}
    for name, run in once.items():
        start = time.perf_counter()
        try:
            found[name] = run()
        except (MemoryError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0][:120]
            seconds[name] = {"failed": f"{type(error).__name__}: {reason}"}
            continue
        taken = time.perf_counter() - start
        seconds[name] = {"median": taken, "min": taken, "max": taken}
    exact = certified(z, y_hat, tau)
    binary = certified(z, y_hat, tau, theta=0.0)
    errors = {
        "pyg_glif": relative_error(ours(z, y_hat, tau), exact),
        "dense closed form": relative_error(dense_closed_form(z, y_hat, tau), exact),
        "FAISS + SciPy cg": relative_error(faiss_scipy(z, y_hat, tau), exact),
        "gather-scatter cg": relative_error(gather_scatter(z, y_hat, tau), exact),
        "coordinate descent": relative_error(found["coordinate descent"], binary),
    }
    if "inFairness exact" in found:
        errors["inFairness exact"] = relative_error(found["inFairness exact"], exact)
    return [{"part": "small", "rows": 7870, "seconds": seconds, "error": errors}]


def large(repeats: int) -> list[dict[str, Any]]:
    """20,000 and 78,686 rows; the paper's method is sampled and scaled."""
    rows = []
    for size in (20_000, 78_686):
        z, y_hat = embedding_like(size), outputs(size)
        tau = suggest_tau(z, DEGREE)
        runs: dict[str, Callable[[], Any]] = {
            "pyg_glif": lambda z=z, y=y_hat, t=tau: ours(z, y, t),
            "FAISS + SciPy cg": lambda z=z, y=y_hat, t=tau: faiss_scipy(z, y, t),
        }
        ours(z[:5000], y_hat[:5000], tau)
        seconds = interleaved(runs, repeats if size < 50_000 else 1)
        for normalization in (None, "nrw") if size < 50_000 else (None,):
            descent = paper_descent(z, y_hat, tau, normalization)
            taken = descent.scaled_seconds(batches=3)
            name = "coordinate descent" + (" nrw" if normalization else "")
            seconds[name + " (scaled)"] = {"median": taken}
            del descent
        error = relative_error(ours(z, y_hat, tau), certified(z, y_hat, tau))
        row = {"part": "large", "rows": size, "seconds": seconds}
        rows.append({**row, "error": {"pyg_glif": error}})
    return rows


def backward(repeats: int) -> list[dict[str, Any]]:
    """The backward solve against the forward one, gradients to everything."""
    z, y_hat = embedding_like(20_000), outputs(20_000).requires_grad_()
    edge_index, sq_dist = fair_radius_graph(z, suggest_tau(z, DEGREE))
    weight = edge_weights(sq_dist, THETA).requires_grad_()
    lam = torch.tensor(LAM, requires_grad=True)
    forward, back = [], []
    cotangent = torch.randn(y_hat.shape)
    for _ in range(repeats + 1):
        lap = LaplacianOperator(edge_index, weight)
        start = time.perf_counter()
        f = glif_smooth(y_hat, lap, lam=lam)
        middle = time.perf_counter()
        f.backward(cotangent)
        forward.append(middle - start)
        back.append(time.perf_counter() - middle)
    seconds = {
        "forward": {"median": float(np.median(forward[1:]))},
        "backward": {"median": float(np.median(back[1:]))},
    }
    return [{"part": "backward", "rows": 20_000, "seconds": seconds}]


def path(repeats: int) -> list[dict[str, Any]]:
    """All strengths against the hardest alone, and the paper's whole grid."""
    z, y_hat = embedding_like(20_000), outputs(20_000)
    edge_index, sq_dist = fair_radius_graph(z, suggest_tau(z, DEGREE))
    weight = edge_weights(sq_dist, THETA)

    def all_lams() -> None:
        for _ in glif_path(y_hat, edge_index, sq_dist, lams=PAPER_LAMS, theta=THETA):
            pass

    runs: dict[str, Callable[[], Any]] = {
        "9 lams": all_lams,
        "hardest lam": lambda: glif_smooth(y_hat, edge_index, weight, lam=100.0),
    }
    runs["hardest lam"]()
    lap = LaplacianOperator(edge_index, weight)
    iterations = [
        {"lam": lam, "scaled": _iterations(lap, y_hat, lam, CG())}
        | {"unscaled": _iterations(lap, y_hat, lam, CG(preconditioner=None))}
        for lam in (0.1, 1.0, 10.0, 100.0)
    ]
    row = {"part": "path", "rows": 20_000, "seconds": interleaved(runs, repeats)}
    return [{**row, "iterations": iterations}, _paper_grid(repeats)]


def _iterations(lap: LaplacianOperator, y_hat: Tensor, lam: float, solver: CG) -> int:
    """How many sparse products one solve takes."""
    found = glif_solve(y_hat, lap, lam=lam, solver=solver)
    return found.num_iter


def _paper_grid(repeats: int) -> dict[str, Any]:
    """9 strengths x 151 radii on 757 points, two columns, as in the paper."""
    z, y_hat = embedding_like(757, 300), outputs(757, 2)
    square = torch.cdist(z, z).square()
    squares = square[square > 0]
    low, high = (float(squares.quantile(q).sqrt()) for q in (0.001, 0.3))
    taus = torch.logspace(np.log10(low), np.log10(high), 151).tolist()

    def ours_grid() -> float:
        edge_index, sq_dist = fair_radius_graph(z, taus[-1])
        points = glif_path(
            y_hat, edge_index, sq_dist, lams=PAPER_LAMS, taus=taus, theta=THETA
        )
        return sum(float(point.value[0, 0]) for point in points)

    def dense_grid(solve: Callable[[Tensor], Tensor]) -> float:
        total = 0.0
        identity = torch.eye(len(z))
        for tau in taus:
            W = torch.exp(-THETA * square) * (square <= tau * tau)
            L = torch.diag(W.sum(1)) - W
            for lam in PAPER_LAMS:
                total += float(solve(identity + lam * L)[0, 0])
        return total

    def inverse(matrix: Tensor) -> Tensor:  # as published
        return torch.inverse(matrix) @ y_hat

    def solve(matrix: Tensor) -> Tensor:
        return torch.linalg.solve(matrix, y_hat)

    runs: dict[str, Callable[[], Any]] = {
        "9 x 151 path": ours_grid,
        "1,359 dense closed forms (inverse, as published)": lambda: dense_grid(inverse),
        "1,359 dense closed forms (solve)": lambda: dense_grid(solve),
    }
    gap = abs(ours_grid() - dense_grid(solve))
    print(f"grids agree to {gap:.1e} in the sum of 1,359 values")
    return {"part": "grid", "rows": 757, "seconds": interleaved(runs, repeats)}


def _huge() -> dict[str, float]:
    torch.set_num_threads(2)
    z, y_hat = embedding_like(235_842), outputs(235_842)
    tau = suggest_tau(z, 60)
    gc.collect()
    start = time.perf_counter()
    with PeakMemory() as memory:
        edge_index, sq_dist = fair_radius_graph(z, tau)
        weight = edge_weights(sq_dist, THETA)
        solution = glif_solve(y_hat, edge_index, weight, lam=LAM)
    norm = torch.linalg.vector_norm(y_hat.double(), dim=0)
    return {
        "total_seconds": time.perf_counter() - start,
        "peak_gib": (memory.bytes + z.nbytes + y_hat.nbytes) / 2**30,
        "degree": edge_index.size(1) / len(z),
        "bound": float((solution.error_bound / norm).max()),
    }


def huge(repeats: int) -> list[dict[str, Any]]:
    """235,842 rows, degree about 60, alone in a fresh process."""
    found = in_fresh_process(_huge)
    seconds = {"pyg_glif": {"median": found["total_seconds"]}}
    return [{"part": "huge", "rows": 235_842, "seconds": seconds, **found}]


PARTS = {
    "small": small,
    "large": large,
    "backward": backward,
    "path": path,
    "huge": huge,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="part")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows = []
    for part in arguments.parts:
        found = PARTS[part](arguments.repeats)
        print(report.smoothing(found), flush=True)
        rows += found
    print(report.huge(rows))
    write("smoothing", rows, key=("part", "rows"))


if __name__ == "__main__":
    main()
