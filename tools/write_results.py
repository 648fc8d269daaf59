"""Turns the runs of experiments into the tables and figures of the documentation.

    python tools/write_results.py results

reads the JSON files that ``pyg-glif reproduce`` wrote into a folder and writes
``docs/results``. The first seed of the demonstration, what ``make demo`` runs, is also
written on its own: its tables into ``README.md``.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from pyg_glif.experiments import EXPERIMENTS, Run

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
BEGIN, END = "<!-- demo -->", "<!-- end -->"
#: Experiment and variant of ``make demo``, how many seeds it shows, and which figure.
DEMO, DEMO_SEEDS, DEMO_FIGURES = "sentiment_us", 1, ("figure2",)


def write(
    name: str, runs: Sequence[Run], *, figures: Sequence[str] | None = None
) -> str:
    """Writes the tables, and those figures that are asked for (by default all)."""
    experiment = EXPERIMENTS[runs[0].experiment]
    report = experiment.report(runs).to_markdown()
    (RESULTS / f"{name}.md").write_text(report)
    for kind, figure in experiment.draw(runs).items():
        if figures is None or kind in figures:
            figure.savefig(RESULTS / f"{name}_{kind}.png", dpi=110)
    return report


def read(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """All runs, in order of their seeds, by experiment and variant."""
    groups: dict[str, list[Run]] = {}
    for folder in folders:
        for path in folder.glob("*_seed_*.json"):
            run = Run.read(path)
            groups.setdefault(f"{run.experiment}_{run.variant}", []).append(run)
    ordered = sorted(groups.items())
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in ordered}


def show_demo(page: str, report: str) -> str:
    """A page with the tables of a report between its two marks."""
    tables = report.split("\n", 2)[2].strip()  # without the title
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{tables}\n{END}{rest.split(END, 1)[1]}"


def main() -> None:
    """Reads folders of runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+")
    RESULTS.mkdir(exist_ok=True)
    for name, runs in read(parser.parse_args().folder).items():
        write(name, runs)
        print(f"{name}: {len(runs)} seeds")
        if name == DEMO:
            report = write("demo", runs[:DEMO_SEEDS], figures=DEMO_FIGURES)
            readme = ROOT / "README.md"
            readme.write_text(show_demo(readme.read_text(), report))


if __name__ == "__main__":
    main()
