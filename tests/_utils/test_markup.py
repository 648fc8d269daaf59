"""Text shows as it is, whatever it holds."""

from html.parser import HTMLParser

import pytest

from pyg_glif._utils.markup import cell, markdown_table

HOSTILE = [
    "a|b",
    "x\\|y",
    "x\\\\|y",
    "<script>alert(1)</script>",
    "<b>bold</b>",
    "&lt;",
    "a & b",
    "`code`",
    "*em* **strong** _em_ __strong__ ~~gone~~",
    "snake_case_name",
    "[text](https://example.org)",
    "![image](https://example.org/a.png)",
    "0.5 [0.4, 0.6]",
    "<https://example.org>",
    "\\",
    "-0.25",
    "# no heading",
]


class Cells(HTMLParser):
    """Texts of the cells of all tables, and all tags seen."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.cells[-1] += data


TABLE = {"table", "thead", "tbody", "tr", "th", "td"}


def test_markdown_table_shows_text_as_it_is() -> None:
    markdown = pytest.importorskip("markdown_it")
    parser = markdown.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    found = Cells()
    found.feed(parser.render(markdown_table(HOSTILE, [HOSTILE, HOSTILE[::-1]])))
    assert found.cells == [*HOSTILE, *HOSTILE, *HOSTILE[::-1]]
    assert found.tags == TABLE


def test_cells() -> None:
    assert cell(0.1234567) == "0.12346"
    assert cell(7) == "7"
    assert cell(["a", "b"]) == "a and b"
    assert markdown_table(["a", "b"], [["c\nd", 1.0]], align="lr") == (
        "| a | b |\n| --- | ---: |\n| c d | 1 |"
    )
    assert "**a**" in markdown_table(["x"], [["**a**"]], escape=False)
