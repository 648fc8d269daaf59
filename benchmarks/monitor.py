"""What does the monitor promise, what does it find, and what does it cost?

Run ``python benchmarks/monitor.py`` (about twenty minutes on one core, the part *cost*
4 GiB), or name parts: ``python benchmarks/monitor.py null delay drift cost``.

*null*: streams of served people whose mean disparity is at the limit, looked at after
every person: share of streams with an alarm ever, and share whose mean was outside of
the interval at some time. Beside it a naive test: the usual one-sided z-test at the
same level, repeated every ten people. The mean of the streams *above the limit* is not
what the null hypothesis says.
*delay*: people from a change to the alarm; beside a test that was planned for a fixed
number of people, which says nothing before.
*drift*: fits and newcomers from one population, and from others.
*cost*: what the monitor adds to a transform, 78,686 fitted people x 768.
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import RESULTS, interleaved, share, table, write
from scipy.stats import norm

from pyg_glif import GLIFPostProcessor
from pyg_glif.guarantees.betting import Capital, MeanSequence
from pyg_glif.monitoring import DriftReference, TreatmentMonitor

DOCS = Path(__file__).parents[1] / "docs" / "results"
PAGE, FIGURE = DOCS / "guarantee_monitor.md", DOCS / "guarantee_monitor.png"
EPSILON, ALPHA, STREAMS, PEOPLE = 0.05, 0.05, 2000, 5000
PLANNED = 500  # people of the test with a fixed number
KEY = ("part", "stream")

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def shares(mean: float, spread: float = 4.0) -> Draw:
    """Disparities like those of scores: many small, some large."""
    return lambda rng, num, t: rng.beta(mean * spread, (1 - mean) * spread, num)


def decisions(mean: float) -> Draw:
    """Disparities like those of decisions against a single peer: 0 or 1."""
    return lambda rng, num, t: (rng.random(num) < mean).astype(float)


def wandering(mean: float) -> Draw:
    """Means that depend on the time, but never exceed the limit."""
    ahead = shares(mean)

    def draw(rng: np.random.Generator, num: int, t: int) -> np.ndarray:
        return ahead(rng, num, t) if t % 1000 < 500 else shares(mean / 2)(rng, num, t)

    return draw


NULL: dict[str, tuple[Draw, float | None]] = {
    "shares, mean at the limit": (shares(EPSILON), EPSILON),
    "0 or 1, mean at the limit": (decisions(EPSILON), EPSILON),
    "shares, mean 0.03": (shares(0.03), 0.03),
    "shares, at the limit and below it in turn": (wandering(EPSILON), None),
    "above the limit by 0.01": (shares(EPSILON + 0.01), EPSILON + 0.01),
}


def null(name: str) -> dict[str, Any]:
    """Alarms, intervals that failed, and alarms of the naive test, at any time."""
    draw, mean = NULL[name]
    rng = np.random.default_rng(0)
    test = Capital(EPSILON, STREAMS)
    held = MeanSequence(ALPHA, np.full(STREAMS, mean or EPSILON), STREAMS)
    total, squares = np.zeros(STREAMS), np.zeros(STREAMS)
    missed, naive = (np.zeros(STREAMS, dtype=bool) for _ in range(2))
    limit = math.log(2.0 / ALPHA)
    for t in range(PEOPLE):
        x = draw(rng, STREAMS, t)
        test.step(x)
        held.step(x)
        missed |= (held.above >= limit) | (held.below >= limit)
        total += x
        squares += x * x
        if t >= 29 and t % 10 == 9:
            naive |= z_score(total, squares, t + 1) > norm.ppf(1 - ALPHA)
    return {
        "part": "null",
        "stream": name,
        "streams": STREAMS,
        "people": PEOPLE,
        "alarms": int((test.peak >= -math.log(ALPHA)).sum()),
        "missed": None if mean is None else int(missed.sum()),
        "naive": int(naive.sum()),
    }


GROUPS = "everybody and two groups, all at the limit"


def grouped() -> dict[str, Any]:
    """The same for everybody and two groups in turn, with a third of alpha each."""
    rng, draw, level = np.random.default_rng(2), shares(EPSILON), ALPHA / 3
    wrong, missed = (np.zeros(STREAMS, dtype=bool) for _ in range(2))
    tests = [Capital(EPSILON, STREAMS) for _ in range(3)]
    mean = np.full(STREAMS, EPSILON)
    held = [MeanSequence(level, mean, STREAMS) for _ in range(3)]
    for t in range(PEOPLE):
        x = draw(rng, STREAMS, t)
        for k in (0, 1 + t % 2):
            tests[k].step(x)
            held[k].step(x)
            wrong |= tests[k].peak >= -math.log(level)
            limit = math.log(2.0 / level)
            missed |= (held[k].above >= limit) | (held[k].below >= limit)
    return {
        "part": "null",
        "stream": GROUPS,
        "streams": STREAMS,
        "people": PEOPLE,
        "alarms": int(wrong.sum()),
        "missed": int(missed.sum()),
        "naive": None,
    }


def z_score(total: np.ndarray, squares: np.ndarray, num: int) -> np.ndarray:
    """How many standard errors the mean is above the limit."""
    mean = total / num
    error = np.sqrt(np.maximum(squares / num - mean * mean, 1e-12) / num)
    return (mean - EPSILON) / error


DELAYS = {
    "0.07 from the start": (0, 0.07),
    "0.1 from the start": (0, 0.1),
    "0.2 from the start": (0, 0.2),
    "0.03, then 0.1 after 1,000 people": (1000, 0.1),
    "0.03, then 0.1 after 10,000 people": (10_000, 0.1),
    "0.03, then 0.2 after 10,000 people": (10_000, 0.2),
}


def delay(name: str, streams: int = 500, longest: int = 3000) -> dict[str, Any]:
    """People after the change until the alarm."""
    start, mean = DELAYS[name]
    rng = np.random.default_rng(1)
    test = Capital(EPSILON, streams)
    total, squares = np.zeros(streams), np.zeros(streams)
    when, planned = np.full(streams, np.inf), 0.0
    for t in range(start + longest):
        x = shares(0.03 if t < start else mean)(rng, streams, t)
        test.step(x)
        total += x
        squares += x * x
        now = (test.peak >= -math.log(ALPHA)) & np.isinf(when)
        when[now] = t + 1 - start
        if t + 1 == PLANNED:
            rejected = z_score(total, squares, t + 1) > norm.ppf(1 - ALPHA)
            planned = float(rejected.mean())
        if not np.isinf(when).any() and t + 1 >= PLANNED:
            break
    early = float((when <= 0).mean())
    return {
        "part": "delay",
        "stream": name,
        "streams": streams,
        "found": float(np.isfinite(when).mean()),
        "early": early,
        "delays": [float(np.quantile(when, q)) for q in (0.1, 0.5, 0.9)],
        "planned": planned,
        "planned_people": PLANNED,
    }


def square(num: int, rng: torch.Generator, shift: float = 0.0) -> torch.Tensor:
    """People in a square, most of them near one corner."""
    x = torch.rand(num, 2, generator=rng, dtype=torch.float64)
    return x * x + shift


def crowd(num: int, rng: torch.Generator) -> torch.Tensor:
    """Those of the square who are near the corner."""
    return square(num, rng) / 4


DRIFTS: dict[str, dict[str, Any]] = {
    "the same population, radius": {"tau": 0.05},
    "the same population, radius that is suggested": {"target_degree": 5},
    "the same population, k = 5": {"k": 5},
    "moved by 0.05, radius": {"tau": 0.05, "shift": 0.05},
    "moved by 0.05, radius, 2,000 fitted": {"tau": 0.05, "shift": 0.05, "num": 2000},
    "moved by 0.2, radius": {"tau": 0.05, "shift": 0.2},
    "moved by 0.2, k = 5": {"k": 5, "shift": 0.2},
    "crowded where most were, radius": {"tau": 0.05, "crowd": True},
}


def drift(name: str, fits: int = 300, people: int = 600) -> dict[str, Any]:
    """Alarms of the test for drift, over fits and newcomers."""
    options = dict(DRIFTS[name])
    shift, crowded = options.pop("shift", 0.0), options.pop("crowd", False)
    num = options.pop("num", 400)
    alarms, when = 0, []
    for seed in range(fits):
        rng = torch.Generator().manual_seed(seed)
        x = square(num, rng)
        post = GLIFPostProcessor(**options, progress=False).fit(x, x[:, 0])
        reference = DriftReference.of(post, generator=rng)
        monitor = TreatmentMonitor(0.5, drift=reference)
        new = crowd(people, rng) if crowded else square(people, rng, shift)
        info = post.transform_info(new, new[:, 0].clamp(max=1.0))
        nearest = info.neighbors.nearest()
        alone = torch.isinf(nearest)
        for first in range(0, people, 50):
            part = slice(first, first + 50)
            gaps = [None if one else 0.0 for one in alone[part].tolist()]
            monitor.update(gaps, nearest=nearest[part])
            if monitor.drift_alarm:
                break
        alarms += monitor.drift_alarm
        if monitor.drift_alarm:
            when.append(min(monitor.alarms.values()))
    return {
        "part": "drift",
        "stream": name,
        "streams": fits,
        "people": people,
        "alarms": alarms,
        "delay": float(np.median(when)) if when else None,
    }


def cost(fitted: int = 78_686, new: int = 400) -> list[dict[str, Any]]:
    """Milliseconds a person: a transform, and what the monitor adds."""
    from inductive import Served

    served = Served(fitted, new)
    served.y = torch.softmax(served.y, 1)
    served.post.fit(served.x[:fitted], served.y[:fitted])
    served.new(slice(fitted, fitted + 1))  # the first call builds the index
    start = time.perf_counter()
    reference = DriftReference.of(served.post)
    once = time.perf_counter() - start
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, new):
            row = cost_of(served, size, min(new, 100 * size), reference, folder)
            rows.append({**row, "reference_seconds": once})
            print(rows[-1], flush=True)
    return rows


def cost_of(
    served: Any, size: int, count: int, reference: DriftReference, folder: str
) -> dict[str, Any]:
    """The same for people who come in batches of one size."""
    ids = iter(range(10**9))
    shared: dict[str, Any] = {"groups": ["a", "b"], "drift": reference}
    journal = f"{folder}/{size}.db"
    monitors = {
        "in memory": TreatmentMonitor(0.5, **shared),
        "with a journal": TreatmentMonitor(0.5, **shared, journal=journal),
    }

    def blocks(act: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        for first in range(served.size, served.size + count, size):
            part = slice(first, first + size)
            act(served.x[part], served.y[part])

    def watched(monitor: TreatmentMonitor) -> Callable[[], None]:
        def serve(x: torch.Tensor, y: torch.Tensor) -> None:
            names = [next(ids) for _ in range(len(x))]
            monitor.observe(served.post, x, y, group=["a"] * len(x), id=names)

        return lambda: blocks(serve)

    runs = {name: watched(one) for name, one in monitors.items()}
    runs = {"transform": lambda: blocks(served.post.transform), **runs}
    # Processor time: the machine may have others to serve.
    seconds = interleaved(runs, 7, clock=time.process_time)
    each = {name: 1e3 * found["median"] / count for name, found in seconds.items()}
    for one in monitors.values():
        one.close()
    return {
        "part": "cost",
        "stream": "one by one" if size == 1 else f"{size} together",
        "transform_ms": each["transform"],
        "added_ms": {name: each[name] - each["transform"] for name in monitors},
    }


def page(rows: list[dict[str, Any]]) -> str:
    """All tables."""
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["part"], []).append(row)
    out = []
    if "null" in parts:
        head = ["stream", "claimed", "alarm ever", "mean ever outside of the interval"]
        lines = []
        for row in parts["null"]:
            above = row["stream"].startswith("above")
            lines.append(
                [
                    row["stream"],
                    f"at most {ALPHA:.0%}" + (" (interval)" if above else ""),
                    share(row["alarms"], row["streams"]),
                    ""
                    if row["missed"] is None
                    else share(row["missed"], row["streams"]),
                    "" if row["naive"] is None else share(row["naive"], row["streams"]),
                ]
            )
        out.append(table([*head, "naive test, repeated"], lines))
    if "delay" in parts:
        lines = []
        for row in parts["delay"]:
            low, middle, high = row["delays"]
            after = row["stream"].endswith("people")
            lines.append(
                [
                    row["stream"],
                    f"{middle:.0f} ({low:.0f} to {high:.0f})",
                    f"{row['found']:.0%}",
                    "before the change" if after else f"{row['planned']:.0%}",
                ]
            )
        head = ["mean disparity (allowed 0.05)", "people until the alarm (80%)"]
        head += ["found", f"test of exactly {PLANNED} people finds it"]
        out.append(table(head, lines))
    if "drift" in parts:
        proved = {"the same population, radius", "the same population, k = 5"}
        lines = [
            [
                row["stream"],
                "at most 5%" if row["stream"] in proved else "nothing",
                share(row["alarms"], row["streams"]),
                "" if row["delay"] is None else f"{row['delay']:.0f}",
            ]
            for row in sorted(
                parts["drift"], key=lambda r: [*DRIFTS].index(r["stream"])
            )
        ]
        head = ["newcomers", "claimed", "alarm for drift, ever"]
        out.append(table([*head, "people until then"], lines))
    if "cost" in parts:
        lines = [
            [
                row["stream"],
                f"{row['transform_ms']:.2f} ms",
                *(f"{value:.2f} ms" for value in row["added_ms"].values()),
            ]
            for row in parts["cost"]
        ]
        head = ["people come", "transform, a person", "the monitor adds"]
        out.append(table([*head, "with a journal"], lines))
    return "\n\n".join(out)


def figure() -> None:
    """One stream that changes: mean, interval and evidence."""
    rng = np.random.default_rng(3)
    monitor = TreatmentMonitor(EPSILON, groups=["a", "b"])
    for t in range(4000):
        group = "a" if t % 2 else "b"
        mean = 0.12 if group == "a" and t >= 2000 else 0.03
        monitor.update(float(shares(mean)(rng, 1, t)[0]), group)
    monitor.plot().savefig(FIGURE, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["null", "delay", "drift", "cost"])
    parts = parser.parse_args().parts
    torch.set_num_threads(1)
    for name, cases, run in (
        ("null", NULL, null),
        ("delay", DELAYS, delay),
        ("drift", DRIFTS, drift),
    ):
        for case in cases if name in parts else ():
            write("monitor", [run(case)], KEY)
            print(name, case, flush=True)
    if "null" in parts:
        write("monitor", [grouped()], KEY)
    if "cost" in parts:
        write("monitor", cost(), KEY)
    rows = json.loads((RESULTS / "monitor.json").read_text())["rows"]
    PAGE.write_text(page(rows) + "\n")
    figure()
    print(PAGE.read_text())


if __name__ == "__main__":
    main()
