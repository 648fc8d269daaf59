"""An audit as Markdown and HTML."""

import html
from collections.abc import Iterator
from typing import Any

from pyg_glif.cli.base import short
from pyg_glif.postprocessor import Estimate

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


def to_markdown(data: dict[str, Any], alone: bool) -> str:
    """Text with tables."""
    lines = ["# Individual fairness audit", "", _WORDS]
    for title, header, rows in _sections(data, alone):
        lines += ["", f"## {title}", ""]
        cells = [header, ["---"] * len(header), *rows]
        lines += [f"| {' | '.join(map(_escaped, row))} |" for row in cells]
    return "\n".join(lines) + "\n"


def to_html(data: dict[str, Any], alone: bool) -> str:
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
    """Text that does not end a cell."""
    return cell.replace("|", "\\|").replace("\n", " ")


def _html_row(cells: list[str], tag: str) -> str:
    """A row of a table."""
    inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"
