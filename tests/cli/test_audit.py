import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt

from pyg_glif.graph.weights import DECAY
from tests.cli.calls import Shell, Table, read_csv, write_csv

PEOPLE = ("people.csv", "--outputs", "score", "--id", "name", "--scale", "standard")
ROLES = ("--sensitive", "sex", "--labels", "repaid")


def measure(found: dict[str, Any], name: str) -> dict[str, Any]:
    """A measure of a report."""
    (one,) = (m for m in found["measures"] if m["title"] == name)
    return one


def weights(table: Table, tau: float) -> np.ndarray:
    """Weights of the graph, by the formula."""
    z = (table.x - table.x.mean(0)) / table.x.std(0)
    sq_dist = ((z[:, None] - z[None]) ** 2).sum(-1)
    W = np.where(np.sqrt(sq_dist) <= tau, np.exp(-DECAY / tau**2 * sq_dist), 0.0)
    np.fill_diagonal(W, 0.0)
    return W


def test_audit_of_outputs_as_they_are(shell: Shell, table: Table) -> None:
    found = shell("audit", *PEOPLE, *ROLES, "--tau", 0.8, "--json").json
    assert found["command"] == "audit"
    assert found["tau"] == found["setup"]["tau"] == 0.8
    W, y = weights(table, 0.8), table.y
    assert found["facts"]["num_samples"] == 40
    assert found["facts"]["num_edges"] == (W > 0).sum() // 2
    assert found["facts"]["num_isolated"] == (W.sum(1) == 0).sum()
    right = ((y > 0.5) == table.repaid).mean()
    assert found["facts"]["accuracy"] == pytest.approx(right)
    energy = 0.5 * (W * (y[:, None] - y[None]) ** 2).sum()
    value = measure(found, "Laplacian energy")["before"]["value"]
    assert value == pytest.approx(energy)
    sex = np.array(table.sex)
    gap = y[sex == "m"].mean() - y[sex == "f"].mean()
    value = measure(found, "gap by sex (m - f)")["before"]
    assert value["value"] == pytest.approx(gap)
    assert value["low"] < gap < value["high"]
    with np.errstate(invalid="ignore"):
        deviation = np.nan_to_num(np.abs(y - W @ y / W.sum(1)))
    worst = found["samples"]["worst_before"][0]
    assert worst["index"] == deviation.argmax()
    assert worst["id"] == table.name[deviation.argmax()]
    assert worst["deviation_before"] == pytest.approx(deviation.max())
    assert (worst["after"], found["compares"]) == (None, False)
    sums = hashlib.sha256(Path("people.csv").read_bytes()).hexdigest()
    assert found["setup"]["files"] == {"people.csv": sums}
    assert found["setup"]["columns"] == ["age", "income"]


def test_audit_before_and_after(shell: Shell, table: Table) -> None:
    words = ("smooth", *PEOPLE, *ROLES, "--tau", 0.8, "--out", "fair.csv")
    shell(*words, "--audit", "smooth.json")
    words = ("audit", *PEOPLE, *ROLES, "--tau", 0.8, "--after", "fair.csv")
    found = shell(*words, "--json").json
    fair = np.array([float(cell) for cell in read_csv(Path("fair.csv"))["score"]])
    right = ((fair > 0.5) == table.repaid).mean()
    assert found["facts"]["accuracy_after"] == pytest.approx(right)
    moved = np.abs(fair - table.y)
    assert found["facts"]["largest_movement"] == pytest.approx(moved.max())
    written = json.loads(Path("smooth.json").read_text())
    assert written["certificate"]["status"] == "CONVERGED"
    for name in ("measures", "samples", "charts", "verdict", "groups"):
        assert json.dumps(written[name]) == json.dumps(found[name])


def test_reports_say_the_same_in_every_format(shell: Shell, table: Table) -> None:
    words = ("audit", *PEOPLE, *ROLES, "--tau", 0.8, {"num_worst": 3})
    text = shell(*words).out
    for name in ("r.md", "r.html", "r.json"):
        call = shell(*words, "--out", name)
        assert (call.code, call.out) == (0, f"written  {name}\n")
    assert undated(Path("r.md").read_text()) == undated(text)
    assert text.startswith("# Individual fairness audit\n")
    found = json.loads(Path("r.json").read_text())
    assert len(found["samples"]["worst_before"]) == 3
    cells = Cells()
    cells.feed(Path("r.html").read_text())
    # Facts are no table in the page, and pairs are side by side as well.
    assert same_tables(markdown_rows(text), cells) > 10
    assert cells.sources == []


def undated(text: str) -> str:
    """A report without the second in which it was made."""
    return re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", "", text)


class Cells(HTMLParser):
    """The rows of the tables of a page, and how many elements of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.kinds: Counter[str] = Counter()
        self.sources: list[str | None] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value for name, value in attrs if name in ("src", "action")]
        self.kinds[f"{tag} {dict(attrs).get('type') or ''}".strip()] += 1
        if tag == "tr":
            self.rows.append([])
        self._inside = tag in ("td", "th", "dt", "dd")
        if tag == "dt":
            self.rows.append([])
        if self._inside:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


def same_tables(seen: list[list[str]], cells: Cells) -> int:
    """Compares rows of Markdown with those of the page; returns their number."""
    page = {tuple(" ".join(cell.split()) for cell in row) for row in cells.rows}
    rows = [tuple(" ".join(cell.split()) for cell in row) for row in seen]
    # The page has no header for facts, and was made a moment later.
    apart = ("what", "date")
    missing = [row for row in rows if row not in page and row[0] not in apart]
    assert missing == []
    return len(rows)


HOSTILE = [
    "<b>|x</b>",
    "x\\|y",
    "x\\\\|y|",
    "<script>alert(1)</script>",
    "![seen](http://example.com/pixel.png)",
    "[click](javascript:alert(1))",
    "<http://example.com>",
    "*bold* _also_ __this__ ~~not~~ `code`",
    "&lt;b&gt; &amp; &#124;",
    "two\nlines\r\nand\ttabs",
    "snake_case_[0]",
    "`",
    "=1+1",
]


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of all tables of a Markdown text as a reader sees them."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    rows: list[list[str]] = []
    inside = False
    for token in parser.parse(text):
        inside = inside or token.type == "tr_open"
        if token.type == "tr_open":
            rows.append([])
        inside = inside and token.type != "tr_close"
        if token.type == "inline" and inside:
            kinds = {child.type for child in token.children or []}
            assert kinds <= {"text", "text_special"}, token.content
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows


def test_names_cannot_break_a_report(shell: Shell) -> None:
    rows = [(name, 0.1 * i, i % 2) for i, name in enumerate(HOSTILE)]
    write_csv(Path("p.csv"), ["<i>na|me", "a", "y"], rows)
    words = ("audit", "p.csv", "--outputs", "y", "--id", "<i>na|me", "--tau", 9)
    words += ({"num_worst": len(HOSTILE), "num_nearest": 0}, "--out")
    assert shell(*words, "r.html").code == 0
    shell(*words, "r.md")
    seen = markdown_rows(Path("r.md").read_text())
    cells = Cells()
    cells.feed(Path("r.html").read_text())
    found = {row[0] for row in seen}
    for name in HOSTILE:
        assert " ".join(name.split()) in found
    same_tables(seen, cells)
    charts = cells.kinds["figure"]
    assert cells.kinds["script application/json"] == charts > 0
    assert cells.kinds["script"] == 2  # Vega, and what draws and sorts
    assert not {"b", "i", "img", "a javascript"} & set(cells.kinds)


def test_groups_and_thresholds(shell: Shell, table: Table) -> None:
    np.save("group.npy", np.arange(40) // 2)
    words = ("audit", *PEOPLE, "--ignore", "sex,repaid", {"variants": "group.npy"})
    found = shell(*words, "--threshold", 0.5, "--json").json
    pairs = table.y.reshape(20, 2)
    value = measure(found, "standard deviation in groups")["before"]["value"]
    assert value == pytest.approx(pairs.std(1, ddof=1).mean())
    value = measure(found, "same decision in groups")["before"]["value"]
    assert value == ((pairs > 0.5).sum(1) != 1).mean()


def test_identical_samples_with_other_outputs_give_plain_json(shell: Shell) -> None:
    np.save("x.npy", np.zeros((4, 1)))
    np.save("y.npy", np.arange(4.0))
    call = shell("audit", "x.npy", "y.npy", "--tau", 1, "--json")
    assert "Infinity" not in call.out
    found = call.json["samples"]["identical_before"]
    assert (found[0]["ids"], found[0]["difference_before"]) == ([0, 3], 3.0)
    assert call.json["samples"]["pairs_before"] == []
    assert call.json["facts"]["num_identical"] == 6


def test_consistency_can_be_left_out(shell: Shell, table: Table) -> None:
    words = ("audit", *PEOPLE, *ROLES, "--json")
    names = [m["title"] for m in shell(*words).json["measures"]]
    assert "consistency with 5 nearest" in names
    fewer = [m["title"] for m in shell(*words, {"num_nearest": 0}).json["measures"]]
    assert [name for name in names if name not in fewer] == [
        "consistency with 5 nearest"
    ]


def test_outputs_after_are_of_the_same_samples(shell: Shell, table: Table) -> None:
    rows = list(zip(table.name, table.y, strict=True))
    write_csv(Path("after.csv"), ["name", "score"], rows[::-1])
    words = ("audit", *PEOPLE, "--ignore", "sex,repaid", "--after")
    call = shell(*words, "after.csv")
    assert (call.code, "Sort them alike" in call.err) == (2, True)
    write_csv(Path("after.csv"), ["name", "score"], rows[:-1])
    shell(*words, "after.csv").fails(
        2,
        "--after: 'after.csv' must have the shape of the outputs before (got (39,) for "
        "(40,))",
    )


@pytest.mark.parametrize(
    ("labels", "extra", "expected"),
    [
        (["0", "1", "1"], (), 2 / 3),
        (["False", "true", "True"], (), 2 / 3),
        (["no", "yes", "yes"], ({"positive": "yes"},), 2 / 3),
        (["no", "yes", "yes"], ({"positive": "no"},), 1 / 3),
        (["2", "7", "7"], ({"positive": "7.0"},), 2 / 3),
        (["0", "", "1"], (), 1.0),
    ],
)
def test_labels_of_one_score(
    shell: Shell, labels: list[str], extra: tuple[str, ...], expected: float
) -> None:
    rows = list(zip([0, 1, 2], [0.2, 0.3, 0.9], labels, strict=True))
    write_csv(Path("p.csv"), ["a", "y", "label"], rows)
    words = ("audit", "p.csv", "--outputs", "y", "--labels", "label", "--tau", 1)
    assert shell(*words, *extra, "--json").json["facts"]["accuracy"] == expected


@pytest.mark.parametrize(
    ("labels", "names", "expected"),
    [
        (["cat", "dog", "cow"], ["cat", "dog", "cow"], 2 / 3),
        (["0", "1", "2"], ["cat", "dog", "cow"], 2 / 3),
        (["0", "1", "2"], ["1", "2", "0"], 2 / 3),  # numbers go by position
    ],
)
def test_labels_of_several_scores(
    shell: Shell, labels: list[str], names: list[str], expected: float
) -> None:
    scores = [(0.9, 0.1, 0.0), (0.1, 0.8, 0.1), (0.5, 0.2, 0.3)]
    rows = [
        (i, *s, label) for i, (s, label) in enumerate(zip(scores, labels, strict=True))
    ]
    write_csv(Path("p.csv"), ["a", *names, "label"], rows)
    words = ("audit", "p.csv", "--outputs", ",".join(names), "--labels", "label")
    found = shell(*words, "--tau", 1, "--json").json
    assert found["facts"]["accuracy"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("labels", "words", "message"),
    [
        (
            ["no", "yes"],
            [],
            "--labels must hold 0 and 1 (got 'no'). Say which value means class 1 by "
            "'positive' in the file of --config",
        ),
        (
            ["no", "yes"],
            [{"positive": "Yes"}],
            "'positive' must be a value of --labels (got 'Yes', there are 'no', 'yes')",
        ),
        (["", ""], [], "--labels must have a value in some row (got empty cells)"),
    ],
)
def test_labels_that_mean_nothing(
    shell: Shell, labels: list[str], words: list[str], message: str
) -> None:
    rows = list(zip([0, 1], [0.2, 0.3], labels, strict=True))
    write_csv(Path("p.csv"), ["a", "y", "label"], rows)
    call = ("audit", "p.csv", "--outputs", "y", "--labels", "label", "--tau", 1)
    shell(*call, *words).fails(2, message)
