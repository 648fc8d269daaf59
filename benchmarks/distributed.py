"""What does it cost to keep people on disk and work on Ray, and how far does it go?

``python benchmarks/distributed.py time:235842`` times one machine's memory against
blocks in this process and on Ray; ``limit:1000000`` runs under a limit that the kernel
enforces on every worker, and shows that the way through memory fails under the same;
``grow:100000`` measures one size for the growth and for ``pyg-glif plan``. Rows are
embedding-like, 768 features, written to the folder ``--folder`` block by block and kept
there. Every run is a process of its own.
"""

import argparse
import json
import multiprocessing
import re
import resource
import shutil
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from common import write
from data import embedding_chunks

FEATURES = 768
DEGREE = 40
LIMIT = 3 << 29  # bytes: 1.5 GiB
STORE = 500 << 20  # bytes of Ray's object store
LAM = 10.0


def rows_of(folder: Path, num_rows: int) -> Path:
    """The rows, written once."""
    path = folder / f"rows-{num_rows}.npy"
    if not path.exists():
        part = path.with_suffix(".part")
        shape = (num_rows, FEATURES)
        array = np.lib.format.open_memmap(part, "w+", np.float32, shape)
        at = 0
        for rows in embedding_chunks(num_rows, FEATURES):
            array[at : at + len(rows)] = rows.numpy()
            at += len(rows)
        array.flush()
        part.rename(path)
        outputs = np.random.default_rng(1).normal(size=(num_rows, 2))
        np.save(folder / f"outputs-{num_rows}.npy", outputs.astype(np.float32))
    return path


def radius_of(path: Path) -> float:
    """A radius at which people have about 40 neighbours, from some against many."""
    array = np.load(path, mmap_mode="r")
    few = torch.from_numpy(np.array(array[:: max(1, len(array) // 200)][:200]))
    near = []
    for start in range(0, len(array), 20_000):
        part = torch.from_numpy(np.array(array[start : start + 20_000]))
        dist = torch.cdist(few, part)
        near.append(dist.topk(min(2 * DEGREE, len(part)), largest=False).values)
    dist = torch.cat(near, 1).flatten().sort().values
    return float(dist[len(few) * (DEGREE + 1)])


class Watch:
    """The largest memory of this process and its children while inside.

    Anonymous memory, which is what the limit is about: mapped files, which the kernel
    may drop, are not part of it. The kernel counts it as it goes; walking through pages
    for more would stop the process that is measured.
    """

    def __enter__(self) -> "Watch":
        self.peak: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.25):
            for one in [me, *me.children(recursive=True)]:
                try:
                    name, status = one.name(), Path(f"/proc/{one.pid}/status")
                    found = re.search(r"RssAnon:\s+(\d+) kB", status.read_text())
                except (psutil.Error, OSError):
                    continue
                kind = "driver" if one.pid == me.pid else name
                kind = "workers" if name.startswith("ray::") else kind
                size = 1024 * int(found[1]) if found else 0
                self.peak[kind] = max(self.peak.get(kind, 0), size)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def limited() -> None:
    """Has the kernel refuse this process more memory of its own."""
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))


def engine_of(kind: str, limit: bool) -> Any:
    """Where blocks are worked on."""
    from pyg_glif.distributed import InProcess, RayEngine

    if kind == "process":
        return InProcess()
    options: dict[str, Any] = {"num_cpus": 2, "object_store_memory": STORE}
    options["_temp_dir"] = "/tmp/glif_ray"
    if limit:
        # Here inside, or Ray would look for it in a module that workers have not.
        def hook() -> None:
            import resource

            resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))

        options["runtime_env"] = {"worker_process_setup_hook": hook}
    return RayEngine(num_workers=2, **options)


def in_memory(path: Path, tau: float, limit: bool) -> dict[str, Any]:
    """One machine's way: rows, edges and solve in memory."""
    from pyg_glif import edge_weights, fair_radius_graph, glif_solve
    from pyg_glif.graph import decay_of
    from pyg_glif.solvers import CG

    if limit:
        limited()
    seconds = {}
    start = time.perf_counter()
    x = torch.from_numpy(np.load(path))
    y = np.load(path.with_name(path.name.replace("rows", "outputs")))
    seconds["read"] = time.perf_counter() - start
    start = time.perf_counter()
    edges, sq_dist = fair_radius_graph(x, tau)
    seconds["search"] = time.perf_counter() - start
    start = time.perf_counter()
    weight = edge_weights(sq_dist, float(decay_of(None, tau)))
    solution = glif_solve(torch.from_numpy(y), edges, weight, lam=LAM, solver=CG())
    seconds["solve"] = time.perf_counter() - start
    return {
        "seconds": seconds,
        "num_edges": edges.size(1),
        "num_iter": solution.num_iter,
        "residual": float(solution.residual.max()),
        "error_bound": float(solution.error_bound.max()),
    }


def in_blocks(path: Path, tau: float, kind: str, limit: bool) -> dict[str, Any]:
    """People, edges and outputs in blocks on disk."""
    from pyg_glif.distributed import ShardedDataset, radius_graph, smooth

    folder = path.with_name(f"work-{path.stem}-{kind}-{int(limit)}")
    shutil.rmtree(folder, ignore_errors=True)
    if limit:
        limited()
    seconds = {}
    start = time.perf_counter()
    engine = engine_of(kind, limit)
    engine.num_workers  # noqa: B018  (connects)
    for _ in engine.run(abs, [1, 2], "warm"):
        pass
    seconds["start"] = time.perf_counter() - start
    if limit:
        kinds = [resource.RLIMIT_DATA] * 2
        for _, found in engine.run(resource.getrlimit, kinds, "limit"):
            assert found == (LIMIT, LIMIT)
    start = time.perf_counter()
    people = ShardedDataset.build(folder / "people", path, engine=engine)
    seconds["build"] = time.perf_counter() - start
    start = time.perf_counter()
    graph = radius_graph(people, tau, out=folder / "graph", engine=engine)
    seconds["search"] = time.perf_counter() - start
    start = time.perf_counter()
    outputs = path.with_name(path.name.replace("rows", "outputs"))
    fair = smooth(graph, outputs, lam=LAM, out=folder / "fair", engine=engine)
    seconds["solve"] = time.perf_counter() - start
    result = {
        "seconds": seconds,
        "num_edges": graph.num_edges,
        "num_blocks": people.num_blocks,
        "num_iter": fair.num_iter,
        "residual": float(fair.residual.max()),
        "error_bound": float(fair.error_bound.max()),
        "parts": fair.manifest["parts"],
    }
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    result["disk"] = size
    shutil.rmtree(folder, ignore_errors=True)
    if kind == "ray":
        import ray

        ray.shutdown()
    return result


def planned(path: Path, tau: float) -> dict[str, Any]:
    """What ``pyg-glif plan`` says about the run, from a sample of the rows."""
    from pyg_glif.distributed import plan

    size = len(np.load(path, mmap_mode="r"))
    found = plan(path, num_samples=size, workers=1, cores=2, tau=tau)
    hours = {"build": found.build_hours, "search": found.search_hours}
    hours["solve"] = found.solve_hours
    return {
        "seconds": {name: 3600.0 * value for name, value in hours.items()},
        "exponent": found.exponent,
        "measured": found.measured,
        "left": found.left,
    }


def _child(queue: Any, arguments: tuple[Any, ...]) -> None:
    how, path, tau, limit = arguments
    try:
        with Watch() as watch:
            if how == "memory":
                found = in_memory(path, tau, limit)
            elif how == "plan":
                found = planned(path, tau)
            else:
                found = in_blocks(path, tau, how, limit)
        queue.put({**found, "peak_memory": watch.peak})
    except BaseException as error:
        traceback.print_exc()
        queue.put({"error": f"{type(error).__name__}: {str(error)[:300]}"})


def measured(how: str, path: Path, tau: float, limit: bool = False) -> dict[str, Any]:
    """One way, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue, (how, path, tau, limit)))
    child.start()
    while True:
        try:
            found: dict[str, Any] = queue.get(timeout=5)
            break
        except Exception:
            if not child.is_alive():
                found = {"error": f"ended with code {child.exitcode}"}
                break
    child.join()
    print(how, "limited" if limit else "", json.dumps(found), flush=True)
    return found


def total(found: dict[str, Any]) -> float:
    """Seconds of build, search and solve; none where it failed."""
    seconds = found.get("seconds", {})
    return sum(seconds.get(step, 0.0) for step in ("build", "search", "solve"))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="+", help="memory, process, ray or plan")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--shared", action="store_true", help="others are at work, too")
    args = parser.parse_args(arguments)
    args.folder.mkdir(parents=True, exist_ok=True)
    for case in args.cases:
        kind, _, size = case.partition(":")
        path = rows_of(args.folder, int(size))
        note = path.with_suffix(".tau")
        if not note.exists():
            note.write_text(repr(radius_of(path)))
        tau = float(note.read_text())
        record = {"case": kind, "rows": int(size), "features": FEATURES, "tau": tau}
        if kind == "data":
            print(record)
            continue
        ways = {
            "time": [("memory", False), ("process", False), ("ray", False)],
            "grow": [("plan", False), ("memory", False), ("ray", False)],
            "limit": [("memory", True), ("ray", True)],
        }[kind]
        ways = [way for way in ways if way[0] in (args.only or way)]
        # In turn, for the machine is not equally fast at all times.
        turns = [
            [measured(how, path, tau, limit) for how, limit in ways]
            for _ in range(args.repeats)
        ]
        for (how, limit), runs in zip(ways, zip(*turns, strict=True), strict=True):
            row = {**record, "how": how, "limit": LIMIT if limit else None}
            row |= {"shared": args.shared, "totals": sorted(map(total, runs))}
            middle = sorted(runs, key=total)[len(runs) // 2]
            write("distributed", [{**row, **middle}], ("case", "rows", "how"))


if __name__ == "__main__":
    main(sys.argv[1:])
