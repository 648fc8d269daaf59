"""Charts of an audit report."""

from collections.abc import Iterator
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
    group = attribute or "people of"
    across, up = "output before", "output after"
    circles = [
        {
            across: r["before"],
            up: r["after"],
            "people": r["num_samples"],
            group: r["group"],
        }
        for r in rows
    ]
    return Figure(
        name,
        f"Before against after{_by(attribute)}",
        "Each circle stands for all people whose outputs before and after are in the "
        "same square, and its size for their number. On the dashed line nothing "
        "changed.",
        [group, "before", "after", "people"],
        _columns(rows, "group", "before", "after", "num_samples"),
        (1, 2, 3),
        draw=lambda: bubble_chart(circles, across, up, count="people", color=group),
    )


def _moved(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    group = attribute or "people of"
    bars = [{**r, group: r["group"], "people": r["num_samples"]} for r in rows]
    words, title = "as a distance.", "distance moved"
    if report.facts["num_outputs"] == 1:
        words = "to the right of zero outputs rose."
        title = "output after less before"
    return Figure(
        name,
        f"How far outputs moved{_by(attribute)}",
        f"How many people moved how far; {words}",
        [group, "from", "to", "people"],
        _columns(rows, "group", "from", "to", "num_samples"),
        (1, 2, 3),
        draw=lambda: histogram(bars, "from", "to", "people", color=group, title=title),
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
    directions = {"raised": (up, 1), "lowered": (down, -1)}
    cells, bars = [], []
    for row in rows:
        direction, sign = directions[row["way"]]
        cells.append([row["group"], direction, row["num_samples"], row["of"]])
        bars.append(
            {group: row["group"], "way": direction, "people": sign * row["num_samples"]}
        )
    colors = {up: _UP, down: _DOWN}
    return Figure(
        name,
        f"Decisions that changed{_by(attribute)}",
        words,
        [group, "direction", "people", "of"],
        cells,
        (2, 3),
        draw=lambda: bar_chart(bars, "people", group, color="way", colors=colors),
    )


def _differences(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    unit = report.setup.get("unit")
    across = f"distance ({unit})" if unit else "distance"
    middle, high = "median difference", "90%"
    points = [
        {
            across: (row["from"] + row["to"]) / 2,
            middle: row["median"],
            high: row["p90"],
            "when": row["when"],
        }
        for row in rows
    ]
    total = sum(row["num_pairs"] for row in rows if row["when"] == rows[0]["when"])
    return Figure(
        name,
        "Unlike treatment against distance",
        f"Differences of outputs of {counted(total, 'pair', 'pairs')} of similar "
        "people by their distance: the line is the median, the band ends where 90% of "
        "pairs do. Identical people are counted apart.",
        ["when", "from", "to", "pairs", "median", "90%"],
        _columns(rows, "when", "from", "to", "num_pairs", "median", "p90"),
        (1, 2, 3, 4, 5),
        draw=lambda: band_chart(
            points, across, middle, high, color="when", colors=BEFORE_AFTER
        ),
    )


def _degrees(report: Report, name: str, rows: Rows, attribute: str) -> Figure:
    bars = [
        {
            "from": row["from"] - 0.5,
            "to": row["to"] + 0.5,
            "people": row["num_samples"],
            "of": "",
        }
        for row in rows
    ]
    isolated = counted(report.facts["num_isolated"], "person has", "people have")
    return Figure(
        name,
        "Number of peers",
        f"How many peers people have. {isolated} none.",
        ["from", "to", "people"],
        _columns(rows, "from", "to", "num_samples"),
        (0, 1, 2),
        draw=lambda: histogram(bars, "from", "to", "people", color="of", title="peers"),
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
            rows.append(
                {"of": of, "when": when, value: middle, "low": low, "high": high}
            )
    return Figure(
        "".join(c if c.isascii() and c.isalnum() else "-" for c in name),
        title,
        f"Lines are intervals at level {percent(report.level)}.",
        ["of", "when", value, "low", "high"],
        _columns(rows, "of", "when", value, "low", "high"),
        (2, 3, 4),
        draw=lambda: interval_chart(
            rows, value, "of", color="when", colors=BEFORE_AFTER
        ),
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
    return Figure(
        "tradeoff",
        "What fairness costs",
        "Every setting that was tried, and the one that was chosen.",
        ["setting", "kind", x, y],
        _columns(rows, "setting", "kind", x, y),
        (2, 3),
        draw=lambda: front_chart(rows, x, y, kind="kind", order=kinds),
    )


def _columns(rows: Rows, *keys: str) -> list[list[Any]]:
    return [[row[key] for key in keys] for row in rows]


def _by(attribute: str) -> str:
    return f", by {attribute}" if attribute else ""
