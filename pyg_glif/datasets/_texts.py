"""Texts from files, and their encodings."""

import csv
import gzip
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pyg_glif.text import encode


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a compressed CSV file, which must have the ``columns``."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = sorted(set(columns) - set(reader.fieldnames or ()))
            rows = [] if missing else list(reader)
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"'{path}' must be a whole gzip file ({error})") from error
    if missing:
        names = ", ".join(repr(name) for name in missing)
        got = ", ".join(repr(name) for name in reader.fieldnames or ()) or "none"
        raise ValueError(f"'{path}' must have the columns {names} (got {got})")
    return rows


def distinct_texts(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The first row of each text: in two splits it would be learned, then tested."""
    first: dict[str, dict[str, str]] = {}
    for row in rows:
        first.setdefault(row["text"], row)
    return list(first.values())


def cache_folder(root: str | Path | None) -> Path:
    """Where encodings are kept: below ``root``, or in the user's cache."""
    if root is not None:
        return Path(root).expanduser() / "encodings"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pyg_glif" / "encodings"


def number_names(names: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """The different names, sorted, and the number of each."""
    distinct = sorted(set(names))
    number_of = {name: number for number, name in enumerate(distinct)}
    return tuple(distinct), torch.tensor([number_of[name] for name in names])


@dataclass(frozen=True)
class Encoding:
    """How texts become features."""

    encoder: str
    cache: Path | None
    progress: bool | None


@dataclass(frozen=True)
class TextRows:
    """Features of texts, encoded when they are read: no seed needs all of them."""

    variants: Sequence[Sequence[str]]  # [P][1 + V], the original first
    encoding: Encoding

    def read(self, number: Tensor, variant: Tensor) -> Tensor:  # [N], [N] -> [N, F]
        """Features of the given variants of the given texts."""
        places = zip(number.tolist(), variant.tolist(), strict=True)
        return encode(
            [self.variants[k][1 + v] for k, v in places],
            encoder=self.encoding.encoder,
            cache=self.encoding.cache,
            progress=self.encoding.progress,
        )
