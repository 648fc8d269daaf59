"""What an experiment found: one record a setting, one run a seed, one file a run."""

import json
import math
import platform
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyg_glif._utils.files import replacing
from pyg_glif._utils.json import plain

#: Status of a record whose method could not be brought to what it is compared at.
UNMATCHED = "UNMATCHED"
#: What identifies a setting: ``{"tau": 2.83, "lam": 0.1}``.
Setting = Mapping[str, float]
# Packages that decide the numbers of an experiment.
_PACKAGES = ("pyg_glif", "torch", "torch-geometric", "pytorch-lightning", "numpy")


@dataclass(frozen=True)
class Record:
    """One method at one setting, for one seed.

    Args:
        method (str): Its name, such as ``"GLIF"``.
        setting (dict): Its hyperparameters; empty for the baseline.
        metrics (dict): What was measured; NaN where the method has no answer.
        status (str): How the solve ended: ``"INDEFINITE"`` marks a saddle point,
            :data:`UNMATCHED` a comparison that tables leave out.
        chosen (bool): Whether the tables show this setting.
    """

    method: str
    setting: Setting
    metrics: Mapping[str, float]
    status: str = "CONVERGED"
    chosen: bool = False


@dataclass(frozen=True)
class Runtime:
    """How long one way to solve took for some rows, from features to fair outputs.

    Args:
        method (str): Its name, such as ``"closed form"``.
        num_rows (int): How many rows.
        seconds (float): How long it took.
    """

    method: str
    num_rows: int
    seconds: float


@dataclass(frozen=True)
class Run:
    """Everything that one seed gave.

    Args:
        experiment (str): Its name.
        variant (str): The data it ran on.
        seed (int): Seed of the split, the network and the batches.
        config (dict): All settings of the experiment.
        records (tuple of Record): What was measured.
        extras (dict): Plain data for plots.
        seconds (dict): How long the processor took for each part. These numbers,
            ``memory`` and ``runtimes`` alone differ when the run is repeated on the
            same machine.
        memory (dict): Bytes that each part held at most, beyond those before it.
        runtimes (tuple of Runtime): How long ways to solve took.
        versions (dict): Of the packages that decide the numbers.
    """

    experiment: str
    variant: str
    seed: int
    config: Mapping[str, Any]
    records: tuple[Record, ...]
    extras: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    runtimes: tuple[Runtime, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        """``<experiment>_<variant>_seed_<seed>.json``."""
        return f"{self.experiment}_{self.variant}_seed_{self.seed}.json"

    @property
    def chosen(self) -> dict[str, Record]:
        """The record of each method that tables count: chosen, and not unmatched."""
        return {
            record.method: record
            for record in self.records
            if record.chosen and record.status != UNMATCHED
        }

    def write(self, folder: Path) -> Path:
        """Writes the run into a folder, under its :attr:`file_name`."""
        path = folder / self.file_name
        with replacing(path) as file:
            file.write(self.to_json().encode())
        return path

    def to_json(self) -> str:
        """The run as text, which :meth:`read` takes."""
        return json.dumps(plain(asdict(self)), indent=1, allow_nan=False) + "\n"

    @classmethod
    def read(cls, path: Path | zipfile.Path) -> "Run":
        """A run as it was written, from a file or an entry of an archive."""
        found = json.loads(path.read_text())
        records = tuple(
            Record(**{**item, "metrics": _with_nan(item["metrics"])})
            for item in found.pop("records")
        )
        runtimes = tuple(Runtime(**item) for item in found.pop("runtimes", ()))
        return cls(records=records, runtimes=runtimes, **found)


@dataclass(frozen=True)
class Summary:
    """One method at one setting, over all seeds.

    Args:
        method (str): Its name.
        setting (dict): Its hyperparameters; their means where each seed has its own.
        mean (dict): Mean of each metric.
        std (dict): Standard deviation of each over the seeds (of the sample); NaN
            for one seed.
        num_seeds (int): How many runs it is over; those without an answer do not
            count in mean and deviation.
        num_failed (int): How many of them have no minimum.
    """

    method: str
    setting: Setting
    mean: Mapping[str, float]
    std: Mapping[str, float]
    num_seeds: int
    num_failed: int = 0

    def cell(self, metric: str, digits: int = 3) -> str:
        """``0.910 ± 0.006``, the mean alone for one seed, ``-`` for no answer."""
        mean, std = self.mean[metric], self.std.get(metric, math.nan)
        if math.isnan(mean):
            return "-"
        text = f"{mean:.{digits}f}"
        return text if math.isnan(std) else f"{text} ± {std:.{digits}f}"


def summarize(runs: Iterable[Run]) -> list[Summary]:
    """Mean and spread of every setting that was tried, in order of appearance."""
    groups: dict[Any, list[Record]] = {}
    for run in runs:
        for record in run.records:
            key = (record.method, tuple(record.setting.items()))
            groups.setdefault(key, []).append(record)
    return [_summary(records) for records in groups.values()]


def summarize_chosen(runs: Iterable[Run]) -> list[Summary]:
    """Mean and spread of what was chosen for each method, over its matched seeds."""
    groups: dict[str, list[Record]] = {}
    for run in runs:
        for method, record in run.chosen.items():
            groups.setdefault(method, []).append(record)
    return [_summary(records) for records in groups.values()]


def with_costs(row: Summary, runs: Sequence[Run]) -> Summary:
    """A row with the time and memory of its method, all settings together, if known."""
    costs = {
        "seconds": [r.seconds[row.method] for r in runs if row.method in r.seconds],
        "memory": [
            r.memory[row.method] / 2**20 for r in runs if row.method in r.memory
        ],
    }
    mean = {name: _mean(spent) for name, spent in costs.items()}
    return replace(
        row,
        mean={**row.mean, **mean},
        std={**row.std, **dict.fromkeys(costs, math.nan)},
    )


def fairest(
    summaries: Sequence[Summary], score: str, unfairness: str, floor: float
) -> list[Summary]:
    """Of each method, the setting with least unfairness whose score is high enough."""
    best: dict[str, Summary] = {}
    for summary in summaries:
        usable = summary.num_failed == 0 and summary.mean[score] >= floor
        held = best.get(summary.method)
        if usable and (
            held is None or summary.mean[unfairness] < held.mean[unfairness]
        ):
            best[summary.method] = summary
    return list(best.values())


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide the numbers."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # such as the twin 'lightning' in place of it
            continue
    return found


def _summary(records: Sequence[Record]) -> Summary:
    """Mean and spread of records of one method, over the seeds."""
    first, metrics = records[0], records[0].metrics
    return Summary(
        method=first.method,
        setting={
            name: _mean([record.setting[name] for record in records])
            for name in first.setting
        },
        mean={
            name: _mean([r.metrics[name] for r in records]) for name in first.metrics
        },
        std={name: _std([r.metrics[name] for r in records]) for name in metrics},
        num_seeds=len(records),
        num_failed=sum(record.status != "CONVERGED" for record in records),
    )


def _mean(values: Sequence[float]) -> float:
    """Mean of the values that are numbers; NaN if none is."""
    found = [value for value in values if not math.isnan(value)]
    return math.fsum(found) / len(found) if found else math.nan


def _std(values: Sequence[float]) -> float:
    """Standard deviation of the sample of those values that are numbers."""
    found = [value for value in values if not math.isnan(value)]
    if len(found) < 2:
        return math.nan
    mean = _mean(found)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in found) / (len(found) - 1))


def _with_nan(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {k: math.nan if v is None else v for k, v in metrics.items()}
