"""The protocol of every experiment: prepare a seed, run its methods, tell the records.

An experiment is two small classes. A :class:`Trial` is one seed: its constructor reads
the data and learns the fair distance, :meth:`Trial.methods` lists what is compared. An
:class:`Experiment` knows the settings, and how records become tables and figures.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from torch import Tensor

import experiments._plots as plots
from experiments.peak_memory import PeakMemory
from experiments.records import Record, Run, Runtime, versions
from experiments.report import Report
from experiments.training import same_numbers
from pyg_glif._utils.json import plain
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import (
    check_count,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph import SimilarityGraph
from pyg_glif.methods.path import glif_path
from pyg_glif.typing import Normalization

#: What a method gives when it is run: one record for each setting.
Method = Callable[[], Iterable[Record]]
Self = TypeVar("Self", bound="Experiment")


class Comparison(ABC):
    """One seed of an experiment: what is compared."""

    @abstractmethod
    def methods(self) -> Mapping[str, Method]:
        """What is compared, in the order in which it runs; each is timed."""

    def extras(self) -> dict[str, Any]:
        """Plain data for figures and notes, after all methods have run."""
        return {}

    def runtimes(self) -> Iterable[Runtime]:
        """How long ways to solve take on parts of the data, if that is a question."""
        return ()


class Trial(Comparison):
    """A comparison of methods on one similarity graph.

    Args:
        seed (int): Of the split, the network and the batches.
        theta (float): Decay of the weights.
        distance (FairDistance): Who is similar.
        graph (SimilarityGraph): The rows that are post-processed, at the largest
            radius of all.
        progress (bool, optional): Whether to show progress bars.
    """

    def __init__(
        self,
        seed: int,
        theta: float,
        distance: FairDistance,
        graph: SimilarityGraph,
        progress: bool | None,
    ) -> None:
        self.seed, self.theta, self.progress = seed, theta, progress
        self.distance, self.graph = distance, graph

    @abstractmethod
    def measure(self, outputs: Tensor) -> dict[str, float]:
        """What tables and figures show of outputs on the judged rows."""

    def sweep(
        self,
        method: str,
        normalization: Normalization,
        outputs: Tensor,
        lams: Sequence[float],
        taus: Sequence[float],
        chosen: Mapping[str, float],
        *,
        graph: SimilarityGraph | None = None,
        more: Mapping[str, float] | None = None,
    ) -> Iterable[Record]:
        """A GLIF variant at all radii and strengths, what was chosen marked.

        ``graph`` is another one than that of the trial, and ``more`` tells what else
        belongs to the setting.
        """
        path = glif_path(
            outputs,
            self.graph if graph is None else graph,
            lams=lams,
            taus=taus,
            theta=self.theta,
            normalization=normalization,
            progress=self.progress,
        )
        for point in path:
            setting = {**(more or {}), "tau": point.tau, "lam": point.lam}
            metrics, status = self.measure(point.value), point.status.name
            yield Record(method, setting, metrics, status, setting == chosen)


class Experiment(ABC):
    r"""An experiment and its settings: ``experiment(seeds)`` runs all of it.

    Args:
        config (dataclass): All settings. Has a ``variant``, the data to run on.
    """

    #: What the command line and the files call it.
    name: str
    #: Texts can be limited to a share of them; words cannot.
    takes_limit: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        self.config = config

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, variant={self.config.variant!r})"

    @abstractmethod
    def prepare(self, seed: int, progress: bool | None = None) -> Comparison:
        """Reads the data of a seed and learns who is similar."""

    @abstractmethod
    def report(self, runs: Sequence[Run]) -> Report:
        """The tables of some runs, such as those read back from their files."""

    @abstractmethod
    def draw(self, runs: Sequence[Run]) -> dict[str, Any]:
        """The figures of some runs, by the name that their files end in."""

    def configured(self: Self, variant: str | None, limit: float | None) -> Self:
        """The experiment with other data, or a part of them."""
        if limit is not None and not self.takes_limit:
            raise ValueError(f"'limit' must be None for '{self.name}' (got {limit})")
        if variant is None:
            return self
        return type(self)(replace(self.config, variant=variant))

    @same_numbers()
    def run(self, seed: int, *, progress: bool | None = None) -> Run:
        r"""One seed: every method on one split.

        Runs on one thread and in float32, so that on one machine the same seed gives
        the same numbers.

        Args:
            seed (int): Of the split, the network and the batches.
            progress (bool, optional): Whether to show progress bars; :obj:`None`
                shows them on a terminal. (default: :obj:`None`)
        """
        # The processor's seconds: others may be at work on the machine.
        start = time.process_time()
        trial = self.prepare(seed, progress)
        seconds = {"Data": time.process_time() - start}
        memory: dict[str, float] = {}
        records: list[Record] = []
        for part, method in trial.methods().items():
            start = time.process_time()
            with PeakMemory() as peak:
                records += method()
            seconds[part] = time.process_time() - start
            memory[part] = peak.bytes
        return Run(
            experiment=self.name,
            variant=self.config.variant,
            seed=seed,
            config=asdict(self.config),
            records=tuple(records),
            extras=trial.extras(),
            seconds=seconds,
            memory=memory,
            runtimes=tuple(trial.runtimes()),
            versions=versions(),
        )

    def _finished(self, folder: Path, seed: int) -> Run | None:
        """The run of a seed, if its file is there and says what would be run now."""
        config = plain(asdict(self.config))
        wanted = Run(
            self.name, self.config.variant, seed, config, (), versions=versions()
        )
        try:
            found = Run.read(folder / wanted.file_name)
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            return None  # not there, or not as it was written
        asked = ("experiment", "variant", "seed", "config", "versions")
        same = all(getattr(found, name) == getattr(wanted, name) for name in asked)
        return found if same else None

    def __call__(
        self,
        seeds: Iterable[int] = range(10),
        *,
        variant: str | None = None,
        limit: float | None = None,
        out: Path | str = "results",
        resume: bool = False,
        progress: bool | None = None,
    ) -> Report:
        r"""Runs every seed and writes its JSON, then all tables and plots.

        Args:
            seeds (iterable of int): Seeds of split, network and batches.
                (default: 0 to 9)
            variant (str, optional): The data, see :mod:`pyg_glif.datasets`.
                (default: that of the settings)
            limit (int or float, optional): So many texts, or this share of them.
                (default: all)
            out (str or pathlib.Path): Folder for JSON, Markdown and PNG files, made if
                it is not there. (default: ``"results"``)
            resume (bool): Whether seeds whose file is in the folder already, with the
                same settings and versions of packages, are read and not run again. It
                does not look at the data: run all seeds again after those changed.
                (default: :obj:`False`)
            progress (bool, optional): Whether to show progress bars; :obj:`None`
                shows them on a terminal. (default: :obj:`None`)
        """
        experiment, folder = self.configured(variant, limit), Path(out)
        numbers = _check_seeds("seeds", seeds)
        folder.mkdir(parents=True, exist_ok=True)
        runs: list[Run] = []
        files: list[Path] = []
        with Progress(len(numbers), "seeds", progress, delay=0.0) as bar:
            for seed in numbers:
                held = experiment._finished(folder, seed) if resume else None
                runs.append(held or experiment.run(seed, progress=progress))
                files.append(runs[-1].write(folder))
                bar.update()
        report = experiment.report(runs)
        name = f"{report.experiment}_{report.variant}"
        table = folder / f"{name}.md"
        table.write_text(report.to_markdown())
        drawn = [
            plots.save(figure, folder / f"{name}_{kind}.png")
            for kind, figure in experiment.draw(runs).items()
        ]
        return replace(report, files=(*files, table, *drawn))


def _check_seeds(name: str, value: Iterable[int]) -> list[int]:
    """Different seeds, at least one."""
    seeds = [check_count(name, seed, minimum=0) for seed in value]
    if not seeds or len(set(seeds)) < len(seeds):
        msg = f"'{name}' must hold one or more different seeds"
        raise ValueError(f"{msg} (got {seeds})")
    return seeds
