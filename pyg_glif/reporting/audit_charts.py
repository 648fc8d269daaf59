"""The charts of an audit report: tables, and what draws them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyg_glif.reporting.charts import (
    BEFORE_AFTER,
    Figure,
    band_chart,
    bar_chart,
    bubble_chart,
    front_chart,
    histogram,
    interval_chart,
)
from pyg_glif.reporting.facts import AuditFacts
from pyg_glif.reporting.words import counted, percent, shown

_UP, _DOWN = "#1f8fd6", "#e07b00"


def ways(report: AuditFacts) -> tuple[str, str]:
    """What a changed decision is called, in both directions."""
    if report.facts["num_outputs"] == 1:
        return "now above", "now below"
    return "now a later class", "now an earlier class"


@dataclass(frozen=True)
class Table:
    """Rows with a title, and with words on how to read them."""

    title: str
    words: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: Sequence[int] = ()
    name: str = ""


@dataclass(frozen=True)
class Chart:
    """A chart as a table, and what draws it."""

    table: Table
    draw: Callable[[], Any] = field(repr=False)

    def figure(self) -> Figure:
        """The chart for pages."""
        t = self.table
        return Figure(
            t.name, t.title, t.words, self.draw(), t.header, t.rows, t.numbers
        )


def figures_of(report: AuditFacts) -> tuple[Figure, ...]:
    """The charts of the report."""
    return tuple(chart.figure() for chart in charts_of(report))


def charts_of(report: AuditFacts) -> Iterator[Chart]:
    """The charts of the report, as tables with what draws them."""
    for name, rows in report.bins.items():
        if not rows:
            continue
        kind, _, attribute = name.partition("_by_")
        drawn = _DRAWN[name if name in _DRAWN else kind]
        if name == "unlike_by_distance":
            attribute = ""
        yield drawn(report, name.replace("_", "-"), rows, attribute)
    yield from _rates(report)
    if report.tradeoff is not None:
        yield _front(report.tradeoff)


def _before_after(report: AuditFacts, name: str, rows: Any, attribute: str) -> Chart:
    group = attribute or "people of"
    held = [
        {
            "output before": row["before"],
            "output after": row["after"],
            "people": row["people"],
            group: row["group"],
        }
        for row in rows
    ]
    words = (
        "Each circle stands for all people whose outputs before and after are in the "
        "same square, and its size for their number. On the dashed line nothing "
        "changed."
    )
    return Chart(
        Table(
            f"Before against after{_by(attribute)}",
            words,
            [group, "before", "after", "people"],
            [[r["group"], r["before"], r["after"], r["people"]] for r in rows],
            (1, 2, 3),
            name,
        ),
        lambda: bubble_chart(
            held, "output before", "output after", count="people", color=group
        ),
    )


def _moved(report: AuditFacts, name: str, rows: Any, attribute: str) -> Chart:
    group = attribute or "people of"
    held = [{**row, group: row["group"]} for row in rows]
    one = report.facts["num_outputs"] == 1
    words = "How many people moved how far; "
    words += "to the right of zero outputs rose." if one else "as a distance."
    title = "output after less before" if one else "distance moved"
    return Chart(
        Table(
            f"How far outputs moved{_by(attribute)}",
            words,
            [group, "from", "to", "people"],
            [[r["group"], r["from"], r["to"], r["people"]] for r in rows],
            (1, 2, 3),
            name,
        ),
        lambda: histogram(held, "from", "to", "people", color=group, title=title),
    )


def _changed(report: AuditFacts, name: str, rows: Any, attribute: str) -> Chart:
    group = attribute or "people of"
    up, down = ways(report)
    named = {"raised": up, "lowered": down}
    held = [
        {
            group: row["group"],
            "way": named[row["way"]],
            "people": row["people"] * (1 if row["way"] == "raised" else -1),
        }
        for row in rows
    ]
    if report.facts["num_outputs"] == 1:
        words = (
            "To the right, people whose output is now above the threshold and was not "
            "before; to the left, the other way round."
        )
    else:
        words = (
            "To the right, people who now get a later class, by the order of the "
            "outputs; to the left, an earlier one."
        )
    return Chart(
        Table(
            f"Decisions that changed{_by(attribute)}",
            words,
            [group, "direction", "people", "of"],
            [[r["group"], named[r["way"]], r["people"], r["of"]] for r in rows],
            (2, 3),
            name,
        ),
        lambda: bar_chart(
            held, "people", group, color="way", colors={up: _UP, down: _DOWN}
        ),
    )


def _unlike(report: AuditFacts, name: str, rows: Any, attribute: str) -> Chart:
    unit = (
        f"distance ({report.setup['unit']})" if report.setup.get("unit") else "distance"
    )
    held = [
        {
            unit: (row["from"] + row["to"]) / 2,
            "median difference": row["median"],
            "90%": row["p90"],
            "when": row["when"],
        }
        for row in rows
    ]
    total = sum(row["pairs"] for row in rows if row["when"] == rows[0]["when"])
    words = (
        f"Differences of outputs of {counted(total, 'pair', 'pairs')} of similar "
        "people by their distance: the line is the median, the band ends where 90% of "
        "pairs do. Identical people are counted apart."
    )
    return Chart(
        Table(
            "Unlike treatment against distance",
            words,
            ["when", "from", "to", "pairs", "median", "90%"],
            [
                [r[key] for key in ("when", "from", "to", "pairs", "median", "p90")]
                for r in rows
            ],
            (1, 2, 3, 4, 5),
            name,
        ),
        lambda: band_chart(
            held, unit, "median difference", "90%", color="when", colors=BEFORE_AFTER
        ),
    )


def _degrees(report: AuditFacts, name: str, rows: Any, attribute: str) -> Chart:
    held = [
        {
            "from": row["from"] - 0.5,
            "to": row["to"] + 0.5,
            "people": row["people"],
            "of": "",
        }
        for row in rows
    ]
    alone = report.facts["num_isolated"]
    words = (
        "How many peers people have. "
        f"{counted(alone, 'person has', 'people have')} none."
    )
    return Chart(
        Table(
            "Number of peers",
            words,
            ["from", "to", "people"],
            [[r["from"], r["to"], r["people"]] for r in rows],
            (0, 1, 2),
            name,
        ),
        lambda: histogram(held, "from", "to", "people", color="of", title="peers"),
    )


_DRAWN: dict[str, Any] = {
    "before_after": _before_after,
    "moved": _moved,
    "changed": _changed,
    "unlike_by_distance": _unlike,
    "num_peers": _degrees,
}


def _rates(report: AuditFacts) -> Iterator[Chart]:
    """Rates or averages of groups, and gaps, each with intervals."""
    for attribute, found in report.groups.items():
        rate = found[0].rate_before is not None
        if not rate and found[0].mean_before is None:
            continue
        value = "rate above the threshold" if rate else "average output"
        kind = "rate" if rate else "mean"
        held = []
        for one in found:
            for when in ("before", "after") if report.compares else ("before",):
                held.append(
                    _row(getattr(one, f"{kind}_{when}"), one.group, when, report, value)
                )
        yield _intervals(
            f"{'Rates' if rate else 'Averages'} of groups by {attribute}",
            f"rates-by-{attribute}",
            value,
            held,
            report,
        )
    gaps = [m for m in report.measures if m.name.startswith("gap_by_")]
    held = []
    for measure in gaps:
        name = measure.title.removeprefix("gap by ")
        whens = ("before", "after") if report.compares else ("before",)
        for when in whens:
            held.append(_row(getattr(measure, when), name, when, report, "gap"))
    if held:
        yield _intervals("Gaps between averages of groups", "gaps", "gap", held, report)


def _row(
    found: Any, name: str, when: str, report: AuditFacts, value: str
) -> dict[str, Any]:
    when = when if report.compares else "outputs"
    return {
        "of": name,
        "when": when,
        value: found.value,
        "low": found.low,
        "high": found.high,
    }


def _intervals(
    title: str, name: str, value: str, rows: list[dict[str, Any]], report: AuditFacts
) -> Chart:
    words = f"Lines are intervals at level {percent(report.level)}."
    return Chart(
        Table(
            title,
            words,
            ["of", "when", value, "low", "high"],
            [[r["of"], r["when"], r[value], r["low"], r["high"]] for r in rows],
            (2, 3, 4),
            _identifier(name),
        ),
        lambda: interval_chart(rows, value, "of", color="when", colors=BEFORE_AFTER),
    )


def _front(found: dict[str, Any]) -> Chart:
    """What was given up for what, and the choice."""
    x, y = found["unfairness"], found["score"]
    kinds = ["other settings", "nothing beats these", "model as it is", "chosen"]
    rows = []
    for point in found["points"]:
        if point["unfairness"] is None or point["score"] is None:
            continue
        kind = kinds[1] if point in found["front"] else kinds[0]
        rows.append(_setting(point, kind, x, y))
    rows.sort(key=lambda row: row[x])
    rows.append(_setting(found["baseline"], kinds[2], x, y))
    rows.append(_setting(found["best"], kinds[3], x, y))
    return Chart(
        Table(
            "What fairness costs",
            "Every setting that was tried, and the one that was chosen.",
            ["setting", "kind", x, y],
            [[r["setting"], r["kind"], r[x], r[y]] for r in rows],
            (2, 3),
            "tradeoff",
        ),
        lambda: front_chart(rows, x, y, kind="kind", order=kinds),
    )


def _setting(point: dict[str, Any], kind: str, x: str, y: str) -> dict[str, Any]:
    parts = [
        f"{name}={shown(point[name])}"
        for name in ("tau", "k", "lam")
        if point.get(name) is not None and not isinstance(point[name], str)
    ]
    return {
        "setting": ", ".join(parts),
        "kind": kind,
        x: point["unfairness"],
        y: point["score"],
    }


def _by(attribute: str) -> str:
    return f", by {attribute}" if attribute else ""


def _identifier(text: str) -> str:
    """Letters, digits and hyphens alone."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
