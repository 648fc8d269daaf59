"""The long campaign: what is killed, when, and that the result is the same.

``make chaos`` runs it (``SEED=n`` for other moments). Every fault is written to
``--record`` with its time and its verdict as soon as it is known. The graph is compared
byte for byte with that of :func:`pyg_glif.fair_radius_graph`, a solve with one that
nothing happened to, within the certified errors. ``benchmarks/report.py`` makes a table
of the record.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

from pyg_glif import fair_radius_graph
from pyg_glif.distributed import RayEngine, ShardedDataset, radius_graph, smooth
from pyg_glif.solvers import CG
from tests.distributed import faults
from tests.distributed.samples import degree_radius, embedding_like

STORE = 200 << 20


class Campaign:
    """One run: samples, the right answers, and the record."""

    def __init__(self, seed, num, kills, folder, record):
        self.random, self.kills = random.Random(seed), kills
        self.folder, self.path = folder, record
        self.temp = tempfile.mkdtemp(prefix="glif", dir="/tmp")
        self.started = time.monotonic()
        self.record = {"seed": seed, "dataset": num, "rows": []}
        self.x = embedding_like(num, 256, seed)
        np.save(folder / "x.npy", self.x)
        self.tau = degree_radius(self.x[:6000], 12 * 6000 // num + 1)
        self.expected = fair_radius_graph(torch.from_numpy(self.x), self.tau)[0]
        y = np.random.default_rng(seed).random((num, 2))
        np.save(folder / "y.npy", y)

    def say(self, what, ok, **more):
        """Writes an event to the record, at once."""
        event = {"time": round(time.monotonic() - self.started, 2)}
        event |= {"fault": what, "same_result": bool(ok), **more}
        self.record["rows"].append(event)
        self.path.write_text(json.dumps(self.record, indent=1) + "\n")
        print(event, flush=True)

    def same(self, graph):
        """Whether a graph is the right one, byte for byte."""
        found = graph.to_edges()[0].numpy().tobytes()
        return found == self.expected.numpy().tobytes()

    def engine(self, **options):
        return RayEngine(
            num_workers=2,
            **{
                "num_cpus": 2,
                "object_store_memory": STORE,
                "_temp_dir": self.temp,
                **options,
            },
        )

    def run(self, only=None):
        """All faults, or one; says whether no result differed."""
        import ray

        engine = self.engine()
        self.dataset = self.built(engine)
        start = time.monotonic()
        self.graph = self.search("g", engine)
        self.took = time.monotonic() - start
        self.say("none", self.same(self.graph), seconds=round(self.took, 2))
        on_this = (self.killed_workers, self.twice, self.damaged, self.solves)
        for fault in on_this:
            if only in (None, fault.__name__):
                fault(engine)
        # The others have clusters, or disks, of their own.
        ray.shutdown()
        for fault in (self.lost_node, self.killed_driver, self.full_disk):
            if only in (None, fault.__name__):
                fault()
        shutil.rmtree(self.temp, ignore_errors=True)
        return all(event["same_result"] for event in self.record["rows"])

    def built(self, engine):
        """The samples, in blocks."""
        rows, folder = self.folder / "x.npy", self.folder / "dataset"
        return ShardedDataset.build(folder, rows, block_rows=1000, engine=engine)

    def search(self, name, engine):
        """Their graph, in a folder of this name."""
        out = self.folder / name
        return radius_graph(self.dataset, self.tau, out=out, engine=engine)

    def killed_workers(self, engine):
        """SIGKILL of a worker at random moments of the search."""
        done = 0
        while done < self.kills:
            shutil.rmtree(self.folder / "killed", ignore_errors=True)
            moments = [self.random.uniform(0.0, self.took / 4) for _ in range(4)]
            with faults.Killer("_call", moments, self.random) as killer:
                graph = self.search("killed", engine)
            done += len(killer.killed)
            self.say("SIGKILL of workers", self.same(graph), killed=killer.killed)

    def twice(self, engine):
        """All tasks by two drivers' loops at the same time, into one folder."""
        other = threading.Thread(target=self.search, args=("twice", "process"))
        other.start()
        try:
            graph = self.search("twice", engine)
        except (OSError, ValueError) as error:
            # The other one may have finished, and removed its work, in between.
            graph = self.search("twice", engine)
            print("again after", error)
        other.join()
        self.say("every task twice", self.same(graph))

    def damaged(self, engine):
        """Shards of edges and of samples: truncated, one bit flipped, deleted."""
        out = self.folder / "g"
        for how in ("truncated", "flipped", "deleted"):
            files = sorted((out / "edges").glob("*.npy"))
            path = files[self.random.randrange(len(files))]
            faults.damage(path, how)
            graph = self.search("g", engine)
            self.say(
                f"shard of edges {how}",
                self.same(graph),
                file=path.name,
                tasks_run=graph.tasks.run,
            )
            files = sorted((self.folder / "dataset" / "blocks").glob("*.npy"))
            path = files[self.random.randrange(len(files))]
            faults.damage(path, how)
            self.dataset = self.built(engine)
            shutil.rmtree(out)
            graph = self.search("g", engine)
            self.say(f"block of dataset {how}", self.same(graph), file=path.name)
        self.graph = graph

    def solves(self, engine):
        """A member of a solve killed, early, in the middle and late."""
        options = {"lam": 300.0, "solver": CG(deflate=False)}
        graph, y = self.graph, self.folder / "y.npy"
        right = smooth(graph, y, out=self.folder / "fair", engine="process", **options)
        for turn in range(3):
            lost = self.engine(checkpoint_every=2)
            moment = self.random.uniform(0.5, 4.0)
            with faults.Killer("_Actor.run", [moment], self.random) as killer:
                fair = smooth(
                    graph, y, out=self.folder / f"fair{turn}", engine=lost, **options
                )
            gap = (fair.value - right.value).norm(dim=0)
            ok = (gap <= fair.error_bound + right.error_bound).all()
            self.say(
                "SIGKILL of a member in mid-solve",
                ok and fair.status.name == "CONVERGED",
                killed=killer.killed,
                rebuilds=lost.num_rebuilds,
                gap=gap.tolist(),
                bound=fair.error_bound.tolist(),
            )

    def lost_node(self):
        """A node removed without warning in the middle of a search."""
        import ray
        from ray.cluster_utils import Cluster

        options = {"num_cpus": 1, "object_store_memory": STORE}
        cluster = Cluster(initialize_head=True, head_node_args=options)
        node = cluster.add_node(**options)
        ray.init(address=cluster.address, log_to_driver=False)
        moment = self.random.uniform(0.3, max(0.6, self.took / 2))

        def remove():
            time.sleep(moment)
            cluster.remove_node(node, allow_graceful=False)

        thief = threading.Thread(target=remove)
        thief.start()
        graph = self.search("node", RayEngine(num_workers=2))
        thief.join()
        self.say("node removed", self.same(graph), after=round(moment, 2))
        ray.shutdown()
        cluster.shutdown()

    def killed_driver(self):
        """The driver killed and started again: only missing tiles run."""
        out = self.folder / "driver"
        dataset = self.folder / "dataset"
        first = faults.search_in_a_driver(dataset, self.tau, out, self.temp)
        work = out / "work"
        total = self.dataset.num_blocks
        wanted = self.random.randrange(2, total - 2)
        while len(list(work.glob("0*.json"))) < wanted and first.poll() is None:
            time.sleep(0.02)
        faults.kill_all(first)
        done = len(list(work.glob("0*.json")))
        second = faults.search_in_a_driver(dataset, self.tau, out, self.temp)
        said, error = second.communicate(timeout=300)
        ran, reused, _ = map(int, said.split()) if said else (-1, -1, -1)
        graph = self.search("driver", "process")
        self.say(
            "SIGKILL of the driver, started again",
            self.same(graph) and reused == done,
            done_before=done,
            run_after=ran,
            reused_after=reused,
            error=error[-300:] if not said else "",
        )

    def full_disk(self):
        """A small disk that fills up while edges are written, and has room again."""
        out = self.folder / "disk"
        out.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(out)],
            capture_output=True,
        )
        if mounted.returncode:
            self.say("disk full", True, skipped="no right to mount one")
            return
        ballast = out / "ballast"

        def fill():
            while not list((out / "work").glob("0*.json")):
                time.sleep(0.01)
            with contextlib.suppress(OSError), open(ballast, "wb", 0) as file:
                while True:
                    file.write(bytes(4096))

        other = threading.Thread(target=fill, daemon=True)
        other.start()
        message = ""
        try:
            try:
                self.search("disk", "process")
            except OSError as error:
                message = f"{type(error).__name__}: {error}"
            other.join()
            ballast.unlink()
            graph = self.search("disk", "process")
            self.say(
                "disk full while writing, then room again",
                self.same(graph) and bool(message),
                message=message.split(": '")[0],  # without the name of the file
                tasks_run=graph.tasks.run,
                tasks_reused=graph.tasks.reused,
            )
        finally:
            subprocess.run(["umount", str(out)], check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dataset", type=int, default=30_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--record", type=Path, default=Path("chaos.json"))
    parser.add_argument("--only", help="one fault, by the name of its method")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="chaos") as folder:
        record = args.record.resolve()
        campaign = Campaign(args.seed, args.dataset, args.kills, Path(folder), record)
        ok = campaign.run(args.only)
    print("all results the same" if ok else "SOME RESULT DIFFERS", "-", args.record)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
