"""Tables that nobody should write: one clean line, code 2, never a traceback."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from pyg_glif.cli._dtypes import CellError
from pyg_glif.cli._files import write_table
from pyg_glif.cli._tables import open_table
from tests.cli.calls import Shell, read_csv, write_csv

OUT = ("--outputs", "y", "--tau", 1, "--scale", "none", "--out", "f.csv")
SAME_FOLDER = settings(
    deadline=None,
    max_examples=120,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


CELLS = "must have 2 cells like the first line (got {}). Quote cells that hold the"
NAMES = "'p.csv' must start with a line of column names"
FAULTS = {
    b"": NAMES,
    b"\n\n": NAMES,
    b"0.5,1\n1,2\n": f"{NAMES} (got 0.5, 1)",
    b"a,y\n": "'p.csv' has no rows",
    b"y\n1\n": "'p.csv' has no column left for features",
    b"a,y\n1,2\n1,2,3\n": f"line 3 {CELLS.format(3)}",
    b"a,y\n1,2\n1\n": f"line 3 {CELLS.format(1)}",
    b"a,y\n1,2\n\n1,2\n": f"line 3 {CELLS.format(0)}",
    b"a,y\n1,2\n \n3,4\n": f"line 3 {CELLS.format(1)}",
    b"a,y\n1,2\nnan,2\n": "column 'a', line 3 must be finite (got nan). Fill or drop",
    b"a,y\n1,2\n1,inf\n": "column 'y', line 3 must be finite (got inf). Fill or drop",
    b"a,y\n" + b"9" * 5000 + b",1\n": "column 'a', line 2 must be finite (got inf)",
    b"a,y\n1e999,1\n": "column 'a', line 2 must be finite (got inf)",
    b"a,y\n1,2\n ,2\n": "column 'a' is empty in line 3. Fill or drop it first",
    b'a,y\n"1\n",2\n,2\n': "column 'a' is empty in line 4. Fill or drop it first",
    b"a,y\n1,2\n1,x\n": "column 'y' must hold numbers (got 'x' in line 3). Pick other "
    "outputs with --outputs",
    b"a,y\n0x10,1\n": "column 'a' must hold numbers (got '0x10' in line 2)",
    b"a,y\nTrue,1\n": "column 'a' must hold numbers (got 'True' in line 2)",
    b"a,y\n1,2\rnext,3\n": "column 'a' must hold numbers (got 'next' in line 3)",
    b"a,y\n1,2\n1,\xe9\n": "line 3 must be UTF-8 text (got the byte 0xe9",
    b"\xe9,y\n1,2\n": "line 1 must be UTF-8 text (got the byte 0xe9",
    "a,y\n1,2\n".encode("utf-16"): "line 1 must be UTF-8 text (got the byte 0xff",
    b"a,y\n1,2\n3,\x004\n": "line 3 is broken (it holds the character NUL)",
    b'a,"y\n1,2\n': "line 2 is broken (unexpected end of data)",
    b'a,y\n1,2\n"1,2\n': "line 3 is broken (unexpected end of data)",
    b"a,y,a\n1,2,3\n": "column 'a' must not appear more than once",
    b"a,y,a,y\n1,2,3,4\n": "columns 'a', 'y' must not appear more than once",
}


@pytest.mark.parametrize("content", FAULTS)
def test_faults_have_their_place(shell: Shell, content: bytes) -> None:
    Path("p.csv").write_bytes(content)
    call = shell("smooth", "p.csv", *OUT)
    assert (call.code, call.out, call.err.count("\n")) == (2, "", 1)
    message = FAULTS[content]
    message = message if message.startswith("'p.csv'") else f"'p.csv': {message}"
    assert call.err.startswith(f"pyg-glif: error: {message}"), call.err
    assert not Path("f.csv").exists()


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_marks_and_ends_of_lines_make_no_difference(
    shell: Shell, bom: str, end: str, delimiter: str
) -> None:
    rows = [['"a\nb"', "y"], ["0", "1"], ["0.5", "3"], ["2.5", "4"]]
    text = end.join(delimiter.join(row) for row in rows) + end
    Path("p.csv").write_bytes((bom + text).encode())
    assert shell("smooth", "p.csv", *OUT, {"theta": 0}).code == 0
    np.testing.assert_allclose(
        [float(cell) for cell in read_csv(Path("f.csv"))["y"]], [5 / 3, 7 / 3, 4], 1e-4
    )


def test_a_line_break_in_a_header_is_part_of_the_name(shell: Shell) -> None:
    Path("p.csv").write_text('"years\nof age","y;z",y\n1,2,3\n4,x,6\n')
    shell("smooth", "p.csv", *OUT).fails(
        2,
        "'p.csv': column 'y;z' must hold numbers (got 'x' in line 4). Leave it out "
        "with --ignore 'y;z', or pick columns with --features",
    )
    words = ("--features", '"years\nof age"')
    assert shell("smooth", "p.csv", *words, *OUT).code == 0
    call = shell("smooth", "p.csv", "--features", "years\nof age", *OUT)
    assert call.code == 2
    assert "argument --features: must be names with commas in between" in call.err


def test_all_bad_columns_are_in_one_message(shell: Shell) -> None:
    text = "job,a,b,y,c,sex\nbaker,1,,2,inf,f\nmiller,2,1,x,2,m\n"
    Path("p.csv").write_text(text)
    shell("smooth", "p.csv", *OUT).fails(
        2,
        "'p.csv': column 'job' must hold numbers (got 'baker' in line 2); column 'b' "
        "is empty in line 2; column 'c', line 2 must be finite (got inf); column 'sex' "
        "must hold numbers (got 'f' in line 2); column 'y' must hold numbers (got 'x' "
        "in line 3). Leave them out with --ignore job,sex, or pick columns with "
        "--features. Pick other outputs with --outputs. Fill or drop them first",
    )
    pd.read_csv("p.csv").to_parquet("p.parquet")
    call = shell("smooth", "p.parquet", *OUT)
    assert call.code == 2
    for name in ("job", "sex"):
        assert f"column '{name}' must hold numbers" in call.err
    np.savez("p.npz", x=np.array([[1.0, np.nan], [np.inf, 2.0]]), y=np.ones(2))
    shell("smooth", "p.npz", *OUT).fails(
        2,
        "'p.npz': column 'x.0', row 1 must be finite (got inf); column 'x.1', row 0 "
        "must be finite (got nan). Fill or drop them first",
    )


def test_all_missing_columns_are_in_one_message(shell: Shell) -> None:
    write_csv(Path("p.csv"), ["a", "y"], [(1, 2)])
    words = ("--features", "a,b", "--ignore", "c", "--id", "d", {"variants": "e"})
    shell("audit", "p.csv", *words, "--outputs", "f", "--tau", 1).fails(
        2,
        "'p.csv' has no column 'd' (--id), 'e' ('variants' of --config), "
        "'f' (--outputs), 'c' (--ignore), 'b' (--features); it has 'a', 'y'",
    )


def test_many_bad_columns_are_counted(shell: Shell) -> None:
    names = [f"t{i}" for i in range(40)]
    write_csv(Path("p.csv"), [*names, "y"], [["x"] * 40 + [1]])
    call = shell("smooth", "p.csv", *OUT)
    assert "'t11' must hold numbers (got 'x' in line 2); and 28 more. " in call.err
    assert f"--ignore {','.join(names)}," in call.err


CELL = st.one_of(
    st.text(max_size=6),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["", " ", "nan", "1_0", "-", '"', "=1", "1e5", "\r", "\n", "٣", "True"]
    ),
)


@SAME_FOLDER
@given(
    content=st.binary(max_size=80),
    suffix=st.sampled_from([".csv", ".csv.gz", ".xlsx", ".npy", ".npz", ".parquet"]),
)
def test_random_bytes(shell: Shell, content: bytes, suffix: str) -> None:
    path = Path(f"p{suffix}")
    path.write_bytes(content)
    call = shell("smooth", path, *OUT)
    assert call.code in (0, 2)
    if call.code:
        assert re.fullmatch(
            r"(pyg-glif: '.*left out\n)?pyg-glif: error: .+\n", call.err
        )
    assert "Traceback" not in call.err


@SAME_FOLDER
@given(damage=st.integers(0, 400), byte=st.integers(0, 255), cut=st.integers(0, 400))
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_damaged_files(
    shell: Shell, suffix: str, damage: int, byte: int, cut: int
) -> None:
    path, x = Path("p").with_suffix(suffix), np.arange(12.0).reshape(6, 2)
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, y=x[:, 0], x=x[:, 1])
    else:
        pd.DataFrame(x, columns=["x", "y"]).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[damage % len(content)] = byte
    path.write_bytes(content[: len(content) - cut] if cut % 3 == 0 else content)
    output = "1" if suffix == ".npy" else "y"
    call = shell("smooth", path, "--outputs", output, "--tau", 1, "--out", "f.csv")
    assert call.code in (0, 2), call.err
    assert call.err.count("\n") == (call.code != 0), call.err


@SAME_FOLDER
@given(
    header=st.lists(CELL, min_size=1, max_size=4),
    rows=st.lists(st.lists(CELL, max_size=4), max_size=4),
    delimiter=st.sampled_from(",;\t"),
)
def test_random_tables(
    shell: Shell, header: list[str], rows: list[list[str]], delimiter: str
) -> None:
    text = io.StringIO(newline="")
    # Python 3.10 writes no NUL: another character stands in for it until then.
    cells = [[c.replace("\0", "\ue000") for c in row] for row in [header, *rows]]
    cells[0].append("y")
    csv.writer(text, delimiter=delimiter).writerows(cells)
    content = text.getvalue().replace("\ue000", "\0")
    Path("p.csv").write_bytes(content.encode("utf-8", "surrogatepass"))
    call = shell("smooth", "p.csv", *OUT)
    assert call.code in (0, 2), call.err
    assert "Traceback" not in call.err
    assert (call.code == 2) == ("pyg-glif: error: " in call.err)


@pytest.mark.filterwarnings("ignore")
@settings(SAME_FOLDER, max_examples=25)
@given(
    columns=st.lists(
        st.lists(CELL | st.sampled_from("ab"), min_size=6, max_size=6), max_size=3
    ),
    words=st.sampled_from([(), ("--sensitive", "s"), ("--scale", "standard")]),
)
def test_random_tables_on_their_scale(
    shell: Shell, columns: list[list[str]], words: tuple[str, ...]
) -> None:
    """Whatever cells hold, there is a result or one line that says why not."""
    frame = pd.DataFrame({f"c{k}": column for k, column in enumerate(columns)})
    frame = frame.assign(s=list("fmfmfm"), y=[0.1, 0.9, 0.3, 0.2, 0.7, 0.4])
    frame = frame.map(lambda c: c.replace("\0", "") if isinstance(c, str) else c)
    frame.to_csv("p.csv", index=False, quoting=csv.QUOTE_ALL, errors="replace")
    Path("f.csv").unlink(missing_ok=True)
    call = shell(
        "smooth", "p.csv", "--outputs", "y", *words, "--k", 2, "--out", "f.csv"
    )
    assert call.code in (0, 2), call.err
    assert "Traceback" not in call.err
    assert ("pyg-glif: error: " in call.err) == (call.code == 2)
    assert Path("f.csv").exists() == (call.code == 0)


def as_python_reads(cell: str) -> float | None:
    """The oracle: the number that Python sees in a cell."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


@SAME_FOLDER
@given(cells=st.lists(CELL, min_size=1, max_size=5))
def test_cells_are_read_as_python_reads_them(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    assume(not any("\0" in cell for cell in cells))
    with path.open("w", encoding="utf-8", errors="replace", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [["a"], *[[c] for c in cells]]
        )
    written = [cell.encode(errors="replace").decode() for cell in cells]
    table = open_table(str(path))
    assert table.column("a").tolist() == written
    expected = [as_python_reads(cell) for cell in written]
    if None in expected:
        with pytest.raises(CellError, match="column 'a'"):
            table.numbers(["a"])
    else:
        assert table.numbers(["a"])[:, 0].tolist() == expected


@SAME_FOLDER
@given(
    ids=st.lists(
        st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
            max_size=6,
        ),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    dtype: type,
    ids: list[str],
    seed: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"again{suffix}"
    value = np.random.default_rng(seed).normal(size=len(ids)).astype(dtype)
    columns = {"id": np.array(ids, dtype=object), "y": value}
    write_table(str(path), columns)
    table = open_table(str(path))
    assert table.column("id").tolist() == ids
    np.testing.assert_array_equal(table.numbers(["y"])[:, 0].astype(dtype), value)
