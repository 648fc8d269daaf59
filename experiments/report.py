"""What an experiment leaves behind: tables, plots and one file a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.records import Run, Summary
from pyg_glif._utils.markup import markdown_table


@dataclass(frozen=True)
class ResultTable:
    """Methods in rows, metrics in columns.

    Args:
        title (str): What it shows, one sentence.
        columns (dict): From metric to heading.
        rows (sequence of Summary): One line each.
        digits (dict): Decimals of a metric. (default: 3)
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Summary]
    digits: Mapping[str, int]

    def to_markdown(self) -> str:
        """A GitHub table below its title."""
        heads = ["method", "setting", *self.columns.values()]
        most = max((row.num_seeds for row in self.rows), default=0)
        rows = [
            [
                _label(row, most),
                describe(row.setting),
                *(row.cell(m, self.digits.get(m, 3)) for m in self.columns),
            ]
            for row in self.rows
        ]
        align = "ll" + "r" * len(self.columns)
        return f"**{self.title}**\n\n{markdown_table(heads, rows, align=align)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        rows = [
            {
                "method": row.method,
                "setting": dict(row.setting),
                "mean": {m: row.mean[m] for m in self.columns},
                "std": {
                    m: row.std[m] if row.num_seeds > 1 else None for m in self.columns
                },
                "num_seeds": row.num_seeds,
            }
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows}


@dataclass(frozen=True)
class Report:
    """Result of an experiment over several seeds.

    Args:
        experiment (str): Its name.
        variant (str): The data it ran on.
        runs (tuple of Run): One for each seed.
        tables (tuple of ResultTable): Mean and standard deviation over the seeds, or
            the numbers of the only one.
        notes (tuple of str): What a reader must know to read the tables.
        files (tuple of pathlib.Path): What was written.
    """

    experiment: str
    variant: str
    runs: tuple[Run, ...]
    tables: tuple[ResultTable, ...]
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def __repr__(self) -> str:
        seeds = [run.seed for run in self.runs]
        return f"Report({self.experiment!r}, variant={self.variant!r}, seeds={seeds})"

    def to_markdown(self) -> str:
        """All tables and notes, for a terminal or a page."""
        seeds = ", ".join(str(run.seed) for run in self.runs)
        seeds = f"seed {seeds}" if len(self.runs) == 1 else f"seeds {seeds}"
        head = f"# {self.experiment.capitalize()} ({self.variant}), {seeds}"
        parts = [head, *(table.to_markdown() for table in self.tables)]
        return "\n\n".join([*parts, *self.notes]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "experiment": self.experiment,
            "variant": self.variant,
            "seeds": [run.seed for run in self.runs],
            "tables": [table.to_dict() for table in self.tables],
            "notes": list(self.notes),
            "files": [str(path) for path in self.files],
        }


def _label(row: Summary, most: int) -> str:
    """The method, and a warning where some solutions are none or seeds are fewer."""
    if row.num_failed == 0 and row.num_seeds < most:
        return f"{row.method} ({row.num_seeds} of {most} seeds)"
    if row.num_failed == 0:
        return row.method
    if row.num_seeds == 1:
        return f"{row.method} (no minimum)"
    return f"{row.method} (no minimum in {row.num_failed} of {row.num_seeds} seeds)"


def seeds_note(runs: Sequence[Run]) -> tuple[str, ...]:
    """What the numbers are, where there is more than one seed."""
    if len(runs) == 1:
        return ()
    return ("Means over the seeds ± their standard deviation.",)


def describe(setting: Mapping[str, float]) -> str:
    """``tau² = 8, lam = 0.1``: radii squared, as the paper prints them."""
    parts = []
    for name, value in setting.items():
        if name == "tau":
            name, value = "tau²", value**2
        parts.append(f"{name} = {value:.3g}")
    return ", ".join(parts) or "-"
