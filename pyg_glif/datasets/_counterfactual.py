"""What data sets of texts and their alterations share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from pyg_glif._validate import check_choice, check_count, check_limit
from pyg_glif.datasets._arrays import ArrayFile
from pyg_glif.datasets._splits import TEST, TRAIN, VAL, keep

#: The variant of a text that is the text itself; alterations count from 0.
ORIGINAL = -1

Transform = Callable[[Data], Data]


class Rows(Protocol):
    """Where features come from."""

    def read(self, number: Tensor, variant: Tensor) -> Tensor:  # [N], [N] -> [N, F]
        """Features of the given variants of the given texts."""


@dataclass(frozen=True)
class FileRows:
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
class Texts:
    """One entry per text, and how rows are made of them."""

    number: Tensor  # [P]
    y: Tensor  # [P]
    split: Tensor  # [P]
    altered: Tensor  # [P], whether it has alterations
    face: Tensor  # [P], whether its variants teach the metric
    rows: Rows
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


class CounterfactualDataset(InMemoryDataset):  # type: ignore[misc]
    """One :class:`~torch_geometric.data.Data` of texts and their alterations."""

    #: Name of the column that says which alteration a row is, if there is one.
    variant_key: str | None = None

    def __init__(
        self,
        root: str | Path | None,
        source: str,
        seed: int,
        limit: float | None,
        face_limit: int | None,
        transform: Transform | None,
        pre_transform: Transform | None,
    ) -> None:
        check_choice("source", source, ("text", "embeddings"))
        # What NumPy's legacy generator, which the authors used, takes as a seed.
        self.seed = check_count("seed", seed, minimum=0, below=2**32)
        check_limit("limit", limit)
        if face_limit is not None:
            check_count("face_limit", face_limit)
        self.source, self._face_limit = source, face_limit
        root = None if root is None else str(root)
        super().__init__(root, transform, pre_transform)

    @property
    def face_x(self) -> Tensor:
        r"""Features :math:`(M, F)` of comparable training texts, for a metric learner.

        Read from the source at every access, because they can be many times ``x``.
        """
        return self._texts.rows.read(*self._texts.face_table(self._face_limit))

    @property
    def face_group(self) -> Tensor:
        r"""Group :math:`(M)` of each row of :attr:`face_x`, numbered as ``group``."""
        return self._texts.face_table(self._face_limit)[0]

    def _store(self, texts: Texts) -> None:
        """Reads the rows of the one graph, and keeps what reads the others."""
        person, variant = texts.table()
        number, split = texts.number[person], texts.split[person]
        data = Data(
            x=texts.rows.read(number, variant),
            y=texts.y[person],
            group=number,
            original=variant == ORIGINAL,
            train_mask=split == TRAIN,
            val_mask=split == VAL,
            test_mask=split == TEST,
        )
        for key, column in texts.columns.items():
            data[key] = column[person]
        if self.variant_key is not None:
            data[self.variant_key] = variant
        if self.pre_transform is not None:
            data = self.pre_transform(data)
        self._texts = texts
        self.data, self.slices = self.collate([data])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(source={self.source!r}, seed={self.seed})"
