from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyg_glif import GLIFPostProcessor
from pyg_glif.errors import SimilarityWarning
from tests.cli.calls import Shell, Table, numbers, read_csv, smooth, write_csv

COLUMNS = ("--outputs", "score", "--id", "name", "--ignore", "sex,repaid")


def test_smooth_of_a_table_is_the_closed_form(shell: Shell, table: Table) -> None:
    call = shell("smooth", "people.csv", *COLUMNS, "--tau", 6000, "--out", "fair.csv")
    assert call.code == 0
    found = read_csv(Path("fair.csv"))
    assert list(found) == ["name", "score"]
    assert found["name"] == table.name  # leading zeros and all
    expected = smooth(table.x, table.y, tau=6000)
    np.testing.assert_allclose(numbers(found["score"]), expected, atol=1e-5)
    assert np.abs(expected - table.y).max() > 0.01


def test_smooth_says_what_it_did(shell: Shell, table: Table) -> None:
    words = ("smooth", "people.csv", *COLUMNS, "--tau", 6000, "--lam", 0.5)
    call = shell(*words, "--out", "fair.csv", "--json")
    fair = numbers(read_csv(Path("fair.csv"))["score"])
    moved = np.abs(fair - table.y)
    found = call.json
    assert found["command"] == "smooth"
    assert (found["people"], found["features"], found["lam"]) == (40, 2, 0.5)
    assert (found["outputs"], found["metric"]) == ("score", "euclidean")
    assert found["files"] == {"out": "fair.csv"}
    assert found["mean_movement"] == pytest.approx(moved.mean(), rel=1e-6)
    assert found["largest_movement"] == pytest.approx(moved.max(), rel=1e-6)
    difference = table.x[:, None] - table.x[None]
    similar = np.sqrt((difference**2).sum(-1)) <= 6000
    np.fill_diagonal(similar, False)
    assert found["neighbors_each"] == pytest.approx(similar.sum() / 40)
    assert found["people_without_neighbors"] == (~similar.any(1)).sum()
    assert found["energy_after"] < found["energy_before"]
    assert found["status"] == "CONVERGED"
    assert 0 <= found["error_bound"] < 1e-4
    text = shell(*words, "--out", "fair.csv").out
    assert text.splitlines()[0] == "people                    40"
    assert text.splitlines()[-1] == "written                   fair.csv"


def test_no_strength_changes_nothing(shell: Shell, table: Table) -> None:
    words = ("smooth", "people.csv", *COLUMNS, "--tau", 6000, "--lam", 0)
    assert shell(*words, "--out", "fair.csv").code == 0
    found = numbers(read_csv(Path("fair.csv"))["score"])
    np.testing.assert_array_equal(found, table.y)


def test_smooth_takes_a_radius_from_a_degree(shell: Shell, table: Table) -> None:
    words = ("smooth", "people.csv", *COLUMNS, "--out", "fair.csv", "--json")
    found = shell(*words, "--target-degree", 5).json
    assert found["neighbors_each"] == pytest.approx(5.0)
    assert shell(*words).json["neighbors_each"] == pytest.approx(20.0)


def test_standardize_is_a_distance_in_standard_deviations(
    shell: Shell, table: Table
) -> None:
    z = (table.x - table.x.mean(0)) / table.x.std(0)
    shell(
        *("smooth", "people.csv", *COLUMNS, "--scale", "standard", "--tau", 0.8),
        *({"theta": 0.5}, "--lam", 2, "--out", "fair.csv"),
    )
    found = numbers(read_csv(Path("fair.csv"))["score"])
    expected = smooth(z, table.y, tau=0.8, lam=2.0, theta=0.5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    plain = smooth(table.x, table.y, tau=0.8, lam=2.0, theta=0.5)
    assert np.abs(plain - expected).max() > 0.01


def test_standardize_leaves_a_constant_column_alone(shell: Shell, table: Table) -> None:
    x = np.column_stack([table.x[:, 0], np.full(len(table.x), 0.1)])
    np.save("x.npy", x)
    np.save("y.npy", table.y)
    words = ("--scale", "standard", "--tau", 0.3, "--out", "f.npy")
    assert shell("smooth", "x.npy", "y.npy", *words).code == 0
    z = (x[:, :1] - x[:, :1].mean()) / x[:, :1].std()
    expected = smooth(z, table.y, tau=0.3)
    np.testing.assert_allclose(np.load("f.npy"), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 3)])
def test_arrays_keep_shape_and_precision(
    shell: Shell, shape: tuple[int, ...], dtype: type
) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(40, 3)), rng.normal(size=shape).astype(dtype)
    np.save("x.npy", x)
    np.save("y.npy", y)
    shell("smooth", "x.npy", "y.npy", "--tau", 1.2, "--out", "fair.npy")
    found = np.load("fair.npy")
    assert (found.shape, found.dtype) == (y.shape, y.dtype)
    np.testing.assert_allclose(found, smooth(x, y, tau=1.2), atol=1e-4)


def test_arrays_by_name(shell: Shell) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(30, 4)), rng.random((30, 2))
    np.savez("all.npz", x=x, y_hat=y, sex=np.array(list("fm") * 15), id=np.arange(30))
    words = ("smooth", "all.npz", "--outputs", "y_hat", "--tau", 1.0)
    words += ("--sensitive", "sex", "--id", "id", "--ignore", "x.3")
    assert shell(*words, "--out", "fair.npz").code == 0
    with np.load("fair.npz", allow_pickle=False) as found:
        assert sorted(found) == ["id", "y_hat"]
        expected = smooth(x[:, :3], y, tau=1.0)
        np.testing.assert_allclose(found["y_hat"], expected, atol=1e-5)
        assert (found["id"] == np.arange(30)).all()
    assert shell(*words, "--out", "fair.csv").code == 0
    assert list(read_csv(Path("fair.csv"))) == ["id", "y_hat.0", "y_hat.1"]


def test_a_column_of_a_matrix_may_hold_the_outputs(shell: Shell) -> None:
    x = np.random.default_rng(1).normal(size=(30, 3))
    np.save("all.npy", x)
    shell("smooth", "all.npy", "--outputs", 2, "--tau", 0.7, "--out", "fair.npz")
    with np.load("fair.npz") as found:
        (name,) = found
        value = found[name]
    expected = smooth(x[:, :2], x[:, 2:], tau=0.7)
    np.testing.assert_allclose(value.ravel(), expected.ravel(), atol=1e-5)


def test_formats_mix(shell: Shell, table: Table) -> None:
    # Before version 3.1, pandas reads the last digit right only if asked to.
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    exact = {"float_precision": "round_trip"} if old else {}
    read = partial(pd.read_csv, dtype={"name": str}, **exact)
    frame = read("people.csv")
    frame["sex"] = frame["sex"].astype("category")
    frame.to_parquet("people.parquet")
    frame.to_csv("people.tsv", sep="\t", index=False)
    results = []
    for source in ("people.csv", "people.parquet", "people.tsv"):
        for target in ("f.csv", "f.parquet", "f.tsv", "f.npz"):
            words = ("smooth", source, *COLUMNS, "--tau", 6000, "--out", target)
            assert shell(*words).code == 0
            if target == "f.parquet":
                found = pd.read_parquet(target)
            elif target == "f.npz":
                with np.load(target) as file:
                    found = pd.DataFrame(dict(file))
            else:
                separator = "\t" if target == "f.tsv" else ","
                found = read(target, sep=separator)
            assert list(found.columns) == ["name", "score"]
            assert found["name"].tolist() == table.name
            results.append(found["score"].to_numpy())
    for result in results:  # every digit survives the text
        np.testing.assert_array_equal(result, results[0])


def test_a_missing_package_is_named_before_the_work(
    shell: Shell, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyg_glif._utils import optional as _optional

    def nothing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(_optional, "import_module", nothing)
    shell("smooth", "people.csv", *COLUMNS, "--out", "fair.parquet").fails(
        1,
        "'writing .parquet' requires 'pyarrow.parquet' (install 'pyg_glif[files]')",
    )


@pytest.mark.parametrize("link", ["logit", "softmax", "log"])
def test_links_average_in_their_space(shell: Shell, link: str) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(30, 2)), rng.uniform(0.05, 0.95, (30, 3))
    if link == "softmax":
        y /= y.sum(1, keepdims=True)
    np.save("x.npy", x)
    np.save("y.npy", y)
    shell("smooth", "x.npy", "y.npy", "--tau", 1, "--link", link, "--out", "f.npy")
    found = np.load("f.npy")
    if link == "logit":
        eta = smooth(x, np.log(y / (1 - y)), tau=1.0)
        expected = 1 / (1 + np.exp(-eta))
    else:
        expected = np.exp(smooth(x, np.log(y), tau=1.0))
        if link == "softmax":
            expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_density_differs_and_keeps_constants(shell: Shell, table: Table) -> None:
    np.save("x.npy", table.x / 9000)
    np.save("y.npy", np.column_stack([table.y, np.full(40, 0.3)]))
    words = ("smooth", "x.npy", "y.npy", "--tau", 0.7, "--out", "f.npy")
    shell(*words)
    plain = np.load("f.npy")
    assert shell(*words, {"normalization": "density"}).code == 0
    np.testing.assert_allclose(np.load("f.npy")[:, 1], 0.3, atol=1e-5)
    assert np.abs(np.load("f.npy") - plain).max() > 1e-3


def test_new_samples_get_one_coordinate_update(shell: Shell, table: Table) -> None:
    table.write(Path("old.csv"), slice(0, 30))
    shell(
        *("smooth", "old.csv", *COLUMNS, "--scale", "standard", "--tau", 0.9),
        *("--lam", 0.4, {"theta": 0.3}, "--out", "f.csv", "--save", "fit.safetensors"),
    )
    rows = list(zip(*table.x.T[::-1], table.y, table.name, strict=True))[30:]
    write_csv(Path("new.csv"), ["income", "age", "score", "name"], rows)
    words = ("smooth", "new.csv", "--post", "fit.safetensors", "--id", "name")
    call = shell(*words, "--out", "new_fair.csv", "--json")
    old = table.x[:30]
    z = (table.x - old.mean(0)) / old.std(0)  # the scale of the fit
    f = smooth(z[:30], table.y[:30], tau=0.9, lam=0.4, theta=0.3)
    sq_dist = ((z[30:, None] - z[None, :30]) ** 2).sum(-1)
    w = np.where(np.sqrt(sq_dist) <= 0.9, np.exp(-0.3 * sq_dist), 0.0)
    expected = (table.y[30:] + 0.4 * w @ f) / (1 + 0.4 * w.sum(1))
    found = read_csv(Path("new_fair.csv"))
    assert found["name"] == table.name[30:]
    np.testing.assert_allclose(numbers(found["score"]), expected, atol=1e-5)
    assert call.json["fitted_people"] == 30
    assert call.json["people_without_neighbors"] == (w.sum(1) == 0).sum()
    assert shell(*words, {"joint": True}, "--out", "joint.csv").code == 0
    joint = numbers(read_csv(Path("joint.csv"))["score"])
    assert np.abs(joint - expected).max() > 1e-4


def test_the_library_reads_a_kept_fit_and_the_other_way_round(
    shell: Shell, table: Table
) -> None:
    words = ("smooth", "people.csv", *COLUMNS, "--tau", 6000, "--out", "f.csv")
    shell(*words, "--save", "fit.safetensors")
    post = GLIFPostProcessor.load("fit.safetensors")
    fair = numbers(read_csv(Path("f.csv"))["score"])
    np.testing.assert_array_equal(post.y_fair_.numpy(), fair)
    assert post.metadata_["columns"]["outputs"] == ["score"]
    post.save("plain.safetensors")
    words = ("smooth", "people.csv", *COLUMNS, "--post", "plain.safetensors")
    assert shell(*words, "--out", "g.csv").code == 0
    again = numbers(read_csv(Path("g.csv"))["score"])
    np.testing.assert_allclose(again, post.transform(table.x, table.y))
    # Names of a fit in Python serve as those of a fit on the command line.
    names = post.metadata_["columns"]["features"][::-1]
    frame = pytest.importorskip("pandas").DataFrame(table.x[:, ::-1], columns=names)
    with pytest.warns(SimilarityWarning, match="Nothing was standardised"):
        post.fit(frame, table.y).save("named.safetensors")
    words = ("smooth", "people.csv", "--outputs", "score", "--post")
    assert shell(*words, "named.safetensors", "--out", "h.csv").code == 0
    named = numbers(read_csv(Path("h.csv"))["score"])
    np.testing.assert_allclose(named, again)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--lam", "2"],
            "--lam does not go with --post, which brings its own settings",
        ),
        (
            ["--audit", "a.md"],
            "--audit does not go with --post, which brings its own settings. Use "
            "'pyg-glif audit --after'",
        ),
        (["--post", "nothing"], "'nothing' does not exist"),
        (
            ["--post", "people.csv"],
            "'path' must be a file that 'GLIFPostProcessor.save' wrote (got ",
        ),
    ],
)
def test_post_refuses(
    shell: Shell, table: Table, words: list[str], message: str
) -> None:
    fit = ("smooth", "people.csv", *COLUMNS, "--out", "f.csv")
    shell(*fit, "--save", "fit.safetensors")
    call = shell(*fit, "--post", "fit.safetensors", *words)
    assert call.code == 2
    assert call.err.startswith(f"pyg-glif: error: {message}")


def test_new_samples_need_the_columns_of_the_fit(shell: Shell, table: Table) -> None:
    fit = ("smooth", "people.csv", *COLUMNS, "--out", "f.csv")
    shell(*fit, "--save", "fit.safetensors")
    write_csv(Path("new.csv"), ["age", "score"], [(40, 0.5)])
    shell("smooth", "new.csv", "--post", "fit.safetensors", "--out", "n.csv").fails(
        2, "--features: 'new.csv' has no column 'income' (it has 'age', 'score')"
    )


def test_outputs_are_replaced_and_inputs_are_not(shell: Shell, table: Table) -> None:
    before = Path("people.csv").read_bytes()
    Path("fair.csv").write_text("old")
    words = ("smooth", "people.csv", *COLUMNS, "--tau", 6000)
    assert shell(*words, "--out", "fair.csv").code == 0
    assert Path("fair.csv").read_text() != "old"
    for option in ("--out", "--audit"):
        target = {"--out": "fair.csv", "--audit": "r.md", option: "./people.csv"}
        call = shell(*words, *(word for pair in target.items() for word in pair))
        assert call.code == 2
    shell(*words, "--out", "./people.csv").fails(
        2, "--out must not be 'people.csv', which has another use in this call"
    )
    assert Path("people.csv").read_bytes() == before
    left = sorted(path.name for path in Path().iterdir())
    assert left == ["fair.csv", "people.csv"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "people.csv/f.csv",
            "--out: 'people.csv/f.csv' cannot be written (Not a directory)",
        ),
        (
            "none/f.csv",
            "--out: 'none/f.csv' cannot be written (No such file or directory)",
        ),
        (
            "fair.xls",
            "--out must end in .csv, .csv.gz, .tsv, .tsv.gz, .xlsx, .parquet, .npy, "
            ".npz (got 'fair.xls')",
        ),
        (
            "fair.csv --audit none/a.md",
            "--audit: 'none/a.md' cannot be written (No such file or directory)",
        ),
        ("folder.csv", "--out must be a file (got the folder 'folder.csv')"),
        ("fair.npy", "--id does not fit into .npy. Let --out be .csv or .npz"),
    ],
)
def test_unwritable_output_is_found_before_the_work(
    shell: Shell,
    table: Table,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    message: str,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(GLIFPostProcessor, "fit", never)
    Path("folder.csv").mkdir()
    shell("smooth", "people.csv", *COLUMNS, "--out", *words.split()).fails(2, message)


def test_a_failed_call_leaves_old_results_alone(
    shell: Shell, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("fair.csv").write_text("old")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyg_glif.cli._files._write_csv", full)
    words = ("smooth", "people.csv", *COLUMNS, "--tau", 6000, "--out", "fair.csv")
    shell(*words).fails(1, "[Errno 28] No space left on device: 'fair.csv'")
    assert Path("fair.csv").read_text() == "old"
    assert sorted(p.name for p in Path().iterdir()) == ["fair.csv", "people.csv"]


def test_a_saddle_is_a_failure_of_the_work(shell: Shell) -> None:
    x = np.vstack([np.zeros(20), np.eye(20)])  # a star: leaves are sqrt(2) apart
    np.save("x.npy", x)
    np.save("y.npy", np.arange(21.0))
    words = ("smooth", "x.npy", "y.npy", "--tau", 1.2, "--out", "f.npy", "--lam", 10)
    words = (*words, {"theta": 0})
    call = shell(*words, {"normalization": "nrw"})
    assert call.code == 1
    assert "density" in call.err
    assert "Traceback" not in call.err
    assert not Path("f.npy").exists()
    assert shell(*words, {"normalization": "density"}).code == 0


def test_few_samples_need_a_radius(shell: Shell) -> None:
    np.save("x.npy", np.eye(3))
    np.save("y.npy", np.ones(3))
    shell("smooth", "x.npy", "y.npy", "--out", "f.npy").fails(
        2,
        "--tau or --target-degree must be given for 3 rows: the default aims for "
        "20 neighbors each",
    )


def scores(path: str, *names: str) -> None:
    """Two features, then outputs."""
    rng = np.random.default_rng(7)
    rows = rng.random((12, 2 + len(names))).tolist()
    write_csv(Path(path), ["a", "b", *names], rows)


@pytest.mark.parametrize(
    "names", [["score.0"], ["0"], ["score.0", "score.1"], ["y.0", "z"], ["a.b.0"]]
)
@pytest.mark.parametrize("target", ["f.csv", "f.parquet", "f.npz"])
def test_outputs_keep_their_names(shell: Shell, names: list[str], target: str) -> None:
    scores("p.csv", *names)
    words = ("smooth", "p.csv", "--outputs", ",".join(names), "--tau", 0.5, "--out")
    assert shell(*words, target).code == 0
    if target == "f.npz":
        with np.load(target) as file:
            assert list(file) == names
    elif target == "f.csv":
        assert list(read_csv(Path(target))) == names
    else:
        assert list(pd.read_parquet(target)) == names


def test_several_outputs_of_a_table_as_one_array(shell: Shell) -> None:
    scores("p.csv", "y", "z")
    words = ("smooth", "p.csv", "--outputs", "y,z", "--tau", 0.5, "--out")
    assert shell(*words, "f.npy").code == 0
    assert shell(*words, "f.csv").code == 0
    found = read_csv(Path("f.csv"))
    expected = np.column_stack([numbers(found["y"]), numbers(found["z"])])
    np.testing.assert_array_equal(np.load("f.npy"), expected)


def test_an_id_is_not_lost_to_an_output_of_the_same_name(shell: Shell) -> None:
    rng = np.random.default_rng(7)
    rows = [(f"p{i}", *rng.random(3)) for i in range(12)]
    write_csv(Path("p.csv"), ["score", "a", "b", "score.0"], rows)
    words = ("smooth", "p.csv", "--id", "score", "--outputs", "score.0", "--tau", 0.5)
    assert shell(*words, "--out", "f.csv").code == 0
    found = read_csv(Path("f.csv"))
    assert list(found) == ["score", "score.0"]
    assert found["score"] == [row[0] for row in rows]
    y = rng.random((12, 2))
    np.savez("y.npz", score=y)
    words = ("smooth", "p.csv", "y.npz", "--id", "score", "--outputs")
    words += ("score.0,score.1", "--features", "a,b", "--tau", 0.5, "--out")
    shell(*words, "f.npz").fails(
        2,
        "'score' must be the same in both files, row by row (got 'p0' and "
        f"'{y[0]}' in row 0). Sort them alike",
    )
    np.save("outputs.npy", np.array([row[0] for row in rows]))
    np.save("y.npy", y)
    words = ("smooth", "p.csv", "y.npy", "--features", "a,b", "--tau", 0.5)
    shell(*words, "--id", "outputs.npy", "--out", "f.npz").fails(
        2,
        "--id must not name 'outputs', which is the name of an output: a file holds "
        "one column of a name",
    )


FORMULAS = ["=1+1", "+cmd", "-x", "@SUM(1)", "\t=1", "\r=1"]
FORMULAS += ["-5", "+1e3", "a=1", "", "'"]


def test_texts_that_a_spreadsheet_would_run(shell: Shell) -> None:
    rng = np.random.default_rng(7)
    rows = [(name, *rng.random(2)) for name in FORMULAS]
    write_csv(Path("p.csv"), ["name", "a", "y"], rows)
    words = ("smooth", "p.csv", "--outputs", "y", "--id", "name", "--tau", 0.5, "--out")
    call = shell(*words, "plain.csv")
    assert call.err == (
        "pyg-glif: column 'name' of 'plain.csv' has 6 texts that a spreadsheet would "
        "run as a formula (see 'spreadsheet' of --config)\n"
    )
    # Ids are what results are joined by: unchanged unless asked for.
    assert read_csv(Path("plain.csv"))["name"] == FORMULAS
    call = shell(*words, "safe.csv", {"spreadsheet": True})
    assert call.err == ""
    safe = read_csv(Path("safe.csv"))
    assert safe["name"] == [f"'{name}" for name in FORMULAS[:6]] + FORMULAS[6:]
    assert safe["y"] == read_csv(Path("plain.csv"))["y"]  # numbers are numbers
    # The files still belong together.
    words = ("audit", "p.csv", "--outputs", "y", "--id", "name", "--tau", 0.5)
    assert shell(*words, "--after", "safe.csv").code == 0
    assert shell(*words, "--after", "plain.csv").code == 0


def test_names_that_a_spreadsheet_would_run(shell: Shell) -> None:
    rng = np.random.default_rng(7)
    write_csv(Path("p.csv"), ["a", "=y"], rng.random((9, 2)).tolist())
    words = ("smooth", "p.csv", "--outputs", "=y", "--tau", 0.5, "--out", "f.csv")
    assert "has 1 text that a spreadsheet" in shell(*words).err
    shell(*words, {"spreadsheet": True})
    assert list(read_csv(Path("f.csv"))) == ["'=y"]
    shell(*words[:-1], "f.npz", {"spreadsheet": True}).fails(
        2, "'spreadsheet' of --config goes with .csv and .tsv (got 'f.npz')"
    )
    assert shell(*words[:-1], "f.npz").err == ""
