"""What do new people cost, next to solving for everybody again?

Run ``python benchmarks/inductive.py`` (about five minutes on two cores, 4 GiB), or name
parts: ``python benchmarks/inductive.py new one explain face``. Fitted people:
78,686 x 768 with 28 outputs, average degree about 40.
"""

import argparse
import gc
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import report
import torch
from common import PeakMemory, interleaved, write
from data import embedding_like
from torch import Tensor

from pyg_glif import GLIFPostProcessor, glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metric_learning import FACE

FITTED, NEW, COLUMNS, DEGREE, LAM = 78_686, 10_000, 28, 40, 10.0
FACE_ROWS, FACE_FEATURES, FACTORS = 350_000, 768, 25
PARTS = ("new", "one", "explain", "face")


class Served:
    """A fitted post-processor, its index built, and people it has not seen."""

    def __init__(self, fitted: int, new: int) -> None:
        x = embedding_like(fitted + new)
        generator = torch.Generator().manual_seed(1)
        mix = torch.randn(x.size(1), COLUMNS, generator=generator) / 28.0
        y = x @ mix + 0.3 * torch.randn(len(x), COLUMNS, generator=generator)
        self.x, self.y = x, y
        self.size = fitted
        self.post = GLIFPostProcessor(target_degree=DEGREE, lam=LAM)
        self.post.fit(x[:fitted], y[:fitted])
        self.new(slice(fitted, fitted + 1))  # the first call builds the index

    def new(self, rows: slice, **options: Any) -> Tensor:
        """Smoothed outputs of new people."""
        out: Tensor = self.post.transform(self.x[rows], self.y[rows], **options)
        return out

    def everything(self) -> None:
        """What a method without an inductive step would have to do."""
        GLIFPostProcessor(tau=self.post.tau_, lam=LAM).fit(self.x, self.y)

    def distances(self, rows: int) -> Callable[[], Tensor]:
        """Plain distances of a block of new rows to all fitted ones."""
        known = self.x[: self.size]
        norm = known.square().sum(1)
        block = self.x[self.size : self.size + rows]

        def run() -> Tensor:
            square = block.square().sum(1, keepdim=True) + norm
            return torch.addmm(square, block, known.T, alpha=-2.0)

        return run


def many(served: Served, repeats: int) -> dict[str, Any]:
    """A batch of new people at once, against a fit on everybody."""
    rows = slice(served.size, len(served.x))
    seconds = interleaved(
        {
            "transform": lambda: served.new(rows),
            "transform, joint": lambda: served.new(rows, joint=True),
            "fit on everybody": served.everything,
        },
        repeats,
    )
    count = rows.stop - rows.start
    each = seconds["transform"]["median"] / count
    again = seconds["fit on everybody"]["median"]
    return {
        "question": f"{count:,} new people at once",
        "seconds": seconds,
        "transform_us_per_new_person": 1e6 * each,
        "ratio_per_person_of_fit": again / len(served.x) / each,
        "ratio_per_new_person": again / count / each,
    }


def one(served: Served, repeats: int) -> dict[str, Any]:
    """One new person, against plain distances to everybody."""
    contestants: dict[str, Callable[[], Any]] = {
        "transform, one row": lambda: served.new(slice(served.size, served.size + 1)),
        "plain distances, 1 row": served.distances(1),
        "plain distances, 256 rows": served.distances(256),
    }
    seconds = interleaved(contestants, max(20, repeats))
    return {"question": "one new person", "seconds": seconds}


def explain(served: Served, repeats: int) -> dict[str, Any]:
    """One explanation, against one solve of a single column."""
    graph, column = served.post.graph_, served.y[: served.size, 0].contiguous()
    weight, size = graph.edge_weight, served.size
    lap = LaplacianOperator(graph.edge_index, weight, size)
    people = iter(range(10**9))
    seconds = interleaved(
        {
            "explain, ten contributors": lambda: served.post.explain(
                next(people), top=10
            ),
            "explain, everybody": lambda: served.post.explain(next(people)),
            "explain_new": lambda: served.post.explain_new(
                served.x[size : size + 1], top=10
            ),
            "one column, operator ready": lambda: glif_smooth(column, lap, lam=LAM),
            "one column, from edges": lambda: glif_smooth(
                column, graph.edge_index, weight, lam=LAM
            ),
        },
        max(10, repeats),
    )
    return {"question": "one explanation", "seconds": seconds}


def _face_data() -> tuple[Tensor, Tensor]:
    """Pairs of comparable rows that differ along a few directions."""
    generator = torch.Generator().manual_seed(0)
    half = FACE_ROWS // 2
    base = torch.randn(half, FACE_FEATURES, generator=generator)
    directions = torch.randn(30, FACE_FEATURES, generator=generator)
    shift = torch.randn(half, 30, generator=generator) @ directions
    x = torch.cat([base, base + shift])
    return x, torch.arange(half).repeat(2)


def _fit_ours(x: Tensor, group: Tensor) -> None:
    FACE(num_factors=FACTORS).fit(x, group)


def _fit_in_fairness(x: Tensor, group: Tensor) -> None:
    from inFairness.distances import SVDSensitiveSubspaceDistance

    half = len(x) // 2
    pairs = torch.stack([x[:half], x[half:]], 1)
    # It takes one tensor per set of comparable people, so one per pair.
    SVDSensitiveSubspaceDistance().fit(list(pairs), n_components=FACTORS)


FITS = {"FACE": _fit_ours, "inFairness": _fit_in_fairness}


def _face_process(name: str, queue: Any) -> None:
    """In a fresh process: seconds and peak memory beyond the rows."""
    torch.set_num_threads(2)
    x, group = _face_data()
    gc.collect()
    start = time.perf_counter()
    try:
        with PeakMemory() as memory:
            FITS[name](x, group)
    except (ImportError, MemoryError, RuntimeError) as error:
        queue.put({"error": f"{type(error).__name__}: {error}"})
        return
    spent = time.perf_counter() - start
    rows = x.nbytes + group.nbytes
    queue.put({"seconds": spent, "extra_bytes": memory.bytes, "rows_bytes": rows})


def face(limit: float) -> dict[str, Any]:
    """Metric learning on many pairs, ours and inFairness', each in its process."""
    context = multiprocessing.get_context("spawn")
    found = {}
    for name in FITS:
        queue = context.Queue()
        process = context.Process(target=_face_process, args=(name, queue))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.terminate()
            process.join()
            found[name] = {"error": f"not done after {limit:g} s"}
        elif process.exitcode:
            found[name] = {"error": f"ended with {process.exitcode} (out of memory?)"}
        else:
            found[name] = queue.get()
        print(f"  {name}: {found[name]}", flush=True)
    return {"question": f"FACE on {FACE_ROWS:,} x {FACE_FEATURES}", "fits": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--fitted", type=int, default=FITTED)
    parser.add_argument("--new", type=int, default=NEW)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds per FACE")
    options = parser.parse_args()
    rows = []
    if {"new", "one", "explain"} & set(options.parts):
        served = Served(options.fitted, options.new)
        print(f"{served.post.solution_}, degree ", end="")
        print(f"{served.post.graph_.num_edges / served.size:.1f}", flush=True)
        for name, part in (("new", many), ("one", one), ("explain", explain)):
            if name in options.parts:
                rows.append(part(served, options.repeats))
                print(rows[-1], flush=True)
        del served
    if "face" in options.parts:
        rows.append(face(options.limit))
    print("\n" + report.inductive(rows))
    write("inductive", rows, key=("question",))


if __name__ == "__main__":
    main()
