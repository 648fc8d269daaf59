"""Batches of a data set that fits in memory."""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler, TensorDataset
from torch_geometric.data import Data

from pyg_glif._utils.validation import (
    check_attribute,
    check_count,
    check_features,
    check_floating,
    check_group,
    check_kind,
    check_mask,
    check_one_process,
    check_tensor,
    check_two_values,
)
from pyg_glif.lightning._batch import check_classes
from pyg_glif.lightning.resolve import LightningDataModule


class FairDataModule(LightningDataModule):
    r"""Serves the rows of one :class:`~torch_geometric.data.Data` in batches.

    Batches are ``(x, y, index)``, with positions ``index`` of the rows in ``data``;
    ``y`` is negative for rows without a label. Prediction covers all rows in order,
    labelled or not. Distributed training is refused. Batches are slices of ``data``,
    which is not copied: change it between fits, not during one.

    Args:
        data (torch_geometric.data.Data): ``x`` and ``y``, and the masks
            ``train_mask`` (without it all rows are trained on), ``val_mask`` (without
            it nothing is validated) and ``test_mask``.
        batch_size (int, optional): Rows per batch. :obj:`None` serves the whole
            ``data`` as one batch, which graph networks need. (default: :obj:`1000`)
        balanced (bool): Whether every training batch holds equally many rows of each
            class, drawn with replacement. If :obj:`False`, rows come in random order,
            each once before any comes again. (default: :obj:`False`)
        num_unlabelled (int): Rows without a label that join each balanced batch, also
            drawn with replacement, for penalties that need none. (default: :obj:`0`)
        steps_per_epoch (int, optional): Training batches that make an epoch.
            (default: as many as it takes to see every training row once; one if the
            batch is the whole ``data``)
        seed (int): Settles the training batches together with the epoch, also of a
            fit that resumes. (default: :obj:`0`)

    Example:
        >>> data = Data(x=torch.randn(6, 2), y=torch.tensor([0, 0, 0, 0, 1, -1]))
        >>> batches = FairDataModule(data, batch_size=4, balanced=True)
        >>> [y.tolist() for _, y, _ in batches.train_dataloader()]
        [[0, 0, 1, 1], [0, 0, 1, 1]]
        >>> [index.tolist() for _, _, index in batches.predict_dataloader()]
        [[0, 1, 2, 3], [4, 5]]
    """

    def __init__(
        self,
        data: Data,
        *,
        batch_size: int | None = 1000,
        balanced: bool = False,
        num_unlabelled: int = 0,
        steps_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_kind("data", data, Data)
        check_attribute("data", data.keys(), "x")
        check_attribute("data", data.keys(), "y")
        check_floating("x", check_tensor("x", data.x))
        check_features("x", data.x)
        check_classes(data.y, len(data.x))
        if batch_size is None and balanced:
            msg = "'balanced' must be false if a batch is the whole 'data'"
            raise ValueError(f"{msg} (got {balanced})")
        if num_unlabelled and not balanced:
            msg = "'num_unlabelled' must be 0 unless 'balanced' is true"
            raise ValueError(f"{msg} (got {num_unlabelled})")
        for name, count in (
            ("batch_size", batch_size),
            ("steps_per_epoch", steps_per_epoch),
        ):
            if count is not None:
                check_count(name, count)
        self.data, self.balanced = data, balanced
        self.batch_size, self.steps_per_epoch = batch_size, steps_per_epoch
        self.num_unlabelled = check_count("num_unlabelled", num_unlabelled, minimum=0)
        self.seed = check_count("seed", seed, minimum=0)

    def setup(self, stage: str) -> None:
        """Refuses several processes, each of which would see all rows."""
        if self.trainer is not None:
            check_one_process(type(self).__name__, self.trainer.world_size)
        # Batches are slices of tensors in memory: Lightning's advice to use worker
        # processes does not apply.
        warnings.filterwarnings("ignore", ".*does not have many workers", UserWarning)

    def train_dataloader(self) -> DataLoader[Any]:
        """Random batches of the training rows."""
        rows = torch.arange(len(self.data.x))
        if "train_mask" in self.data:
            rows = self._rows("train_mask")
        size, steps = self.batch_size, self.steps_per_epoch
        if size is None:
            return _loader([self.data] * (steps or 1))
        parts = self._classes(rows, size) if self.balanced else [(rows, size)]
        num_batches = steps or math.ceil(len(rows) / size)
        sampler = _EpochSampler(parts, self.balanced, num_batches, self.seed)
        return self._slices(sampler)

    def _classes(self, rows: Tensor, batch_size: int) -> list[tuple[Tensor, int]]:
        """Rows of each class, then unlabelled ones, and numbers of them in a batch."""
        label = self._labels()[rows]
        classes = label[label >= 0].unique()
        check_two_values("y", classes)
        if batch_size % len(classes):
            msg = "'batch_size' must be a multiple of the number of classes"
            raise ValueError(f"{msg}, {len(classes)} (got {batch_size})")
        per_class = batch_size // len(classes)
        parts = [(rows[label == c], per_class) for c in classes]
        if self.num_unlabelled:
            others = rows[label < 0]
            if len(others) == 0:
                msg = "'num_unlabelled' must be 0 if every training row has a label"
                msg = f"{msg} (got {self.num_unlabelled})"
                raise ValueError(f"{msg}. Rows without one have a negative 'y'")
            parts.append((others, self.num_unlabelled))
        return parts

    def val_dataloader(self) -> DataLoader[Any] | Iterator[Any]:
        """The validation rows in order; none in a fit without ``val_mask``."""
        fitting = self.trainer is not None and self.trainer.state.fn == "fit"
        if fitting and "val_mask" not in self.data:
            # Lightning warns of a missing loader as well as of one of length zero; a
            # data set without that split deserves neither. Hence no length.
            return iter(())
        return self._in_order("val_mask")

    def test_dataloader(self) -> DataLoader[Any]:
        """The test rows in order."""
        return self._in_order("test_mask")

    def predict_dataloader(self) -> DataLoader[Any]:
        """All rows in order."""
        return self._in_order(None)

    def _in_order(self, key: str | None) -> DataLoader[Any]:
        """Batches of the rows in a mask, or of all."""
        rows = torch.arange(len(self.data.x)) if key is None else self._rows(key)
        if self.batch_size is None:
            return _loader([self.data])
        return self._slices(rows.split(self.batch_size))

    def _slices(self, sampler: Any) -> DataLoader[Any]:
        """Batches whose rows the sampler names."""
        x = self.data.x
        index = torch.arange(len(x), device=x.device)
        return _loader(TensorDataset(x, self._labels(), index), sampler)

    def _labels(self) -> Tensor:
        """The labels of ``data``, read anew and checked."""
        return check_group("y", self.data.y, len(self.data.x))

    def _rows(self, key: str) -> Tensor:
        """Positions of the rows in a mask."""
        check_attribute("data", self.data.keys(), key)
        mask = check_mask(key, self.data[key], len(self.data.x))
        rows = mask.nonzero().squeeze(1)
        if len(rows) == 0:
            raise ValueError(f"'{key}' must select at least one row (got none)")
        return rows


def _loader(dataset: Any, sampler: Any = None) -> DataLoader[Any]:
    """A loader of items that are batches already."""
    # A generator of its own: otherwise each epoch would draw from the global one.
    source = torch.Generator().manual_seed(0)
    return DataLoader(dataset, batch_size=None, sampler=sampler, generator=source)


class _EpochSampler(Sampler[Tensor]):
    """Batches of row numbers, the same ones whenever seed and epoch are the same.

    Args:
        parts: Rows, and how many of them a batch has.
        balanced: Whether to draw from all parts with replacement; otherwise there is
            one part, whose rows all come once before any comes again.
        num_batches: Batches of an epoch.
        seed: Settles the batches together with the epoch.
    """

    def __init__(
        self,
        parts: list[tuple[Tensor, int]],
        balanced: bool,
        num_batches: int,
        seed: int,
    ) -> None:
        self._parts, self._balanced = parts, balanced
        self._num_batches, self._seed = num_batches, seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the epoch that the next iteration draws."""
        self._epoch = epoch

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[Tensor]:
        # Mixed, not added: epoch 1 of seed 0 should not be epoch 0 of seed 1.
        entropy = np.random.SeedSequence((self._seed, self._epoch))
        seed = int(entropy.generate_state(1, np.uint64)[0])
        generator = torch.Generator().manual_seed(seed)
        # Without calls of 'set_epoch', the next iteration is the next epoch.
        self._epoch += 1
        waiting: list[Tensor] = []
        for _ in range(self._num_batches):
            if self._balanced:
                drawn = [
                    rows[torch.randint(len(rows), (size,), generator=generator)]
                    for rows, size in self._parts
                ]
                yield torch.cat(drawn)
                continue
            if not waiting:
                ((rows, size),) = self._parts
                order = torch.randperm(len(rows), generator=generator)
                waiting = list(rows[order].split(size))
            yield waiting.pop(0)
