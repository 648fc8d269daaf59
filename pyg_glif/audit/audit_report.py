"""Facts of an audit: a verdict, numbers, listed samples, data of charts."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from pyg_glif._utils.disclosure import is_shared
from pyg_glif._utils.json import plain
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.reporting import audit_page as page

if TYPE_CHECKING:
    from pyg_glif.reporting import Figure

#: Version of the keys that ``AuditReport.to_dict`` returns.
SCHEMA_VERSION = 3

#: An output: a number, or one for each of several outputs.
Output = float | tuple[float, ...]
Id = str | int


class IntervalEstimate(NamedTuple):
    """A number, and its interval where there is one."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True)
class Measure:
    """A quantity before and, where there is an after, after."""

    name: str  #: Identifier.
    title: str  #: What is measured, in words.
    better: str  #: ``"lower"``, ``"higher"`` or ``""`` where neither is.
    before: IntervalEstimate  #: Value for the model's outputs.
    after: IntervalEstimate | None = None  #: Value for the smoothed outputs.
    #: After minus before. Its interval is that of the difference, over the same draws,
    #: and much narrower than the two others suggest.
    change: IntervalEstimate | None = None

    @property
    def values(self) -> list[float]:
        """The value before and, if there is one, after."""
        return [one.value for one in (self.before, self.after) if one is not None]


@dataclass(frozen=True)
class Verdict:
    """One comparison in a sentence, and whether it is within a stated tolerance."""

    name: str  #: Identifier, by which a tolerance may name it.
    title: str  #: What is compared.
    words: str  #: The finding in a sentence.
    before: IntervalEstimate  #: Share or gap for the model's outputs.
    after: IntervalEstimate | None = None  #: The same for the smoothed outputs.
    num_before: int | None = None  #: Number of pairs or samples that is.
    num_after: int | None = None  #: The same after.
    total: int | None = None  #: Number of pairs or samples compared.
    tolerance: float | None = None  #: What is tolerated.
    is_share: bool = True  #: Whether it is a share of something.

    @property
    def interval(self) -> tuple[float, float]:
        """The last interval, of gaps that of their size; without one, the estimate."""
        value, low, high = self.before if self.after is None else self.after
        ends = [value if end is None else end for end in (low, high)]
        least = 0.0 if ends[0] <= 0.0 <= ends[1] else min(map(abs, ends))
        return least, max(map(abs, ends))

    @property
    def state(self) -> Literal["within", "beyond", "open", "none"]:
        """Whether all, none or a part of :attr:`interval` is within the tolerance.

        ``"none"``: no tolerance was stated.
        """
        if self.tolerance is None:
            return "none"
        least, largest = self.interval
        if largest <= self.tolerance:
            return "within"
        return "beyond" if least > self.tolerance else "open"


@dataclass(frozen=True)
class GroupTreatment:
    """Outputs and decisions of one group of samples."""

    group: str  #: Name of the group.
    num_samples: int  #: Size of the group.
    mean_before: IntervalEstimate | None = None  #: Average of single outputs.
    mean_after: IntervalEstimate | None = None  #: The same after.
    rate_before: IntervalEstimate | None = None  #: Share above the threshold.
    rate_after: IntervalEstimate | None = None  #: The same after.
    #: Decisions that changed from below the threshold to above; of several classes, to
    #: a class with a larger number.
    num_raised: int | None = None
    num_lowered: int | None = None  #: Decisions that changed the other way.


@dataclass(frozen=True)
class ListedSample:
    """A sample, its outputs, and those of its neighbors."""

    index: int  #: Row of the sample.
    num_neighbors: int  #: Neighbors in the graph.
    before: Output  #: The model's output.
    neighbors_before: Output | None  #: Weighted average of that of its neighbors.
    deviation_before: float  #: Distance of these two.
    after: Output | None = None  #: The smoothed output.
    neighbors_after: Output | None = None  #: Weighted average of that of its neighbors.
    deviation_after: float | None = None  #: Distance of these two.
    moved: float | None = None  #: How far smoothing moved the output.


@dataclass(frozen=True)
class ListedPair:
    """Two neighbors and their outputs."""

    first: int  #: Row of the one.
    second: int  #: Row of the other.
    distance: float  #: Fair distance; zero if they are equal in everything that counts.
    before: tuple[Output, Output]  #: The model's outputs.
    difference_before: float  #: Distance of these two.
    after: tuple[Output, Output] | None = None  #: The smoothed outputs.
    difference_after: float | None = None  #: Distance of these two.


@dataclass(frozen=True)
class Lists:
    """Samples and pairs that a report lists; of equal ones the first come first."""

    worst_before: tuple[ListedSample, ...] = ()  #: Furthest from neighbors, before.
    worst_after: tuple[ListedSample, ...] = ()  #: Furthest from neighbors, after.
    most_moved: tuple[ListedSample, ...] = ()  #: Whose output moved furthest.
    #: Similar but not identical samples whose outputs differ most, before.
    pairs_before: tuple[ListedPair, ...] = ()
    pairs_after: tuple[ListedPair, ...] = ()  #: The same after.
    #: Identical samples whose outputs differ most, before.
    identical_before: tuple[ListedPair, ...] = ()
    identical_after: tuple[ListedPair, ...] = ()  #: The same after.
    isolated: tuple[ListedSample, ...] = ()  #: All isolated samples.


@dataclass(frozen=True, eq=False)
class AuditReport:
    r"""Treatment of similar samples, as :func:`audit` measured it.

    A report is about one set of outputs or about two, before and after. It holds plain
    data; ``to_html``, ``to_markdown`` and ``to_dict`` show all of it, and
    :doc:`/report` says how to read it.
    """

    facts: dict[str, Any]  #: Sizes, movement of outputs, and what others added.
    verdict: tuple[Verdict, ...]  #: Findings, against what is tolerated.
    #: Quantities; ``report["neighbor_deviation"]`` is the one of that name.
    measures: tuple[Measure, ...]
    #: For each attribute, the treatment of its groups.
    groups: dict[str, tuple[GroupTreatment, ...]]
    #: Samples and pairs; ``report.worst_before`` and so on are short for its parts.
    lists: Lists = field(repr=False)
    setup: dict[str, Any]  #: What was compared, and how.
    made: dict[str, Any]  #: When, by which versions, from which data.
    #: Status, solver, largest residual and numerical error bound of the solve, not of
    #: fairness; empty if the outputs came from elsewhere.
    certificate: dict[str, Any]
    #: Data of the charts.
    bins: dict[str, list[dict[str, Any]]] = field(repr=False)
    level: float  #: Confidence level of intervals.
    #: Distance of each output from the average of the neighbors, before and after,
    #: ``[N, 2]`` or ``[N, 1]``; zero of isolated samples.
    deviation: Tensor = field(repr=False)
    #: How far every output moved, ``[N]``.
    moved: Tensor | None = field(default=None, repr=False)
    #: What :func:`~pyg_glif.model_selection.tune` tried.
    tradeoff: dict[str, Any] | None = field(default=None, repr=False)
    ids: tuple[Id, ...] | None = field(default=None, repr=False)  #: Ids of the samples.
    #: Features of the samples, to be shown.
    features: DisplayFeatures | None = field(default=None, repr=False)
    #: Whether samples are shown at all; not after :meth:`without_samples`.
    lists_samples: bool = True

    def __repr__(self) -> str:
        return (
            f"AuditReport(num_samples={self.facts['num_samples']}, "
            f"num_measures={len(self.measures)})"
        )

    def __getitem__(self, name: str) -> Measure:
        """A measure by its name."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        names = ", ".join(repr(measure.name) for measure in self.measures)
        raise KeyError(f"{name!r} is not one of {names}")

    def __getattr__(self, name: str) -> Any:
        # The lists by their own names, as 'report.worst_before'.
        if name in Lists.__dataclass_fields__:
            return getattr(self.lists, name)
        raise AttributeError(f"'AuditReport' has no attribute {name!r}")

    @property
    def compares(self) -> bool:
        """Whether the report is about outputs before and after."""
        return self.moved is not None

    def with_ids(self, ids: Iterable[Any]) -> "AuditReport":
        """A copy of the report that names samples by ``ids``, one for each."""
        names = tuple(name if isinstance(name, int) else str(name) for name in ids)
        self._check_length("'ids' must have one entry per sample", len(names))
        return replace(self, ids=names)

    def with_features(self, features: Any) -> "AuditReport":
        """A copy of the report that shows in which features samples differ.

        Args:
            features (DataFrame): Features in the values that readers know, a row per
                sample.
        """
        if not isinstance(features, DisplayFeatures):
            features = DisplayFeatures.of(features)
        self._check_length("'features' must have one row per sample", len(features))
        return replace(self, features=features)

    def without_samples(self) -> "AuditReport":
        """A copy of the report for readers who may not see single samples.

        It names and lists none, and follows the disclosure rule: attributes with a
        group of fewer than five samples, largest values, quantiles beyond which fewer
        than five pairs lie, and bars of charts with fewer than five are left out.
        """
        small = {
            name
            for name, groups in self.groups.items()
            if any(not is_shared(group.num_samples) for group in groups)
        }

        def may_be_shown(name: str) -> bool:
            start, _, attribute = name.partition("_by_")
            _, _, share = start.rpartition("_p")
            if share.isdecimal():
                beyond = self.facts["num_edges"] * (1.0 - int(share) / 100.0)
                return is_shared(beyond)
            return attribute not in small and not start.endswith("_max")

        bins = {
            name: [row for row in rows if _is_crowd(row)]
            for name, rows in self.bins.items()
            if may_be_shown(name)
        }
        return replace(
            self,
            facts={k: v for k, v in self.facts.items() if k != "largest_movement"},
            verdict=tuple(one for one in self.verdict if may_be_shown(one.name)),
            measures=tuple(one for one in self.measures if may_be_shown(one.name)),
            groups={k: v for k, v in self.groups.items() if k not in small},
            bins={name: rows for name, rows in bins.items() if rows},
            lists=Lists(),
            ids=None,
            features=None,
            lists_samples=False,
        )

    def with_facts(self, **facts: Any) -> "AuditReport":
        """A copy of the report with more facts, such as an accuracy."""
        return replace(self, facts={**self.facts, **facts})

    def with_setup(self, **setup: Any) -> "AuditReport":
        """A copy of the report with more settings, see :mod:`pyg_glif.audit.setup`."""
        return replace(self, setup={**self.setup, **setup})

    def with_tradeoff(self, result: Any) -> "AuditReport":
        """A copy of the report that shows what was tried before this setting.

        Args:
            result (TuneResult): Result of :func:`~pyg_glif.model_selection.tune`.
        """
        return replace(self, tradeoff=plain(result.to_dict()))

    def sample_id(self, index: int) -> Id:
        """The id of a sample, or its row."""
        return index if self.ids is None else self.ids[index]

    def differing(self, pair: ListedPair) -> list[dict[str, Any]]:
        """Features in which two samples differ, with both values; none without any."""
        if self.features is None:
            return []
        differing = self.features.differing(pair.first, pair.second)
        return [{"feature": n, "first": a, "second": b} for n, a, b in differing]

    def to_dict(self) -> dict[str, Any]:
        """All of it but the tensors as plain data, for ``json.dumps``.

        The schema is in :doc:`/report`. A report about one set of outputs has it as
        ``before``, and :obj:`None` or nothing as ``after``.
        """
        lists = {
            name: [self._entry(one) for one in entries]
            for name, entries in vars(self.lists).items()
        }
        out = {
            "schema_version": SCHEMA_VERSION,
            "compares": self.compares,
            "made": self.made,
            "setup": self.setup,
            "facts": self.facts,
            "verdict": [{**_fields(one), "state": one.state} for one in self.verdict],
            "measures": [_fields(one) for one in self.measures],
            "groups": {
                name: [_fields(group) for group in groups]
                for name, groups in self.groups.items()
            },
            "samples": lists if self.lists_samples else None,
            "charts": self.bins,
            "tradeoff": self.tradeoff,
            "certificate": self.certificate,
            "level": self.level,
            "limits": self.limits(),
        }
        return dict(plain(out))

    def tiles(self) -> list[dict[str, str]]:
        """The verdict for pages: title, words, figure, numbers, how it is judged."""
        return [page.tile_of(one) for one in self.verdict]

    def limits(self) -> list[str]:
        """What the report does not show, in plain words."""
        return page.limits_of(self)

    def figures(self) -> "tuple[Figure, ...]":
        """The charts of the report, for pages; needs ``pyg_glif[report]``."""
        return tuple(page.figures_of(self))

    def to_markdown(self) -> str:
        """The report as text with tables."""
        return page.render(self, "report.md")

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """The report as one page with charts that loads nothing else.

        Needs ``pyg_glif[report]``. The page opens offline, on a phone, in the dark and
        on paper; its content policy forbids it to ask any host for anything.

        Args:
            path (str or Path, optional): Where to write it as well.
                (default: :obj:`None`)
        """
        text = page.render(self, "report.html")
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def _repr_html_(self) -> str:
        """A short form for notebooks, without charts and samples; it says so."""
        return page.render(self, "report_short.html")

    def plot(self) -> Any:
        """A matplotlib figure: deviations from neighbors, and movement of outputs."""
        return page.plot_of(self)

    def _check_length(self, message: str, got: int) -> None:
        num = self.facts["num_samples"]
        if got != num:
            raise ValueError(f"{message} (got {got} for {num})")

    def _entry(self, listed: ListedSample | ListedPair) -> dict[str, Any]:
        """A sample or pair as plain data, with ids and differing features."""
        if isinstance(listed, ListedSample):
            return {"id": self.sample_id(listed.index), **asdict(listed)}
        ids = [self.sample_id(listed.first), self.sample_id(listed.second)]
        return {"ids": ids, **asdict(listed), "differing": self.differing(listed)}


def _fields(record: Any) -> dict[str, Any]:
    """A dataclass whose estimates are dictionaries."""
    values: Mapping[str, Any] = vars(record)
    return {
        name: value._asdict() if isinstance(value, IntervalEstimate) else value
        for name, value in values.items()
    }


def _is_crowd(row: Mapping[str, Any]) -> bool:
    """Whether a bar of a chart stands for nothing, or for enough samples or pairs."""
    count = row.get("num_samples", row.get("num_pairs", 0))
    return count == 0 or is_shared(count)
