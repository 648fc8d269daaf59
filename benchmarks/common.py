"""What every benchmark needs: timing side by side, peak memory, a record."""

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from scipy.stats import beta

from experiments.peak_memory import PeakMemory as PeakMemory

RESULTS = Path(__file__).parent / "results"


def interleaved(
    contestants: dict[str, Callable[[], Any]],
    repeats: int = 3,
    once: tuple[str, ...] = (),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, dict[str, float]]:
    """Runs everybody in turn, ``repeats`` times; median and spread in seconds.

    Those named in ``once`` run in the first round only. On a busy machine
    ``time.process_time`` leaves out the time that others had the processor.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(repeats):
        for name, run in contestants.items():
            if turn and name in once:
                continue
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: spread(values) for name, values in seconds.items()}


def spread(values: list[float]) -> dict[str, float]:
    """Median and range of some runs."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "runs": len(values),
    }


def in_fresh_process(run: Callable[..., Any], *args: Any) -> Any:
    """What ``run`` returns in a process of its own: nothing else in its memory."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(run, *args).result()


def environment() -> dict[str, Any]:
    """Versions, threads and commit: what a figure depends on."""
    packages = ["torch", "torch-geometric", "numpy", "scipy", "scikit-learn"]
    packages += ["faiss-cpu", "inFairness", "cvxpy", "scs", "pyg_glif"]
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    command = ["git", "rev-parse", "--short", "HEAD"]
    here = Path(__file__).parent
    commit = subprocess.run(command, capture_output=True, text=True, cwd=here)
    return {
        "packages": found,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "commit": commit.stdout.strip() or None,
    }


def write(name: str, rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
    """Writes rows and environment to one JSON file.

    Rows of an earlier run that have other values under ``key`` stay, so that a part
    can be measured again by itself; each row carries its own environment.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    here = environment()
    new = [{**row, "environment": here} for row in rows]
    seen = {tuple(row[k] for k in key): row for row in [*old, *new]}
    path.write_text(json.dumps({"rows": list(seen.values())}, indent=1) + "\n")


def share(count: int, num: int) -> str:
    """A share and its exact 95% interval (Clopper and Pearson)."""
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, num - count + 1))
    high = 1.0 if count == num else float(beta.ppf(0.975, count + 1, num - count))
    return f"{count / num:.1%} ({low:.1%} to {high:.1%})"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)
