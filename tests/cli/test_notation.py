"""Numbers, dates and texts as different countries and programs write them."""

import csv
import io
import itertools
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyg_glif.cli._dtypes import Notation, typed
from tests.cli.calls import Call, Shell, numbers, people, read_csv

#: Decimal sign, sign of groups.
NOTATIONS = [
    *((".", group) for group in ("", ",", " ", "\u00a0", "\u202f", "'", "\u2019")),
    *((",", group) for group in ("", ".", " ", "\u00a0", "\u202f", "'", "\u2019")),
]
SEPARATORS = [",", ";", "\t"]
WORDS = ("--outputs", "score", "--id", "name", "--ignore", "sex,repaid")
WORDS += ("--scale", "standard", "--tau", "0.7")


def written(value: float, decimal: str, group: str) -> str:
    """A number with groups of three digits, by a way that shares no code."""
    whole, _, part = f"{abs(value):.6f}".partition(".")
    groups = []
    while whole:
        whole, last = whole[:-3], whole[-3:]
        groups.insert(0, last)
    sign = "-" if value < 0 else ""
    return f"{sign}{group.join(groups)}{decimal}{part}"


def table_text(decimal: str, group: str, separator: str) -> str:
    """The people of the tests as CSV, their incomes some of them negative."""
    table, file = people(), io.StringIO(newline="")
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow(["name", "sex", "age", "income", "score", "repaid"])
    for name, sex, (age, income), score, repaid in zip(
        table.name, table.sex, table.x, table.y, table.repaid, strict=True
    ):
        cells = (age, income - 40000, score)
        row = [written(float(cell), decimal, group) for cell in cells]
        writer.writerow([name, sex, *row, repaid])
    return file.getvalue()


def plain_result(shell: Shell) -> np.ndarray:
    Path("plain.csv").write_text(table_text(".", "", ","), encoding="utf-8")
    assert shell("smooth", "plain.csv", *WORDS, "--out", "expected.csv").code == 0
    return numbers(read_csv(Path("expected.csv"))["score"])


def test_every_notation_is_read_by_its_option_or_refused(shell: Shell) -> None:
    expected = plain_result(shell)
    for (decimal, group), separator in itertools.product(NOTATIONS, SEPARATORS):
        text = table_text(decimal, group, separator)
        Path("people.csv").write_text(text, encoding="utf-8")
        case = (decimal, group, separator)
        words = ("smooth", "people.csv", *WORDS, "--out", "fair.csv")
        call = shell(*words, "--decimal", decimal)
        assert call.code == 0, (case, call.err)
        found = pd.read_csv("fair.csv", sep=",;"[decimal == ","], decimal=decimal)
        np.testing.assert_allclose(found["score"], expected, rtol=1e-12)
        Path("fair.csv").unlink()
        call = shell(*words)
        if (decimal, group) == (".", ""):
            assert call.code == 0, case
            Path("fair.csv").unlink()
            continue
        assert call.code == 2, case
        assert f"'--decimal {decimal}' reads " in call.err, case
        assert not Path("fair.csv").exists()


# What a column of categories must never be made of.
FOREIGN = ["12,5", "12,345", "1.234,5", "12 345", "1'234.5", "1,00,000", ",5", "5,"]
FOREIGN += ["-1,5e3", "€ 12", "12.50 €", "$1,000", "45%", "4,5 %", "\u22125", "(12)"]
FOREIGN_DATES = ["31.12.2024", "3/4/2024", "03-04-2024", "31.12.24", "2024-02-30"]
FOREIGN_DATES += ["31.12.2024 08:00", "2023/13/01"]


@pytest.mark.parametrize("company", ["clerk", "7", "2024-01-31", ""])
@pytest.mark.parametrize("cell", [*FOREIGN, *FOREIGN_DATES])
def test_another_notation_is_never_a_category(cell: str, company: str) -> None:
    column = np.array([company] * 9 + [cell] + [company] * 9, dtype=object)
    _, odd = typed(column)
    assert odd is not None
    assert (odd.row, odd.cell) == (9, cell)
    assert typed(column, as_text=True)[1] is None


@pytest.mark.parametrize(
    "cell",
    ["a1", "10-20", "1.2.3.4", "192.168.0.1", "1,2,3", "12:30", "3 Mar", "+", "."],
)
def test_texts_with_figures_are_categories(cell: str) -> None:
    assert typed(np.array(["clerk", cell, "nurse"], dtype=object))[1] is None


@pytest.mark.parametrize("order", ["dmy", "mdy"])
@pytest.mark.parametrize("sign", [".", "/", "-"])
def test_dates_are_read_in_the_order_of_the_option(order: str, sign: str) -> None:
    days = pd.date_range("2019-12-28", periods=60, freq="13D")
    first, second = ("%d", "%m") if order == "dmy" else ("%m", "%d")
    texts = days.strftime(f"{first}{sign}{second}{sign}%Y").to_numpy(object)
    column, odd = typed(texts, notation=Notation(dates=order))
    assert odd is None
    assert (pd.DatetimeIndex(column) == days).all()
    assert typed(texts)[1] is not None
    other = {"dmy": "mdy", "mdy": "dmy"}[order]
    assert typed(texts, notation=Notation(dates=other))[1] is not None  # day 28


def test_a_date_among_features_names_the_option(shell: Shell) -> None:
    frame = pd.read_csv(io.StringIO(table_text(".", "", ",")))
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame.index * 17, unit="D")
    frame.assign(since=days.strftime("%d.%m.%Y")).to_csv("people.csv", index=False)
    call = shell("smooth", "people.csv", *WORDS)
    call.fails(
        2,
        "'people.csv': column 'since' must hold dates (got '01.01.2020' in line 2). "
        "Write dates = 'dmy' or 'mdy' to --config for what comes first in "
        "'01.01.2020', or name it in 'categories' of --config",
    )
    assert shell("smooth", "people.csv", *WORDS, {"dates": "dmy"}).code == 0
    found = Path("people_fair.csv").read_text()
    frame.assign(since=days.strftime("%Y-%m-%d")).to_csv("people.csv", index=False)
    assert shell("smooth", "people.csv", *WORDS).code == 0
    assert Path("people_fair.csv").read_text() == found


def test_one_column_of_decimal_commas_needs_no_separator(shell: Shell) -> None:
    np.save("x.npy", np.arange(4.0))
    Path("y.csv").write_text("score\n0,5\n0,25\n0,75\n1,0\n")
    words = ("smooth", "x.npy", "y.csv", "--lam", 0, "--tau", 1, "--out", "f.csv")
    assert shell(*words).code == 2
    assert shell(*words, "--decimal", ",").code == 0
    assert Path("f.csv").read_text() == "score\n0,5\n0,25\n0,75\n1,0\n"


@pytest.mark.parametrize("name", ["cp1252", "utf-16", "latin-1", "utf-8"])
def test_texts_keep_their_encoding(shell: Shell, name: str) -> None:
    text = table_text(",", ".", ";").replace("name", "Größe").replace("001", "Zoë")
    Path("people.csv").write_bytes(text.encode(name))
    words = tuple("Größe" if word == "name" else word for word in WORDS)
    words = ("smooth", "people.csv", *words, "--decimal", ",")
    if name != "utf-8":
        call = shell(*words)
        assert call.code == 2
        assert "or name its encoding by --encoding, such as cp1252" in call.err
    assert shell(*words, "--encoding", name, "--out", "fair.csv").code == 0
    found = Path("fair.csv").read_bytes().decode(name)
    assert found.splitlines()[0] == "Größe;score"
    assert found.splitlines()[2].startswith("Zoë;0,")
    # What was written is read back by the same options.
    audit = ("audit", *words[1:], "--encoding", name, "--after", "fair.csv")
    assert shell(*audit).code == 0


def test_reading_options_go_with_what_they_are_about(shell: Shell) -> None:
    np.save("x.npy", np.eye(3))
    words = ("smooth", "x.npy", "x.npy")
    shell(*words, "--encoding", "cp1252").fails(2, "--encoding goes with .csv and .tsv")
    shell(*words, {"sheet": "a"}).fails(2, "'sheet' of --config goes with .xlsx")
    for name in ("klingon", "base64"):
        call = shell(*words, "--encoding", name)
        assert call.code == 2
        assert call.err.startswith(
            "pyg-glif: error: argument --encoding: must be an enc"
        )


def test_a_sheet_is_chosen_by_name(shell: Shell) -> None:
    pytest.importorskip("openpyxl", reason="needs the extra 'files'")
    frame = pd.read_csv(io.StringIO(table_text(".", "", ",")), dtype={"name": str})
    with pd.ExcelWriter("book.xlsx") as book:
        frame[:25].to_excel(book, sheet_name="few", index=False)
        frame.to_excel(book, sheet_name="all", index=False)
        texts = frame.assign(income=frame["income"].map(lambda v: written(v, ",", ".")))
        texts.to_excel(book, sheet_name="texts", index=False)
    expected = plain_result(shell)
    words = ("smooth", "book.xlsx", *WORDS, "--out", "fair.csv")
    for sheet, more in (("all", ()), ("texts", ("--decimal", ","))):
        assert shell(*words, {"sheet": sheet}, *more).code == 0
        decimal = more[1] if more else "."
        found = pd.read_csv("fair.csv", sep=",;"[decimal == ","], decimal=decimal)
        np.testing.assert_allclose(found["score"], expected, rtol=1e-9)
    assert shell(*words, {"sheet": "texts"}).code == 2
    shell(*words, {"sheet": "none"}).fails(
        2, "--sheet: 'book.xlsx' has no sheet 'none' (it has 'few', 'all', 'texts')"
    )


def piped(shell: Shell, monkeypatch: pytest.MonkeyPatch, *words: object) -> Call:
    """A call with the people of the tests on standard input."""
    content = table_text(".", "", ",").encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return shell(*words)


def test_standard_input_and_output(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_result(shell)
    expected = Path("expected.csv").read_text()
    call = piped(shell, monkeypatch, "smooth", "-", *WORDS)
    assert (call.code, call.out) == (0, expected)
    assert "status" in call.err  # what is said goes elsewhere
    call = shell("smooth", "plain.csv", *WORDS, "--out", "-", "--quiet")
    assert (call.out, call.err) == (expected, "")
    assert piped(shell, monkeypatch, "smooth", "-", *WORDS, "--out", "f.csv").code == 0
    assert Path("f.csv").read_text() == expected
    assert piped(shell, monkeypatch, "audit", "-", *WORDS, "--after", "f.csv").code == 0
    labels = [word.replace("sex,repaid", "sex") for word in WORDS if word != "--tau"]
    labels = [*labels[:-1], "--labels", "repaid", "--lams", "0.1", "--max-loss", "1"]
    assert piped(shell, monkeypatch, "tune", "-", *labels).code == 0
    shell("smooth", "-", "-", *WORDS).fails(
        2, "'-' must stand for one input (got it twice)"
    )
    call = shell("smooth", "plain.csv", *WORDS, "--out", "-", "--json")
    assert call.json["exit_code"] == 2
