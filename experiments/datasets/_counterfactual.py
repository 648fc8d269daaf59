"""What data sets of texts and their alterations share: rows, splits, encodings."""

import math
import os
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data

from experiments.counterfactuals import encode
from experiments.datasets._arrays import ArrayFile
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_scalar,
)
from pyg_glif.datasets._files import LocalDataset, Transform

#: The variant of a text that is the text itself; alterations count from 0.
ORIGINAL = -1
#: Numbers of the splits.
TRAIN, VAL, TEST = 0, 1, 2


class FeatureReader(Protocol):
    """Where features come from."""

    def read(self, number: Tensor, variant: Tensor) -> Tensor:  # [N], [N] -> [N, F]
        """Features of the given variants of the given texts."""


@dataclass(frozen=True)
class StoredFeatures:
    """Features in files, one or more for each variant.

    ``files[1 + variant]`` lists files with the number of their first text: a text
    is in the last file that starts at or before its number.
    """

    files: Sequence[Sequence[tuple[int, ArrayFile]]]

    def read(self, number: Tensor, variant: Tensor) -> Tensor:
        """Features of the given variants of the given texts."""
        width = self.files[0][0][1].shape[1]
        out = torch.empty(len(number), width, dtype=torch.float32)
        for which, files in enumerate(self.files, start=ORIGINAL):
            wanted = variant == which
            starts = torch.tensor([start for start, _ in files])
            file_of = torch.searchsorted(starts, number, right=True) - 1
            for k, (start, file) in enumerate(files):
                here = (wanted & (file_of == k)).nonzero().flatten()
                out[here] = file.rows(number[here] - start)
        return out


@dataclass(frozen=True)
class EncodedTexts:
    """Features of texts, encoded when they are read: no seed needs all of them."""

    variants: Sequence[Sequence[str]]  # [P][1 + V], the original first
    encoder: str
    cache: Path | None
    progress: bool | None

    def read(self, number: Tensor, variant: Tensor) -> Tensor:
        """Features of the given variants of the given texts."""
        places = zip(number.tolist(), variant.tolist(), strict=True)
        return encode(
            [self.variants[k][1 + v] for k, v in places],
            encoder=self.encoder,
            cache=self.cache,
            progress=self.progress,
        )


@dataclass(frozen=True)
class Corpus:
    """One entry per text, and how rows are made of them."""

    number: Tensor  # [P]
    y: Tensor  # [P]
    split: Tensor  # [P]
    altered: Tensor  # [P], whether it has alterations
    face: Tensor  # [P], whether its variants teach the metric
    features: FeatureReader
    num_variants: int
    face_variants: Tensor
    columns: dict[str, Tensor] = field(default_factory=dict)  # [P] each

    def table(self) -> tuple[Tensor, Tensor]:
        """Position and variant of each row: originals, and alterations to judge."""
        judged = (self.altered & (self.split != TRAIN)).nonzero().flatten()
        original = torch.arange(len(self.number))
        person = torch.cat([original, judged.repeat_interleave(self.num_variants)])
        alterations = torch.arange(self.num_variants).repeat(len(judged))
        variant = torch.cat([torch.full_like(original, ORIGINAL), alterations])
        person, order = person.sort(stable=True)
        return person, variant[order]

    def face_table(self, limit: int | None) -> tuple[Tensor, Tensor]:
        """Number and variant of each row for the metric."""
        number = self.number[self.face]
        number = number[keep(len(number), limit)]
        return (
            number.repeat_interleave(len(self.face_variants)),
            self.face_variants.repeat(len(number)),
        )


class CounterfactualDataset(LocalDataset):
    """One :class:`~torch_geometric.data.Data` of texts and their alterations.

    A subclass says which ``raw_file_names`` it needs and reads them in ``_read``.
    """

    #: Name of the column that says which alteration a row is, if there is one.
    variant_key: str | None = None
    #: The folder of each source below that of all data sets.
    folders: ClassVar[dict[str, str]]
    #: For each source, shares of test texts, and of validation texts among the others.
    shares: ClassVar[dict[str, tuple[float, float]]]

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        source: str,
        seed: int,
        *,
        encoder: str,
        limit: float | None,
        face_limit: int | None,
        test_share: float | None,
        val_share: float | None,
        progress: bool | None,
        transform: Transform | None,
        pre_transform: Transform | None,
        force_reload: bool,
    ) -> None:
        check_choice("source", source, ("text", "embeddings"))
        # What NumPy's legacy generator, which the authors used, takes as a seed.
        self.seed = check_count("seed", seed, minimum=0, below=2**32)
        _check_limit("limit", limit)
        if face_limit is not None:
            check_count("face_limit", face_limit)
        test, val = self.shares[source]
        self.test_share = check_scalar(
            "test_share", test if test_share is None else test_share, above=0, below=1
        )
        self.val_share = check_scalar(
            "val_share", val if val_share is None else val_share, minimum=0, below=1
        )
        self.source, self.limit, self._face_limit = source, limit, face_limit
        self._encoder, self._progress = encoder, progress
        self.folder = self.folders[source]
        super().__init__(root, transform, pre_transform, force_reload)
        self.process()

    @property
    def has_process(self) -> bool:
        """False, so that PyG stores nothing: only encodings are stored."""
        return False

    @abstractmethod
    def _read(self) -> Corpus:
        """Reads, splits and alters the texts of the source."""

    def process(self) -> None:
        """Reads the rows of the one graph, and keeps what reads the others."""
        corpus = self._read()
        person, variant = corpus.table()
        number, split = corpus.number[person], corpus.split[person]
        data = Data(
            x=corpus.features.read(number, variant),
            y=corpus.y[person],
            group=number,
            original=variant == ORIGINAL,
            train_mask=split == TRAIN,
            val_mask=split == VAL,
            test_mask=split == TEST,
        )
        for key, column in corpus.columns.items():
            data[key] = column[person]
        if self.variant_key is not None:
            data[self.variant_key] = variant
        if self.pre_transform is not None:
            data = self.pre_transform(data)
        self._corpus = corpus
        self.data, self.slices = self.collate([data])

    @property
    def face_x(self) -> Tensor:
        r"""Features :math:`(M, F)` of comparable training texts, for a metric learner.

        Read from the source at every access, because they can be many times ``x``.
        """
        return self._corpus.features.read(*self._corpus.face_table(self._face_limit))

    @property
    def face_group(self) -> Tensor:
        r"""Group :math:`(M)` of each row of :attr:`face_x`, numbered as ``group``."""
        return self._corpus.face_table(self._face_limit)[0]

    def encoded(self, variants: Sequence[Sequence[str]]) -> EncodedTexts:
        """Features of texts, cached below ``root`` or in the user's cache."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache: Path | None = Path(base) / "pyg_glif" / "encodings"
        if self._root is not None:
            cache = self._root / "encodings"
        if self.force_reload:
            cache = None
        return EncodedTexts(variants, self._encoder, cache, self._progress)

    def carve(self, train: Tensor, test: Tensor, num: int) -> tuple[Tensor, Tensor]:
        """Rows, ascending, and their splits; validation is the end of training.

        Training rows are in random order. Of each split the same share is kept, which
        ``limit`` states, or means as a part of ``num`` texts.
        """
        limit = self.limit
        share = min(1.0, limit / num) if isinstance(limit, int) else limit
        return carve_validation(train, test, self.val_share, share)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(source={self.source!r}, seed={self.seed})"


def distinct_texts(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """The first row of each text, so that no text is in two splits."""
    first: dict[str, dict[str, str]] = {}
    for row in rows:
        first.setdefault(row["text"], row)
    return list(first.values())


def number_names(names: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """The different names, sorted, and the number of each."""
    distinct = sorted(set(names))
    number_of = {name: number for number, name in enumerate(distinct)}
    return tuple(distinct), torch.tensor([number_of[name] for name in names])


def keep(num: int, limit: float | None) -> Tensor:
    """Rows to keep, ascending and the same for all seeds: a number or a share."""
    if limit is None:
        return torch.arange(num)
    count = limit if isinstance(limit, int) else math.ceil(limit * num)
    order = torch.randperm(num, generator=torch.Generator().manual_seed(0))
    return order[: min(int(count), num)].sort().values


def stratified_split(  # [P] -> [P]
    stratum: Tensor, test_share: float, val_share: float, seed: int
) -> Tensor:
    """Splits each stratum by the same shares; validation comes out of training."""
    generator = torch.Generator().manual_seed(seed)
    split = torch.full_like(stratum, TRAIN)
    for value in stratum.unique():
        rows = (stratum == value).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        num_test = round(test_share * len(rows))
        num_val = round(val_share * (len(rows) - num_test))
        split[rows[:num_test]] = TEST
        split[rows[num_test : num_test + num_val]] = VAL
    return split


def carve_validation(
    train: Tensor, test: Tensor, val_share: float, share: float | None
) -> tuple[Tensor, Tensor]:
    """Rows, ascending, and their splits; validation is the end of shuffled training.

    Of each split the same share is kept.
    """
    num_val = round(val_share * len(train))
    cut = len(train) - num_val
    parts = [(train[:cut], TRAIN), (train[cut:], VAL), (test, TEST)]
    kept = [(rows[keep(len(rows), share)], split) for rows, split in parts]
    split = torch.cat([torch.full_like(rows, split) for rows, split in kept])
    number, order = torch.cat([rows for rows, _ in kept]).sort()
    return number, split[order]


def _check_limit(name: str, value: float | None) -> None:
    """A whole number of at least 1, or a share above 0 and at most 1."""
    if isinstance(value, float):
        check_scalar(name, value, above=0)
        if value > 1:
            msg = f"'{name}' must be a whole number or a share of at most 1"
            raise ValueError(f"{msg} (got {value})")
    elif value is not None:
        check_count(name, value)
