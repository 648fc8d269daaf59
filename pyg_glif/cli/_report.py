"""An audit as Markdown, HTML and JSON, with people's own ids."""

import argparse
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_glif._plain import plain
from pyg_glif.cli._command import default_of, keywords, short
from pyg_glif.cli._files import write_text
from pyg_glif.cli._people import People
from pyg_glif.postprocessor import AuditReport, Estimate, GLIFPostProcessor, audit
from pyg_glif.tuning import tune

#: Suffixes of reports.
SUFFIXES = (".md", ".html", ".json")


def options(args: argparse.Namespace, people: People) -> dict[str, Any]:
    """What both kinds of audit are told."""
    nearest = default_of(audit, "k") if args.nearest is None else args.nearest
    found = {
        "attributes": people.attribute_codes(),
        "groups": people.group_codes(),
        "k": min(nearest, len(people) - 1) if args.nearest is None else nearest,
        **keywords(args, "--threshold"),
    }
    if args.worst is not None:
        found["num_worst"] = args.worst
    return {**found, "k": found["k"] or None}


def of_fit(
    args: argparse.Namespace, people: People, post: GLIFPostProcessor
) -> "Report":
    """The report of a fit."""
    found = post.audit(**options(args, people))
    return Report.of(found, args, people, post.y_fair_)


@dataclass(frozen=True)
class Report:
    """What an audit found, as plain data; about one set of outputs or two."""

    data: dict[str, Any]
    alone: bool

    @classmethod
    def of(
        cls,
        found: AuditReport,
        args: argparse.Namespace,
        people: People,
        after: Tensor | None,
    ) -> "Report":
        """Adds accuracy and ids to a report; without ``after``, there is no change."""
        data = found.to_dict()
        if people.labels is not None:
            threshold = keywords(args, "--threshold").get("threshold")
            threshold = (
                default_of(tune, "threshold") if threshold is None else threshold
            )
            for when, y in (("before", people.y), ("after", after)):
                if y is not None:
                    name = "accuracy" if after is None else f"accuracy {when}"
                    right = people.accuracy(y, args.positive, threshold)
                    data["facts"][name] = right
        ids = people.first_ids()
        if ids is not None:
            _add_ids(data, ids)
        return cls(_alone(data) if after is None else data, after is None)

    def to_markdown(self) -> str:
        """Text with tables."""
        return _to_markdown(self.data, self.alone)

    def write(self, path: str) -> None:
        """In the format of the suffix."""
        kind = Path(path).suffix.lower()
        if kind == ".json":
            write_text(path, json.dumps(plain(self.data), indent=2) + "\n")
        else:
            write_text(
                path,
                (_to_html if kind == ".html" else _to_markdown)(self.data, self.alone),
            )


def _alone(data: dict[str, Any]) -> dict[str, Any]:
    """The half of a report that is about outputs as they are."""
    facts = {k: v for k, v in data["facts"].items() if "movement" not in k}
    people = [
        {k: v for k, v in one.items() if k not in ("before", "after", "moved")}
        | {"deviation": one["before"]}
        for one in data["worst_before"]
    ]
    measures = [
        {"name": m["name"], "better": m["better"], "value": m["before"]}
        for m in data["measures"]
    ]
    return {
        "facts": facts,
        "measures": measures,
        "worst": people,
        "pairs": data["pairs_before"],
        "certificate": {},
        "level": data["level"],
    }


def _add_ids(data: dict[str, Any], ids: list[str]) -> None:
    """Says who people are beside their row."""
    for when in ("before", "after"):
        worst, pairs = f"worst_{when}", f"pairs_{when}"
        data[worst] = [{"id": ids[one["index"]], **one} for one in data[worst]]
        data[pairs] = [
            {"ids": [ids[one["first"]], ids[one["second"]]], **one}
            for one in data[pairs]
        ]


# What has a meaning in a cell of a Markdown table.
_MARKUP = re.compile(r"[\\`*<|~]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[]|&(?=#?\w+;)")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;"
    "padding:0 1em}table{border-collapse:collapse}th,td{padding:.2em .8em;"
    "border-bottom:1px solid #ccc;text-align:left}td{font-variant-numeric:tabular-nums}"
)
_WORDS = (
    "Peers are neighbours in the similarity graph; a person's deviation is the "
    "distance of their output from the peers' weighted average. This describes these "
    "people under the chosen distance. It does not certify that a model is fair."
)

#: A title, the header of a table, its rows.
_Section = tuple[str, list[str], list[list[str]]]


def _to_markdown(data: dict[str, Any], alone: bool) -> str:
    """Text with tables."""
    lines = ["# Individual fairness audit", "", _WORDS]
    for title, header, rows in _sections(data, alone):
        lines += ["", f"## {title}", ""]
        cells = [header, ["---"] * len(header), *rows]
        lines += [f"| {' | '.join(map(_escaped, row))} |" for row in cells]
    return "\n".join(lines) + "\n"


def _to_html(data: dict[str, Any], alone: bool) -> str:
    """One page without anything to load."""
    body = [f"<h1>Individual fairness audit</h1><p>{html.escape(_WORDS)}</p>"]
    for title, header, rows in _sections(data, alone):
        body.append(f"<h2>{html.escape(title)}</h2><table>")
        body += [_html_row(header, "th"), *(_html_row(row, "td") for row in rows)]
        body.append("</table>")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>Individual fairness audit</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body>\n" + "\n".join(body) + "\n</body></html>\n"


def _sections(data: dict[str, Any], alone: bool) -> Iterator[_Section]:
    """Title and table, one after the other."""
    yield "People", ["fact", "value"], _pairs(data["facts"])
    whens = ["value"] if alone else ["before", "after", "change"]
    yield (
        f"Measures, bootstrap intervals at level {data['level']:g}",
        ["measure", "better", *whens],
        [
            [m["name"], m["better"] or "-", *(_estimate(m[w]) for w in whens)]
            for m in data["measures"]
        ],
    )
    for when in [""] if alone else ["_before", "_after"]:
        title = when.replace("_", " ")
        yield _records(f"Treated most unlike their peers{title}", data["worst" + when])
        yield _records(f"Pairs treated most unlike{title}", data["pairs" + when])
    if data["certificate"]:
        yield "Certificate", ["fact", "value"], _pairs(data["certificate"])


def _records(title: str, records: list[dict[str, Any]]) -> _Section:
    """A table of people or pairs."""
    header = [name.replace("_", " ") for name in records[0]] if records else ["none"]
    return title, header, [[_cell(v) for v in one.values()] for one in records]


def _pairs(facts: dict[str, Any]) -> list[list[str]]:
    """A table of facts."""
    return [[name, _cell(value)] for name, value in facts.items()]


def _cell(value: Any) -> str:
    """A value as text."""
    return " and ".join(value) if isinstance(value, list) else short(value)


def _estimate(record: dict[str, Any]) -> str:
    """A number and its interval."""
    return str(Estimate(**record))


def _escaped(cell: str) -> str:
    """Text that shows as it is: no markup, no tags, no end of a cell.

    Underscores within words, brackets that are no links and ampersands that are no
    characters mean nothing in Markdown and are left alone.
    """
    return _MARKUP.sub(r"\\\g<0>", " ".join(cell.split()))


def _html_row(cells: list[str], tag: str) -> str:
    """A row of a table."""
    inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"
