"""Variants of the sentiment data set: small files, and the published ones."""

import csv
import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.datasets import SentimentVariant
from experiments.datasets.sentiment_variant import WEAT_NAMES
from pyg_glif.datasets import Sentiment
from tests.datasets.test_sentiment import check_integrity, sizes

SharedData = Callable[[str], Path]
# Features, words, split, races, genders, side set, names that are also in it.
SIZES = {
    "nyc": (100, (1889, 4344), (5609, 624), (48, 38), (39, 47), 1137, 32),
    "word2vec": (300, (1853, 4445), (5668, 630), (39, 33), (33, 39), 173, 31),
}


def test_the_default_is_the_packaged_variant(tmp_path: Path) -> None:
    expected = Sentiment(seed=3)
    for dataset in (SentimentVariant(seed=3), SentimentVariant(tmp_path, seed=3)):
        assert str(dataset) == "SentimentVariant(variant='us', seed=3)"
        assert dataset.words == expected.words
        assert torch.equal(dataset[0].test_mask, expected[0].test_mask)
    with pytest.raises(ValueError, match=r"^'variant' must be one of 'us', .*got 'uk'"):
        SentimentVariant(variant="uk")


@pytest.mark.dataset
@pytest.mark.parametrize("variant", ["nyc", "word2vec"])
def test_sentiment_from_files(shared_data: SharedData, variant: str) -> None:
    shared_data("sentiment")
    dataset = SentimentVariant(variant=variant, seed=4)
    check_integrity(dataset)
    assert str(dataset) == f"SentimentVariant(variant='{variant}', seed=4)"
    assert sizes(dataset) == SIZES[variant]
    assert len(set(dataset.side_names)) == len(dataset.side_names)
    assert ("naïve" in dataset.words) == (variant == "word2vec")  # files are UTF-8


@pytest.mark.dataset
def test_packaged_vectors_are_the_published_ones(shared_data: SharedData) -> None:
    with np.load(shared_data("sentiment") / "glove_6b_100d.npz") as file:
        published = dict(zip(file["words"].tolist(), file["vectors"], strict=True))
    dataset = Sentiment()
    words = dataset.words + dataset.side_names
    x = torch.cat([dataset[0].x, dataset.side_x]).numpy()
    rows = [i for i, word in enumerate(words) if word in published]
    assert len(rows) > 6800
    expected = np.stack([published[words[i]] for i in rows])
    # Half a unit in the last place of half precision, normal and subnormal.
    np.testing.assert_allclose(x[rows], expected, rtol=2**-11, atol=2**-25)
    nyc = set(SentimentVariant(variant="nyc").words)
    assert set(dataset.words) - nyc == {"enviably", "envy"}
    assert nyc <= set(dataset.words)


@pytest.mark.dataset
def test_names_match_the_published_table(shared_data: SharedData) -> None:
    with gzip.open(shared_data("sentiment") / "names.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    expected = [
        (row["name"], int(row["race"] == "Black"), int(row["gender"] == "Male"))
        for row in rows
    ]
    assert list(WEAT_NAMES) == expected
    assert len(expected) == 100


def test_names_are_balanced() -> None:
    counts = np.zeros((2, 2), dtype=int)
    for _, race, gender in WEAT_NAMES:
        counts[race, gender] += 1
    assert counts.tolist() == [[25, 25], [25, 25]]
    assert len({name for name, _, _ in WEAT_NAMES}) == 100


@pytest.mark.parametrize(
    ("variant", "file"),
    [("nyc", "glove_6b_100d.npz"), ("word2vec", "word2vec_googlenews_300d.npz")],
)
def test_sentiment_says_which_file_is_missing(
    variant: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        SentimentVariant(variant=variant)
    assert str(caught.value) == (
        f"'{file}' is missing. It must be in '{tmp_path / 'sentiment'}'. The page on "
        "experiments lists all files"
    )
    # Nothing is looked for beside the working directory or the package.
    (tmp_path / "shared" / "data" / "sentiment").mkdir(parents=True)
    (tmp_path / "shared" / "data" / "sentiment" / file).touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("PYG_GLIF_DATA")
    with pytest.raises(FileNotFoundError) as caught:
        SentimentVariant(variant=variant)
    assert str(caught.value) == (
        f"'{file}' is missing. It must be in a known place: pass 'root' or set "
        "'PYG_GLIF_DATA'. The page on experiments lists all files"
    )


@pytest.fixture
def authors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files as the authors' script reads them, and no others."""
    monkeypatch.setenv("PYG_GLIF_DATA", str(tmp_path / "data"))
    folder = tmp_path / "data" / "sentiment"
    folder.mkdir(parents=True)
    positive = [f"good{i}" for i in range(12)]
    negative = [f"bad{i}" for i in range(29)]
    notice = ";;;;\n; na\xefve\n;\n\n"
    (folder / "positive-words.txt").write_text(
        notice + "\n".join([*positive, "both", "absent", "good3"]), encoding="latin-1"
    )
    (folder / "negative-words.txt").write_text(
        notice + "\n".join([*negative, "both", "na\xefve"]), encoding="latin-1"
    )
    known = [*positive, *negative, "both", "na\xefve", "adam", "amanda", "theo", "tia"]
    lines = [
        f"{word} {i}.5 -{i} 1e-3" for i, word in enumerate([*known, "emma", "liam"])
    ]
    (folder / "sentiment_glove.42B.300d.txt").write_text(
        "\n".join([*lines, "other 1 2 3"]) + "\n", encoding="utf-8"
    )
    (folder / "Popular_Baby_Names.csv").write_text(
        "Year of Birth,Gender,Ethnicity,Child's First Name,Count,Rank\n"
        "2016,FEMALE,WHITE NON HISPANIC,Emma,12,1\n"
        "2012,FEMALE,WHITE NON HISP,EMMA,12,1\n"
        "2016,MALE,BLACK NON HISPANIC,Liam,12,1\n"
        "2016,MALE,BLACK NON HISPANIC,Absent,12,1\n"
        "2016,FEMALE,BLACK NON HISPANIC,Tia,12,1\n"
        "2016,MALE,HISPANIC,Adam,12,1\n"
        "2016,MALE,ASIAN AND PACIFIC ISLANDER,Theo,12,1\n",
        encoding="utf-8",
    )
    return folder


def test_sentiment_glove42b(authors: Path) -> None:
    dataset = SentimentVariant(variant="glove42b")
    check_integrity(dataset)
    assert dataset.words == [
        *(f"good{i}" for i in range(12)),
        *(f"bad{i}" for i in range(29)),
        *("both", "naïve", "adam", "amanda", "theo", "tia"),
    ]
    data = dataset[0]
    assert data.y.tolist() == [1] * 12 + [0] * 31 + [-1] * 4
    assert data.race[-4:].tolist() == [0, 0, 1, 1]
    assert data.gender[-4:].tolist() == [1, 0, 1, 0]
    assert data.x[4].tolist() == pytest.approx([4.5, -4.0, 1e-3])
    assert data.x[-1].tolist() == pytest.approx([46.5, -46.0, 1e-3])
    assert (int(data.train_mask.sum()), int(data.test_mask.sum())) == (38, 5)
    assert dataset.side_names == ["emma", "emma", "liam", "tia"]
    assert dataset.side_x[:, 1].tolist() == [-47.0, -47.0, -48.0, -46.0]


@pytest.mark.parametrize("part", ["", "raw", "sentiment"])
def test_glove42b_is_found_in_root(authors: Path, tmp_path: Path, part: str) -> None:
    expected = SentimentVariant(variant="glove42b")
    root = tmp_path / "root"
    (root / part).mkdir(parents=True)
    for path in list(authors.iterdir()):
        shutil.move(path, root / part / path.name)
    found = SentimentVariant(str(root), variant="glove42b")
    assert torch.equal(found[0].x, expected[0].x)
    assert found.words == expected.words


def test_glove42b_skips_the_header_of_word2vec(authors: Path) -> None:
    expected = SentimentVariant(variant="glove42b")[0].x
    path = authors / "sentiment_glove.42B.300d.txt"
    path.write_text("50 3\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert torch.equal(SentimentVariant(variant="glove42b")[0].x, expected)


def test_glove42b_says_which_file_is_missing(authors: Path, tmp_path: Path) -> None:
    origin = (
        "It is in 'project_data' of the authors' code (GitHub project "
        "Felix-Petersen/fairness-post-processing)"
    )
    (authors / "Popular_Baby_Names.csv").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        SentimentVariant(variant="glove42b")
    assert str(caught.value) == (
        f"'Popular_Baby_Names.csv' is missing. It must be in '{authors}'. {origin}"
    )
    (authors / "sentiment_glove.42B.300d.txt").unlink()
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError) as caught:
        SentimentVariant(str(root), variant="glove42b")
    assert str(caught.value) == (
        f"'sentiment_glove.42B.300d.txt' is missing. It must be in '{root / 'raw'}' or "
        f"'{root}' or '{root / 'sentiment'}' or '{authors}'. {origin}"
    )


def test_raw_files_are_those_that_are_read(authors: Path) -> None:
    assert SentimentVariant().raw_paths == []
    dataset = SentimentVariant(variant="glove42b")
    assert sorted(dataset.raw_paths) == sorted(map(str, authors.iterdir()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("good4 4.5 -4", "good4 4.5", "Line 5 of '{path}' must have 3 numbers (got 2)"),
        (
            "good4 4.5",
            "good4 four",
            "Line 5 of '{path}' must hold numbers after its word "
            "(could not convert string to float: 'four')",
        ),
        (
            "good4 4.5",
            "good4 nan",
            "'{name}' must be finite (got nan at index (4, 0), 1 such values)",
        ),
        (
            "good",
            "fine",
            "'{name}' must have vectors of positive words, negative words, first "
            "names, names of children (got none of positive words)",
        ),
    ],
)
def test_glove42b_rejects_vectors(
    authors: Path, old: str, new: str, message: str
) -> None:
    path = authors / "sentiment_glove.42B.300d.txt"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ValueError, match=r"must (have|hold|be)") as caught:
        SentimentVariant(variant="glove42b")
    assert str(caught.value) == message.format(path=path, name=path.name)


def test_glove42b_rejects_a_table_without_its_columns(authors: Path) -> None:
    path = authors / "Popular_Baby_Names.csv"
    path.write_text("Ethnicity,Name\nWHITE,Emma\n", encoding="utf-8")
    with pytest.raises(ValueError, match="must have columns") as caught:
        SentimentVariant(variant="glove42b")
    assert str(caught.value) == (
        f"'{path}' must have columns 'Ethnicity' and \"Child's First Name\" "
        "(got 'Ethnicity', 'Name')"
    )
