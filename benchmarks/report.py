"""Writes the tables of README.md from the JSON files in results/.

Run ``python benchmarks/report.py`` after the benchmarks; it replaces what stands
between ``<!-- name -->`` and ``<!-- end -->``, so that no figure is typed by hand.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import RESULTS, table

README = Path(__file__).parent / "README.md"


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


def _fill(text: str, name: str, content: str) -> str:
    """Replaces what stands between the markers of one table."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no place for '{name}'")
    return pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text)


def main() -> None:
    tables: dict[str, tuple[str, Callable[[list[dict[str, Any]]], str]]] = {
        "radius_graph": ("radius_graph", radius_graph),
        "smoothing": ("smoothing", smoothing),
        "huge": ("smoothing", huge),
        "iterations": ("smoothing", iterations),
        "inductive": ("inductive", inductive),
    }
    text = README.read_text()
    for name, (file, render) in tables.items():
        path = RESULTS / f"{file}.json"
        if path.exists():
            rows = json.loads(path.read_text())["rows"]
            text = _fill(text, name, render(rows))
    README.write_text(text)


if __name__ == "__main__":
    main()
