"""How long do the exact k nearest take, next to the usual ways to get them?

Run ``python benchmarks/knn_graph.py`` for everything (about half an hour on two
cores), or name cases: ``python benchmarks/knn_graph.py isotropic:20000``.
Everybody gets the same rows and finds the 10 nearest others of each. We also join
them to a graph in both directions and keep ties; the peers return the lists alone.
``audit:isotropic`` times an audit of 40,000 x 64 rows, its search for nearest others
included, beside a fit. ``--cpu`` counts the processor's seconds, not those of the
clock, with one thread: for machines on which others are at work. From 50,000 rows on
it lets the peers search for an eighth of the rows, and multiplies: they look at all
rows for each.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import report
import torch
from common import PeakMemory, in_fresh_process, interleaved, write
from data import embedding_like, isotropic, outputs, real_embeddings
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_limits
from torch import Tensor

from pyg_glif import GLIFPostProcessor, fair_knn_graph

Clock = Callable[[], float]
K = 10
DATA: dict[str, Callable[[int], Tensor]] = {
    "embedding-like": embedding_like,
    "isotropic": isotropic,
    "real": real_embeddings,
}
CASES = [
    "embedding-like:20000",
    "isotropic:20000",
    "real:50000",
    "embedding-like:78686",
    "isotropic:78686",
    "audit:isotropic",
    "audit:embedding-like",
]
SLOW = ("plain tiles", "FAISS", "scikit-learn")  # run once from 50,000 rows on


def plain_tiles(z: Tensor, num_rows: int, tile: int = 1024) -> tuple[Tensor, Tensor]:
    """Matrix products and ``topk``: what one writes without much thought."""
    norm = z.square().sum(1)
    found = []
    for start in range(0, num_rows, tile):
        rows = slice(start, start + tile)
        sq = torch.addmm(norm, z[rows], z.T, alpha=-2.0) + norm[rows, None]
        own = torch.arange(sq.size(0))
        sq[own, own + start] = torch.inf
        found.append(sq.topk(K, largest=False))
    return torch.cat([part[0] for part in found]), torch.cat([p[1] for p in found])


def faiss_search(z: Tensor, num_rows: int) -> Any:
    """FAISS, exact flat index; everybody finds themselves first."""
    index = faiss.IndexFlatL2(z.size(1))
    index.add(z.numpy())
    return index.search(z[:num_rows].numpy(), K + 1)


def sklearn_graph(z: Tensor, num_rows: int) -> Any:
    """scikit-learn's choice of algorithm; everybody finds themselves first."""
    search = NearestNeighbors(n_neighbors=K + 1, n_jobs=torch.get_num_threads())
    search.fit(z.numpy())
    return search.kneighbors_graph(z[:num_rows].numpy(), mode="distance")


def _peak(name: str, size: int, threads: int) -> int:
    """Peak memory beyond the rows and the edges returned."""
    torch.set_num_threads(threads)
    z = DATA[name](size)
    fair_knn_graph(z[:2000], K)
    with PeakMemory() as memory:
        edge_index, sq_dist = fair_knn_graph(z, K)
    return memory.bytes - edge_index.nbytes - sq_dist.nbytes


def _agreement(z: Tensor, edge_index: Tensor, num_rows: int = 200) -> float:
    """Share of the 10 nearest of some rows, in float64, that are edges."""
    rows = torch.arange(0, z.size(0), max(1, z.size(0) // num_rows))
    dist = torch.cdist(z[rows].double(), z.double())
    dist[torch.arange(len(rows)), rows] = torch.inf
    near = dist.topk(K, largest=False).indices
    known = edge_index[0] * z.size(0) + edge_index[1]
    wanted = (rows.unsqueeze(1) * z.size(0) + near).flatten()
    return float(torch.isin(wanted, known).double().mean())


def run_case(name: str, size: str, repeats: int, clock: Clock) -> dict[str, Any]:
    z = DATA[name](int(size))
    large = len(z) >= 50_000
    share = 8 if large and clock is time.process_time else 1
    fair_knn_graph(z[:2000], K)  # warm up
    edge_index, _ = fair_knn_graph(z, K)
    found = {"degree": edge_index.size(1) / len(z), "agree": _agreement(z, edge_index)}
    del edge_index
    contestants: dict[str, Callable[[], Any]] = {
        "pyg_glif": lambda: fair_knn_graph(z, K),
        "plain tiles": lambda: plain_tiles(z, len(z) // share),
        "FAISS": lambda: faiss_search(z, len(z) // share),
        "scikit-learn": lambda: sklearn_graph(z, len(z) // share),
    }
    once = SLOW if large and share == 1 else ()
    seconds = interleaved(contestants, repeats, once, clock)
    for peer in [peer for peer in seconds if peer != "pyg_glif"]:
        for what in ("median", "min", "max"):
            seconds[peer][what] *= len(z) / (len(z) // share)
    memory = in_fresh_process(_peak, name, int(size), torch.get_num_threads())
    return {
        "part": name,
        "share": share,
        "rows": z.size(0),
        "features": z.size(1),
        **found,
        "seconds": seconds,
        "peak_extra_mib": memory / 2**20,
    }


def run_audit(name: str, repeats: int, clock: Clock) -> dict[str, Any]:
    """A fit and an audit of it."""
    size, width = 40_000, 64
    x = {"isotropic": isotropic, "embedding-like": embedding_like}[name](size, width)
    y_hat = outputs(size, 1)
    post = GLIFPostProcessor(target_degree=20)
    post.fit(x, y_hat)
    contestants: dict[str, Callable[[], Any]] = {
        "fit": lambda: GLIFPostProcessor(target_degree=20).fit(x, y_hat),
        "audit": lambda: post.audit(),
    }
    seconds = interleaved(contestants, repeats, clock=clock)
    part = f"audit, {name}"
    return {"part": part, "rows": size, "features": width, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    threads = 1 if arguments.cpu else 2
    clock = time.process_time if arguments.cpu else time.perf_counter
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    with threadpool_limits(threads):
        for case in arguments.cases:
            first, second = case.split(":")
            if first == "audit":
                row = run_audit(second, arguments.repeats, clock)
            else:
                row = run_case(first, second, arguments.repeats, clock)
            row["clock"] = "processor" if arguments.cpu else "wall"
            print(report.knn_graph([row]), flush=True)
            write("knn_graph", [row], key=("part", "rows"))


if __name__ == "__main__":
    main()
