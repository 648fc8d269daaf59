"""Batches of a data set that fits in memory."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif._validate import (
    check_attribute,
    check_count,
    check_features,
    check_group,
    check_kind,
    check_mask,
    check_one_process,
)
from pyg_glif.lightning._loader import (
    BalancedSampler,
    NoRows,
    RowLoader,
    ShuffledSampler,
)
from pyg_glif.lightning.resolve import LightningDataModule


class FairDataModule(LightningDataModule):
    r"""Serves the rows of one :class:`~torch_geometric.data.Data` in batches.

    Training batches are ``(x, y, index)``, where ``index`` says which rows of ``data``
    they are; ``y`` is negative for people without a label. Every batch is one slice of
    ``data``, so loading costs next to nothing and there are no workers.

    Args:
        data (torch_geometric.data.Data): ``x`` and ``y``, and the masks
            ``train_mask`` (without it all rows are trained on), ``val_mask`` (without
            it nothing is validated) and ``test_mask``.
        batch_size (int): Rows per batch. (default: :obj:`1000`)
        balanced (bool): Whether every training batch holds equally many rows of each
            class, drawn with replacement. If :obj:`False`, rows come in random order,
            each once before any comes again. (default: :obj:`False`)
        num_unlabelled (int): Rows without a label that join each balanced batch, also
            drawn with replacement, for penalties that need none. (default: :obj:`0`)
        steps_per_epoch (int, optional): Training batches that make an epoch.
            (default: as many as it takes to see every training row once)
        seed (int): Where the randomness of training batches starts. It and the epoch
            settle the batches: two fits see the same ones, and so does a fit that
            resumes. (default: :obj:`0`)

    Attributes:
        data (torch_geometric.data.Data): The whole set, on which
            :class:`FairClassifier` with ``graph="full"`` computes its penalty.

    Prediction covers all rows in order, labelled or not. Distributed training is
    refused. ``data`` is kept as it is, not copied: its tensors are read whenever a
    batch is made, so change them between fits, not during one.

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
        batch_size: int = 1000,
        balanced: bool = False,
        num_unlabelled: int = 0,
        steps_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_kind("data", data, Data)
        check_attribute("data", data.keys(), "x")
        check_attribute("data", data.keys(), "y")
        check_features("x", data.x)
        check_group("y", data.y, len(data.x))
        self.data = data
        self.batch_size = check_count("batch_size", batch_size)
        self.balanced = balanced
        check_count("num_unlabelled", num_unlabelled, minimum=0)
        self.num_unlabelled = num_unlabelled
        if num_unlabelled and not balanced:
            msg = "'num_unlabelled' must be 0 unless 'balanced' is true"
            raise ValueError(f"{msg} (got {num_unlabelled})")
        if steps_per_epoch is not None:
            check_count("steps_per_epoch", steps_per_epoch)
        self.steps_per_epoch = steps_per_epoch
        self.seed = check_count("seed", seed, minimum=0)

    def setup(self, stage: str) -> None:
        """Refuses several processes, each of which would see all rows."""
        if self.trainer is not None:
            check_one_process(type(self).__name__, self.trainer.world_size)

    def train_dataloader(self) -> RowLoader:
        """Random batches of the training rows."""
        rows = torch.arange(len(self.data.x))
        if "train_mask" in self.data:
            rows = self._rows("train_mask")
        sampler: BalancedSampler | ShuffledSampler
        size, steps = self.batch_size, self.steps_per_epoch
        if self.balanced:
            sampler = BalancedSampler(
                rows, self._labels(), size, steps, self.seed, self.num_unlabelled
            )
        else:
            sampler = ShuffledSampler(rows, size, steps, self.seed)
        return RowLoader(self.data.x, self._labels(), sampler)

    def val_dataloader(self) -> RowLoader | NoRows:
        """The validation rows in order; none in a fit without ``val_mask``."""
        fitting = self.trainer is not None and self.trainer.state.fn == "fit"
        if fitting and "val_mask" not in self.data:
            return NoRows()
        check_attribute("data", self.data.keys(), "val_mask")
        return self._in_order(self._rows("val_mask"))

    def test_dataloader(self) -> RowLoader:
        """The test rows in order."""
        check_attribute("data", self.data.keys(), "test_mask")
        return self._in_order(self._rows("test_mask"))

    def predict_dataloader(self) -> RowLoader:
        """All rows in order."""
        return self._in_order(torch.arange(len(self.data.x)))

    def _labels(self) -> Tensor:
        """The labels as they are now."""
        return check_group("y", self.data.y, len(self.data.x))

    def _rows(self, key: str) -> Tensor:
        """Positions of the rows in a mask."""
        mask = check_mask(key, self.data[key], len(self.data.x))
        rows = mask.nonzero().squeeze(1)
        if len(rows) == 0:
            raise ValueError(f"'{key}' must select at least one row (got none)")
        return rows

    def _in_order(self, rows: Tensor) -> RowLoader:
        """Batches of the given rows."""
        return RowLoader(self.data.x, self._labels(), rows.split(self.batch_size))
