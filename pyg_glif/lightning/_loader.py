"""Batches of rows that are all in memory.

A :class:`torch.utils.data.DataLoader` fetches rows one by one and stacks them. Here a
batch is one slice of a tensor; worker processes would only add the cost of sending it.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._validate import check_multiple, check_two_classes

Batch = tuple[Tensor, Tensor, Tensor]  # x: [B, F], y: [B], index: [B]


class RowLoader:
    """Iterates over ``(x, y, index)`` for the rows a sampler names."""

    # As in a DataLoader whose sampler names whole batches: there Lightning looks for
    # what it tells the epoch.
    batch_sampler = None

    def __init__(self, x: Tensor, y: Tensor, sampler: Any) -> None:
        self.x = x
        self.y = y
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        for rows in self.sampler:
            index = rows.to(self.x.device)
            yield self.x.index_select(0, index), self.y[index], index


class NoRows:
    """A loader of nothing.

    Lightning warns of a missing validation loader as well as of one of length zero; a
    data set without a split for validation deserves neither. Hence no length.
    """

    def __iter__(self) -> Iterator[Batch]:
        return iter(())


class EpochSampler:
    """Draws row numbers, the same ones whenever seed and epoch are the same."""

    def __init__(self, num_batches: int, seed: int) -> None:
        self._num_batches = num_batches
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch the next iteration is."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[Tensor]:
        # Mixed, not added: epoch 1 of seed 0 should not be epoch 0 of seed 1.
        entropy = np.random.SeedSequence((self._seed, self._epoch))
        seed = int(entropy.generate_state(1, np.uint64)[0])
        generator = torch.Generator().manual_seed(seed)
        self._epoch += 1
        yield from islice(self._draw(generator), self._num_batches)

    def _draw(self, generator: torch.Generator) -> Iterable[Tensor]:
        """Batches without end."""
        raise NotImplementedError


class ShuffledSampler(EpochSampler):
    """All rows in random order, then again in another."""

    def __init__(
        self, rows: Tensor, batch_size: int, num_batches: int | None, seed: int
    ) -> None:
        super().__init__(num_batches or math.ceil(len(rows) / batch_size), seed)
        self._rows = rows
        self._batch_size = batch_size

    def _draw(self, generator: torch.Generator) -> Iterator[Tensor]:
        while True:
            order = torch.randperm(len(self._rows), generator=generator)
            yield from self._rows[order].split(self._batch_size)


class BalancedSampler(EpochSampler):
    """Equally many rows of each class, then some without one, with replacement."""

    def __init__(
        self,
        rows: Tensor,
        y: Tensor,
        batch_size: int,
        num_batches: int | None,
        seed: int,
        num_unlabelled: int = 0,
    ) -> None:
        super().__init__(num_batches or math.ceil(len(rows) / batch_size), seed)
        label = y[rows]
        classes = label[label >= 0].unique()
        check_two_classes("y", classes)
        check_multiple("batch_size", batch_size, "the number of classes", len(classes))
        per_class = batch_size // len(classes)
        self._parts = [(rows[label == c], per_class) for c in classes]
        if num_unlabelled:
            others = rows[label < 0]
            if len(others) == 0:
                msg = "'num_unlabelled' must be 0 if every training row has a label"
                msg = f"{msg} (got {num_unlabelled})"
                raise ValueError(f"{msg}. Rows without one have a negative 'y'")
            self._parts.append((others, num_unlabelled))

    def _draw(self, generator: torch.Generator) -> Iterator[Tensor]:
        while True:
            parts = [
                rows[torch.randint(len(rows), (size,), generator=generator)]
                for rows, size in self._parts
            ]
            yield torch.cat(parts)
