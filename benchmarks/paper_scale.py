"""At the paper's size: how long from features to fair outputs, and how exact?

Run ``python benchmarks/paper_scale.py`` (about five minutes on two cores, 8 GiB), or
name a case: ``python benchmarks/paper_scale.py bios``. ``--quick`` takes a twentieth of
the rows and writes nothing. Cases have the paper's numbers of rows, features, outputs
and counterfactuals; the features themselves are synthetic, and so are the outputs.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import report
import torch
from common import PeakMemory, in_fresh_process, interleaved, spread, write
from data import counterfactual_like, outputs
from paper_descent import BATCH, PaperDescent, matrix_product, num_batches
from torch import Tensor

from experiments._paper import METHODS, RUNTIMES
from pyg_glif import (
    edge_weights,
    fair_radius_graph,
    glif_solve,
    suggest_tau,
)
from pyg_glif.distances import FairDistance
from pyg_glif.errors import ConvergenceError
from pyg_glif.metric_learning import FACE
from pyg_glif.solvers import Solution

FEATURES, FACTORS, THETA, NORMALIZED_LAM = 768, 25, 1e-4, 0.1
TRAINING_ROWS = 10_200  # from which FACE learns; not part of the cases
QUICK_SHARE = 20


@dataclass(frozen=True)
class Case:
    """Shape of one of the paper's test sets, its strength, the degree we aim at."""

    num_groups: int
    variants: int
    num_single: int
    num_outputs: int
    lam: float
    degree: float
    published_rows: int  # as the paper's table of runtimes counts them

    def sizes(self, share: int) -> Tensor:
        """Rows per group, of one in ``share`` groups."""
        groups = torch.full((self.num_groups // share,), self.variants)
        return torch.cat([groups, torch.ones(self.num_single // share).long()])


CASES = {
    "bios": Case(39_343, 2, 0, 28, 10.0, 40, 78_686),
    "toxicity": Case(4_550, 51, 3_640, 2, 30.0, 60, 235_842),
}


@dataclass(frozen=True)
class Problem:
    """Synthetic features of a case in random order, and who is whose variant."""

    x: Tensor
    y_hat: Tensor
    group: Tensor
    distance: FairDistance
    tau: float

    @classmethod
    def make(cls, case: Case, share: int) -> "Problem":
        """The fair distance comes from other groups than those to be smoothed."""
        sizes = case.sizes(share)
        training = torch.full((TRAINING_ROWS // case.variants,), case.variants)
        x, group = counterfactual_like(torch.cat([sizes, training]), FEATURES)
        size = int(sizes.sum())
        distance = FACE(num_factors=FACTORS).fit(x[size:], group[size:])
        order = torch.randperm(size, generator=torch.Generator().manual_seed(2))
        x, group = x[order], group[order]
        tau = suggest_tau(x, case.degree, distance=distance)
        return cls(x, outputs(size, case.num_outputs), group, distance, tau)

    def first(self, count: int) -> "Problem":
        """Only some of the rows."""
        parts = (part[:count] for part in (self.x, self.y_hat, self.group))
        return Problem(*parts, self.distance, self.tau)

    def joined(self, edge_index: Tensor) -> float:
        """Share of the pairs of variants that are edges."""
        size = self.group.bincount()
        row, col = self.group[edge_index]
        return float((row == col).sum() / (size * (size - 1)).sum())


class Pipeline:
    """Features to fair outputs: embedding, graph, and a solve per method."""

    def __init__(self, problem: Problem, lam: float, threads: int) -> None:
        self.problem, self.lam, self.threads = problem, lam, threads
        self.seconds: dict[str, list[float]] = {}
        self.solutions: dict[str, dict[str, Any]] = {}
        self.graph: dict[str, float] = {}
        self.peak: list[int] = []

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds.setdefault(part, []).append(time.perf_counter() - start)

    def run(self) -> None:
        """One pass; the first one's peak of memory has nothing to reuse."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        gc.collect()
        with PeakMemory() as memory:
            edge_index = self._pass()
        torch.set_num_threads(before)
        self.peak.append(memory.bytes)
        if not self.graph:
            size = len(self.problem.x)
            self.graph = {
                "edges": edge_index.size(1),
                "degree": edge_index.size(1) / size,
                "joined": self.problem.joined(edge_index),
            }

    def _pass(self) -> Tensor:
        problem = self.problem
        with self._timed("embed"):
            z = problem.distance.embed(problem.x)
        with self._timed("graph"):
            edge_index, sq_dist = fair_radius_graph(z, problem.tau)
            weight = edge_weights(sq_dist, THETA)
        del z, sq_dist
        for name, normalization in METHODS.items():
            lam = self.lam if normalization is None else NORMALIZED_LAM
            options: dict[str, Any] = {"lam": lam, "normalization": normalization}
            with self._timed(name):
                try:
                    solution = glif_solve(
                        problem.y_hat,
                        edge_index,
                        weight,
                        **options,
                    )
                    found = _evidence(solution)
                except ConvergenceError as error:
                    found = {"failed": str(error)}
            self.solutions[name] = {"lam": lam, **found}
        return edge_index

    def totals(self, method: str) -> list[float]:
        """Seconds from features to the outputs of one method, pass by pass."""
        parts = (self.seconds[part] for part in ("embed", "graph", method))
        return [sum(values) for values in zip(*parts, strict=True)]


def _evidence(solution: Solution) -> dict[str, Any]:
    """Certified error of the worst column, relative to its smoothed outputs."""
    norm = torch.linalg.vector_norm(solution.value.double(), dim=0)
    bound = float((solution.error_bound / norm).max())
    return {"bound": bound, "iterations": solution.num_iter, "solver": solution.solver}


def _paper(
    descent: PaperDescent, seconds: dict[str, dict[str, float]]
) -> dict[str, float]:
    """Seconds of the paper's whole run, from the rows and batches that were timed."""
    size = len(descent.y)
    setup = seconds["setup of a batch"]["median"] * size / BATCH
    each = {name: seconds[name]["median"] for name in ("batch", "matrix product")}
    total = {name: setup + num_batches(size) * value for name, value in each.items()}
    return {
        "scaled": total["batch"],
        "scaled_matrix_product": total["matrix product"],
        "setup_scaled": setup,
        "batches_timed": seconds["batch"]["runs"],
        "batches": num_batches(size),
    }


def measure(name: str, share: int, repeats: int, threads: int) -> dict[str, Any]:
    """One case; ours and single batches of the paper's method in turn."""
    torch.set_num_threads(threads)
    case = CASES[name]
    problem = Problem.make(case, share)
    size = len(problem.x)
    Pipeline(problem.first(2000), case.lam, threads).run()  # warms up
    ours, alone = (Pipeline(problem, case.lam, count) for count in (threads, 1))
    z = problem.distance.embed(problem.x)
    descent = PaperDescent(
        z, problem.y_hat, problem.tau, lam=case.lam, sampled=2 * BATCH
    )
    f = descent.y.copy()
    runs: dict[str, Callable[[], Any]] = {
        "ours": ours.run,
        "batch": lambda: descent.batch(f),
        "matrix product": lambda: descent.batch(f, matrix_product),
        "setup of a batch": lambda: descent.near(descent.known[:BATCH]),
        "ours, one thread": alone.run,
    }
    seconds = interleaved(runs, repeats, once=("ours, one thread",))
    methods = {
        method: {
            **found,
            "solve": spread(ours.seconds[method]),
            "total": spread(ours.totals(method)),
            "one_thread": alone.totals(method)[0],
        }
        for method, found in ours.solutions.items()
    }
    published = RUNTIMES["coordinate descent"][case.published_rows]
    return {
        "case": name,
        "rows": size,
        "features": FEATURES,
        "outputs": case.num_outputs,
        "threads": threads,
        "tau": problem.tau,
        **ours.graph,
        "embed": spread(ours.seconds["embed"]),
        "graph": spread(ours.seconds["graph"]),
        "peak_extra_gib": ours.peak[0] / 2**30,
        "methods": methods,
        "paper": _paper(descent, seconds),
        "seconds": seconds,
        "published_rows": case.published_rows,
        "published": published if share == 1 else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), metavar="case")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--quick", action="store_true", help="a twentieth of the rows, nothing written"
    )
    options = parser.parse_args()
    share = QUICK_SHARE if options.quick else 1
    rows = []
    for name in options.cases:
        arguments = (name, share, options.repeats, options.threads)
        rows.append(in_fresh_process(measure, *arguments))
        print(report.paper_scale_graph(rows[-1:]))
        print(report.paper_scale(rows[-1:]), flush=True)
    if not options.quick:
        write("paper_scale", rows, key=("case",))


if __name__ == "__main__":
    main()
