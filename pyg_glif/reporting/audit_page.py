"""Audit reports as a page, as Markdown, and in a notebook.

The same tables in the same order everywhere. Charts are tables in Markdown, because
that is what is behind them.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import inf
from typing import Any

from pyg_glif.reporting.audit_charts import Report, figures_of, plot_of, ways
from pyg_glif.reporting.environment import environment
from pyg_glif.reporting.tables import ReportTable
from pyg_glif.reporting.words import number, percent, shown

__all__ = ["figures_of", "limits_of", "plot_of", "render", "tile_of"]

_STATES = {
    "within": "within the tolerance",
    "beyond": "beyond the tolerance",
    "open": "cannot be told from these people",
    "none": "no tolerance was stated",
}
# Names of facts and settings that do not say by themselves what they are.
_IN_WORDS = {
    "num_samples": "people",
    "num_outputs": "outputs per person",
    "num_edges": "pairs of similar people",
    "num_isolated": "people without peers",
    "num_identical": "pairs identical in everything that counts",
    "num_identical_differing_before": "of these, not the same output before",
    "num_identical_differing_after": "of these, not the same output after",
    "num_without_fitted_neighbors": "people without peers in the fit",
    "columns": "compared by",
    "ignored": "not looked at",
    "sensitive": "must not count",
    "tau": "similar within",
    "k": "similar are the nearest",
    "mutual": "each among the nearest of the other",
    "theta": "weights",
    "lam": "strength",
    "normalization": "form of the Laplacian",
    "link": "averages are of",
    "threshold": "decision",
    "difference": "treated unlike",
    "num_nearest": "nearest others compared",
    "data_sha256": "SHA-256 of features and outputs",
    "files": "SHA-256 of files",
}
# Isolated samples that a page lists; the JSON form lists all.
_MOST_LISTED = 1000


def render(report: Report, template: str) -> str:
    """The report by one of the templates ``report.html``, ``.md``, ``_short.html``."""
    return (
        environment()
        .get_template(template)
        .render(
            title="Individual fairness audit",
            report=report,
            intro=_sentences().intro(report),
            tiles=[tile_of(verdict) for verdict in report.verdict],
            setup=ReportTable("", "", "", ["what", "value"], list(_setup(report))),
            columns=_columns(report),
            certificate=_sentences().certificate(report),
            measures=_measures(report),
            groups=list(_groups(report)),
            figures=list(figures_of(report)),
            people=[*_samples(report), *_pairs(report)],
            limits=limits_of(report),
            level=percent(report.level),
            charts=True,
        )
    )


def tile_of(verdict: Any) -> dict[str, str]:
    """A verdict in words."""
    write = percent if verdict.is_share else _short
    numbers = _estimate(verdict.before, verdict.is_share)
    figure = write(verdict.before.value)
    if verdict.after is not None:
        after = _estimate(verdict.after, verdict.is_share)
        numbers = f"Before {numbers}, after {after}"
        figure = f"{figure} → {write(verdict.after.value)}"
    judged = _STATES[verdict.state]
    if verdict.tolerance is not None:
        judged = f"{judged} ({write(verdict.tolerance)})"
    least, largest = map(write, verdict.interval)
    return {
        "title": verdict.title,
        "words": verdict.words,
        "numbers": numbers,
        "figure": figure,
        "state": verdict.state,
        "judged": judged[0].upper() + judged[1:],
        "range": least if least == largest else f"{least} to {largest}",
    }


def limits_of(report: Report) -> list[str]:
    """What the report does not show, in plain words."""
    lines: list[str] = _sentences().limits(report).splitlines()
    return lines


@lru_cache
def _sentences() -> Any:
    """Sentences, as macros."""
    return environment().get_template("audit.txt", globals={"inf": inf}).module


def _estimate(estimate: Any, share: bool = False) -> str:
    """A number with its interval."""
    if estimate is None:
        return ""
    write = percent if share else _short
    if estimate.low is None or estimate.high is None:
        return write(estimate.value)
    return f"{write(estimate.value)} [{write(estimate.low)}, {write(estimate.high)}]"


def _short(value: float) -> str:
    """A number whose interval says that more digits would say nothing."""
    return number(value, 3)


def _setup(report: Report) -> Iterator[tuple[str, str]]:
    """Settings, facts, versions: a title and a value each."""
    made, unit = report.made, report.setup.get("unit")
    for name, value in report.setup.items():
        if value not in (None, False, [], ()) and name not in ("table", "unit"):
            text = _sentences().setting(name, value, f" {unit}" if unit else "")
            yield _IN_WORDS.get(name, name.replace("_", " ")), text
    for name, value in report.facts.items():
        yield _IN_WORDS.get(name, name.replace("_", " ")), shown(value)
    yield "date", made["date"]
    yield "versions", ", ".join(f"{n} {v}" for n, v in made["versions"].items())
    yield _IN_WORDS["data_sha256"], made["data_sha256"]


def _columns(report: Report) -> ReportTable | None:
    """How each feature was scaled, if a table did it."""
    rows = []
    for row in report.setup.get("table") or ():
        sizes = [row["reach"], percent(row["share"]), row["missing"]]
        if row["kind"] in ("sensitive", "ignored"):
            sizes = ["", "", ""]
        rows.append([row["column"], row["kind"], row["scaled_by"], *sizes, row["note"]])
    if not rows:
        return None
    return ReportTable(
        "",
        "Features, and how each was scaled",
        _sentences().columns(report.setup.get("unit")),
        ["column", "kind", "scaled by", "reach", "share", "missing", "note"],
        rows,
        (3, 4, 5),
    )


def _measures(report: Report) -> ReportTable:
    names = ("before", "after", "change") if report.compares else ("before",)
    return ReportTable(
        "",
        "Measures",
        _sentences().measures(report),
        ["measure", "better", *(names if report.compares else ("value",))],
        [
            [m.title, m.better or "-", *(_estimate(getattr(m, name)) for name in names)]
            for m in report.measures
        ],
    )


def _groups(report: Report) -> Iterator[ReportTable]:
    """Averages, rates and changes of the groups of each attribute."""
    up, down = ways(report)
    titles = {
        "mean_before": "mean before",
        "mean_after": "mean after",
        "rate_before": "rate before",
        "rate_after": "rate after",
        "num_raised": up,
        "num_lowered": down,
    }
    for name, groups in report.groups.items():
        keys = [
            key for key in titles if any(getattr(g, key) is not None for g in groups)
        ]
        rows = []
        for group in groups:
            values = [(key, getattr(group, key)) for key in keys]
            cells = [
                value
                if isinstance(value, int)
                else _estimate(value, key.startswith("rate"))
                for key, value in values
            ]
            rows.append([group.group, group.num_samples, *cells])
        header = [name, "people", *(titles[key] for key in keys)]
        yield ReportTable("", f"Groups by {name}", "", header, rows, (1,))


def _samples(report: Report) -> Iterator[ReportTable]:
    """Samples that the report lists, with their outputs and those of neighbors."""
    lists, title = report.lists, "Furthest from the average of their peers"
    if report.compares:
        header = ["person", "peers", "before", "peers' mean before"]
        header += ["after", "peers' mean after", "moved by"]
        named = {
            "worst-before": (f"{title} before", lists.worst_before),
            "worst-after": (f"{title} after", lists.worst_after),
            "most-moved": ("Moved furthest", lists.most_moved),
        }
    else:
        header = ["person", "peers", "output", "peers' mean", "apart by"]
        named = {"worst-before": (title, lists.worst_before)}
    for name, (title, samples) in named.items():
        rows = []
        for one in samples:
            row = [str(report.sample_id(one.index)), one.num_neighbors]
            row += [one.before, one.neighbors_before]
            if report.compares:
                row += [one.after, one.neighbors_after, one.moved]
            else:
                row.append(one.deviation_before)
            rows.append(row)
        yield ReportTable(name, title, "", header, rows, range(1, len(header)))
    num, listed = len(lists.isolated), lists.isolated[:_MOST_LISTED]
    words = _sentences().isolated(len(listed), num)
    rows = [[str(report.sample_id(one.index)), one.before] for one in listed]
    title = "People without peers"
    yield ReportTable("isolated", title, words, ["person", "output"], rows, (1,))


def _pairs(report: Report) -> Iterator[ReportTable]:
    """Pairs that the report lists, each also side by side if features are known."""
    num = report.facts["num_identical"]
    words = _sentences()
    kinds = {
        "pairs": ("Similar people treated most unlike", words.pairs()),
        "identical": ("Identical people treated most unlike", words.identical(num)),
    }
    for kind, (title, how) in kinds.items():
        if kind == "identical" and not num:
            continue
        for when in ("before", "after") if report.compares else ("before",):
            pairs = getattr(report.lists, f"{kind}_{when}")
            full = f"{title} {when}" if report.compares else title
            yield _pair_table(report, f"{kind}-{when}", full, how, pairs)


def _pair_table(
    report: Report, name: str, title: str, words: str, pairs: Sequence[Any]
) -> ReportTable:
    header = ["one", "other", "distance", "outputs", "apart"]
    if report.compares:
        header[3:] = ["before", "apart before", "after", "apart after"]
    numbers = range(2, len(header), 2)
    if report.features is not None:
        header.append("differ in")
    rows, details = [], []
    for pair in pairs:
        row = [str(report.sample_id(i)) for i in (pair.first, pair.second)]
        row += [pair.distance, _two(pair.before), pair.difference_before]
        if report.compares:
            row += [_two(pair.after), pair.difference_after]
        if report.features is not None:
            differing = [
                f"{d['feature']} ({_known(d['first'])}, {_known(d['second'])})"
                for d in report.differing(pair)
            ]
            row.append("; ".join(differing) or "nothing that is known")
            details.append(_side_by_side(report, pair))
        rows.append(row)
    return ReportTable(name, title, words, header, rows, numbers, details=details)


def _side_by_side(report: Report, pair: Any) -> ReportTable:
    """Features and outputs of two samples, those that differ marked."""
    names = [str(report.sample_id(i)) for i in (pair.first, pair.second)]
    first, second = (report.features.row(i) for i in (pair.first, pair.second))
    rows = [[name, _known(first[name]), _known(second[name])] for name in first]
    marks = [[1, 2] if first[name] != second[name] else [] for name in first]
    title = f"{names[0]} and {names[1]}, {number(pair.difference_before)} apart"
    before = "output before" if report.compares else "output"
    rows.append([before, *map(shown, pair.before)])
    if report.compares:
        rows.append(["output after", *map(shown, pair.after)])
        title = f"{title}, after correction {number(pair.difference_after)}"
    marks += [[]] * (len(rows) - len(marks))
    return ReportTable("", title, "", ["", *names], rows, marks=marks)


def _two(outputs: Sequence[Any]) -> str:
    return " and ".join(map(shown, outputs))


def _known(value: Any) -> str:
    return "missing" if value is None else shown(value)
