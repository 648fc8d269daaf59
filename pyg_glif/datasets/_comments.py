"""Comments and the identity terms in them, from texts or from the authors' files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_glif._data import find_data
from pyg_glif._validate import check_count
from pyg_glif.datasets._arrays import NUMBERS, find_array
from pyg_glif.datasets._counterfactual import FileRows, Rows
from pyg_glif.datasets._splits import keep
from pyg_glif.datasets._texts import Encoding, TextRows, distinct_texts, read_table
from pyg_glif.text import find_identity_terms, read_terms, replace_identity_terms

JIGSAW = "jigsaw_test_balanced.csv.gz"
WIKIPEDIA = "wikipedia_identity_comments.csv.gz"
COLUMNS = ("text", "toxic")
#: The authors' list of terms.
AUTHORS_TERMS = "adjectives_people.txt"


@dataclass(frozen=True)
class Comments:
    """All comments of a source, by their number."""

    terms: tuple[str, ...]
    y: Tensor  # [P]
    present: Tensor  # [P, T], which terms are in which comment
    altered: Tensor  # [P], which comments have alterations
    rows: Rows


def read_texts(
    *,
    wikipedia: bool,
    max_length: int | None,
    limit: float | None,
    num_known: int,
    encoding: Encoding,
) -> Comments:
    """Reads comments and replaces the identity terms in them."""
    terms = read_terms(find_data("toxicity", "identity_terms.txt"))
    check_count("known_terms", num_known, below=len(terms) + 1)
    comments = _read_comments(wikipedia, max_length)
    comments = [comments[k] for k in keep(len(comments), limit).tolist()]
    texts = [comment["text"] for comment in comments]
    present = _find_terms(texts, terms)
    altered = present.any(dim=1)
    variants = [
        [text, *(replace_identity_terms(text, terms) if alters else ())]
        for text, alters in zip(texts, altered.tolist(), strict=True)
    ]
    y = torch.tensor([int(comment["toxic"]) for comment in comments])
    return Comments(terms, y, present, altered, TextRows(variants, encoding))


def _read_comments(wikipedia: bool, max_length: int | None) -> list[dict[str, str]]:
    """Comments of one or both files, each text once."""
    names = [JIGSAW, WIKIPEDIA] if wikipedia else [JIGSAW]
    tables = [read_table(find_data("toxicity", name), COLUMNS) for name in names]
    comments = distinct_texts(row for table in tables for row in table)
    if max_length is None:
        return comments
    return [comment for comment in comments if len(comment["text"]) <= max_length]


def _find_terms(texts: Sequence[str], terms: Sequence[str]) -> Tensor:  # [P, T]
    """Which terms are in which text."""
    present = torch.zeros(len(texts), len(terms), dtype=torch.bool)
    number_of = {term: number for number, term in enumerate(terms)}
    for k, text in enumerate(texts):
        for found in find_identity_terms(text, terms):
            present[k, number_of[found.term]] = True
    return present


def find_files(folder: Path, num_known: int) -> Comments:
    """Checks the authors' files; comments without terms come first."""
    terms = _read_authors_terms(folder)
    check_count("known_terms", num_known, below=len(terms) + 1)
    without = find_array(folder, "X_bert_nid_kaggle.npy", (None, None), "f")
    shape = (None, without.shape[1])
    original = find_array(folder, "original_X_bert_id_kaggle.npy", shape, "f")
    altered = [
        find_array(folder, f"X_bert_kaggle_{term}.npy", original.shape, "f")
        for term in terms
    ]
    num_plain, num = len(without), len(without) + len(original)
    y = torch.cat(
        [
            _load_targets(folder, "target_nid.npy", len(without)),
            _load_targets(folder, "target_id.npy", len(original)),
        ]
    )
    mask = find_array(folder, "id_mask.npy", (len(original), len(terms)), NUMBERS)
    present = torch.zeros(num, len(terms), dtype=torch.bool)
    present[num_plain:] = torch.from_numpy(mask.load() != 0)
    rows = FileRows(
        [[(0, without), (num_plain, original)], *([(num_plain, f)] for f in altered)]
    )
    return Comments(terms, y, present, torch.arange(num) >= num_plain, rows)


def _read_authors_terms(folder: Path) -> tuple[str, ...]:
    """One term per line."""
    path = folder / AUTHORS_TERMS
    if not path.is_file():
        raise FileNotFoundError(f"'{path}' is missing (expected one term per line)")
    return read_terms(path)


def _load_targets(folder: Path, name: str, num: int) -> Tensor:  # [N]
    """Labels, which must be 0 and 1."""
    file = find_array(folder, name, (num,), NUMBERS)
    target = torch.from_numpy(file.load().astype(np.float64))
    wrong = (target != 0) & (target != 1)
    if bool(wrong.any()):
        got = float(target[wrong][0])
        raise ValueError(f"'{file.path}' must hold 0 and 1 only (got {got})")
    return target.long()
