"""Variants of the sentiment data set with vectors and names from files.

The first names are those of the word-embedding association test, facts from Caliskan,
Bryson and Narayanan, "Semantics derived automatically from language corpora contain
human-like biases", Science 356 (2017), appendix. Race and gender are those that the
test associates with a name.
"""

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, from_numpy

from pyg_glif._utils.validation import check_choice, check_features
from pyg_glif.datasets import Sentiment
from pyg_glif.datasets._files import read_table
from pyg_glif.datasets.sentiment import GENDERS, RACES, Vocabulary

_LEXICON = ("positive-words.txt", "negative-words.txt")
_NYC = ("names.csv.gz", "nyc_baby_names.csv.gz", *_LEXICON)
#: The files of each variant, vectors first; the first variant is in the package.
FILES: dict[str, tuple[str, ...]] = {
    "us": (),
    "nyc": ("glove_6b_100d.npz", *_NYC),
    "word2vec": ("word2vec_googlenews_300d.npz", *_NYC),
    "glove42b": ("sentiment_glove.42B.300d.txt", "Popular_Baby_Names.csv", *_LEXICON),
}

Vectors = Mapping[str, np.ndarray]

_NAMES = {
    ("White", "male"): (
        "Adam Chip Harry Josh Roger Alan Frank Ian Justin Ryan Andrew Fred Jack "
        "Matthew Stephen Brad Greg Jed Paul Todd Brandon Hank Jonathan Peter Wilbur"
    ),
    ("White", "female"): (
        "Amanda Courtney Heather Melanie Sara Amber Crystal Katie Meredith Shannon "
        "Betsy Donna Kristin Nancy Stephanie Bobbie-Sue Ellen Lauren Peggy Sue-Ellen "
        "Colleen Emily Megan Rachel Wendy"
    ),
    ("Black", "male"): (
        "Alonzo Jamel Lerone Percell Theo Alphonse Jerome Leroy Rasaan Torrance "
        "Darnell Lamar Lionel Rashaun Tyree Deion Lamont Malik Terrence Tyrone Everol "
        "Lavon Marcellus Terryl Wardell"
    ),
    ("Black", "female"): (
        "Aiesha Lashelle Nichelle Shereen Temeka Ebony Latisha Shaniqua Tameisha "
        "Teretha Jasmine Latonya Shanise Tanisha Tia Lakisha Latoya Sharise Tashika "
        "Yolanda Lashandra Malika Shavonn Tawanda Yvette"
    ),
}

#: Name, label of its race, label of its gender.
WEAT_NAMES: tuple[tuple[str, int, int], ...] = tuple(
    (name, RACES.index(race), GENDERS.index(gender))
    for (race, gender), names in _NAMES.items()
    for name in names.split()
)


class Name(NamedTuple):
    """A first name, the key of its vector, its race and its gender."""

    name: str
    key: str
    race: int
    gender: int


class SentimentVariant(Sentiment):
    r"""The sentiment data set with other vectors and another side set of names.

    Args:
        root (str or PathLike, optional): Folder in which the processed data set is
            kept, and where files are looked for first: in ``root/raw``, ``root`` and
            ``root/sentiment``, then in ``sentiment`` below the folder that
            ``PYG_GLIF_DATA`` names. (default: :obj:`None`)
        variant (str): Which vectors and which side set, see the table.
            (default: :obj:`"us"`, that of :class:`~pyg_glif.datasets.Sentiment`)
        **kwargs: Other arguments of :class:`~pyg_glif.datasets.Sentiment`.

    **STATS:**

    .. list-table::
        :header-rows: 1

        * - variant
          - vectors
          - words +/-
          - train/test
          - names White/Black
          - side set
          - names also in it
        * - ``"us"``
          - GloVe 6B, 100-d
          - 1,891/4,344
          - 5,611/624
          - 48/38
          - 1,178
          - 0
        * - ``"nyc"``
          - GloVe 6B, 100-d
          - 1,889/4,344
          - 5,609/624
          - 48/38
          - 1,137
          - 32
        * - ``"word2vec"``
          - Google News, 300-d
          - 1,853/4,445
          - 5,668/630
          - 39/33
          - 173
          - 31
        * - ``"glove42b"``
          - GloVe 42B, 300-d
          - 6,624 in all
          - 5,961/663
          - 49/45
          - as in its file
          - as in its file

    The last row is the paper's setting with its published numbers; its files cannot be
    shipped. Coverage of ``"us"``: 6,235 of 6,786 lexicon words, 86 of the 100 names
    and 1,178 of 1,187 common names have a vector.

    - ``"us"`` keeps vectors in half precision. Its side set are names given to at
      least 25,000 children born in the United States from 1950 to 2016, except those
      that are rows of ``x``: a distance that has seen the names it is judged by
      flatters the result.
    - ``"nyc"`` and ``"word2vec"`` need files. Their side set are the distinct
      names given to Black or White children in New York City (2011 to 2016), names of
      the test among them, as in the paper.
    - ``"glove42b"`` reads the files of the authors' script:
      ``sentiment_glove.42B.300d.txt``, ``positive-words.txt``, ``negative-words.txt``
      and ``Popular_Baby_Names.csv``. A name is in the side set as often as it is in
      the table, as in the paper.
    """

    variants = tuple(FILES)

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        variant: str = "us",
        **kwargs: Any,
    ) -> None:
        check_choice("variant", variant, self.variants)
        self.variant = variant
        super().__init__(root, **kwargs)

    @property
    def raw_file_names(self) -> list[str]:
        """The files of the variant; none for the one that is in the package."""
        return list(FILES[self.variant])

    @property
    def processed_file_names(self) -> list[str]:
        """Those of each variant."""
        names = super().processed_file_names
        return [f"{self.variant}_{name}" for name in names]

    def _origin(self) -> str:
        """Where the variant's files can be had."""
        if self.variant != "glove42b":
            return super()._origin()
        return (
            "It is in 'project_data' of the authors' code (GitHub project "
            "Felix-Petersen/fairness-post-processing)"
        )

    def _read(self) -> Vocabulary:
        """The source of the variant."""
        if self.variant == "us":
            return super()._read()
        paths = [self.find(name) for name in FILES[self.variant]]
        return (_read_authors if self.variant == "glove42b" else _read_nyc)(*paths)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(variant={self.variant!r}, seed={self.seed})"


def _read_nyc(
    vectors_path: Path,
    names_path: Path,
    children_path: Path,
    positive_path: Path,
    negative_path: Path,
) -> Vocabulary:
    """GloVe or word2vec vectors, with names of New York City as the side set."""
    with np.load(vectors_path, allow_pickle=False) as file:
        vectors = dict(zip(file["words"].tolist(), file["vectors"], strict=True))
    key = "glove_key" if "glove" in vectors_path.name else "word2vec_key"
    names = [
        Name(
            row["name"],
            row[key],
            RACES.index(row["race"]),
            GENDERS.index(row["gender"].lower()),
        )
        for row in read_table(names_path, ("name", key, "race", "gender"))
    ]
    children = read_table(children_path, ("name", "ethnicity"))
    # word2vec has capital letters, and a few names in small letters only.
    side = [
        (name, name.capitalize() if name.capitalize() in vectors else name)
        for name in dict.fromkeys(
            row["name"] for row in children if row["ethnicity"] in RACES
        )
    ]
    positive, negative = (
        _read_lexicon(path, "utf-8") for path in (positive_path, negative_path)
    )
    return _assemble(vectors_path.name, vectors, positive, negative, names, side)


def _read_authors(
    vectors_path: Path, children_path: Path, positive_path: Path, negative_path: Path
) -> Vocabulary:
    """The files that the authors' sentiment script reads, as it reads them."""
    positive, negative = (
        _read_lexicon(path, "latin-1") for path in (positive_path, negative_path)
    )
    names = [
        Name(name, name.lower(), race, gender) for name, race, gender in WEAT_NAMES
    ]
    # A name is there once for each year, gender and race that has it: it weighs more
    # in the directions of names, as it does in the paper.
    side = [(name, name) for name in _read_children(children_path)]
    wanted = {*positive, *negative, *(name.key for name in names), *dict(side)}
    vectors = _read_vectors(vectors_path, wanted)
    return _assemble(vectors_path.name, vectors, positive, negative, names, side)


def _assemble(
    file: str,
    vectors: Vectors,
    positive: list[str],
    negative: list[str],
    names: list[Name],
    side: list[tuple[str, str]],
) -> Vocabulary:
    """Positive words, negative words and names with a vector, and the side set."""
    # A word of both lists is negative, so that no word is in both splits.
    label = dict.fromkeys([*positive, *negative], 1) | dict.fromkeys(negative, 0)
    words = [word for word in dict.fromkeys(positive) if label[word] == 1]
    words += dict.fromkeys(negative)
    rows = [(Name(word, word, -1, -1), label[word]) for word in words]
    rows += [(name, -1) for name in names]
    rows = [row for row in rows if row[0].key in vectors]
    side = [pair for pair in side if pair[1] in vectors]
    labels = [label for _, label in rows]
    counts = {
        "positive words": labels.count(1),
        "negative words": labels.count(0),
        "first names": labels.count(-1),
        "names of children": len(side),
    }
    missing = [kind for kind, count in counts.items() if count == 0]
    if missing:
        msg = f"'{file}' must have vectors of {', '.join(counts)}"
        raise ValueError(f"{msg} (got none of {', '.join(missing)})")
    return Vocabulary(
        words=[row.name.lower() for row, _ in rows],
        x=_stack(file, vectors, (row.key for row, _ in rows)),
        y=from_numpy(np.array(labels)),
        race=from_numpy(np.array([row.race for row, _ in rows])),
        gender=from_numpy(np.array([row.gender for row, _ in rows])),
        side_names=[name for name, _ in side],
        side_x=_stack(file, vectors, (key for _, key in side)),
    )


def _stack(file: str, vectors: Vectors, keys: Iterable[str]) -> Tensor:
    """Vectors as rows, all of them finite."""
    rows = np.stack([vectors[key] for key in keys]).astype(np.float32)
    return check_features(file, from_numpy(rows))


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
    vectors: dict[str, np.ndarray] = {}
    width = None
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1:
                continue
            width = width or len(values)
            if word not in wanted or word in vectors:
                continue
            if len(values) != width:
                msg = f"Line {number} of '{path}' must have {width} numbers"
                raise ValueError(f"{msg} (got {len(values)})")
            try:
                vectors[word] = np.array(values, dtype=np.float32)
            except ValueError as error:
                msg = f"Line {number} of '{path}' must hold numbers after its word"
                raise ValueError(f"{msg} ({error})") from None
    return vectors
