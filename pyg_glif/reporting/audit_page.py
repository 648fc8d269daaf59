"""Audit reports as a page, as Markdown, and in a notebook.

The same parts in the same order everywhere. Charts are tables in Markdown, because
that is what is behind them.
"""

from collections.abc import Iterator
from typing import Any

from pyg_glif._utils.markup import escaped, markdown_table
from pyg_glif.reporting.audit_charts import Table, charts_of, figures_of, ways
from pyg_glif.reporting.environment import environment
from pyg_glif.reporting.facts import AuditFacts
from pyg_glif.reporting.words import counted, number, percent, shown

TITLE = "Individual fairness audit"
_STATES = {
    "within": "within the tolerance",
    "beyond": "beyond the tolerance",
    "open": "cannot be told from these people",
    "none": "no tolerance was stated",
}
# Names of facts and settings that do not say by themselves what they are.
_IN_WORDS = {
    "num_people": "people",
    "num_outputs": "outputs per person",
    "num_edges": "pairs of similar people",
    "num_isolated": "people without peers",
    "num_identical": "pairs identical in everything that counts",
    "num_identical_apart_before": "of these, not the same output before",
    "num_identical_apart_after": "of these, not the same output after",
    "num_without_fitted_peers": "people without peers in the fit",
    "columns": "compared by",
    "ignored": "not looked at",
    "sensitive": "must not count",
    "scale": "scale",
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
_LINKS = {
    "Logit": "log-odds",
    "Softmax": "log-probabilities",
    "Log": "logarithms",
    "Identity": "outputs",
}
_MEASURES = (
    "Laplacian energy is what the correction lowers: squared differences of outputs, "
    "weighted and added up over all pairs of similar people. A Lipschitz ratio is the "
    "difference of two people's outputs divided by their distance; as many pairs as "
    "stated have at most that much. Peers are the people similar to somebody; a "
    "deviation is the distance of an output from the peers' weighted average. "
    "Consistency is one less the mean difference from the nearest others."
)
# Isolated people that a page lists; the JSON form lists all.
_MOST_LISTED = 1000


def estimate(found: Any, share: bool = False) -> str:
    """A number with its interval."""
    if found is None:
        return ""
    write = percent if share else _short
    if found.low is None or found.high is None:
        return write(found.value)
    return f"{write(found.value)} [{write(found.low)}, {write(found.high)}]"


def _short(value: float) -> str:
    """A number whose interval says that more digits would say nothing."""
    return number(value, 3)


def page_of(report: AuditFacts) -> str:
    """The report as one page that loads nothing."""
    return _rendered("report.html", report, figures=figures_of(report), charts=True)


def fragment_of(report: AuditFacts) -> str:
    """The verdict and the measures, without charts and people."""
    return _rendered("report_short.html", report)


def _rendered(template: str, report: AuditFacts, **more: Any) -> str:
    return (
        environment()
        .get_template(template)
        .render(
            report=report,
            title=TITLE,
            intro=intro_of(report),
            tiles=[tile_of(one) for one in report.verdict],
            setup=list(setup_of(report)),
            columns=columns_of(report),
            certificate=certificate_of(report),
            measures=measures_of(report),
            groups=list(groups_of(report)),
            people=list(people_of(report)),
            pairs=list(pairs_of(report)),
            limits=limits_of(report),
            level=percent(report.level),
            **more,
        )
    )


def markdown_of(report: AuditFacts) -> str:
    """The report as text with tables."""
    parts = [f"# {TITLE}", escaped(intro_of(report)), "## Verdict"]
    for tile in map(tile_of, report.verdict):
        parts.append(
            f"- **{escaped(tile['title'])}**: {escaped(tile['words'])} "
            f"{escaped(tile['numbers'])}. {escaped(tile['judged'])}"
        )
    rows = list(setup_of(report))
    parts += ["## What was compared", markdown_table(["what", "value"], rows)]
    for table in (columns_of(report), measures_of(report), *groups_of(report)):
        if table is not None:
            parts += _markdown(table, "##" if table.name == "measures" else "###")
    if report.certificate:
        parts += ["## Numerical error", escaped(certificate_of(report))]
    parts.append("## Charts as tables")
    for chart in charts_of(report):
        parts += _markdown(chart.table, "###")
    if report.names_people:
        parts.append("## People")
        for table in (
            *people_of(report),
            *(pair_table(*one) for one in _pairs(report)),
        ):
            parts += _markdown(table, "###")
    parts.append("## Limits")
    parts += [f"- {escaped(line)}" for line in limits_of(report)]
    text = "\n\n".join(parts)
    return (
        text.replace("\n\n- ", "\n- ")
        .replace("Verdict\n- ", "Verdict\n\n- ")
        .replace("Limits\n- ", "Limits\n\n- ")
        + "\n"
    )


def _markdown(table: Table, mark: str) -> list[str]:
    out = [f"{mark} {escaped(table.title)}"]
    if table.words:
        out.append(escaped(table.words))
    rows = [[shown(value) for value in row] for row in table.rows]
    return [*out, markdown_table(table.header, rows)] if rows else [*out, "None."]


def intro_of(report: AuditFacts) -> str:
    """What the page is, in three sentences."""
    facts = report.facts
    people = counted(facts["num_people"], "person", "people")
    what = (
        "before and after correction"
        if report.compares
        else "by the outputs as they are"
    )
    return (
        f"How similar people are treated, {what}: {people}, "
        f"{counted(facts['num_edges'], 'pair', 'pairs')} of similar people. "
        f"Made on {report.made['date'].replace('T', ' ').replace('+00:00', ' UTC')}."
    )


def tile_of(one: Any) -> dict[str, str]:
    """A verdict in words."""
    numbers = estimate(one.before, one.is_share)
    write = percent if one.is_share else _short
    figure = write(one.before.value)
    if one.after is not None:
        numbers = f"Before {numbers}, after {estimate(one.after, one.is_share)}"
        figure = f"{figure} → {write(one.after.value)}"
    judged = _STATES[one.state]
    if one.tolerance is not None:
        judged = f"{judged} ({write(one.tolerance)})"
    least, largest = map(write, one.interval)
    return {
        "title": one.title,
        "words": one.words,
        "numbers": numbers,
        "figure": figure,
        "state": one.state,
        "judged": judged[0].upper() + judged[1:],
        "range": least if least == largest else f"{least} to {largest}",
    }


def setup_of(report: AuditFacts) -> Iterator[tuple[str, str]]:
    """Settings, facts, versions: a title and a value each."""
    setup = report.setup
    unit = f" {setup['unit']}" if setup.get("unit") else ""
    for name, value in setup.items():
        if value in (None, False, [], ()) or name in ("table", "unit"):
            continue
        if name == "difference":
            text = f"if outputs are more than {number(value)} apart"
        elif name == "threshold":
            text = f"yes if the output is above {number(value)}"
        elif name == "tau":
            text = "any distance" if value == float("inf") else f"{number(value)}{unit}"
        elif name == "theta":
            text = "all equal" if value == 0 else f"exp(-{number(value)} distance²)"
        elif name == "link":
            text = _LINKS.get(value, str(value))
        elif name == "lam":
            text = f"λ = {number(value)}"
        elif name == "files":
            text = "; ".join(f"{file}: {digest}" for file, digest in value.items())
        else:
            text = shown(value)
        yield _title(name), text
    for name, value in report.facts.items():
        yield _title(name), shown(value)
    yield "date", report.made["date"]
    yield "versions", ", ".join(f"{n} {v}" for n, v in report.made["versions"].items())
    yield _title("data_sha256"), report.made["data_sha256"]


def columns_of(report: AuditFacts) -> Table | None:
    """How each feature was scaled, if a table did it."""
    rows = report.setup.get("table")
    if not rows:
        return None
    header = ["column", "kind", "scaled by", "reach", "share", "missing", "note"]
    cells = [
        [
            row["column"],
            row["kind"],
            row["scaled_by"],
            *(
                ["", "", ""]
                if row["kind"] in ("sensitive", "ignored")
                else [row["reach"], percent(row["share"]), row["missing"]]
            ),
            row["note"],
        ]
        for row in rows
    ]
    unit = report.setup.get("unit") or "units"
    words = (
        f"Distances are in {unit}. 'Reach' is the largest distance that the column "
        "alone makes; 'share' its part in how far people are apart."
    )
    return Table("Features, and how each was scaled", words, header, cells, (3, 4, 5))


def certificate_of(report: AuditFacts) -> str:
    """The numerical error bound in a sentence."""
    found = report.certificate
    if not found:
        return ""
    return (
        f"The solve by {found['solver'].partition('(')[0]} ended as "
        f"{found['status'].lower().replace('_', ' ')}: the corrected "
        "outputs of all people together are, as a Euclidean norm, at most "
        f"{found['error_bound']:.1e} from the exact minimum."
    )


def measures_of(report: AuditFacts) -> Table:
    """Everything that was measured."""
    whens = ["before", "after", "change"] if report.compares else ["value"]
    rows = [
        [m.title, m.better or "-", *(estimate(e) for e in _estimates(m))]
        for m in report.measures
    ]
    return Table(
        "Measures",
        f"{_MEASURES} Intervals at level {percent(report.level)}, where there are any.",
        ["measure", "better", *whens],
        rows,
        name="measures",
    )


def _estimates(measure: Any) -> list[Any]:
    found = (measure.before, measure.after, measure.change)
    return [one for one in found if one is not None]


def groups_of(report: AuditFacts) -> Iterator[Table]:
    """How the groups of each attribute fare."""
    up, down = ways(report)
    for name, found in report.groups.items():
        header, columns = [name, "people"], []
        for title, key in (
            ("mean before", "mean_before"),
            ("mean after", "mean_after"),
            ("rate before", "rate_before"),
            ("rate after", "rate_after"),
            (up, "num_raised"),
            (down, "num_lowered"),
        ):
            values = [getattr(one, key) for one in found]
            if any(value is not None for value in values):
                header.append(title)
                share = key.startswith("rate")
                columns.append(
                    [v if isinstance(v, int) else estimate(v, share) for v in values]
                )
        rows = [
            [one.group, one.num_people, *(column[at] for column in columns)]
            for at, one in enumerate(found)
        ]
        yield Table(f"Groups by {name}", "", header, rows, (1,))


def people_of(report: AuditFacts) -> Iterator[Table]:
    """The people whom the report names."""
    lists, compares = report.lists, report.compares
    before = " before" if compares else ""
    far = "Furthest from the average of their peers"
    yield _people(report, f"{far}{before}", lists.worst_before, "worst-before")
    if compares:
        yield _people(report, f"{far} after", lists.worst_after, "worst-after")
        yield _people(report, "Moved furthest", lists.most_moved, "most-moved")
    alone = lists.isolated
    listed = alone[:_MOST_LISTED]
    words = (
        "Nobody is similar to them, so nobody can say whether they are treated alike."
    )
    if len(listed) < len(alone):
        words += f" The first {len(listed):,} of {len(alone):,}; the JSON form has all."
    header = ["person", "output"]
    rows = [[_called(report, one.index), _output(one.before)] for one in listed]
    yield Table("People without peers", words, header, rows, (1,), "isolated")


def _people(
    report: AuditFacts, title: str, people: tuple[Any, ...], name: str
) -> Table:
    """People with their outputs and those of their peers."""
    if report.compares:
        header = [
            "person",
            "peers",
            "before",
            "peers' mean before",
            "after",
            "peers' mean after",
            "moved by",
        ]
        rows = [
            [
                _called(report, p.index),
                p.num_peers,
                _output(p.before),
                _output(p.peers_before),
                _output(p.after),
                _output(p.peers_after),
                p.moved,
            ]
            for p in people
        ]
    else:
        header = ["person", "peers", "output", "peers' mean", "apart by"]
        rows = [
            [
                _called(report, p.index),
                p.num_peers,
                _output(p.before),
                _output(p.peers_before),
                p.deviation_before,
            ]
            for p in people
        ]
    return Table(title, "", header, rows, range(1, len(header)), name)


def _called(report: AuditFacts, index: int) -> str:
    """What somebody is called, as it is: no thousands are set apart in a number."""
    return str(report.person(index))


def _output(value: Any) -> Any:
    """Outputs as a number, or several as text."""
    return list(value) if isinstance(value, tuple) else value


def _pairs(report: AuditFacts) -> Iterator[tuple[Any, ...]]:
    """Title, words and pairs of each list of pairs."""
    lists, before = report.lists, " before" if report.compares else ""
    similar = "Similar people treated most unlike"
    same = "Identical people treated most unlike"
    num = report.facts["num_identical"]
    words = (
        f"{counted(num, 'pair is', 'pairs are')} identical in everything that counts; "
        "these have the largest differences of outputs. Where features differ, the "
        "difference does not count: their distance is zero."
    )
    far = "Not identical; ranked by the difference of their outputs."
    yield report, f"{similar}{before}", far, lists.pairs_before, "pairs-before"
    if report.compares:
        yield report, f"{similar} after", far, lists.pairs_after, "pairs-after"
    if num:
        yield (
            report,
            f"{same}{before}",
            words,
            lists.identical_before,
            "identical-before",
        )
        if report.compares:
            yield (
                report,
                f"{same} after",
                words,
                lists.identical_after,
                "identical-after",
            )


def pairs_of(report: AuditFacts) -> Iterator[dict[str, Any]]:
    """Lists of pairs, each pair also side by side if features are known."""
    for found in _pairs(report):
        side = [beside(report, pair) for pair in found[3]] if report.features else []
        yield {"table": pair_table(*found), "side_by_side": side}


def pair_table(
    report: AuditFacts, title: str, words: str, pairs: tuple[Any, ...], name: str
) -> Table:
    """Pairs in rows."""
    whens = ["before", "after"] if report.compares else ["outputs"]
    header = ["one", "other", "distance"]
    for when in whens:
        header += [when, f"apart {when}" if report.compares else "apart"]
    rows = []
    for pair in pairs:
        row: list[Any] = [_called(report, pair.first), _called(report, pair.second)]
        row += [pair.distance, _two(pair.before), pair.difference_before]
        if report.compares:
            row += [_two(pair.after), pair.difference_after]
        if report.features is not None:
            row.append(_differences(report.differing(pair)))
        rows.append(row)
    numbers = [2, 4, 6] if report.compares else [2, 4]
    if report.features is not None:
        header.append("differ in")
    return Table(title, words, header, rows, numbers, name)


def _two(values: Any) -> str:
    """Outputs of two people."""
    return " and ".join(shown(_output(value)) for value in values)


def _differences(found: list[dict[str, Any]]) -> str:
    if not found:
        return "nothing that is known"
    return "; ".join(
        f"{d['feature']} ({_known(d['first'])}, {_known(d['second'])})" for d in found
    )


def _known(value: Any) -> str:
    return "missing" if value is None else shown(value)


def beside(report: AuditFacts, pair: Any) -> dict[str, Any]:
    """Two people side by side: their features, and which of them differ."""
    assert report.features is not None
    first, second = (report.features.row(at) for at in (pair.first, pair.second))
    names = [_called(report, pair.first), _called(report, pair.second)]
    rows = [[name, _known(first[name]), _known(second[name])] for name in first]
    marks = [[1, 2] if first[name] != second[name] else [] for name in first]
    rows.append(
        [
            "output before" if report.compares else "output",
            *map(shown, map(_output, pair.before)),
        ]
    )
    marks.append([])
    if pair.after is not None:
        rows.append(["output after", *map(shown, map(_output, pair.after))])
        marks.append([])
    title = f"{names[0]} and {names[1]}, {number(pair.difference_before)} apart"
    if pair.difference_after is not None:
        title = f"{title}, after correction {number(pair.difference_after)}"
    return {
        "title": title,
        "header": ["", *names],
        "rows": rows,
        "marks": marks,
    }


def limits_of(report: AuditFacts) -> list[str]:
    """What the report does not show, in plain words."""
    setup, facts = report.setup, report.facts
    lines = [
        "Similar is what the chosen features, scales and radius call similar. Another "
        "choice gives another report.",
        "It describes these people. It does not certify that a model is fair, nor that "
        "a law is met.",
        "Treating similar people alike does not make groups equal: gaps between groups "
        "are shown, not removed.",
        "If a feature that counts tells the protected attribute, similar people may be "
        "of one group only, and unlike treatment of the groups does not show in pairs.",
    ]
    if facts["num_isolated"]:
        alone = counted(facts["num_isolated"], "person has", "people have")
        lines.append(f"{alone} no peers. About them this report says nothing.")
    if setup.get("difference") is not None:
        lines.append(
            "Treated unlike means here that outputs are more than "
            f"{number(setup['difference'])} apart. No decision was looked at."
        )
    if not report.certificate:
        lines.append("Where the outputs came from was not checked.")
    lines.append(
        "Intervals say how much the numbers would vary with other people of the same "
        "kind. They do not cover errors in the data or in the choice of what is "
        "similar."
    )
    return lines


def _title(name: str) -> str:
    return _IN_WORDS.get(name, name.replace("_", " "))
