"""What an audit found: numbers, people, evidence."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from pyg_glif._optional import require


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
    """One quantity before and after, and the change of it for the same people.

    Args:
        name (str): What is measured, in words.
        better (str): ``"lower"``, ``"higher"`` or ``""`` where neither is.
        before (Estimate): Its value for the model's outputs.
        after (Estimate): Its value for the smoothed outputs.
        change (Estimate): After minus before. Its interval is that of the difference,
            over the same draws, and much narrower than the two others suggest.
    """

    name: str
    better: str
    before: Estimate
    after: Estimate
    change: Estimate


@dataclass(frozen=True)
class Person:
    """Somebody whose treatment differed much from that of their peers.

    Args:
        index (int): Their number.
        num_peers (int): Neighbours in the graph.
        before (float): How far the model's output was from the peers' average.
        after (float): How far the smoothed output is from the peers' smoothed average.
        moved (float): How far smoothing moved the output.
    """

    index: int
    num_peers: int
    before: float
    after: float
    moved: float


@dataclass(frozen=True)
class Pair:
    """Two neighbours and the ratio of their outputs' difference to their distance."""

    first: int
    second: int
    ratio: float


@dataclass(frozen=True, eq=False)
class AuditReport:
    r"""Treatment before and after smoothing, as :func:`audit` found it.

    Args:
        facts (dict): Size of the graph and movement of outputs.
        measures (tuple of Measure): Quantities before and after.
        worst_before (tuple of Person): People furthest from their peers before.
        worst_after (tuple of Person): People furthest from their peers after.
        pairs_before (tuple of Pair): Pairs treated most unlike per distance before.
        pairs_after (tuple of Pair): The same after.
        certificate (dict): Status, solver, largest residual and error bound of the
            solve, empty if the outputs came from elsewhere.
        level (float): Confidence level of intervals.
        deviation (Tensor): Distance of every person's output from their peers'
            average, before and after, ``[N, 2]``; zero without peers.
        moved (Tensor): How far every output moved, ``[N]``.
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
    moved: Tensor = field(repr=False)

    def __repr__(self) -> str:
        return (
            f"AuditReport(num_people={self.facts['people']}, "
            f"num_measures={len(self.measures)})"
        )

    def __getitem__(self, name: str) -> Measure:
        """A measure by its name."""
        for measure in self.measures:
            if measure.name == name:
                return measure
        names = ", ".join(repr(measure.name) for measure in self.measures)
        raise KeyError(f"{name!r} is not one of {names}")

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tensors, for ``json.dumps``; ratios may be infinite."""
        names = ("worst_before", "worst_after", "pairs_before", "pairs_after")
        people = {name: [asdict(one) for one in getattr(self, name)] for name in names}
        measures = [
            {
                "name": m.name,
                "better": m.better,
                **{
                    when: getattr(m, when)._asdict()
                    for when in ("before", "after", "change")
                },
            }
            for m in self.measures
        ]
        return {
            "facts": dict(self.facts),
            "measures": measures,
            **people,
            "certificate": dict(self.certificate),
            "level": self.level,
        }

    def to_markdown(self) -> str:
        """The report as text with tables."""
        return "\n".join(self._lines())

    def plot(self) -> Any:
        """A matplotlib figure: deviations from peers, and movement of outputs."""
        matplotlib = require("matplotlib.figure", "AuditReport.plot", "plots")
        figure = matplotlib.Figure(figsize=(9.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        share = [(i + 1) / len(self.deviation) for i in range(len(self.deviation))]
        for column, name in enumerate(("before", "after")):
            ordered = self.deviation[:, column].sort().values
            left.step(ordered.tolist(), share, where="post", label=name)
        left.set(xlabel="distance from peers' average", ylabel="share of people")
        left.legend()
        right.hist(self.moved.tolist(), bins=40)
        right.set(xlabel="movement of output", ylabel="people", yscale="log")
        return figure

    def _lines(self) -> Iterator[str]:
        """Line by line."""
        yield "# Individual fairness audit"
        yield ""
        yield from _table(["", ""], [[k, _cell(v)] for k, v in self.facts.items()])
        yield ""
        yield f"Intervals are bootstrap intervals at level {self.level:g}."
        yield ""
        header = ["measure", "better", "before", "after", "change"]
        rows = [
            [m.name, m.better or "-", str(m.before), str(m.after), str(m.change)]
            for m in self.measures
        ]
        yield from _table(header, rows)
        for when, people, pairs in (
            ("before", self.worst_before, self.pairs_before),
            ("after", self.worst_after, self.pairs_after),
        ):
            yield from ("", f"## Treated most unlike their peers {when}", "")
            header = ["person", "peers", "before", "after", "moved"]
            yield from _table(header, [_row(asdict(person)) for person in people])
            yield from ("", f"## Pairs treated most unlike {when}", "")
            yield from _table(
                ["first", "second", "ratio"], [_row(asdict(pair)) for pair in pairs]
            )
        if self.certificate:
            yield from ("", "## Certificate", "")
            items = self.certificate.items()
            yield from _table(["", ""], [[k, _cell(v)] for k, v in items])


def _cell(value: Any) -> str:
    """Numbers short, everything else as it is."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _row(record: dict[str, Any]) -> list[str]:
    """The values of a record."""
    return [_cell(value) for value in record.values()]


def _table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    """A Markdown table, line by line."""
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
