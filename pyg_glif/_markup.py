"""Tables and pages in Markdown and HTML, in which text shows as it is."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

# What has a meaning in a cell of a Markdown table. Underscores within words, brackets
# that are no links and ampersands that are no characters have none.
_MARKUP = re.compile(r"[\\`*<|~]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[]|&(?=#?\w+;)")
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;"
    "padding:0 1em}table{border-collapse:collapse}th,td{padding:.2em .8em;"
    "border-bottom:1px solid #ccc;text-align:left}td{font-variant-numeric:tabular-nums}"
)
_RULES = {"l": "---", "r": "---:", "c": ":---:"}


class Section(NamedTuple):
    """A part of a page: a heading and a table."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]


def cell(value: Any) -> str:
    """A value as text: five digits of numbers, lists joined by "and"."""
    if isinstance(value, list):
        return " and ".join(map(cell, value))
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def markdown_table(
    header: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    align: str = "",
    escape: bool = True,
) -> str:
    """A Markdown table.

    Args:
        header (sequence of str): Names of the columns.
        rows (iterable): Values, one sequence per row.
        align (str): A letter per column, of ``l``, ``r`` and ``c``.
            (default: all to the left)
        escape (bool): Whether markup in cells is shown rather than obeyed.
            (default: :obj:`True`)
    """
    lines = [list(header), [_RULES[letter] for letter in align or "l" * len(header)]]
    lines += [[cell(value) for value in row] for row in rows]
    if escape:
        lines = [[escaped(text) for text in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """An HTML table."""
    lines = ["<table>", _html_row(header, "th"), *(_html_row(r, "td") for r in rows)]
    return "\n".join([*lines, "</table>"])


def markdown_page(title: str, words: str, sections: Iterable[Section]) -> str:
    """A Markdown page: title, a paragraph, tables with headings."""
    parts = [f"# {escaped(title)}", escaped(words)]
    for section in sections:
        parts.append(f"## {escaped(section.title)}")
        parts.append(markdown_table(section.header, section.rows))
    return "\n\n".join(parts) + "\n"


def html_page(title: str, words: str, sections: Iterable[Section]) -> str:
    """An HTML page that loads no other file."""
    body = [f"<h1>{html.escape(title)}</h1>", f"<p>{html.escape(words)}</p>"]
    for section in sections:
        body.append(f"<h2>{html.escape(section.title)}</h2>")
        body.append(html_table(section.header, section.rows))
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body>\n" + "\n".join(body) + "\n</body></html>\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no tags, no end of a cell."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))


def _html_row(values: Sequence[Any], tag: str) -> str:
    """A row of a table."""
    inner = "".join(f"<{tag}>{html.escape(cell(v))}</{tag}>" for v in values)
    return f"<tr>{inner}</tr>"
