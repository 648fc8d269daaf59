"""Reads the files behind each variant of the sentiment data set."""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor, from_numpy

from pyg_glif._data import VARIABLE, data_folder, find_data
from pyg_glif._validate import check_features
from pyg_glif.datasets._weat_names import GENDERS, RACES, WEAT_NAMES

FOLDER = "sentiment"
AUTHORS_VECTORS = "sentiment_glove.42B.300d.txt"
AUTHORS_NAMES = "Popular_Baby_Names.csv"

Vectors = Mapping[str, np.ndarray]


class Source(NamedTuple):
    """Words and names with a vector, and what is known of them."""

    words: list[str]
    x: Tensor  # [N, F]
    y: Tensor  # [N]
    race: Tensor  # [N]
    gender: Tensor  # [N]
    side_names: list[str]
    side_x: Tensor  # [M, F]


class Name(NamedTuple):
    """A first name, the key of its vector, its race and its gender."""

    name: str
    key: str
    race: int
    gender: int


def read_source(variant: str, root: Path | None) -> Source:
    """Everything a variant holds; ``root`` may have the authors' files."""
    if variant == "us":
        return _read_packaged()
    if variant == "glove42b":
        return _read_authors(root)
    return _read_shared(variant)


def _read_packaged() -> Source:
    """The file that is part of the package."""
    content = (files(__package__) / "data" / "sentiment.npz").read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        text = {key: file[key].tobytes().decode() for key in ("words", "side_names")}
        return Source(
            words=text["words"].split("\n"),
            x=from_numpy(file["x"]).float(),
            y=from_numpy(file["y"]).long(),
            race=from_numpy(file["race"]).long(),
            gender=from_numpy(file["gender"]).long(),
            side_names=text["side_names"].split("\n"),
            side_x=from_numpy(file["side_x"]).float(),
        )


def _read_shared(variant: str) -> Source:
    """GloVe or word2vec vectors, with names of New York City as the side set."""
    glove = variant == "nyc"
    stem = "glove_6b_100d" if glove else "word2vec_googlenews_300d"
    with np.load(find_data(FOLDER, f"{stem}.npz"), allow_pickle=False) as file:
        vectors = dict(zip(file["words"].tolist(), file["vectors"], strict=True))
    names = [
        Name(
            row["name"],
            row["glove_key" if glove else "word2vec_key"],
            RACES.index(row["race"]),
            GENDERS.index(row["gender"].lower()),
        )
        for row in _read_table(find_data(FOLDER, "names.csv.gz"))
    ]
    children = _read_table(find_data(FOLDER, "nyc_baby_names.csv.gz"))
    # word2vec has capital letters, and a few names in small letters only.
    side = [
        (name, name.capitalize() if name.capitalize() in vectors else name)
        for name in dict.fromkeys(
            row["name"] for row in children if row["ethnicity"] in RACES
        )
    ]
    positive, negative = (
        _read_lexicon(find_data(FOLDER, f"{kind}-words.txt"), "utf-8")
        for kind in ("positive", "negative")
    )
    return _assemble(f"{stem}.npz", vectors, positive, negative, names, side)


def _read_authors(root: Path | None) -> Source:
    """The files that the authors' sentiment script reads, as it reads them."""
    vectors_path = _find(AUTHORS_VECTORS, root)
    positive, negative = (
        _read_lexicon(_find(f"{kind}-words.txt", root), "latin-1")
        for kind in ("positive", "negative")
    )
    names = [
        Name(name, name.lower(), race, gender) for name, race, gender in WEAT_NAMES
    ]
    # A name is there once for each year, gender and race that has it: it weighs more
    # in the directions of names, as it does in the paper.
    side = [(name, name) for name in _read_children(_find(AUTHORS_NAMES, root))]
    wanted = {*positive, *negative, *(name.key for name in names), *dict(side)}
    vectors = _read_vectors(vectors_path, wanted)
    return _assemble(AUTHORS_VECTORS, vectors, positive, negative, names, side)


def _assemble(
    file: str,
    vectors: Vectors,
    positive: list[str],
    negative: list[str],
    names: list[Name],
    side: list[tuple[str, str]],
) -> Source:
    """What has a vector: positive words, negative words, names; and the side set."""
    # A word of both lists is negative, so that no word is in both splits.
    rows = [(Name(word, word, -1, -1), 1) for word in _without(positive, negative)]
    rows += [(Name(word, word, -1, -1), 0) for word in dict.fromkeys(negative)]
    rows += [(name, -1) for name in names]
    rows = [row for row in rows if row[0].key in vectors]
    side = [pair for pair in side if pair[1] in vectors]
    labels = [label for _, label in rows]
    _check_covered(
        file,
        {
            "positive words": labels.count(1),
            "negative words": labels.count(0),
            "first names": labels.count(-1),
            "names of children": len(side),
        },
    )
    return Source(
        words=[row.name.lower() for row, _ in rows],
        x=_stack(file, vectors, (row.key for row, _ in rows)),
        y=from_numpy(np.array(labels)),
        race=from_numpy(np.array([row.race for row, _ in rows])),
        gender=from_numpy(np.array([row.gender for row, _ in rows])),
        side_names=[name for name, _ in side],
        side_x=_stack(file, vectors, (key for _, key in side)),
    )


def _check_covered(file: str, counts: dict[str, int]) -> None:
    """Some vectors of every kind."""
    missing = [kind for kind, count in counts.items() if count == 0]
    if missing:
        msg = f"'{file}' must have vectors of {', '.join(counts)}"
        raise ValueError(f"{msg} (got none of {', '.join(missing)})")


def _without(words: list[str], others: list[str]) -> list[str]:
    """Words in their order, each once, that are none of the others."""
    excluded = set(others)
    return [word for word in dict.fromkeys(words) if word not in excluded]


def _stack(file: str, vectors: Vectors, keys: Iterable[str]) -> Tensor:
    """Vectors as rows, all of them finite."""
    rows = np.stack([vectors[key] for key in keys]).astype(np.float32)
    return check_features(file, from_numpy(rows))


def _find(name: str, root: Path | None) -> Path:
    """A file of the authors: in ``root``, or among the other data sets."""
    here = [] if root is None else [root / "raw", root]
    for folder in here:
        if (folder / name).exists():
            return folder / name
    try:
        return find_data(FOLDER, name)
    except FileNotFoundError:
        folders = [str(folder) for folder in (*here, data_folder() / FOLDER)]
        msg = f"'{name}' is not in " + ", ".join(f"'{folder}'" for folder in folders)
        remedy = (
            "Copy it there from 'project_data' of the authors' code (GitHub project "
            f"Felix-Petersen/fairness-post-processing), or set '{VARIABLE}'"
        )
        raise FileNotFoundError(f"{msg}. {remedy}") from None


def _read_table(path: Path) -> list[dict[str, str]]:
    """Rows of a compressed CSV file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _read_lexicon(path: Path, encoding: str) -> list[str]:
    """One word per line; lines that start with ``;`` are its notice."""
    lines = path.read_text(encoding=encoding).split("\n")
    return [line.strip() for line in lines if line.strip() and not line.startswith(";")]


def _read_children(path: Path) -> list[str]:
    """First names of Black and White children, with repetitions."""
    name, race = "Child's First Name", "Ethnicity"
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if not {name, race} <= set(reader.fieldnames or ()):
            got = ", ".join(repr(field) for field in reader.fieldnames or ())
            msg = f"'{path}' must have columns {race!r} and {name!r} (got {got})"
            raise ValueError(msg)
        return [
            row[name].lower()
            for row in reader
            if row[race].upper().startswith(("BLACK", "WHITE"))
        ]


def _read_vectors(path: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    """Vectors of some words from a text file: a word and its numbers per line.

    A first line of two items is the header that word2vec writes.
    """
    found: dict[str, np.ndarray] = {}
    width = None
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1:
                continue
            width = width or len(values)
            if word not in wanted or word in found:
                continue
            if len(values) != width:
                msg = f"Line {number} of '{path}' must have {width} numbers"
                raise ValueError(f"{msg} (got {len(values)})")
            try:
                found[word] = np.array(values, dtype=np.float32)
            except ValueError as error:
                msg = f"Line {number} of '{path}' must hold numbers after its word"
                raise ValueError(f"{msg} ({error})") from None
    return found
