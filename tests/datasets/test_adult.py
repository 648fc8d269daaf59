"""Tables with a binary outcome: ``Adult`` and ``German``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from experiments.datasets import German
from experiments.datasets.german import CODES
from pyg_glif.datasets import Adult
from tests.experiments.datasets.laws import write_csv

ADULT = ["age", "workclass", "fnlwgt", "education", "education_num", "marital_status"]
ADULT += ["occupation", "relationship", "race", "sex", "capital_gain", "capital_loss"]
ADULT += ["hours_per_week", "native_country", "income", "split"]
ROWS = [
    "39,State-gov,77516,Bachelors,13,Never-married,Adm-clerical,Not-in-family,White,"
    "Male,2174,0,40,United-States,<=50K,train",
    "50,?,83311,HS-grad,9,Married-civ-spouse,?,Wife,Black,"
    "Female,0,1900,13,Cuba,>50K,test",
    "28,Private,5,HS-grad,9,Divorced,Sales,Unmarried,White,Male,0,0,40,?,>50K,train",
]
GERMAN = [*German.numbers, *German.categories, "credit_risk"]


def rows() -> list[list[str]]:
    return [line.split(",") for line in ROWS]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three rows of the census and two of credits, where data sets look for them."""
    write_csv(tmp_path / "tabular" / "adult.csv.gz", ADULT, rows())
    write_csv(tmp_path / "tabular" / "german.csv.gz", GERMAN, credits())
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    return tmp_path


def credits() -> list[list[Any]]:
    first = {name: next(iter(codes)) for name, codes in CODES.items()}
    good = {name: k for k, name in enumerate(German.numbers)} | first
    bad = good | {"personal_status_sex": "A92", "purpose": "A410", "age": 30}
    return [[*good.values(), 1], [*bad.values(), 2]]


def indicators(frame: pd.DataFrame, names: list[str]) -> np.ndarray:
    """What the columns of ``x`` say, entry by entry."""
    out = np.zeros((len(frame), len(names)))
    for j, name in enumerate(names):
        column, _, value = name.partition("=")
        entries = frame[column].tolist()
        out[:, j] = [entry == value for entry in entries] if value else entries
    return out


def check_laws(dataset: Any) -> None:
    """Frame and tensors say the same, and the frame is a copy."""
    data, frame, target = dataset[0], dataset.frame, dataset.target
    assert len(dataset) == 1
    assert len(frame) == len(target) == data.num_nodes
    assert data.y.tolist() == target.tolist()
    assert set(target) <= {0, 1}
    assert list(frame) == [*dataset.numbers, *dataset.categories]
    assert data.x.dtype == torch.float32
    np.testing.assert_array_equal(data.x, indicators(frame, dataset.feature_names))
    for name in dataset.categories:
        assert isinstance(frame[name].dtype, pd.CategoricalDtype)
    frame.iloc[0, 0] = -1
    target.iloc[0] = 7
    assert dataset.frame.iloc[0, 0] != -1
    assert dataset.target.iloc[0] != 7


def test_adult(folder: Path) -> None:
    dataset = Adult()
    assert repr(dataset) == "Adult(variant='uci')"
    check_laws(dataset)
    frame, data = dataset.frame, dataset[0]
    assert frame["age"].tolist() == [39, 50, 28]
    assert frame["workclass"].isna().tolist() == [False, True, False]
    assert frame["native_country"].isna().tolist() == [False, False, True]
    assert dataset.target.tolist() == [0, 1, 1]
    assert dataset.split.tolist() == ["train", "test", "train"]
    assert data.train_mask.tolist() == [True, False, True]
    assert data.test_mask.tolist() == [False, True, False]
    assert [dataset.sex_names[i] for i in data.sex] == ["Male", "Female", "Male"]
    assert [dataset.race_names[i] for i in data.race] == ["White", "Black", "White"]


def test_adult_invented_needs_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYG_GLIF_DATA", raising=False)
    dataset, again = Adult(variant="invented"), Adult(variant="invented")
    check_laws(dataset)
    pd.testing.assert_frame_equal(dataset.frame, again.frame)
    data, frame = dataset[0], dataset.frame
    assert int(data.train_mask.sum()) == 6_000
    assert int(data.test_mask.sum()) == 3_000
    assert set(frame.loc[frame["sex"] == "Female", "relationship"]) >= {"Wife"}
    assert "Husband" not in set(frame.loc[frame["sex"] == "Female", "relationship"])
    assert int(frame.isna().any(axis=1).sum()) == 248
    assert float(dataset.target.mean()) == pytest.approx(0.224, abs=5e-4)


def test_invented_incomes_are_biased_by_sex() -> None:
    from sklearn.linear_model import LogisticRegression

    dataset = Adult(variant="invented")
    x = dataset[0].x.numpy() / np.maximum(dataset[0].x.numpy().max(0), 1)
    model = LogisticRegression(max_iter=2_000).fit(x, dataset.target)
    effect = dict(zip(dataset.feature_names, model.coef_[0], strict=True))
    # 0.9 in log-odds, of which the penalty on coefficients and chance take some.
    assert 0.5 < effect["sex=Male"] - effect["sex=Female"] < 1.3


def test_german(folder: Path) -> None:
    dataset = German()
    assert repr(dataset) == "German()"
    check_laws(dataset)
    frame, data = dataset.frame, dataset[0]
    assert frame["purpose"].tolist() == ["new car", "other"]
    assert frame["age"].tolist() == [4, 30]
    assert dataset.target.tolist() == [1, 0]
    assert [dataset.sex_names[i] for i in data.sex] == ["man", "woman"]


def test_flipping_twice_gives_the_same_rows() -> None:
    frame = Adult(variant="invented").frame[:300]
    (twin,) = Adult.twins(frame)
    (again,) = Adult.twins(twin)
    pd.testing.assert_frame_equal(again, frame)
    assert (twin["sex"] != frame["sex"]).all()
    wives = frame["relationship"] == "Wife"
    assert wives.any()
    assert (twin.loc[wives, "relationship"] == "Husband").all()
    unmarried = ~frame["relationship"].isin(["Wife", "Husband"])
    changed = ["sex", "relationship"]
    pd.testing.assert_frame_equal(
        twin.drop(columns=changed), frame.drop(columns=changed)
    )
    assert (twin["relationship"] == frame["relationship"])[unmarried].all()


def test_credits_get_every_status() -> None:
    status = pd.Series(["a", "b", "a"], dtype="category")
    frame = pd.DataFrame({"personal_status_sex": status, "age": [1, 2, 3]})
    versions = German.twins(frame)
    assert [set(v["personal_status_sex"]) for v in versions] == [{"a"}, {"b"}]
    for version in versions:
        assert version["personal_status_sex"].dtype == status.dtype
        assert version["age"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", [Adult, German])
def test_tables_are_kept_in_root(
    kind: type[Adult | German], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder / "kept"
    stored = kind(root)
    assert list((root / "processed").glob(f"{kind.__name__.lower()}*.pt"))
    monkeypatch.delenv("PYG_GLIF_DATA")
    again = kind(root)
    for key in stored[0].keys():  # noqa: SIM118
        assert torch.equal(stored[0][key], again[0][key]), key
    with pytest.raises(FileNotFoundError, match=r"csv.gz' is missing"):
        _ = again.frame  # the tensors are kept, the table is not


def test_tables_take_transforms(folder: Path) -> None:
    def mark(data: Any) -> Any:
        data.marked = True
        return data

    assert Adult(pre_transform=mark)[0].marked
    assert German(folder / "kept", transform=mark)[0].marked


def test_adult_rejects_bad_files(folder: Path) -> None:
    path = folder / "tabular" / "adult.csv.gz"

    def write(column: str, entry: str) -> None:
        table = rows()
        table[1][ADULT.index(column)] = entry
        write_csv(path, ADULT, table)

    write("age", "old")
    with pytest.raises(ValueError, match=r"must have whole numbers in 'age' \(Unable"):
        Adult()
    write("income", "50K.")
    msg = r"must have one of '<=50K', '>50K' in 'income' \(got '50K.'\)"
    with pytest.raises(ValueError, match=msg):
        Adult()
    write_csv(path, ADULT, [])
    with pytest.raises(ValueError, match=r"must have one row or more \(got 0\)"):
        Adult()
    write_csv(path, ADULT[:-1], [row[:-1] for row in rows()])
    with pytest.raises(ValueError, match=r"must have the columns 'split' \(got 'age'"):
        Adult()
    with pytest.raises(ValueError, match="'variant' must be one of"):
        Adult(variant="census")


def test_german_rejects_unknown_codes(folder: Path) -> None:
    good, bad = credits()
    bad[GERMAN.index("housing")] = "A150"
    write_csv(folder / "tabular" / "german.csv.gz", GERMAN, [good, bad])
    msg = r"must have one of 'A151', 'A152', 'A153' in 'housing' \(got 'A150'\)"
    with pytest.raises(ValueError, match=msg):
        German()


@pytest.mark.parametrize("kind", [Adult, German])
def test_tables_report_a_missing_file(
    kind: type[Adult | German], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYG_GLIF_DATA", raising=False)
    msg = "is missing. It must be in a known place: pass 'root' or set 'PYG_GLIF_DATA'"
    with pytest.raises(FileNotFoundError, match=msg):
        kind()


@pytest.mark.dataset
def test_adult_is_the_census(shared_data: Callable[[str], Path]) -> None:
    shared_data("tabular")
    dataset = Adult()
    data, frame = dataset[0], dataset.frame
    assert data.x.shape == (48_842, 105)
    assert int(data.train_mask.sum()) == 32_561
    assert bool((data.train_mask ^ data.test_mask).all())
    assert int(data.y.sum()) == 11_687
    assert int(frame.isna().any(axis=1).sum()) == 3_620
    assert int(frame.isna().sum().sum()) == 2_799 + 2_809 + 857
    # Beside four slips, husbands are men and wives are women.
    married = frame["relationship"].isin(["Husband", "Wife"])
    agrees = (frame["relationship"] == "Husband") == (frame["sex"] == "Male")
    assert int((married & ~agrees).sum()) == 4
    np.testing.assert_array_equal(
        data.x[:50], indicators(frame[:50], dataset.feature_names)
    )


@pytest.mark.dataset
def test_german_is_statlog(shared_data: Callable[[str], Path]) -> None:
    shared_data("tabular")
    dataset = German()
    check_laws(dataset)
    data = dataset[0]
    assert data.x.shape == (1_000, 61)
    assert int(data.y.sum()) == 700
    assert int((data.sex == 0).sum()) == 310
    assert not dataset.frame.isna().to_numpy().any()
