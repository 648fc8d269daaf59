"""Turns the runs of experiments into the tables and figures of the documentation.

    python tools/write_results.py results

reads the JSON files that ``pyg-glif reproduce`` wrote into a folder, writes
``docs/results`` and, from the first seed of sentiment on the packaged
data, the demonstration in ``README.md``: what ``make demo`` prints.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyg_glif.experiments import (
    Run,
    draw_sentiment,
    draw_text,
    report_sentiment,
    report_text,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
BEGIN, END = "<!-- demo -->", "<!-- end -->"
DEMO_SEEDS = 1


def write(name: str, runs: Sequence[Run], *, figures: Sequence[str] = ()) -> str:
    """Writes the tables, and those figures that are asked for (all if none is)."""
    is_sentiment = runs[0].experiment == "sentiment"
    report = (report_sentiment if is_sentiment else report_text)(runs).to_markdown()
    (RESULTS / f"{name}.md").write_text(report)
    for kind, figure in (draw_sentiment if is_sentiment else draw_text)(runs).items():
        if not figures or kind in figures:
            figure.savefig(RESULTS / f"{name}_{kind}.png", dpi=110)
    return report


def main() -> None:
    """Reads a folder of runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+")
    groups: dict[str, list[Run]] = {}
    for folder in parser.parse_args().folder:
        for path in folder.glob("*_seed_*.json"):
            run = Run.read(path)
            groups.setdefault(f"{run.experiment}_{run.variant}", []).append(run)
    RESULTS.mkdir(exist_ok=True)
    for name, runs in sorted(groups.items()):
        runs.sort(key=lambda run: run.seed)
        write(name, runs)
        print(f"{name}: {len(runs)} seeds")
        if name == "sentiment_us":
            report = write("demo", runs[:DEMO_SEEDS], figures=["figure2"])
            tables = report.split("\n", 2)[2].strip()
            readme = ROOT / "README.md"
            head, rest = readme.read_text().split(BEGIN)
            tail = rest.split(END, 1)[1]
            readme.write_text(f"{head}{BEGIN}\n{tables}\n{END}{tail}")


if __name__ == "__main__":
    main()
