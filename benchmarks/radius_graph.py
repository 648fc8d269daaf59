"""How long does the exact radius graph take, next to the usual ways to get it?

Run ``python benchmarks/radius_graph.py`` for everything (about half an hour on two
cores), or name cases: ``python benchmarks/radius_graph.py embedding-like:7870``.
Everybody gets the same rows and the same radius (average degree about 40), returns
both directions of every edge with squared distances, and runs in turn, three times.
"""

import argparse
import gc
import multiprocessing
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import report
import torch
from common import PeakMemory, interleaved, write
from data import embedding_like, isotropic, real_embeddings
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from pyg_glif import fair_radius_graph, suggest_tau

DEGREE = 40
DATA: dict[str, Callable[[int], Tensor]] = {
    "embedding-like": embedding_like,
    "isotropic": isotropic,
    "real": real_embeddings,
}
CASES = [
    "embedding-like:7870",
    "isotropic:7870",
    "embedding-like:20000",
    "isotropic:20000",
    "real:50000",
    "embedding-like:78686",
    "isotropic:78686",
    "embedding-like:235842",
]
LARGEST_WITH_PEERS = 100_000
SLOW = ("FAISS", "scikit-learn")  # minutes each from 50,000 rows on: run once


def plain_tiles(z: Tensor, tau: float, tile: int = 1024) -> tuple[Tensor, Tensor]:
    """Symmetric tiles of matrix products: what one writes without much thought."""
    norm = z.square().sum(1)
    found = []
    for start in range(0, z.size(0), tile):
        a = z[start : start + tile]
        for left in range(start, z.size(0), tile):
            b = z[left : left + tile]
            sq = norm[start : start + tile, None] + norm[left : left + tile]
            sq = torch.addmm(sq, a, b.T, alpha=-2.0)
            inside = sq <= tau * tau
            if left == start:
                inside = inside.triu(1)
            row, col = inside.nonzero(as_tuple=True)
            found.append((row + start, col + left, sq[row, col]))
    row, col, sq = (torch.cat(part) for part in zip(*found, strict=True))
    row, col, sq = torch.cat([row, col]), torch.cat([col, row]), torch.cat([sq, sq])
    order = (row * z.size(0) + col).argsort()
    return torch.stack([row[order], col[order]]), sq[order]


def faiss_range_search(z: Tensor, tau: float) -> Any:
    """FAISS, exact flat index; its radius is squared and its boundary strict."""
    index = faiss.IndexFlatL2(z.size(1))
    index.add(z.numpy())
    return index.range_search(z.numpy(), float(np.nextafter(tau * tau, np.inf)))


def sklearn_graph(z: Tensor, tau: float) -> Any:
    """scikit-learn's brute force over all cores."""
    search = NearestNeighbors(radius=tau, algorithm="brute", n_jobs=-1)
    return search.fit(z.numpy()).radius_neighbors_graph(mode="distance")


def _peak(name: str, size: int, tau: float, queue: Any) -> None:
    """In a fresh process: peak memory beyond the rows and the edges returned."""
    torch.set_num_threads(2)
    z = DATA[name](size)
    fair_radius_graph(z[:2000], tau)
    gc.collect()
    with PeakMemory() as memory:
        edge_index, sq_dist = fair_radius_graph(z, tau)
    edges = edge_index.nbytes + sq_dist.nbytes
    queue.put(memory.bytes - edges)


def peak_memory(name: str, size: int, tau: float) -> int:
    """Peak of our search, measured where nothing else has run."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_peak, args=(name, size, tau, queue))
    process.start()
    result = int(queue.get())
    process.join()
    return result


def run_case(case: str, repeats: int) -> dict[str, Any]:
    name, size = case.split(":")
    z = DATA[name](int(size))
    tau = suggest_tau(z, DEGREE)
    contestants: dict[str, Callable[[], Any]] = {
        "pyg_glif": lambda: fair_radius_graph(z, tau)
    }
    if z.size(0) <= LARGEST_WITH_PEERS:
        contestants["plain tiles"] = lambda: plain_tiles(z, tau)
        contestants["FAISS"] = lambda: faiss_range_search(z, tau)
        contestants["scikit-learn"] = lambda: sklearn_graph(z, tau)
    fair_radius_graph(z[:2000], tau)  # warm up
    edge_index, _ = fair_radius_graph(z, tau)
    degree = edge_index.size(1) / z.size(0)
    del edge_index
    once = SLOW if z.size(0) >= 50_000 else ()
    seconds = interleaved(contestants, repeats, once)
    memory = peak_memory(name, int(size), tau)
    row = {
        "data": name,
        "rows": z.size(0),
        "features": z.size(1),
        "degree": degree,
        "seconds": seconds,
        "peak_extra_mib": memory / 2**20,
    }
    print(_line(row), flush=True)
    return row


def _line(row: dict[str, Any]) -> str:
    ours = row["seconds"]["pyg_glif"]["median"]
    others = "  ".join(
        f"{name} {value['median'] / ours:.2f}x"
        for name, value in row["seconds"].items()
        if name != "pyg_glif"
    )
    memory = f"{row['peak_extra_mib']:.0f} MiB extra"
    return f"{row['data']}:{row['rows']}  {ours:.2f} s  {memory}  {others}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    rows = [run_case(case, arguments.repeats) for case in arguments.cases]
    print("\n" + report.radius_graph(rows))
    write("radius_graph", rows, key=("data", "rows"))


if __name__ == "__main__":
    main()
