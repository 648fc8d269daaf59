"""Charts of an audit report."""

from collections.abc import Iterator, Mapping
from typing import Any

from pyg_glif._utils.optional import require
from pyg_glif.reporting.charts import (
    BEFORE_AFTER,
    band_chart,
    bar_chart,
    bubble_chart,
    front_chart,
    histogram,
    interval_chart,
)
from pyg_glif.reporting.tables import Figure
from pyg_glif.reporting.words import counted, percent, shown

# An 'AuditReport', whose module imports this package.
Report = Any
Rows = list[dict[str, Any]]

_UP, _DOWN = "#1f8fd6", "#e07b00"


def ways(report: Report) -> tuple[str, str]:
    """Words for a changed decision, in both directions."""
    if report.facts["num_outputs"] == 1:
        return "now above", "now below"
    return "now a later class", "now an earlier class"


def figures_of(report: Report) -> Iterator[Figure]:
    """Charts of the report, in the order of its pages."""
    for name, rows in report.bins.items():
        kind, _, attribute = name.partition("_by_")
        figure = _FIGURES[kind]
        if rows:
            yield figure(report, name.replace("_", "-"), rows, attribute)
    yield from _rates(report)
    if report.tradeoff is not None:
        yield _front(report.tradeoff)


def _before_after(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    group, across, up = attribute or "people of", "output before", "output after"
    keys = {"group": group, "before": across, "after": up, "num_samples": "people"}
    rows = _renamed(rows, keys)
    return Figure.of(
        name,
        f"Before against after{_by(attribute)}",
        "Each circle stands for all people whose outputs before and after are in the "
        "same square, and its size for their number. On the dashed line nothing "
        "changed.",
        rows,
        lambda: bubble_chart(rows, across, up, count="people", color=group),
    )


def _moved(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    group = attribute or "people of"
    keys = {"group": group, "from": "from", "to": "to", "num_samples": "people"}
    rows = _renamed(rows, keys)
    words, title = "as a distance.", "distance moved"
    if report.facts["num_outputs"] == 1:
        words = "to the right of zero outputs rose."
        title = "output after less before"
    return Figure.of(
        name,
        f"How far outputs moved{_by(attribute)}",
        f"How many people moved how far; {words}",
        rows,
        lambda: histogram(rows, "from", "to", "people", color=group, title=title),
    )


def _changed(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    group = attribute or "people of"
    words = (
        "To the right, people who now get a later class, by the order of the outputs; "
        "to the left, an earlier one."
    )
    if report.facts["num_outputs"] == 1:
        words = (
            "To the right, people whose output is now above the threshold and was not "
            "before; to the left, the other way round."
        )
    up, down = ways(report)
    directions = {"raised": up, "lowered": down}
    keys = {"group": group, "way": "direction", "num_samples": "people", "of": "of"}
    rows = _renamed([{**row, "way": directions[row["way"]]} for row in rows], keys)
    bars = [
        {**row, "people": row["people"] * (1 if row["direction"] == up else -1)}
        for row in rows
    ]
    colors = {up: _UP, down: _DOWN}
    return Figure.of(
        name,
        f"Decisions that changed{_by(attribute)}",
        words,
        rows,
        lambda: bar_chart(bars, "people", group, color="direction", colors=colors),
    )


def _differences(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    unit = report.setup.get("unit")
    across = f"distance ({unit})" if unit else "distance"
    middle, high = "median difference", "90%"
    total = sum(row["num_pairs"] for row in rows if row["when"] == rows[0]["when"])
    keys = {"when": "when", "from": "from", "to": "to", "num_pairs": "pairs"}
    rows = _renamed(rows, {**keys, "median": middle, "p90": high})
    points = [{**row, across: (row["from"] + row["to"]) / 2} for row in rows]
    return Figure.of(
        name,
        "Unlike treatment against distance",
        f"Differences of outputs of {counted(total, 'pair', 'pairs')} of similar "
        "people by their distance: the line is the median, the band ends where 90% of "
        "pairs do. Identical people are counted apart.",
        rows,
        lambda: band_chart(
            points, across, middle, high, color="when", colors=BEFORE_AFTER
        ),
    )


def _degrees(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    rows = _renamed(rows, {"from": "from", "to": "to", "num_samples": "people"})
    bars = [
        {**row, "from": row["from"] - 0.5, "to": row["to"] + 0.5, "of": ""}
        for row in rows
    ]
    isolated = counted(report.facts["num_isolated"], "person has", "people have")
    return Figure.of(
        name,
        "Number of peers",
        f"How many peers people have. {isolated} none.",
        rows,
        lambda: histogram(bars, "from", "to", "people", color="of", title="peers"),
    )


_FIGURES: dict[str, Any] = {
    "before_after": _before_after,
    "moved": _moved,
    "changed": _changed,
    "difference": _differences,
    "num_neighbors": _degrees,
}


def plot_of(report: Report) -> Any:
    """A matplotlib figure: deviations from neighbors, and movement of outputs."""
    matplotlib = require("matplotlib.figure", "AuditReport.plot", "plots")
    figure = matplotlib.Figure(figsize=(9.0, 3.6), layout="constrained")
    names = ("before", "after") if report.compares else ("outputs",)
    left, *right = figure.subplots(1, len(names), squeeze=False)[0]
    num = len(report.deviation)
    for column, name in enumerate(names):
        ordered = report.deviation[:, column].sort().values.tolist()
        style = {"label": name, "color": BEFORE_AFTER[name]}
        left.step(ordered, [(i + 1) / num for i in range(num)], where="post", **style)
    left.set(xlabel="distance from peers' average", ylabel="share of people below")
    left.set_title("better ↖", loc="right", fontsize="medium")
    left.legend()
    for axes in right:
        axes.hist(report.moved.tolist(), bins=40, color=BEFORE_AFTER["after"])
        axes.set(xlabel="how far outputs moved", ylabel="people", yscale="log")
    return figure


def _rates(report: Report) -> Iterator[Figure]:
    """Rates or averages of groups, and gaps, each with intervals."""
    for attribute, groups in report.groups.items():
        kind, title, value = "rate", "Rates", "rate above the threshold"
        if groups[0].rate_before is None:
            kind, title, value = "mean", "Averages", "average output"
        if getattr(groups[0], f"{kind}_before") is not None:
            named = [
                (g.group, getattr(g, f"{kind}_before"), getattr(g, f"{kind}_after"))
                for g in groups
            ]
            title = f"{title} of groups by {attribute}"
            yield _intervals(report, f"rates-by-{attribute}", title, value, named)
    gaps = [
        (measure.title.removeprefix("gap by "), measure.before, measure.after)
        for measure in report.measures
        if measure.name.startswith("gap_by_")
    ]
    if gaps:
        title = "Gaps between averages of groups"
        yield _intervals(report, "gaps", title, "gap", gaps)


def _intervals(
    report: Report, name: str, title: str, value: str, named: list[tuple[str, Any, Any]]
) -> Figure:
    rows = []
    for of, *estimates in named:
        whens = ("before", "after") if report.compares else ("outputs",)
        for when, (middle, low, high) in zip(whens, estimates, strict=False):
            row = {"of": of, "when": when, value: middle, "low": low, "high": high}
            rows.append(row)
    return Figure.of(
        "".join(c if c.isascii() and c.isalnum() else "-" for c in name),
        title,
        f"Lines are intervals at level {percent(report.level)}.",
        rows,
        lambda: interval_chart(rows, value, "of", color="when", colors=BEFORE_AFTER),
    )


def _front(tradeoff: dict[str, Any]) -> Figure:
    """Score against unfairness of every setting that was tried."""
    x, y = tradeoff["unfairness"], tradeoff["score"]
    kinds = ["other settings", "nothing beats these", "model as it is", "chosen"]
    points = [
        (point, kinds[1] if point in tradeoff["front"] else kinds[0])
        for point in tradeoff["points"]
        if point["unfairness"] is not None and point["score"] is not None
    ]
    points.sort(key=lambda pair: float(pair[0]["unfairness"]))
    points += [(tradeoff["baseline"], kinds[2]), (tradeoff["best"], kinds[3])]
    rows = []
    for point, kind in points:
        setting = ", ".join(
            f"{name}={shown(point[name])}"
            for name in ("tau", "k", "lam")
            if point.get(name) is not None and not isinstance(point[name], str)
        )
        score, unfairness = point["score"], point["unfairness"]
        rows.append({"setting": setting, "kind": kind, x: unfairness, y: score})
    return Figure.of(
        "tradeoff",
        "What fairness costs",
        "Every setting that was tried, and the one that was chosen.",
        rows,
        lambda: front_chart(rows, x, y, kind="kind", order=kinds),
    )


def _renamed(rows: Rows, keys: Mapping[str, str]) -> Rows:
    """The entries of ``keys`` of every row, under the titles that readers see."""
    return [{title: row[key] for key, title in keys.items()} for row in rows]


def _by(attribute: str) -> str:
    return f", by {attribute}" if attribute else ""
