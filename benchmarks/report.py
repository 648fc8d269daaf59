"""Writes tables of README.md and of the documentation from the files in results/.

Run ``python benchmarks/report.py`` after the benchmarks; it replaces what stands
between ``<!-- name -->`` and ``<!-- end -->``, so that no figure is typed by hand.
"""

import json
import math
import re
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import RESULTS, table

README = Path(__file__).parent / "README.md"
SCALES = Path(__file__).parents[1] / "docs" / "fair_tables.md"
MORE = Path(__file__).parents[1] / "docs" / "scale.md"


def _spread(value: dict[str, Any]) -> str:
    """Median, with the range where there was more than one run."""
    if "failed" in value:
        memory = "allocate memory" in value["failed"]
        return "out of memory" if memory else str(value["failed"])
    median = f"{value['median']:.3g} s"
    if value.get("runs", 1) < 2:
        return median
    return f"{median} ({value['min']:.3g} to {value['max']:.3g})"


def radius_graph(rows: list[dict[str, Any]]) -> str:
    """Our seconds, and how many times longer the others took."""
    peers = ("plain tiles", "FAISS", "scikit-learn")
    lines = []
    for row in rows:
        ours = row["seconds"]["pyg_glif"]
        cells = [row["data"], f"{row['rows']:,} x {row['features']}"]
        cells += [f"{row['degree']:.0f}", _spread(ours)]
        for peer in peers:
            other = row["seconds"].get(peer)
            cells.append(f"{other['median'] / ours['median']:.2f}x" if other else "")
        lines.append([*cells, f"{max(0.0, row['peak_extra_mib']):.0f} MiB"])
    header = ["data", "rows x features", "degree", "pyg_glif", *peers, "extra memory"]
    return table(header, lines)


def knn_graph(rows: list[dict[str, Any]]) -> str:
    """Our seconds, and how many times longer the others took."""
    peers = ("plain tiles", "FAISS", "scikit-learn")
    lines = []
    for row in rows:
        if "pyg_glif" not in row["seconds"]:
            continue
        ours = row["seconds"]["pyg_glif"]
        cells = [row["part"], f"{row['rows']:,} x {row['features']}"]
        cells += [row["clock"], _spread(ours)]
        for peer in peers:
            ratio = row["seconds"][peer]["median"] / ours["median"]
            cells.append(f"{ratio:.2f}x")
        cells += [f"{row['degree']:.1f}", f"{row['agree']:.0%}"]
        lines.append([*cells, f"{max(0.0, row['peak_extra_mib']):.0f} MiB"])
    header = ["data", "rows x features", "clock", "pyg_glif", *peers, "degree"]
    return table([*header, "of the nearest in float64", "extra memory"], lines)


def audit(rows: list[dict[str, Any]]) -> str:
    """An audit beside the fit that it judges."""
    lines = []
    for row in rows:
        if "audit" not in row["seconds"]:
            continue
        fit, done = row["seconds"]["fit"], row["seconds"]["audit"]
        cells = [row["part"], f"{row['rows']:,} x {row['features']}", row["clock"]]
        ratio = f"{done['median'] / fit['median']:.2f}x"
        lines.append([*cells, _spread(fit), _spread(done), ratio])
    header = ["data", "rows x features", "clock", "fit", "audit", "ratio"]
    return table(header, lines)


# Whose time is the unit of a part's ratios.
UNITS = {"backward": "forward", "path": "hardest lam", "grid": "9 x 151 path"}


def smoothing(rows: list[dict[str, Any]]) -> str:
    """Seconds, ratio to the unit of each part, and errors where known."""
    lines = []
    for row in rows:
        unit = UNITS.get(row["part"], "pyg_glif")
        first = row["seconds"][unit]["median"]
        names = sorted(row["seconds"], key=lambda name: name != unit)
        for name in names:
            value = row["seconds"][name]
            error = row.get("error", {}).get(name)
            cells = [row["part"], f"{row['rows']:,}", name, _spread(value)]
            median = value.get("median")
            cells.append("" if median is None else f"{median / first:.3g}x")
            lines.append([*cells, "" if error is None else f"{error:.1e}"])
    header = ["part", "rows", "contestant", "seconds", "ratio", "relative error"]
    return table(header, lines)


def huge(rows: list[dict[str, Any]]) -> str:
    """The largest case, alone."""
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['degree']:.0f}",
            f"{row['total_seconds']:.1f} s",
            f"{row['peak_gib']:.2f} GiB",
            f"{row['bound']:.1e}",
        ]
        for row in rows
        if row["part"] == "huge"
    ]
    header = ["rows", "degree", "seconds", "peak memory, input included", "error bound"]
    return table(header, lines)


def iterations(rows: list[dict[str, Any]]) -> str:
    """Iterations of one solve, with and without diagonal scaling."""
    lines = [
        [f"{entry['lam']:g}", str(entry["scaled"]), str(entry["unscaled"])]
        for row in rows
        for entry in row.get("iterations", [])
    ]
    return table(["lam", "scaled", "unscaled"], lines)


def inductive(rows: list[dict[str, Any]]) -> str:
    """Newcomers and metric learning; ratios to the first of each question."""
    lines = []
    for row in rows:
        timed = row.get("seconds", {})
        for name, value in timed.items():
            first = next(iter(timed.values()))["median"]
            ratio = f"{value['median'] / first:.2f}x"
            lines.append([row["question"], name, _spread(value), ratio, ""])
        for name, fit in row.get("fits", {}).items():
            if "error" in fit:
                lines.append([row["question"], name, fit["error"], "", ""])
                continue
            memory = f"{fit['extra_bytes'] / 2**30:.2f} GiB beyond the rows"
            seconds = f"{fit['seconds']:.3g} s"
            lines.append([row["question"], name, seconds, "", memory])
    return table(["question", "contestant", "seconds", "ratio", "memory"], lines)


def estimator(rows: list[dict[str, Any]]) -> str:
    """Seconds beside those of the model, as a ratio and as a difference."""
    lines = []
    for row in rows:
        first = next(iter(row["seconds"].values()))["median"]
        for name, value in row["seconds"].items():
            more = value["median"] - first
            cells = [row["question"], name, _spread(value)]
            cells.append(f"{value['median'] / first:.2f}x")
            lines.append([*cells, f"{1000 * more:,.1f} ms" if more else ""])
    header = ["question", "contestant", "seconds", "ratio", "beyond the model"]
    return table(header, lines)


def paper_scale_graph(rows: list[dict[str, Any]]) -> str:
    """The cases at the paper's size, and what is common to all methods."""
    lines = [
        [
            row["case"],
            f"{row['rows']:,} x {row['features']}, {row['outputs']}",
            f"{row['tau']:.3g}",
            f"{row['degree']:.0f}",
            f"{row['edges']:,}",
            f"{row['joined']:.1%}",
            _spread(row["embed"]),
            _spread(row["graph"]),
            f"{row['peak_extra_gib']:.2f} GiB",
        ]
        for row in rows
    ]
    header = ["case", "synthetic rows x features, outputs", "tau", "degree", "edges"]
    header += ["counterfactuals joined", "embedding", "graph", "extra memory"]
    return table(header, lines)


def paper_scale(rows: list[dict[str, Any]]) -> str:
    """Each method's time and evidence, beside the paper's batches."""
    lines = []
    for row in rows:
        paper = row["paper"]
        for name, method in row["methods"].items():
            first = [row["case"], name, f"{method['lam']:g}"]
            if "failed" in method:
                indefinite = "not positive definite" in method["failed"]
                reason = "no minimum at this lam" if indefinite else "not converged"
                lines.append([*first, reason, *[""] * 8])
                continue
            total = method["total"]["median"]
            cells = [_spread(method["solve"]), _spread(method["total"])]
            cells += [f"{method['one_thread']:.3g} s", f"{method['bound']:.1e}"]
            for scaled in (paper["scaled"], paper["scaled_matrix_product"]):
                alone = scaled / method["one_thread"]
                cells += [f"{scaled:,.0f} s", f"{scaled / total:,.0f}x ({alone:,.0f}x)"]
            published = row["published"] if name == "GLIF" else None
            cells.append("" if published is None else f"{published:,.0f} s")
            lines.append([*first, *cells])
    header = ["case", "method", "lam", "solve", "total", "total, one thread"]
    header += ["certified error", "coordinate descent (scaled)", "ratio (one thread)"]
    header += ["as matrix products (scaled)", "ratio (one thread)", "published"]
    return table(header, lines)


def if_constraints(rows: list[dict[str, Any]]) -> str:
    """Both ways to satisfy all pairs of words and names."""
    lines = []
    for row in rows:
        if row["part"] != "sentiment":
            continue
        ours = row["seconds"]["pyg_glif"]["median"]
        least = row["facts"]["pyg_glif"]["objective"]
        for name, seconds in row["seconds"].items():
            facts = row["facts"][name]
            cells = [f"{row['lipschitz']:g}", name, _spread(seconds)]
            cells.append(f"{seconds['median'] / ours:.3g}x")
            cells.append(f"{facts['objective'] / least - 1.0:+.1e}")
            own = name == "pyg_glif"
            cells += [f"{facts['violation']:.1e}"]
            cells += [f"{row['duality_gap']:.1e}" if own else ""]
            lines.append([*cells, f"{row['num_active']:,}" if own else ""])
    header = ["L", "contestant", "seconds", "ratio", "objective beside ours"]
    header += ["largest violation", "duality gap", "active pairs"]
    return table(header, lines)


def if_scaling(rows: list[dict[str, Any]]) -> str:
    """How the projection of one column grows."""
    lines = [
        [
            f"{row['rows']:,}",
            f"{row['rows'] * (row['rows'] - 1) // 2:,}",
            f"{row['num_active']:,}",
            _spread(row["seconds"]["pyg_glif"]),
            f"{max(0, row['extra_bytes']) / 2**20:.0f} MiB",
            f"{row['matrix_bytes'] / 2**20:.0f} MiB",
            f"{row['duality_gap']:.1e}",
            f"{row['max_violation']:.1e}",
        ]
        for row in rows
        if row["part"] == "scaling"
    ]
    header = ["rows", "pairs", "active pairs", "seconds", "extra memory"]
    header += ["one distance matrix", "duality gap", "largest violation"]
    return table(header, lines)


def decay(rows: list[dict[str, Any]], cap: float = 10.0) -> str:
    """Unfairness left at a loss of 0.01, as a share of the model's, for each ``c``.

    ``cap`` is the largest strength that counts.
    """
    left: dict[float, dict[str, list[float]]] = {}
    for row in rows:
        for found in row["found"]:
            if found["cap"] == cap:
                by_data = left.setdefault(found["c"], {})
                by_data.setdefault(row["data"], []).append(found["share"])
    names = list(dict.fromkeys(row["data"] for row in rows))
    mean = {
        c: [statistics.fmean(by_data[name]) for name in names]
        for c, by_data in left.items()
    }
    best = min(mean, key=lambda c: statistics.fmean(mean[c]))
    lines = []
    for c, shares in mean.items():
        # Each data set counts the same; so does each of its pairs of seed and degree.
        gap = [
            [a - b for a, b in zip(left[c][n], left[best][n], strict=True)]
            for n in names
        ]
        behind = statistics.fmean(statistics.fmean(values) for values in gap)
        error = math.sqrt(
            sum(statistics.variance(values) / len(values) for values in gap)
        ) / len(names)
        beside = "least" if c == best else f"+{behind:.3f} ± {error:.3f}"
        cells = [f"{share:.3f}" for share in (*shares, statistics.fmean(shares))]
        lines.append([f"{c:g}", *cells, beside])
    return table(["c", *names, "mean", "beside the least"], lines)


def tables_cost(rows: list[dict[str, Any]]) -> str:
    """Seconds, beside the first of each question."""
    lines = []
    for row in rows:
        if row["part"] != "cost":
            continue
        first = next(iter(row["seconds"].values()))["median"]
        for name, value in row["seconds"].items():
            ratio = f"{value['median'] / first:.2g}x"
            lines.append([row["case"], name, _spread(value), ratio])
    return table(["question", "contestant", "seconds", "ratio"], lines)


def tables_scales(rows: list[dict[str, Any]]) -> str:
    """What newcomers get under each scale; means of all halves."""
    lines = []
    for row in rows:
        if row["part"] != "scales":
            continue
        mean = {name: sum(v) / len(v) for name, v in row["facts"].items()}
        if not lines:
            before = [f"{mean['accuracy_before']:.4f}", f"{mean['flip_before']:.4f}"]
            lines.append(
                ["model as it is", *before, f"{mean['unlike_before']:.2%}", "-"]
            )
        cells = [f"{mean['accuracy_after']:.4f}", f"{mean['flip_after']:.4f}"]
        cells += [f"{mean['unlike_after']:.2%}", f"{mean['alone']:.0%}"]
        lines.append([row["case"], *cells])
    header = ["scale", "accuracy", "same decision after the flip"]
    header += ["man and woman within 0.1, unlike decisions", "without a neighbour"]
    return table(header, lines)


def tables_columns(rows: list[dict[str, Any]]) -> str:
    """The reach of correlated columns, and what all coordinates explain together."""
    found = {r["case"]: r["facts"] for r in rows if r["part"] == "columns"}
    names = [name for name in next(iter(found.values()), {}) if name.islower()]
    words = {
        "slope": "slope of the log-odds on the sum of coordinates",
        "explained": "share of the log-odds' variance that the sum explains",
    }
    lines = [
        [words.get(name, f"reach of `{name}`")]
        + [f"{facts[name]:.3g}" for facts in found.values()]
        for name in names
    ]
    return table(["", *(f"`{case}`" for case in found)], lines)


def tables_proxies(rows: list[dict[str, Any]]) -> str:
    """How well a regression on the coordinates tells the sex."""
    lines = [
        [
            row["case"],
            f"{row['facts']['told']:.1%}",
            f"{row['facts']['majority']:.1%}",
            f"{row['facts']['kept']:.0%}",
        ]
        for row in rows
        if row["part"] == "proxies"
    ]
    header = ["coordinates", "sex told right", 'by saying "male"', "variance kept"]
    return table(header, lines)


def tune_promise(rows: list[dict[str, Any]]) -> str:
    """What was promised and what newcomers lost, over all splits."""
    lines = []
    for entry in rows:
        if entry["part"] != "promise":
            continue
        names = [entry[name] for name in ("model", "scale", "design", "rule")]
        run = entry["splits"]
        num = len(run)
        mean = {
            key: statistics.fmean(row[key] for row in run)
            for key in ("loss", "told", "unfairness")
        }
        kept = sum(row["loss"] <= 0.01 + 1e-9 for row in run)
        # A loss beyond what was allowed may be chance, of the choice or of the test.
        said = sum(
            row["told_se"] is not None
            and row["loss"]
            <= row["told"] + 1.96 * math.hypot(row["told_se"], row["loss_se"])
            for row in run
            if row["loss"] > 0.01 + 1e-9
        )
        cells = [*names, f"{100 * mean['told']:.2f}", f"{100 * mean['loss']:.2f}"]
        cells += [f"{100 * max(row['loss'] for row in run):.1f}"]
        cells += [f"{kept} of {num}", f"{kept + said} of {num}"]
        lines.append([*cells, f"{mean['unfairness']:.0%}"])
    header = ["model", "columns", "outputs", "chosen", "loss told", "newcomers' loss"]
    header += ["worst", "within 1 point", "or within the interval", "unfairness left"]
    return table(header, lines)


def tune_cost(rows: list[dict[str, Any]]) -> str:
    """Seconds on Adult, and their ratio to the fits of the model."""
    timed = {row["rule"]: row["seconds"] for row in rows if row["part"] == "cost"}
    lines = [
        [name, f"{value:.1f} s", f"{value / timed['five fits of the model']:.2f}x"]
        for name, value in timed.items()
    ]
    return table(["contestant", "seconds", "ratio"], lines)


_MEASURES = ("balanced_accuracy", "consistency")


def task_effect(rows: list[dict[str, Any]]) -> str:
    """What validation texts chose, without and with the task effect."""
    lines = []
    for name in dict.fromkeys(row["data"] for row in rows):
        groups: dict[str, list[dict[str, Any]]] = {}
        seeds = [row for row in rows if row["data"] == name]
        for row in seeds:
            for found in row["found"]:
                if found["chosen"]:
                    groups.setdefault(found["method"], []).append(found)
        for method, found in groups.items():
            settings = (sorted({f[key] for f in found}) for key in ("sq_tau", "lam"))
            weights = sorted({f["weight"] for f in found} - {None})
            cells = [] if method == "Baseline" else [*settings, weights]
            cells = [", ".join(f"{v:g}" for v in cell) for cell in cells or [[]] * 3]
            means = [statistics.fmean(f[key] for f in found) for key in _MEASURES]
            lines.append(
                [name, str(len(seeds)), method, *cells, *(f"{m:.3f}" for m in means)]
            )
    header = ["data", "seeds", "method", "tau²", "lam", "weight"]
    return table([*header, "balanced accuracy", "consistency"], lines)


def task_front(rows: list[dict[str, Any]]) -> str:
    """Balanced accuracy / consistency along the radius, for every weight."""
    cells: dict[tuple[str, float], dict[Any, list[dict[str, Any]]]] = {}
    for row in rows:
        for found in row["found"]:
            sq_tau = found["sq_tau"]
            if sq_tau is not None and found["lam"] == row["lam"] and sq_tau >= 0.1:
                of_radius = cells.setdefault((row["data"], sq_tau), {})
                of_radius.setdefault(found["weight"], []).append(found)
    weights = list(next(iter(cells.values())))
    lines = []
    for (name, sq_tau), by_weight in cells.items():
        means = [
            " / ".join(
                f"{statistics.fmean(found[key] for found in by_weight[weight]):.3f}"
                for key in _MEASURES
            )
            for weight in weights
        ]
        lines.append([name, f"{sq_tau:g}", *means])
    heads = ["plain" if w is None else f"weight {w:g}" for w in weights]
    return table(["data", "tau²", *heads], lines)


def graphs(rows: list[dict[str, Any]]) -> str:
    """Seconds, how many times longer GUIDE trains, and memory beside a dense matrix."""
    lines = []
    for row in rows:
        seconds, held = row["seconds"], row["memory_mib"]
        for name, value in seconds.items():
            times = [
                f"{value['median'] / seconds[ours]['median']:.0f}x"
                if name.startswith("GUIDE")
                else ""
                for ours in held
            ]
            memory = ""
            if name in held:
                share = held[name] / row["dense_mib"]
                memory = f"{held[name]:.0f} MiB, {share:.1%} of dense"
            cells = [row["data"], f"{row['people']:,}", f"{row['pairs']:,}", name]
            lines.append([*cells, _spread(value), *times, memory])
    header = ["graph", "people", "similar pairs", "what", "seconds"]
    header += ["over GLIF", "over balanced GLIF", "extra memory"]
    return table(header, lines)


def serve(rows: list[dict[str, Any]]) -> str:
    """Throughput and times of requests, as ratios to the call in the process."""
    lines = []
    for row in rows:
        if row["part"] != "load":
            continue
        unit, first = row["in_process_seconds"], row["clients"][0]["per_second"]
        for one in row["clients"]:
            grown = (one["rss_after"] - one["rss_before"]) / 2**20
            lines.append(
                [
                    str(one["clients"]),
                    f"{one['requests']:,}",
                    str(one["errors"]),
                    f"{one['per_second'] * unit:.2f}x",
                    f"{one['per_second'] / first:.1f}x",
                    f"{one['p50'] / unit:.1f}x",
                    f"{one['p99'] / unit:.1f}x",
                    f"{grown:.0f} MiB",
                ]
            )
    header = ["clients", "requests", "errors", "requests per call", "to one client"]
    return table([*header, "p50", "p99", "memory grown"], lines)


def serve_reload(rows: list[dict[str, Any]]) -> str:
    """Requests while fits are exchanged."""
    lines = [
        [
            f"{row['requests']:,}",
            str(row["reloads"]),
            str(row["errors"]),
            f"{1e3 * row['p50']:.1f} ms",
            f"{1e3 * row['p99']:.1f} ms",
        ]
        for row in rows
        if row["part"] == "reload"
    ]
    return table(["requests", "fits taken", "errors", "p50", "p99"], lines)


def distributed(rows: list[dict[str, Any]]) -> str:
    """Seconds of each step, the whole against memory, and the memory it took."""
    names = {"memory": "in memory", "process": "blocks, this process"}
    names["ray"] = "blocks, Ray with two workers"
    whole = {
        (row["case"], row["rows"]): _steps(row)
        for row in rows
        if row["how"] == "memory" and "seconds" in row
    }
    lines = []
    order = list(names)
    kept = [row for row in rows if row["how"] in names]
    for row in sorted(
        kept, key=lambda r: (r["rows"], r["limit"] or 0, order.index(r["how"]))
    ):
        limit = f", {row['limit'] / 2**30:.3g} GiB each" if row["limit"] else ""
        limit += ", shared machine" if row.get("shared") else ""
        cells = [f"{row['rows']:,}", f"{names[row['how']]}{limit}"]
        if "seconds" not in row:
            lines.append([*cells, *[""] * 5, f"fails: {row['error'].split(':')[0]}"])
            continue
        seconds, base = row["seconds"], whole.get((row["case"], row["rows"]))
        cells.append(f"{row['num_edges'] / row['rows']:.0f}")
        for step in ("build", "search", "solve"):
            cells.append(f"{seconds[step]:.3g} s" if step in seconds else "")
        cells.append(f"{_steps(row) / base:.2f}x" if base else "")
        peak = row["peak_memory"]
        largest = max(peak.get("workers", 0), peak.get("driver", 0))
        lines.append([*cells, f"{largest / 2**30:.2f} GiB"])
    header = ["people", "how", "degree", "build", "search", "solve", "to memory"]
    return table([*header, "largest process"], lines)


def _steps(row: dict[str, Any]) -> float:
    """Seconds of build, search and solve: neither reading nor starting a cluster."""
    return sum(row["seconds"].get(step, 0.0) for step in ("build", "search", "solve"))


def _unlimited(rows: list[dict[str, Any]], how: str) -> dict[int, dict[str, Any]]:
    """Runs without a limit that were finished, by number of people."""
    kept = [row for row in rows if row["how"] == how and "seconds" in row]
    kept = [row for row in kept if row["limit"] is None]
    return {row["rows"]: row for row in sorted(kept, key=lambda row: row["rows"])}


def one_machine(rows: list[dict[str, Any]]) -> str:
    """What people in memory take."""
    lines = []
    for size, row in _unlimited(rows, "memory").items():
        seconds, peak = row["seconds"], row["peak_memory"]["driver"]
        cells = [f"{size:,}", f"{row['num_edges'] / size:.0f}"]
        cells += [f"{seconds[step]:.3g} s" for step in ("search", "solve")]
        lines.append([*cells, f"{peak / 2**30:.1f} GiB"])
    header = ["people", "neighbours each", "exact graph", "certified solve"]
    return table([*header, "peak memory, rows included"], lines)


def distributed_growth(rows: list[dict[str, Any]]) -> str:
    """How all steps together grow, in memory and on Ray."""
    runs = [_unlimited(rows, how) for how in ("memory", "ray")]
    lines: list[list[str]] = []
    before: tuple[int, list[float]] | None = None
    for size in sorted(set(runs[0]) & set(runs[1])):
        took = [_steps(one[size]) for one in runs]
        cells = [f"{size:,}", *(f"{value:.3g} s" for value in took)]
        cells.append(f"{took[1] / took[0]:.2f}x")
        for how in range(2):
            power = ""
            if before is not None:
                ratio = math.log(took[how] / before[1][how])
                power = f"n^{ratio / math.log(size / before[0]):.2f}"
            cells.append(power)
        lines.append(cells)
        before = size, took
    header = ["people", "in memory", "on Ray", "ratio", "growth in memory"]
    return table([*header, "growth on Ray"], lines)


def distributed_plan(rows: list[dict[str, Any]]) -> str:
    """What the plan said and what was measured, step by step and in all."""
    measured = _unlimited(rows, "ray")
    lines = []
    for size, row in _unlimited(rows, "plan").items():
        if size not in measured:
            continue
        cells = [f"{size:,}", f"n^{row['exponent']:.2f}"]
        for step in ("build", "search", "solve"):
            said, took = row["seconds"][step], measured[size]["seconds"][step]
            cells.append(f"{said:.3g} / {took:.3g} s")
        lines.append([*cells, f"{_steps(row) / _steps(measured[size]):.2f}"])
    header = ["people", "growth in the sample", "build", "search", "solve"]
    return table([*header, "planned / measured"], lines)


def arithmetic(rows: list[dict[str, Any]]) -> str:
    """What 100 workers of 8 cores at 70% would take, from what two cores took."""
    runs = _unlimited(rows, "memory")
    small, large = min(runs), max(runs)
    took = {size: runs[size]["seconds"]["search"] for size in (small, large)}
    power = math.log(took[large] / took[small]) / math.log(large / small)
    tiles = json.loads((RESULTS / "radius_graph.json").read_text())["rows"]
    tiles = [row for row in tiles if "plain tiles" in row["seconds"]]
    plain = max(tiles, key=lambda row: (row["features"], row["rows"]))
    cores, workers = 2, 100
    share = cores / (workers * 8 * 0.7)
    lines = []
    for exponent in (7, 8, 9):
        people = 10.0**exponent
        pruned = [took[large] * (people / large) ** p for p in (power, 2.0)]
        whole = plain["seconds"]["plain tiles"]["median"]
        whole *= (people / plain["rows"]) ** 2
        here = people / workers
        cells = [f"10^{exponent}", _bytes(people * 768 * 4), _bytes(people * 40 * 8)]
        cells += [_duration(seconds * share) for seconds in (*pruned, whole)]
        cells += [_bytes(here * (12 * 2 * 8 + 32 * 40)), _bytes(here * 2.5 * 2 * 8)]
        lines.append(cells)
    header = ["people", "rows", "edges", f"search at n^{power:.2f}"]
    header += ["at n^2 with today's pruning", "unpruned"]
    return table([*header, "a worker in the solve", "halo per iteration"], lines)


def _bytes(size: float) -> str:
    """A size in the unit that suits it."""
    for unit in ("MB", "GB", "TB"):
        size /= 1000.0 if unit != "MB" else 1e6
        if size < 1000.0:
            break
    return f"{size:.2g} {unit}" if size < 100.0 else f"{size:.0f} {unit}"


def _duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * length:
            many = seconds / length
            return f"{many:.2g} {unit}" if many < 100.0 else f"{many:.0f} {unit}"
    return f"{seconds:.2g} s"


def chaos(rows: list[dict[str, Any]]) -> str:
    """What was done to a run when, and whether its result was the same."""
    lines = []
    for row in rows:
        if row["fault"] == "none":
            continue
        told = []
        if row.get("killed"):
            moments = ", ".join(f"{one['at']:.1f}" for one in row["killed"])
            told.append(f"killed {len(row['killed'])}, after {moments} s")
        if "rebuilds" in row:
            told.append(f"group built anew {row['rebuilds']}x")
            told.append(f"differs by {max(row['gap']):.0e}, {max(row['bound']):.0e}")
            told[-1] += " certified"
        if "after" in row:
            told.append(f"after {row['after']:.1f} s")
        if "file" in row:
            told.append(f"`{row['file']}`")
        if "done_before" in row:
            told.append(f"tasks done before: {row['done_before']}")
            told.append(f"run after: {row['run_after']}")
            told.append(f"reused: {row['reused_after']}")
        if row.get("message"):
            told.append(row["message"])
        if "tasks_run" in row:
            reused = f", reused: {row['tasks_reused']}" if "tasks_reused" in row else ""
            told.append(f"tasks run: {row['tasks_run']}{reused}")
        same = "yes" if row["same_result"] else "**no**"
        lines.append([f"{row['time']:.0f} s", row["fault"], "; ".join(told), same])
    return table(["at", "fault", "what happened", "same result"], lines)


def _fill(text: str, name: str, content: str) -> str:
    """Replaces what stands between the markers of one table."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"The page has no place for '{name}'")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def main() -> None:
    tables: dict[str, tuple[str, Callable[[list[dict[str, Any]]], str]]] = {
        "radius_graph": ("radius_graph", radius_graph),
        "knn_graph": ("knn_graph", knn_graph),
        "audit": ("knn_graph", audit),
        "smoothing": ("smoothing", smoothing),
        "huge": ("smoothing", huge),
        "iterations": ("smoothing", iterations),
        "inductive": ("inductive", inductive),
        "estimator": ("estimator", estimator),
        "if_constraints": ("if_constraints", if_constraints),
        "if_scaling": ("if_constraints", if_scaling),
        "paper_scale_graph": ("paper_scale", paper_scale_graph),
        "paper_scale": ("paper_scale", paper_scale),
        "tune_promise": ("tune_promise", tune_promise),
        "tune_cost": ("tune_promise", tune_cost),
        "task_effect": ("task_effect", task_effect),
        "task_front": ("task_effect", task_front),
        "serve": ("serve", serve),
        "serve_reload": ("serve", serve_reload),
        "distributed": ("distributed", distributed),
        "distributed_growth": ("distributed", distributed_growth),
        "distributed_plan": ("distributed", distributed_plan),
        "decay": ("decay", decay),
        "decay_any": ("decay", partial(decay, cap=1000.0)),
        "tables_cost": ("tables", tables_cost),
        "graphs": ("graphs", graphs),
    }
    scales = {
        "tables_scales": ("tables", tables_scales),
        "tables_columns": ("tables", tables_columns),
        "tables_proxies": ("tables", tables_proxies),
    }
    more = {
        "one_machine": ("distributed", one_machine),
        "distributed": ("distributed", distributed),
        "distributed_growth": ("distributed", distributed_growth),
        "distributed_plan": ("distributed", distributed_plan),
        "arithmetic": ("distributed", arithmetic),
        "chaos": ("chaos", chaos),
    }
    for page, places in ((README, tables), (SCALES, scales), (MORE, more)):
        text = page.read_text()
        for name, (file, render) in places.items():
            path = RESULTS / f"{file}.json"
            if path.exists():
                rows = json.loads(path.read_text())["rows"]
                text = _fill(text, name, render(rows))
        page.write_text(text)


if __name__ == "__main__":
    main()
