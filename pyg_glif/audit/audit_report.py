"""What an audit found: a verdict, numbers, people, evidence."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from torch import Tensor

from pyg_glif._utils.disclosure import is_shared
from pyg_glif._utils.json import plain
from pyg_glif._utils.optional import require
from pyg_glif.fit.display_features import DisplayFeatures

if TYPE_CHECKING:
    from pyg_glif.reporting import Figure

#: Version of the keys that ``AuditReport.to_dict`` returns.
SCHEMA_VERSION = 2

#: An output: a number, or one for each of several outputs.
Output = float | tuple[float, ...]
Id = str | int


class Estimate(NamedTuple):
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
    """One quantity, before and, where there is an after, after.

    Args:
        name (str): An identifier.
        title (str): What is measured, in words.
        better (str): ``"lower"``, ``"higher"`` or ``""`` where neither is.
        before (Estimate): Its value for the model's outputs.
        after (Estimate, optional): Its value for the smoothed outputs.
        change (Estimate, optional): After minus before, for the same people. Its
            interval is that of the difference, over the same draws, and much narrower
            than the two others suggest.
    """

    name: str
    title: str
    better: str
    before: Estimate
    after: Estimate | None = None
    change: Estimate | None = None


@dataclass(frozen=True)
class Verdict:
    """One comparison in a sentence, and whether it is within a stated tolerance.

    Args:
        name (str): An identifier, by which a tolerance may name it.
        title (str): What is compared.
        words (str): The finding in a sentence.
        before (Estimate): Share or gap for the model's outputs.
        after (Estimate, optional): The same for the smoothed outputs.
        num_before (int, optional): How many pairs or people that is.
        num_after (int, optional): The same after.
        total (int, optional): Of how many.
        tolerance (float, optional): What is tolerated.
        is_share (bool): Whether it is a share of something. (default: :obj:`True`)
    """

    name: str
    title: str
    words: str
    before: Estimate
    after: Estimate | None = None
    num_before: int | None = None
    num_after: int | None = None
    total: int | None = None
    tolerance: float | None = None
    is_share: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """The last interval, of gaps that of their size; without one, the estimate."""
        value, low, high = self.before if self.after is None else self.after
        ends = [value if end is None else end for end in (low, high)]
        least = 0.0 if ends[0] <= 0.0 <= ends[1] else min(map(abs, ends))
        return least, max(map(abs, ends))

    @property
    def state(self) -> Literal["within", "beyond", "open", "none"]:
        """Whether all, none or a part of the last interval is within the tolerance.

        For gaps that is the interval of their size. ``"none"``: no tolerance was
        stated.
        """
        if self.tolerance is None:
            return "none"
        least, largest = self.interval
        if largest <= self.tolerance:
            return "within"
        return "beyond" if least > self.tolerance else "open"


@dataclass(frozen=True)
class GroupTreatment:
    """How one group of people fares.

    Args:
        group (str): What the group is called.
        num_people (int): How many they are.
        mean_before (Estimate, optional): Their average output; :obj:`None` where
            people have several.
        mean_after (Estimate, optional): The same after.
        rate_before (Estimate, optional): Share of them with an output above the
            threshold, if there is one.
        rate_after (Estimate, optional): The same after.
        num_raised (int, optional): Whose decision changed from below the threshold to
            above; of several classes, to a class with a larger number.
        num_lowered (int, optional): The other way round.
    """

    group: str
    num_people: int
    mean_before: Estimate | None = None
    mean_after: Estimate | None = None
    rate_before: Estimate | None = None
    rate_after: Estimate | None = None
    num_raised: int | None = None
    num_lowered: int | None = None


@dataclass(frozen=True)
class Person:
    """Somebody, their outputs, and those of their peers.

    Args:
        index (int): Their number.
        num_peers (int): Neighbours in the graph.
        before (float or tuple): The model's output.
        peers_before (float or tuple, optional): The peers' weighted average of it;
            :obj:`None` without peers.
        deviation_before (float): How far these two are apart.
        after (float or tuple, optional): The smoothed output.
        peers_after (float or tuple, optional): The peers' average of that.
        deviation_after (float, optional): How far these two are apart.
        moved (float, optional): How far smoothing moved the output.
    """

    index: int
    num_peers: int
    before: Output
    peers_before: Output | None
    deviation_before: float
    after: Output | None = None
    peers_after: Output | None = None
    deviation_after: float | None = None
    moved: float | None = None


@dataclass(frozen=True)
class Pair:
    """Two neighbours, and how unlike they are treated.

    Args:
        first (int): Number of the one.
        second (int): Number of the other.
        distance (float): Their fair distance; zero if they are identical in everything
            that counts.
        before (tuple): The model's outputs of the two.
        difference_before (float): How far these are apart.
        after (tuple, optional): Their smoothed outputs.
        difference_after (float, optional): How far these are apart.
    """

    first: int
    second: int
    distance: float
    before: tuple[Output, Output]
    difference_before: float
    after: tuple[Output, Output] | None = None
    difference_after: float | None = None


@dataclass(frozen=True)
class Lists:
    """The people and pairs that a report names; of equal ones the first come first.

    Args:
        worst_before (tuple of Person): People furthest from their peers before.
        worst_after (tuple of Person): People furthest from their peers after.
        most_moved (tuple of Person): People whose output moved furthest.
        pairs_before (tuple of Pair): Similar but not identical people whose outputs
            differ most, before.
        pairs_after (tuple of Pair): The same after.
        identical_before (tuple of Pair): Identical people whose outputs differ most,
            before.
        identical_after (tuple of Pair): The same after.
        isolated (tuple of Person): Everybody to whom nobody is similar.
    """

    worst_before: tuple[Person, ...] = ()
    worst_after: tuple[Person, ...] = ()
    most_moved: tuple[Person, ...] = ()
    pairs_before: tuple[Pair, ...] = ()
    pairs_after: tuple[Pair, ...] = ()
    identical_before: tuple[Pair, ...] = ()
    identical_after: tuple[Pair, ...] = ()
    isolated: tuple[Person, ...] = ()


@dataclass(frozen=True, eq=False)
class AuditReport:
    r"""How similar people are treated, as :func:`audit` found it.

    A report is about one set of outputs or about two, before and after. It holds plain
    data; ``to_html``, ``to_markdown`` and ``to_dict`` show all of it, and
    :doc:`/report` says how to read it.

    Args:
        facts (dict): Sizes, movement of outputs, and what others added.
        verdict (tuple of Verdict): What was found, against what is tolerated.
        measures (tuple of Measure): Quantities; ``report["peer_deviation"]`` is the
            one of that name.
        groups (dict): For each attribute, how its groups fare.
        lists (Lists): The people and pairs that are named. ``report.worst_before`` and
            so on are short for its parts.
        setup (dict): What was compared, and how.
        made (dict): When, by which versions, from which data.
        certificate (dict): Status, solver, largest residual and numerical error bound
            of the solve, not of fairness; empty if the outputs came from elsewhere.
        bins (dict): Data of the charts, as lists of dictionaries.
        level (float): Confidence level of intervals.
        deviation (Tensor): Distance of every person's output from their peers'
            average, before and after, ``[N, 2]`` or ``[N, 1]``; zero without peers.
        moved (Tensor, optional): How far every output moved, ``[N]``.
        tradeoff (dict, optional): What :func:`~pyg_glif.model_selection.tune` tried.
        ids (tuple, optional): What people are called beside their number.
        features (DisplayFeatures, optional): What people are like.
        names_people (bool): Whether people are shown at all; not after
            :meth:`without_people`. (default: :obj:`True`)
    """

    facts: dict[str, Any]
    verdict: tuple[Verdict, ...]
    measures: tuple[Measure, ...]
    groups: dict[str, tuple[GroupTreatment, ...]]
    lists: Lists = field(repr=False)
    setup: dict[str, Any]
    made: dict[str, Any]
    certificate: dict[str, Any]
    bins: dict[str, list[dict[str, Any]]] = field(repr=False)
    level: float
    deviation: Tensor = field(repr=False)
    moved: Tensor | None = field(default=None, repr=False)
    tradeoff: dict[str, Any] | None = field(default=None, repr=False)
    ids: tuple[Id, ...] | None = field(default=None, repr=False)
    features: DisplayFeatures | None = field(default=None, repr=False)
    names_people: bool = True

    def __repr__(self) -> str:
        return (
            f"AuditReport(num_people={self.facts['num_people']}, "
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
        """A copy of the report that names people by ``ids``, one for each person."""
        names = tuple(one if isinstance(one, int) else str(one) for one in ids)
        if len(names) != self.facts["num_people"]:
            msg = "'ids' must have one entry per person"
            got = f"{len(names)} for {self.facts['num_people']}"
            raise ValueError(f"{msg} (got {got})")
        return replace(self, ids=names)

    def with_people(self, people: Any) -> "AuditReport":
        """A copy of the report that shows in which features people differ.

        Args:
            people (DataFrame): What people are like, a row each, in the values that
                they know themselves.
        """
        features = (
            people
            if isinstance(people, DisplayFeatures)
            else DisplayFeatures.of(people)
        )
        if len(features) != self.facts["num_people"]:
            msg = "'people' must have one row per person"
            got = f"{len(features)} for {self.facts['num_people']}"
            raise ValueError(f"{msg} (got {got})")
        return replace(self, features=features)

    def without_people(self) -> "AuditReport":
        """A copy of the report for readers who may not see single samples.

        It names and lists none, and follows the disclosure rule: attributes with a
        group of fewer than five samples, largest values, quantiles beyond which fewer
        than five pairs lie, and bars of charts with fewer than five are left out.
        """
        small = {
            name
            for name, groups in self.groups.items()
            if any(not is_shared(group.num_people) for group in groups)
        }

        def is_told(name: str) -> bool:
            start, _, attribute = name.partition("_by_")
            _, _, share = start.rpartition("_p")
            if share.isdecimal():
                beyond = self.facts["num_edges"] * (1.0 - int(share) / 100.0)
                return is_shared(beyond)
            return attribute not in small and not start.endswith("_max")

        bins = {
            name: [row for row in rows if _is_crowd(row)]
            for name, rows in self.bins.items()
            if is_told(name)
        }
        return replace(
            self,
            facts={k: v for k, v in self.facts.items() if k != "largest_movement"},
            verdict=tuple(one for one in self.verdict if is_told(one.name)),
            measures=tuple(one for one in self.measures if is_told(one.name)),
            groups={k: v for k, v in self.groups.items() if k not in small},
            bins={name: rows for name, rows in bins.items() if rows},
            lists=Lists(),
            ids=None,
            features=None,
            names_people=False,
        )

    def with_facts(self, **facts: Any) -> "AuditReport":
        """A copy of the report with more facts, such as an accuracy."""
        return replace(self, facts={**self.facts, **facts})

    def with_setup(self, **setup: Any) -> "AuditReport":
        """A copy of the report that says more about what was compared.

        Known are ``columns``, ``ignored``, ``sensitive``, ``table`` (what a
        :class:`~pyg_glif.tables.TableSummary` holds, as a list of dictionaries),
        ``scale``, ``metric``, ``unit``, ``tau``, ``k``, ``mutual``, ``theta``,
        ``lam``, ``normalization``, ``link``, ``threshold``, ``difference`` and
        ``files`` (a hash for each name); others are shown by their names.
        """
        return replace(self, setup={**self.setup, **setup})

    def with_tradeoff(self, found: Any) -> "AuditReport":
        """A copy of the report that shows what was tried before this setting.

        Args:
            found (TuneResult): What :func:`~pyg_glif.model_selection.tune` returned.
        """
        return replace(self, tradeoff=plain(found.to_dict()))

    def person(self, index: int) -> Id:
        """What somebody is called: their id, or their number."""
        return index if self.ids is None else self.ids[index]

    def differing(self, pair: Pair) -> list[dict[str, Any]]:
        """Features in which two people differ, with both values; none without any."""
        if self.features is None:
            return []
        found = self.features.differing(pair.first, pair.second)
        return [{"feature": n, "first": a, "second": b} for n, a, b in found]

    def to_dict(self) -> dict[str, Any]:
        """All of it but the tensors as plain data, for ``json.dumps``.

        The schema is in :doc:`/report`. A report about one set of outputs has it as
        ``before``, and :obj:`None` or nothing as ``after``.
        """
        lists: dict[str, Any] = {}
        for name, entries in vars(self.lists).items():
            lists[name] = [self._entry(one) for one in entries]
        out = {
            "schema_version": SCHEMA_VERSION,
            "compares": self.compares,
            "made": self.made,
            "setup": self.setup,
            "facts": self.facts,
            "verdict": [{**_fields(one), "state": one.state} for one in self.verdict],
            "measures": [_fields(one) for one in self.measures],
            "groups": {
                name: [_fields(one) for one in found]
                for name, found in self.groups.items()
            },
            "people": lists if self.names_people else None,
            "charts": self.bins,
            "tradeoff": self.tradeoff,
            "certificate": self.certificate,
            "level": self.level,
            "limits": self.limits(),
        }
        return dict(plain(out))

    def tiles(self) -> list[dict[str, str]]:
        """The verdict for pages: title, words, figure, numbers, how it is judged."""
        from pyg_glif.reporting.audit_page import tile_of

        return [tile_of(one) for one in self.verdict]

    def limits(self) -> list[str]:
        """What the report does not show, in plain words."""
        from pyg_glif.reporting.audit_page import limits_of

        return limits_of(self)

    def figures(self) -> "tuple[Figure, ...]":
        """The charts of the report, for pages; needs ``pyg_glif[report]``."""
        from pyg_glif.reporting.audit_charts import figures_of

        return figures_of(self)

    def to_markdown(self) -> str:
        """The report as text with tables."""
        from pyg_glif.reporting.audit_page import markdown_of

        return markdown_of(self)

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """The report as one page with charts that loads nothing else.

        Needs ``pyg_glif[report]``. The page opens offline, on a phone, in the dark and
        on paper; its content policy forbids it to ask any host for anything.

        Args:
            path (str or Path, optional): Where to write it as well.
                (default: :obj:`None`)
        """
        from pyg_glif.reporting.audit_page import page_of

        page = page_of(self)
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _repr_html_(self) -> str:
        """A short form for notebooks, without charts and people; it says so."""
        from pyg_glif.reporting.audit_page import fragment_of

        return fragment_of(self)

    def plot(self) -> Any:
        """A matplotlib figure: deviations from peers, and movement of outputs."""
        from pyg_glif.reporting import BEFORE_AFTER

        matplotlib = require("matplotlib.figure", "AuditReport.plot", "plots")
        figure = matplotlib.Figure(figsize=(9.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 1 if self.moved is None else 2, squeeze=False)[
            0, [0, -1]
        ]
        share = [(i + 1) / len(self.deviation) for i in range(len(self.deviation))]
        names = ("before", "after") if self.moved is not None else ("outputs",)
        for column, name in enumerate(names):
            ordered = self.deviation[:, column].sort().values
            style = {"label": name, "color": BEFORE_AFTER[name]}
            left.step(ordered.tolist(), share, where="post", **style)
        left.set(xlabel="distance from peers' average", ylabel="share of people below")
        left.set_title("better ↖", loc="right", fontsize="medium")
        left.legend()
        if self.moved is not None:
            right.hist(self.moved.tolist(), bins=40, color=BEFORE_AFTER["after"])
            right.set(xlabel="how far outputs moved", ylabel="people", yscale="log")
        return figure

    def _entry(self, one: Person | Pair) -> dict[str, Any]:
        """A person or pair as plain data, with ids and differing features."""
        out = asdict(one)
        if isinstance(one, Pair):
            names = [self.person(one.first), self.person(one.second)]
            return {"ids": names, **out, "differing": self.differing(one)}
        return {"id": self.person(one.index), **out}


def _fields(one: Any) -> dict[str, Any]:
    """A dataclass whose estimates are dictionaries."""
    values: Mapping[str, Any] = vars(one)
    return {
        name: value._asdict() if isinstance(value, Estimate) else value
        for name, value in values.items()
    }


def _is_crowd(row: Mapping[str, Any]) -> bool:
    """Whether a bar of a chart stands for nothing, or for enough samples or pairs."""
    count = row.get("people", row.get("pairs", 0))
    return count == 0 or is_shared(count)
