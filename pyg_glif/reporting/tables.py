"""The one model of what reports, explanations and pages show."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyg_glif._utils.markup import markdown_table
from pyg_glif.reporting.words import shown


@dataclass(frozen=True)
class ReportTable:
    """Rows under a header, with a title and words on how to read them.

    Args:
        name (str): Identifier; in pages, tables with a name can be searched.
        title (str): Title.
        words (str): How to read it.
        header (sequence of str): Titles of the columns.
        rows (sequence): Values, a sequence per row.
        numbers (sequence of int): Positions of columns of numbers.
        marks (sequence, optional): For each row, the positions of cells to mark.
        details (sequence of ReportTable): Tables about single rows.
    """

    name: str
    title: str
    words: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    numbers: Sequence[int] = ()
    marks: Sequence[Sequence[int]] | None = None
    details: Sequence["ReportTable"] = ()

    def to_markdown(self, aligned: bool = False) -> str:
        """Header and rows in Markdown, numbers to the right if ``aligned``."""
        rows = [[shown(value) for value in row] for row in self.rows]
        columns = range(len(self.header)) if aligned else ()
        align = "".join("r" if k in self.numbers else "l" for k in columns)
        return markdown_table(self.header, rows, align=align)


@dataclass(frozen=True)
class Figure(ReportTable):
    """A chart: the numbers behind it as a table, and what draws them.

    Args:
        draw (callable): Returns the Vega-Lite specification.

    Example:
        >>> Figure("empty", "Nothing", "", draw=dict).spec
        {}
    """

    draw: Callable[[], dict[str, Any]] = field(kw_only=True, repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        words: str,
        rows: Sequence[Mapping[str, Any]],
        draw: Callable[[], dict[str, Any]],
    ) -> "Figure":
        """A chart of rows, at least one, whose keys are the titles of columns."""
        cells = [list(row.values()) for row in rows]
        numbers = [k for k, value in enumerate(cells[0]) if not isinstance(value, str)]
        return cls(name, title, words, list(rows[0]), cells, numbers, draw=draw)

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        return self.draw()
