"""What an audit found: numbers, people, evidence."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from pyg_glif._markup import Section, html_page, markdown_page
from pyg_glif._optional import require

#: Version of the keys that ``AuditReport.to_dict`` returns.
SCHEMA_VERSION = 1

_TITLE = "Individual fairness audit"
_WORDS = (
    "Peers are neighbours in the similarity graph; a person's deviation is the "
    "distance of their output from the peers' weighted average. This describes these "
    "people under the chosen distance. It does not certify that a model is fair."
)
_IN_WORDS = {
    "num_people": "people",
    "num_edges": "edges",
    "num_isolated": "people without neighbours",
}


class Estimate(NamedTuple):
    """A number, and its bootstrap interval where there is one."""

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
class Person:
    """Somebody whose treatment differed much from that of their peers.

    Args:
        index (int): Their number.
        num_peers (int): Neighbours in the graph.
        before (float): How far the model's output was from the peers' average.
        after (float, optional): How far the smoothed output is from the peers' smoothed
            average.
        moved (float, optional): How far smoothing moved the output.
    """

    index: int
    num_peers: int
    before: float
    after: float | None = None
    moved: float | None = None


@dataclass(frozen=True)
class Pair:
    """Two neighbours and the ratio of their outputs' difference to their distance."""

    first: int
    second: int
    ratio: float


@dataclass(frozen=True, eq=False)
class AuditReport:
    r"""How similar people are treated, as :func:`audit` found it.

    A report is about one set of outputs or about two, before and after.

    Args:
        facts (dict): Size of the graph and movement of outputs.
        measures (tuple of Measure): Quantities; ``report["peer_deviation"]`` is the
            one of that name.
        worst_before (tuple of Person): People furthest from their peers before.
        worst_after (tuple of Person): People furthest from their peers after.
        pairs_before (tuple of Pair): Pairs treated most unlike per distance before.
        pairs_after (tuple of Pair): The same after.
        certificate (dict): Status, solver, largest residual and error bound of the
            solve, empty if the outputs came from elsewhere.
        level (float): Confidence level of intervals.
        deviation (Tensor): Distance of every person's output from their peers'
            average, before and after, ``[N, 2]`` or ``[N, 1]``; zero without peers.
        moved (Tensor, optional): How far every output moved, ``[N]``.
        ids (tuple of str, optional): What people are called beside their number.
    """

    facts: dict[str, Any]
    measures: tuple[Measure, ...]
    worst_before: tuple[Person, ...]
    worst_after: tuple[Person, ...]
    pairs_before: tuple[Pair, ...]
    pairs_after: tuple[Pair, ...]
    certificate: dict[str, Any]
    level: float
    deviation: Tensor = field(repr=False)
    moved: Tensor | None = field(default=None, repr=False)
    ids: tuple[str, ...] | None = field(default=None, repr=False)

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

    def with_ids(self, ids: Iterable[Any]) -> "AuditReport":
        """A copy of the report that names people by ``ids``, one for each person."""
        names = tuple(str(one) for one in ids)
        if len(names) != self.facts["num_people"]:
            msg = "'ids' must have one entry per person"
            got = f"{len(names)} for {self.facts['num_people']}"
            raise ValueError(f"{msg} (got {got})")
        return replace(self, ids=names)

    def with_facts(self, **facts: Any) -> "AuditReport":
        """A copy of the report with more facts, such as a radius or an accuracy."""
        return replace(self, facts={**self.facts, **facts})

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tensors, for ``json.dumps``; ratios may be infinite.

        The keys of a report about one set of outputs are ``worst`` and ``pairs``, and
        its measures have a ``value``.
        """
        measures = []
        for m in self.measures:
            values = (one._asdict() for one in _estimates(m))
            known = zip(self._whens, values, strict=True)
            words = {"name": m.name, "title": m.title, "better": m.better}
            measures.append({**words, **dict(known)})
        listed = {}
        for when, people, pairs in self._lists():
            suffix = f"_{when}" if when else ""
            listed[f"worst{suffix}"] = [self._person(one) for one in people]
            listed[f"pairs{suffix}"] = [self._pair(one) for one in pairs]
        return {
            "schema_version": SCHEMA_VERSION,
            "facts": dict(self.facts),
            "measures": measures,
            **listed,
            "certificate": dict(self.certificate),
            "level": self.level,
        }

    def to_markdown(self) -> str:
        """The report as text with tables."""
        return markdown_page(_TITLE, _WORDS, self._sections())

    def to_html(self, path: str | PathLike[str] | None = None) -> str:
        """The report as one page that loads nothing else.

        Args:
            path (str or Path, optional): Where to write it as well.
                (default: :obj:`None`)
        """
        page = html_page(_TITLE, _WORDS, self._sections())
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def plot(self) -> Any:
        """A matplotlib figure: deviations from peers, and movement of outputs."""
        matplotlib = require("matplotlib.figure", "AuditReport.plot", "plots")
        figure = matplotlib.Figure(figsize=(9.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 1 if self.moved is None else 2, squeeze=False)[
            0, [0, -1]
        ]
        share = [(i + 1) / len(self.deviation) for i in range(len(self.deviation))]
        names = ("before", "after") if self.moved is not None else ("outputs",)
        for column, name in enumerate(names):
            ordered = self.deviation[:, column].sort().values
            left.step(ordered.tolist(), share, where="post", label=name)
        left.set(xlabel="distance from peers' average", ylabel="share of people")
        left.legend()
        if self.moved is not None:
            right.hist(self.moved.tolist(), bins=40)
            right.set(xlabel="movement of output", ylabel="people", yscale="log")
        return figure

    @property
    def _whens(self) -> tuple[str, ...]:
        """Column titles for the estimates of a measure."""
        return ("value",) if self.moved is None else ("before", "after", "change")

    def _lists(
        self,
    ) -> Iterator[tuple[str, tuple[Person, ...], tuple[Pair, ...]]]:
        """For each set of outputs its name, the worst people and the worst pairs."""
        if self.moved is None:
            yield "", self.worst_before, self.pairs_before
        else:
            yield "before", self.worst_before, self.pairs_before
            yield "after", self.worst_after, self.pairs_after

    def _person(self, person: Person) -> dict[str, Any]:
        """A person of the report as plain data, with the id if there are ids."""
        out = asdict(person)
        if self.moved is None:
            out = {"index": person.index, "num_peers": person.num_peers}
            out["deviation"] = person.before
        return out if self.ids is None else {"id": self.ids[person.index], **out}

    def _pair(self, pair: Pair) -> dict[str, Any]:
        """A pair of the report as plain data, with the ids if there are ids."""
        out = asdict(pair)
        if self.ids is None:
            return out
        return {"ids": [self.ids[pair.first], self.ids[pair.second]], **out}

    def _sections(self) -> Iterator[Section]:
        """The tables of the report."""
        yield _facts("People", self.facts)
        yield Section(
            f"Measures, bootstrap intervals at level {self.level:g}",
            ["measure", "better", *self._whens],
            [
                [m.title, m.better or "-", *map(str, _estimates(m))]
                for m in self.measures
            ],
        )
        for when, people, pairs in self._lists():
            ending = f" {when}" if when else ""
            records = [self._person(one) for one in people]
            yield _records(f"Treated most unlike their peers{ending}", records)
            records = [self._pair(one) for one in pairs]
            yield _records(f"Pairs treated most unlike{ending}", records)
        if self.certificate:
            yield _facts("Certificate", self.certificate)


def _estimates(measure: Measure) -> list[Estimate]:
    """The estimates of a measure that are not ``None``."""
    found = (measure.before, measure.after, measure.change)
    return [one for one in found if one is not None]


def _facts(title: str, facts: dict[str, Any]) -> Section:
    """A section that lists facts and their values."""
    rows = [[_in_words(name), value] for name, value in facts.items()]
    return Section(title, ["fact", "value"], rows)


def _records(title: str, records: list[dict[str, Any]]) -> Section:
    """A section with one row per person or pair."""
    header = [_in_words(name) for name in records[0]] if records else ["none"]
    return Section(title, header, [list(one.values()) for one in records])


def _in_words(name: str) -> str:
    """A title for an identifier: from a list, or with spaces for underscores."""
    return _IN_WORDS.get(name, name.replace("_", " "))
