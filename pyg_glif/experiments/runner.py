"""Runs the seeds of an experiment and writes what they show."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyg_glif._runtime import Progress
from pyg_glif._validate import check_seeds
from pyg_glif.experiments import plots
from pyg_glif.experiments.records import Run
from pyg_glif.experiments.report import Report


def run_all(
    run: Callable[[int], Run],
    seeds: Iterable[int],
    folder: Path,
    tell: Callable[[Sequence[Run]], Report],
    draw: Callable[[Sequence[Run]], dict[str, Any]],
    progress: bool | None,
) -> Report:
    """Runs every seed; JSON as soon as a seed is done, tables and plots at the end."""
    numbers = check_seeds("seeds", seeds)
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[Run] = []
    files: list[Path] = []
    with Progress(len(numbers), "seeds", progress, delay=0.0) as bar:
        for seed in numbers:
            runs.append(run(seed))
            files.append(runs[-1].write(folder))
            bar.update()
    report = tell(runs)
    name = f"{report.experiment}_{report.variant}"
    table = folder / f"{name}.md"
    table.write_text(report.to_markdown())
    drawn = [
        plots.save(figure, folder / f"{name}_{kind}.png")
        for kind, figure in draw(runs).items()
    ]
    return replace(report, files=(*files, table, *drawn))
