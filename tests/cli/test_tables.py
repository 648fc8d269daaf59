"""Tables as people have them: text, gaps, dates, packed files, spreadsheets."""

import gzip
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.cli._dtypes import typed
from pyg_glif.cli._files import write_table
from pyg_glif.cli._tables import open_table
from pyg_glif.tables import FairTable
from tests.cli.calls import Shell, numbers, read_csv, smooth

TABLE = ("people.csv", "--outputs", "score", "--sensitive", "sex", "--id", "name")
FEATURES = ["age", "job", "since", "member"]


def people(num: int = 80, seed: int = 0) -> pd.DataFrame:
    """People with text, dates, truth values and gaps, and a score from 0 to 1."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, num).round()
    job = rng.choice(["clerk", "nurse", "baker"], num)
    score = 0.02 * (age - 45) + 0.5 * (job == "nurse") + rng.normal(0, 0.05, num)
    frame = pd.DataFrame(
        {
            "name": [f"p{i:03}" for i in range(num)],
            "sex": rng.choice(["f", "m"], num),
            "age": age,
            "job": job.astype(object),
            "since": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 900, num), unit="D"),
            "member": rng.random(num) < 0.5,
            "score": (1 / (1 + np.exp(-score))).round(6),
        }
    )
    frame.loc[3, "age"] = np.nan
    frame.loc[[5, 6], "job"] = None
    return frame


@pytest.fixture
def frame(shell: Shell) -> pd.DataFrame:
    """The people of ``people.csv``."""
    found = people()
    found.to_csv("people.csv", index=False)
    return found


def fitted(frame: pd.DataFrame, **options: Any) -> FairTable:
    """The table that the call of ``TABLE`` stands for."""
    table = FairTable(sensitive=["sex"], **options)
    y = None if options.get("scale") == "standard" else frame["score"]
    return table.fit(frame[[*FEATURES, "sex"]], y_hat=y)


@pytest.mark.parametrize("scale", ["effect", "conditional", "standard"])
def test_a_table_is_smoothed_on_the_scale_asked_for(
    shell: Shell, frame: pd.DataFrame, scale: str
) -> None:
    call = shell("smooth", *TABLE, "--scale", scale, "--tau", 0.4, "--json")
    assert call.code == 0, call.err
    table = fitted(frame, scale=scale)
    z = table.transform(frame[[*FEATURES, "sex"]]).numpy()
    expected = smooth(z, frame["score"].to_numpy(), tau=0.4)
    found = read_csv(Path("people_fair.csv"))
    assert list(found) == ["name", "score"]
    np.testing.assert_allclose(numbers(found["score"]), expected, atol=1e-5)
    assert np.abs(expected - frame["score"]).max() > 0.01
    assert call.json["columns"] == FEATURES
    assert (call.json["scale"], call.json["unit"]) == (scale, table.unit_)
    assert [row["column"] for row in call.json["table"]] == [*FEATURES, "sex"]


def test_it_just_works_and_says_what_it_did(shell: Shell, frame: pd.DataFrame) -> None:
    call = shell("smooth", "people.csv", "--outputs", "score", "--sensitive", "sex")
    assert call.code == 0
    note = "'name': nearly every row has its own text; carried through"
    assert call.err == f"pyg-glif: {note}, not features\n"
    assert read_csv(Path("people_fair.csv"))["name"] == frame["name"].tolist()
    lines = dict(line.split(None, 1) for line in call.out.split("\n\n")[0].splitlines())
    assert lines["columns"] == "age, job, since, member"
    assert lines["scale"] == "effect"
    assert lines["tau"].endswith(" log-odds")
    alone = int(call.out.split("people without neighbors")[1].split()[0])
    assert alone <= 0.08 * len(frame)
    for name in FEATURES:
        (line,) = (x for x in call.out.splitlines() if x.startswith(f"{name} "))
        assert "effect on the model" in line
    (line,) = (x for x in call.out.splitlines() if x.startswith("sex "))
    assert "left out" in line


@pytest.mark.filterwarnings("default:The columns explain")
def test_text_or_gaps_need_no_option(shell: Shell, frame: pd.DataFrame) -> None:
    words = ("--outputs", "score", "--ignore", "sex", "--id", "name", "--tau", 0.4)
    found = shell("smooth", "people.csv", *words, "--json").json
    assert found["scale"] == "effect"
    frame[["name", "sex", "age", "score"]].to_csv("gaps.csv", index=False)
    assert shell("smooth", "gaps.csv", *words, "--json").json["scale"] == "effect"
    frame[["name", "sex", "age", "score"]].dropna().to_csv("full.csv", index=False)
    assert shell("smooth", "full.csv", *words, "--json").json["scale"] == "none"


def test_values_that_are_equivalent(shell: Shell, frame: pd.DataFrame) -> None:
    words = ({"equivalent": {"job": [["nurse", "baker"]]}}, "--tau", 0.3)
    assert shell("smooth", *TABLE, *words).code == 0
    table = fitted(frame, equivalent={"job": [("nurse", "baker")]})
    z = table.transform(frame[FEATURES]).numpy()
    expected = smooth(z, frame["score"].to_numpy(), tau=0.3)
    found = numbers(read_csv(Path("people_fair.csv"))["score"])
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"job": [["nurse", "bakr"]]}, "bakr"),
        ({"jobs": [["nurse", "baker"]]}, "jobs"),
        ({"sex": [["f", "m"]]}, "sex"),
    ],
)
def test_values_that_are_not_there(
    shell: Shell, frame: pd.DataFrame, groups: Any, message: str
) -> None:
    call = shell("smooth", *TABLE, {"equivalent": groups})
    assert call.code == 2
    assert f"'{message}'" in call.err


def test_numbers_that_are_names(shell: Shell, frame: pd.DataFrame) -> None:
    codes = {"clerk": 7, "nurse": 12, "baker": 30}
    frame["job"] = frame["job"].map(codes).fillna(7).astype(int)
    frame["age"] = frame["age"].fillna(40.0)
    frame.to_csv("people.csv", index=False)
    call = shell("smooth", *TABLE, {"categories": "job"}, "--json")
    kinds = {row["column"]: row["kind"] for row in call.json["table"]}
    assert kinds["job"] == "category"
    call = shell("smooth", *TABLE, "--json")
    kinds = {row["column"]: row["kind"] for row in call.json["table"]}
    assert kinds["job"] == "number"


@pytest.mark.filterwarnings("default")
def test_new_samples_have_text_too(shell: Shell, frame: pd.DataFrame) -> None:
    frame[:60].to_csv("people.csv", index=False)
    words = ("--tau", 0.5, "--lam", 0.4, "--save", "fit.safetensors")
    assert shell("smooth", *TABLE, *words).code == 0
    new = frame[60:].reset_index(drop=True)
    new.loc[0, "job"] = "pilot"
    columns = ["score", "job", "name", "member", "since", "age"]
    new[columns].to_csv("new.csv", index=False)
    call = shell(
        *("smooth", "new.csv", "--post", "fit.safetensors", "--id", "name"),
        *("--out", "new_fair.csv"),
    )
    assert call.code == 0, call.err
    assert "the fit has not seen: 'pilot' in 'job'" in call.err
    assert "unseen: 'pilot'" in call.out
    table = fitted(frame[:60])
    old = table.transform(frame[:60][FEATURES]).numpy()
    with pytest.warns(UserWarning, match="pilot"):
        z = table.transform(new[FEATURES]).numpy()
    y = frame["score"].to_numpy()
    f = smooth(old, y[:60], tau=0.5, lam=0.4)
    sq_dist = ((z[:, None] - old[None]) ** 2).sum(-1)
    post = GLIFPostProcessor.load("fit.safetensors")
    w = np.where(np.sqrt(sq_dist) <= 0.5, np.exp(-post.theta_ * sq_dist), 0.0)
    expected = (y[60:] + 0.4 * w @ f) / (1 + 0.4 * w.sum(1))
    found = numbers(read_csv(Path("new_fair.csv"))["score"])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_one_new_sample_is_read_as_the_fit(shell: Shell, frame: pd.DataFrame) -> None:
    frame["job"] = frame["job"].map({"clerk": "7", "nurse": "7a", "baker": "b"})
    frame["age"] = frame["age"].fillna(40.0)
    frame.to_csv("people.csv", index=False)
    assert shell("smooth", *TABLE, "--save", "fit.safetensors").code == 0
    one = frame[frame["job"] == "7"][:1]  # in a file of its own the text is a number
    one.to_csv("one.csv", index=False)
    words = ("smooth", "one.csv", "--post", "fit.safetensors", "--out", "o.csv")
    call = shell(*words, "--json")
    assert call.code == 0, call.err
    assert call.json["neighbors_each"] >= 1


@pytest.mark.filterwarnings("default")
def test_outcomes_are_no_features(shell: Shell, frame: pd.DataFrame) -> None:
    frame["repaid"] = (frame["score"] > 0.5).astype(int)
    frame.to_csv("people.csv", index=False)
    call = shell("smooth", *TABLE)
    assert call.code == 0
    warning = (
        "'repaid' looks like an outcome (0 and 1 only), and it says who is similar"
    )
    assert f"pyg-glif: warning: {warning}" in call.err
    assert "--ignore repaid" in call.err
    assert shell("smooth", *TABLE, "--ignore", "repaid").err == ""
    assert shell("smooth", *TABLE, "--labels", "repaid").err == ""
    frame[["name", "sex", "age", "score", "repaid"]].dropna().to_csv("people.csv")
    plain = ("--outputs", "score", "--id", "name", "--ignore", "sex")
    plain += ("--scale", "standard")
    assert f"warning: {warning}" in shell("audit", "people.csv", *plain).err


def test_gaps_of_a_sensitive_column_are_a_group(
    shell: Shell, frame: pd.DataFrame
) -> None:
    frame.loc[[1, 2], "sex"] = None
    frame.to_csv("people.csv", index=False)
    found = shell("audit", *TABLE, "--tau", 0.4, "--json").json
    (gap,) = (m for m in found["measures"] if m["title"].startswith("gap by sex"))
    means = frame["score"].groupby(frame["sex"].fillna("unknown")).mean()
    assert gap["before"]["value"] == pytest.approx(means.max() - means.min())


def test_audit_and_tune_take_the_same_table(shell: Shell, frame: pd.DataFrame) -> None:
    frame["repaid"] = (frame["score"] > 0.55).astype(int)
    frame.to_csv("people.csv", index=False)
    labels = ("--labels", "repaid")
    found = shell("audit", *TABLE, *labels, "--json").json
    assert found["setup"]["columns"] == ["age", "job", "since", "member"]
    assert (found["setup"]["scale"], found["setup"]["unit"]) == ("effect", "log-odds")
    groups = {"job": [["nurse", "baker"]], "member": [[True, False]]}
    equivalent = ({"equivalent": groups},)
    words = ("--cv", 3, "--taus", "0.3,0.5", "--lams", "0.1,1", "--max-loss", 1)
    found = shell("tune", *TABLE, *labels, *equivalent, *words, "--json").json
    assert found["num_folds"] == 3
    assert len(found["points"]) == 4
    call = shlex.split(found["call"])[1:]
    assert shell(*call, "--json").json["columns"] == FEATURES


def test_k_nearest(shell: Shell, frame: pd.DataFrame) -> None:
    found = shell("smooth", *TABLE, "--k", 4, "--json").json
    assert found["k"] == 4
    assert "tau" not in found
    assert found["people_without_neighbors"] == 0
    capped = shell("smooth", *TABLE, "--k", 4, "--tau", 0.1, "--json").json
    assert (capped["k"], capped["tau"]) == (4, 0.1)
    assert capped["neighbors_each"] < found["neighbors_each"]
    shell("smooth", *TABLE, "--k", 4, "--coverage", 0.9).fails(
        2, "--coverage and --k do not go together. --tau may go with --k"
    )
    assert shell("audit", *TABLE, "--k", 4, "--json").json["k"] == 4


def test_coverage_is_the_share_of_samples_with_a_neighbor(
    shell: Shell, frame: pd.DataFrame
) -> None:
    for share in (0.5, 0.8, 0.95):
        found = shell("smooth", *TABLE, "--coverage", share, "--json").json
        assert found["people_without_neighbors"] <= (1 - share) * len(frame) + 1e-9


# --- Files ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv.gz", ".tsv.gz", ".xlsx", ".parquet"])
def test_every_kind_of_file_gives_the_same(
    shell: Shell, frame: pd.DataFrame, suffix: str
) -> None:
    other = f"people{suffix}"
    if suffix == ".xlsx":
        frame.to_excel(other, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(other)
    else:
        frame.to_csv(other, index=False, sep="\t" if "tsv" in suffix else ",")
    assert shell("smooth", *TABLE, "--tau", 0.4).code == 0
    assert shell("smooth", other, *TABLE[1:], "--tau", 0.4).code == 0
    (plain, again) = (open_table(f"people_fair{s}") for s in (".csv", suffix))
    assert again.column("name").tolist() == frame["name"].tolist()
    np.testing.assert_allclose(again.numbers(["score"]), plain.numbers(["score"]))


def test_a_spreadsheet_is_read_from_its_names_on(shell: Shell) -> None:
    sheet = pd.DataFrame([["a", "y", None], [1, 2, None], ["x", 3, None], [4, 5, None]])
    sheet.to_excel("p.xlsx", index=False, header=False)
    words = ("--outputs", "y", "--tau", 1, "--scale", "none", "--out", "f.csv")
    shell("smooth", "p.xlsx", *words).fails(
        2,
        "'p.xlsx': column 'a' must hold numbers (got 'x' in row 3). Leave it out with "
        "--ignore a, or pick columns with --features",
    )


def test_no_text_of_a_spreadsheet_is_a_formula(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    path = str(tmp_path / "f.xlsx")
    ids = np.array(["=1+1", "@a", "-2", "plain"], dtype=object)
    write_table(path, {"=id": ids, "y": np.arange(4.0)})
    cells = [cell for row in openpyxl.load_workbook(path).active for cell in row]
    assert {cell.data_type for cell in cells} <= {"s", "n"}
    assert open_table(path).column("=id").tolist() == ids.tolist()


def test_a_packed_file_is_the_same_every_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.csv.gz" for name in "ab"]
    for path in paths:
        write_table(str(path), {"y": np.arange(3.0)})
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert gzip.decompress(paths[0].read_bytes()) == b"y\n0.0\n1.0\n2.0\n"


@pytest.mark.parametrize("cut", [0, 10, 30])
@pytest.mark.parametrize("suffix", [".csv.gz", ".xlsx"])
def test_damaged_files_are_named(
    shell: Shell, frame: pd.DataFrame, suffix: str, cut: int
) -> None:
    path = Path(f"p{suffix}")
    write_table(str(path), {"a": np.arange(40.0), "y": np.arange(40.0)})
    path.write_bytes(path.read_bytes()[:cut])
    call = shell("smooth", path, "--outputs", "y", "--tau", 1, "--out", "f.csv")
    assert (call.code, call.err.count("\n")) == (2, 1)
    assert call.err.startswith(f"pyg-glif: error: '{path}' must ")


# --- Cells ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", " 2.5 ", "", "?"], [1.0, 2.5, np.nan, np.nan]),
        (["1_000", "1e3"], [1000.0, 1000.0]),
        (["a", " b", "NA", "None"], ["a", "b", None, None]),
        (["True", "false", ""], [True, False, None]),
        ([True, None, False], [True, None, False]),
        ([1, 2.5, None], [1.0, 2.5, np.nan]),
        (["1", "a", "b"], ["1", "a", "b"]),
    ],
)
def test_columns_have_the_kind_of_their_cells(cells: list, expected: list) -> None:
    found, odd = typed(np.array(cells, dtype=object))
    assert odd is None
    assert [type(one) for one in found.tolist()] == [type(one) for one in expected]
    pd.testing.assert_series_equal(
        pd.Series(found.tolist(), dtype=object), pd.Series(expected, dtype=object)
    )


def test_dates_are_dates() -> None:
    cells = np.array(["2020-02-29", "", "2021-01-01 12:00"], dtype=object)
    found, odd = typed(cells)
    assert odd is None
    expected = pd.to_datetime(
        ["2020-02-29", None, "2021-01-01 12:00"], format="ISO8601"
    )
    pd.testing.assert_index_equal(pd.DatetimeIndex(found), expected, exact="equiv")
    assert typed(np.array(["2020-02-31", "2020-01-01"], dtype=object))[0][0] == (
        "2020-02-31"  # no such day: text
    )


def test_slips_are_found_and_codes_are_not() -> None:
    cells = np.array(["1", "2", "12O", "4"], dtype=object)
    assert typed(cells)[1] == (2, "12O", "numbers")
    assert typed(cells, as_text=True)[1] is None
    assert typed(np.array([1.0, np.inf]))[1] == (1, np.inf, "numbers")
    assert typed(np.array(["1", "a", "b", "2"], dtype=object))[1] is None


def test_slips_have_their_line(shell: Shell, frame: pd.DataFrame) -> None:
    text = Path("people.csv").read_text().splitlines()
    cells = text[9].split(",")
    cells[2] = "4O"
    Path("people.csv").write_text("\n".join([*text[:9], ",".join(cells), *text[10:]]))
    shell("smooth", *TABLE).fails(
        2,
        "'people.csv': column 'age' must hold numbers (got '4O' in line 10). Leave it "
        "out with --ignore age, or pick columns with --features",
    )


def test_free_text_that_was_asked_for(shell: Shell, frame: pd.DataFrame) -> None:
    words = ("smooth", "people.csv", "--outputs", "score", "--features", "name,age")
    shell(*words).fails(
        2,
        "'people.csv': 'name' must hold categories (got a text of its own in nearly "
        "every row)",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--outputs", "scor", "--sensitive", "Sex"],
            "'people.csv' has no column 'Sex' (--sensitive), 'scor' (--outputs); it "
            "has 'name', 'sex', 'age', 'job', 'since', 'member', 'score'. Did you mean "
            "'sex', 'score'?",
        ),
        (
            ["--outputs", "score", "--ignore", "agee"],
            "--ignore: 'people.csv' has no column 'agee' (it has 'name', 'sex', 'age', "
            "'job', 'since', 'member', 'score'). Did you mean 'age'?",
        ),
        (
            ["--outputs", "score", "--scale", "effect", "--metric", "mahalanobis"],
            "--metric mahalanobis needs 'matrix' of --config",
        ),
        (
            ["--outputs", "score", "--sensitve", "sex"],
            "unrecognized arguments: --sensitve sex. Did you mean '--sensitive'? See "
            "'pyg-glif smooth --help'",
        ),
    ],
)
def test_what_was_meant(
    shell: Shell, frame: pd.DataFrame, words: list[str], message: str
) -> None:
    shell("smooth", "people.csv", *words).fails(2, message)


def test_metrics_that_need_numbers(shell: Shell, frame: pd.DataFrame) -> None:
    np.save("rows.npy", np.ones((1, 4)))
    words = ("--metric", "subspace", {"directions": "rows.npy"})
    shell("smooth", *TABLE, *words, "--scale", "effect").fails(
        2, "--metric subspace goes with numbers as they are, or with --scale standard"
    )
    words = ("--metric", "logistic", "--sensitive", "sex", "--json")
    found = shell("smooth", *TABLE[:3], "--id", "name", "--scale", "effect", *words)
    assert found.code == 0, found.err
    assert found.json["metric"] == "logistic"


def test_a_kept_table_is_plain_data(shell: Shell, frame: pd.DataFrame) -> None:
    assert shell("smooth", *TABLE, "--save", "fit.safetensors").code == 0
    kept = GLIFPostProcessor.load("fit.safetensors").metadata_
    again = FairTable.from_config(json.loads(json.dumps(kept["table"])))
    z = again.transform(frame[FEATURES])
    assert torch.equal(z, fitted(frame).transform(frame[FEATURES]))
