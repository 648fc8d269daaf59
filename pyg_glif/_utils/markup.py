"""Tables in Markdown, in which text shows as it is."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

# Characters with a meaning in a cell of a Markdown table. Underscores within words,
# brackets that are no links and ampersands that are no characters have none.
_MARKUP = re.compile(r"[\\`*<|~]|(?<![^\W_])_|_(?![^\W_])|(?<=\])[(\[]|&(?=#?\w+;)")
_RULES = {"l": "---", "r": "---:", "c": ":---:"}


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


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no tags, no end of a cell."""
    return _MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
