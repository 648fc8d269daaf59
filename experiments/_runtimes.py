"""Table 3 of the paper on the data at hand: how long each way to solve takes."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from experiments.records import Run, Runtime, Setting
from pyg_glif._utils.markup import markdown_table
from pyg_glif.distances import FairDistance
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import SimilarityGraph
from pyg_glif.solvers import Auto, CoordinateDescent, Solver

# More rows than this make the dense system larger than its worth.
_MAX_DENSE = 10_000


def measure_runtimes(
    x: Tensor,
    logits: Tensor,
    distance: FairDistance,
    setting: Setting,
    shares: Sequence[float],
    seed: int,
) -> Iterator[Runtime]:
    """Seconds for growing parts of the rows, from features to fair outputs.

    Args:
        x (torch.Tensor): Features.
        logits (torch.Tensor): Outputs.
        distance (FairDistance): Who is similar.
        setting (dict): ``tau`` and ``lam``.
        shares (sequence of float): Parts of the rows.
        seed (int): Chooses which rows.
    """
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    for share in shares:
        rows = order[: max(2, round(share * len(x)))]
        for name, solve in SOLVERS.items():
            if name == "closed form" and len(rows) > _MAX_DENSE:
                continue
            start = time.perf_counter()
            solve(x[rows], logits[rows], distance, setting["tau"], setting["lam"])
            yield Runtime(name, len(rows), time.perf_counter() - start)


def _closed_form(
    x: Tensor, y: Tensor, distance: FairDistance, tau: float, lam: float
) -> Tensor:
    """Eq. 3.3 of the paper, with dense matrices."""
    z = distance.embed(x).double()
    dist = torch.cdist(z, z)
    weight = torch.where(dist <= tau, torch.exp(-1e-4 * dist.square()), 0.0)
    system = torch.diag(1 + lam * weight.sum(1)) - lam * weight
    fair: Tensor = torch.linalg.solve(system, y.double())
    return fair.to(y.dtype)


def _sparse(
    solver: Solver, x: Tensor, y: Tensor, distance: FairDistance, tau: float, lam: float
) -> Tensor:
    """The exact graph, then a solver that only multiplies by it."""
    graph = SimilarityGraph.search(x, tau, distance=distance)
    return glif_smooth(y, graph.edge_index, graph.weights(1e-4), lam=lam, solver=solver)


#: Ways to solve, as tables head their columns.
SOLVERS: dict[str, Callable[[Tensor, Tensor, FairDistance, float, float], Tensor]] = {
    "closed form": _closed_form,
    "coordinate descent": partial(_sparse, CoordinateDescent()),
    "default solver": partial(_sparse, Auto()),
}


def runtimes_table(run: Run) -> str:
    """How long each way to solve took in a run, rows of growing number."""
    found: dict[int, dict[str, float]] = {}
    for item in run.runtimes:
        found.setdefault(item.num_rows, {})[item.method] = item.seconds
    rows = [
        [f"{size:,}", *(f"{spent[m]:.3g}" if m in spent else "-" for m in SOLVERS)]
        for size, spent in sorted(found.items())
    ]
    title = (
        f"**Seconds from features to fair outputs, seed {run.seed}, one thread (closed "
        "form: dense; coordinate descent: ten epochs, on our graph; default solver: "
        "Cholesky or conjugate gradients to 1e-6, on our graph)**"
    )
    table = markdown_table(["rows", *SOLVERS], rows, align="r" * (1 + len(SOLVERS)))
    return f"{title}\n\n{table}"
