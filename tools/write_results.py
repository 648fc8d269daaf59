"""Turns the runs of experiments into the tables and figures of the documentation.

    python -m tools.write_results results

reads the JSON files that ``python -m experiments`` wrote into a folder and writes
``docs/results``: tables, figures, and the runs themselves, an archive for each
experiment in ``records``. From there figures are drawn again without running anything::

    python -m tools.write_results docs/results/records

The first seeds of the demonstrations, what ``make demo`` and ``make
demo-tables`` run, are also written on their own. A part of the table of the census
goes into ``README.md``. Graphs and networks that were kept are put side by side.
"""

import argparse
import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from experiments import EXPERIMENTS, Run
from experiments._gnn import NETWORKS
from experiments._graph_report import compare_networks
from experiments.graphs import GraphExperiment

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
RECORDS = RESULTS / "records"
CENSUS, END = "<!-- census -->", "<!-- end -->"
#: What the front page shows of the census, and how it names the methods.
CENSUS_METHODS = {
    "as it is": "the model as it is",
    "without sex, race": "without sex, race",
    "without sex, race, relationship": "without sex, race, relationship",
    "mean with one's twins": "mean over both sexes",
    "GLIFClassifier": "**GLIFClassifier**",
    "ThresholdOptimizer": "ThresholdOptimizer (groups)",
    "ExponentiatedGradient": "ExponentiatedGradient (groups)",
}
CENSUS_COLUMNS = ("accuracy", "same when flipped", "unlike pairs")
CENSUS_COLUMNS += ("gap in yes", "gap in true yes")


class Demo(NamedTuple):
    """What ``make`` runs of an experiment: how many seeds, and what is shown of it."""

    name: str
    figures: tuple[str, ...]
    num_seeds: int = 1


#: By experiment and variant.
DEMOS = {
    "sentiment_us": Demo("demo", ("figure2",)),
    "adult_invented": Demo("demo_tables", ()),
}

NETWORK_NAMES = {"gcn": "GCN", "gin": "GIN", "sage": "GraphSAGE", "mlp": "MLP"}
#: Text in place of a figure on graphs, and what is below it.
GRAPH_FIGURES = {
    "trade_off": (
        "AUC, individual unfairness at unit variance and GDIF of each method",
        "Means over the seeds with their standard deviation. A triangle at an edge "
        "points to a value that is out of sight.",
    ),
    "front": (
        "AUC against individual unfairness at unit variance and against GDIF, with "
        "curves of GLIF over its strengths",
        "The same, with all strengths of GLIF. An arrow has the number of a method "
        "that is out of sight.",
    ),
}


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


def keep(name: str, runs: Sequence[Run]) -> None:
    """Writes the runs of an experiment into its archive, the same for the same runs."""
    RECORDS.mkdir(exist_ok=True)
    with zipfile.ZipFile(RECORDS / f"{name}.zip", "w") as archive:
        for run in runs:
            entry = zipfile.ZipInfo(run.file_name)
            archive.writestr(entry, run.to_json(), zipfile.ZIP_DEFLATED, 9)


def runs_in_archive(path: Path) -> Iterator[Run]:
    """The runs of an experiment that were kept."""
    return map(Run.read, zipfile.Path(path).iterdir())


def read(folders: Sequence[Path]) -> dict[str, list[Run]]:
    """All runs, in order of their seeds, by experiment and variant."""
    groups: dict[str, list[Run]] = {}
    for folder in folders:
        files = map(Run.read, folder.glob("*_seed_*.json"))
        kept = map(runs_in_archive, folder.glob("*.zip"))
        for run in chain(files, *kept):
            groups.setdefault(f"{run.experiment}_{run.variant}", []).append(run)
    ordered = sorted(groups.items())
    return {name: sorted(runs, key=lambda run: run.seed) for name, runs in ordered}


def graph_pages(kept: dict[str, list[Run]]) -> dict[str, str]:
    """All graphs and networks that were kept side by side, and tabs for each graph."""
    pages, found = {}, []
    for name, experiment in EXPERIMENTS.items():
        if isinstance(experiment, GraphExperiment):
            names = [f"{name}_{network}" for network in NETWORKS]
            pages[f"{name}_tabs.md"] = tabs([known for known in names if known in kept])
            found += [kept[known] for known in names if known in kept]
    return {"graph_networks.md": compare_networks(found) + "\n", **pages}


def tabs(names: Sequence[str]) -> str:
    """A tab for each network on a graph: its tables and figures."""
    lines = ["`````{tab-set}"]
    for name in names:
        network = name.rpartition("_")[2]
        lines += [f"````{{tab-item}} {NETWORK_NAMES[network]}", f":sync: {network}", ""]
        lines += [f"```{{include}} results/{name}.md", ":start-line: 1", "```", ""]
        for kind, (text, caption) in GRAPH_FIGURES.items():
            lines += [f"```{{figure}} results/{name}_{kind}.png", f":alt: {text}", ""]
            lines += [caption, "```", ""]
        lines.append("````")
    return "\n".join([*lines, "`````", ""])


def census_table(page: str) -> str:
    """The rows and columns of the census that the front page shows."""
    found: dict[str, dict[str, str]] = {}
    _, *sections = re.split(r"^\*\*(.*)\*\*$", page, flags=re.M)
    for title, table in zip(sections[::2], sections[1::2], strict=True):
        if not title.startswith("Boosted trees:"):
            continue
        lines = [line for line in table.splitlines() if line.startswith("|")]
        rows = [line.strip("|").split("|") for line in lines]
        names = [cell.strip() for cell in rows[0]]
        for cells in rows[2:]:
            row = dict(zip(names, (cell.strip() for cell in cells), strict=True))
            found.setdefault(row["method"], {}).update(row)
    lines = [f"| {' | '.join(['method', *CENSUS_COLUMNS])} |"]
    lines.append(f"| --- |{' ---: |' * len(CENSUS_COLUMNS)}")
    for method, shown in CENSUS_METHODS.items():
        cells = [found[method][name] for name in CENSUS_COLUMNS]
        lines.append(f"| {' | '.join([shown, *cells])} |")
    return "\n".join(lines)


def show_census(readme: str, page: str) -> str:
    """The front page with the table of the census between its marks."""
    head, rest = readme.split(CENSUS)
    return f"{head}{CENSUS}\n{census_table(page)}\n{END}{rest.split(END, 1)[1]}"


def main() -> None:
    """Reads folders of runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="+")
    RESULTS.mkdir(exist_ok=True)
    for name, runs in read(parser.parse_args().folder).items():
        demo = DEMOS.get(name)
        if demo is None or len(runs) > demo.num_seeds:
            write(name, runs)
            keep(name, runs)
        print(f"{name}: {len(runs)} seeds")
        if demo is not None:
            write(demo.name, runs[: demo.num_seeds], figures=demo.figures)
    readme, page = ROOT / "README.md", RESULTS / "adult_uci.md"
    readme.write_text(show_census(readme.read_text(), page.read_text()))
    for page, text in graph_pages(read([RECORDS])).items():
        (RESULTS / page).write_text(text)


if __name__ == "__main__":
    main()
