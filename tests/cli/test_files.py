from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.calls import Shell, Table, numbers, read_csv, smooth, write_csv

OUT = ("--outputs", "y", "--tau", 1, "--scale", "none", "--out", "f.csv")


def test_a_fault_beyond_the_first_chunk_has_its_line(shell: Shell) -> None:
    rows = [(float(i), 0.0) for i in range(9000)]
    write_csv(Path("p.csv"), ["a", "y"], [*rows, ("", 1.0)])
    shell("smooth", "p.csv", *OUT).fails(
        2, "'p.csv': column 'a' is empty in line 9002. Fill or drop it first"
    )


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffa,y\n0,1\n0.5,3\n",
        "a;y\r\n0;1\r\n0.5;3\r\n",
        'a\ty\n"0"\t1\n0.5\t3\n\n\n',
        ",a,y\n0,0,1\n1,0.5,3\n",
        " a , y\n 0,1 \n0.5,3",
    ],
)
def test_csv_as_programs_write_it(shell: Shell, text: str) -> None:
    Path("p.csv").write_text(text, encoding="utf-8")
    call = shell("smooth", "p.csv", *OUT)
    assert call.code == 0
    found = numbers(read_csv(Path("f.csv"))["y"])
    expected = smooth(np.array([[0.0], [0.5]]), np.array([1.0, 3.0]), tau=1.0)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    unnamed = "pyg-glif: 'p.csv': 1 column without a name left out\n"
    assert call.err == (unnamed if text.startswith(",") else "")
    if text.startswith(","):
        assert shell("smooth", "p.csv", *OUT, "--quiet").err == ""


def test_numbered_columns_are_names(shell: Shell) -> None:
    x = np.random.default_rng(0).normal(size=(9, 3))
    pd.DataFrame(x).to_csv("p.csv", index=False)
    words = ("smooth", "p.csv", "--outputs", 2, "--tau", 1, "--out", "f.csv")
    assert shell(*words).code == 0


PEOPLE = "'name', 'sex', 'age', 'income', 'score', 'repaid'"
PEOPLE_LACK = "'people.csv' has no column"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "people.csv",
            "--outputs must name the columns of 'people.csv' with the model's outputs, "
            f"or a second file must hold them (it has {PEOPLE})",
        ),
        *(
            (
                f"people.csv --outputs {outputs} {more}",
                f"{option}: {PEOPLE_LACK} '{name}' (it has {PEOPLE})",
            )
            for outputs, more, option, name in [
                ("scores", "", "--outputs", "scores"),
                ("score", "--features ag*,height", "--features", "height"),
                ("score", "--ignore hair", "--ignore", "hair"),
                ("score", "--id number", "--id", "number"),
            ]
        ),
        (
            "people.csv --outputs score --features age,score",
            "--features must not name 'score', which has another use in this call",
        ),
        (
            "people.csv --outputs score --scale none",
            "'people.csv': column 'sex' must hold numbers (got 'm' in line 2)",
        ),
        ("nobody.csv --outputs score", "'nobody.csv' does not exist"),
        (
            "people.xls --outputs score",
            "a table must end in .csv, .csv.gz, .tsv, .tsv.gz, .xlsx, "
            ".parquet, .npy, .npz, or be - for standard input (got 'people.xls')",
        ),
        ("folder.csv --outputs y", "'folder.csv' must be a file (got a folder)"),
        ("x.npy short.npy", "'short.npy' must have as many rows as 'x.npy' (got 9 "),
        ("cube.npy y.npy", "'cube.npy': must have 1 or 2 dimensions (got shape "),
        ("nan.npy y.npy", "'nan.npy': column '1', row 2 must be finite (got nan)"),
        ("text.npy y.npy", "'text.npy': column '0' must hold numbers (got 'a' "),
        ("pickle.npy y.npy", "'pickle.npy' must hold an array (Object arrays "),
        ("broken.npz y.npy", "'broken.npz' must hold arrays of numbers or text ("),
        ("empty.npy y.npy", "'empty.npy' must hold an array ("),
        (
            "all.npz --outputs y_hat",
            "--outputs: 'all.npz' has no column 'y_hat' (it has 'x', 'y', 'z')",
        ),
        (
            "all.npz --outputs y",
            "'all.npz': arrays must have equally many rows (got 10 in 'x', 3 in 'z'). "
            "Pick arrays with --features",
        ),
        (
            "all.npz --outputs y --features x.7",
            "--features: 'all.npz' has no column 'x.7' (it has 'x', 'y', 'z')",
        ),
        (
            "p.parquet --outputs y --scale none",
            "'p.parquet': column 'a' is empty in row 1",
        ),
        (
            "p.parquet --outputs y --features b --scale none",
            "'p.parquet': column 'b', row 1 must be finite (got nan)",
        ),
        (
            "p.parquet --outputs y --features c --scale none",
            "'p.parquet': column 'c' must hold numbers (got 'x' in row 0)",
        ),
        ("not.parquet --outputs y", "'not.parquet' must be a Parquet file ("),
    ],
)
def test_bad_input(shell: Shell, table: Table, words: str, message: str) -> None:
    x = np.random.default_rng(0).normal(size=(10, 2))
    np.save("x.npy", x)
    np.save("y.npy", x[:, 0])
    np.save("short.npy", x[:9, 0])
    np.save("cube.npy", x[None])
    np.save("nan.npy", np.where(np.arange(20).reshape(10, 2) == 5, np.nan, x))
    np.save("text.npy", np.array(list("abcdefghij")))
    np.save("pickle.npy", np.array([{}] * 10, dtype=object))
    np.savez("all.npz", x=x, y=x[:, 0], z=np.ones(3))
    Path("broken.npz").write_bytes(b"PK\x03\x04")
    Path("empty.npy").touch()
    Path("folder.csv").mkdir()
    Path("not.parquet").write_text("a,y\n")
    columns = {"a": [True, None], "b": [1.0, None], "c": ["x", "y"], "y": [1.0, 2.0]}
    pd.DataFrame(columns).to_parquet("p.parquet")
    call = shell("smooth", *words.split(), "--tau", 1, "--out", "f.csv")
    assert (call.code, call.out) == (2, "")
    assert call.err.startswith(f"pyg-glif: error: {message}")
    assert call.err.count("\n") == 1
    assert not Path("f.csv").exists()


def test_names_with_commas_and_patterns(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 4))
    header = ["emb_0", "emb_1", "a,b", "y"]
    write_csv(Path("p.csv"), header, x.tolist())
    for features, at in (("emb_*", [0, 1]), ('"a,b", emb_1', [2, 1])):
        shell("smooth", "p.csv", "--features", features, *OUT)
        found = numbers(read_csv(Path("f.csv"))["y"])
        expected = smooth(x[:, at], x[:, 3], tau=1.0)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_people_in_another_order_are_refused(shell: Shell, table: Table) -> None:
    rows = list(zip(table.name, table.y, strict=True))
    write_csv(Path("y.csv"), ["name", "score"], rows)
    words = ("smooth", "people.csv", "y.csv", "--id", "name", "--tau", 6000)
    words += ("--ignore", "sex,repaid,score", "--out", "f.csv")
    assert shell(*words).code == 0
    found = numbers(read_csv(Path("f.csv"))["score"])
    expected = smooth(table.x, table.y, tau=6000)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    rows[1], rows[2] = rows[2], rows[1]
    write_csv(Path("y.csv"), ["name", "score"], rows)
    shell(*words).fails(
        2,
        "'name' must be the same in both files, row by row (got '001' and '002' in row "
        "1). Sort them alike",
    )


def test_a_role_is_one_column_and_an_id_may_be_a_matrix(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    ids = np.arange(18).reshape(9, 2)
    np.savez("all.npz", x=rng.normal(size=(9, 2)), y=rng.random(9), two=ids)
    words = ("smooth", "all.npz", "--outputs", "y", "--features", "x", "--tau", 1)
    assert shell(*words, "--id", "two", "--out", "f.npz").code == 0
    with np.load("f.npz") as found:
        np.testing.assert_array_equal(found["two"], ids)
    for option in ("--sensitive", "--labels"):
        shell(*words, option, "two", "--out", "f.npz").fails(
            2, "'two' must have a single column (it has 'two.0', 'two.1')"
        )


def test_a_second_file_must_hold_outputs(shell: Shell, table: Table) -> None:
    write_csv(Path("y.csv"), ["name"], [[name] for name in table.name])
    words = ("smooth", "people.csv", "y.csv", "--id", "name", "--features", "age")
    shell(*words, "--out", "f.csv").fails(2, "'y.csv' has no column left for outputs")


def test_columns_may_be_called_anything(shell: Shell) -> None:
    rng = np.random.default_rng(0)
    np.savez("all.npz", **{"x": rng.normal(size=(9, 2)), "self": rng.random(9)})
    words = ("smooth", "all.npz", "--outputs", "self", "--tau", 1, "--out", "f.npz")
    assert shell(*words).code == 0
    write_csv(Path("p.csv"), ["a", "file"], rng.random((9, 2)).tolist())
    words = ("smooth", "p.csv", "--outputs", "file", "--tau", 1, "--out", "f.npz")
    assert shell(*words).code == 0
    with np.load("f.npz") as found:
        assert list(found) == ["file"]
