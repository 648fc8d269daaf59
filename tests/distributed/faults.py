"""What is killed, and when; shared by the tests and the long campaign."""

import os
import signal
import subprocess
import sys
import threading
import time

import psutil

SLOW_VARIABLE = "PYG_GLIF_TEST_SLOW"


def workers(name):
    """Processes of Ray that run something whose name contains ``name``."""
    found = []
    for process in psutil.process_iter(["name", "cmdline"]):
        try:
            title = " ".join(process.cmdline()) or process.name()
            if title.startswith("ray::") and name in title and _is_ours(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_ours(process):
    """Whether a process belongs to a cluster that this process has started."""
    ours = psutil.Process().pid
    return any(parent.pid == ours for parent in process.parents())


class Killer(threading.Thread):
    """Kills a process of Ray at given moments, counted from when one is running.

    Args:
        name: What its title contains: ``_call`` for tasks, ``_Actor.run`` for members.
        delays: Seconds before each kill.
        random: Picks which one.
    """

    def __init__(self, name, delays, random):
        super().__init__(daemon=True)
        self._name, self._delays, self._random = name, delays, random
        self._over = threading.Event()
        self.killed = []

    def run(self):
        start = time.monotonic()
        for delay in self._delays:
            if not self._appears():
                return
            if self._over.wait(delay):
                return
            dead = {one["pid"] for one in self.killed}
            some = [one for one in workers(self._name) if one.pid not in dead]
            if not some:
                continue
            one = some[self._random.randrange(len(some))]
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            at = round(time.monotonic() - start, 2)
            self.killed.append({"pid": one.pid, "at": at})

    def _appears(self):
        while not self._over.is_set():
            if workers(self._name):
                return True
            time.sleep(0.02)
        return False

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self.join()


SEARCH = """
import sys
from pyg_glif.distributed import RayEngine, ShardedDataset, radius_graph
dataset, tau, out, temp = sys.argv[1:5]
engine = RayEngine(num_workers=2, num_cpus=2, object_store_memory=100 << 20,
                   _temp_dir=temp)
graph = radius_graph(ShardedDataset.open(dataset), float(tau), out=out, engine=engine)
print(graph.tasks.run, graph.tasks.reused, graph.num_edges)
"""


def search_in_a_driver(dataset, tau, out, temp):
    """Starts a search in a process of its own, with a cluster of its own."""
    words = [sys.executable, "-c", SEARCH, str(dataset), repr(tau), str(out), temp]
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill_all(process):
    """Kills a driver without warning, then what it leaves."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    for child in children:
        try:
            child.kill()
        except psutil.Error:
            continue
    psutil.wait_procs(children, timeout=10)
    for stream in (process.stdout, process.stderr):
        stream.close()


def damage(path, how):
    """Truncates a file, flips one bit of it, or deletes it."""
    data = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
        return
    if how == "truncated":
        data = data[:-7]
    else:
        data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
