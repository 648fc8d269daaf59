"""Rows of a batch, in any of its forms."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from pyg_glif._utils.validation import (
    check_floating,
    check_group,
    check_mask,
    check_rank,
    check_rows,
    check_tensor,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a dataset, and the ``Data`` that holds them, if one does."""

    x: Tensor  # [B, F]
    y: Tensor | None  # [B], negative where unlabelled or outside the split
    index: Tensor | None  # [B], positions in the dataset
    data: Any = None  # input of the model; of a sampled one, the first B rows count
    is_sampled: bool = False

    @property
    def labelled(self) -> Tensor:  # [B]
        """Which rows have a label."""
        if self.y is None:
            raise ValueError("'y' must be given to train or test (got None)")
        return self.y >= 0


def to_rows(batch: Any, split: str | None = None) -> Rows:
    """Reads ``x``, ``(x,)``, ``(x, y)``, ``(x, y, index)`` or a ``Data``.

    Of a ``Data``, all rows take part, and those outside the mask of ``split`` count
    as unlabelled. Of a ``Data`` that a neighbor loader has sampled, only the first
    ``batch_size`` rows count.
    """
    if isinstance(batch, Data):
        return _rows_of_data(batch, split)
    parts = (batch,) if isinstance(batch, Tensor) else batch
    if not isinstance(parts, (list, tuple)) or not 1 <= len(parts) <= 3:
        size = f" of {len(parts)}" if isinstance(parts, (list, tuple)) else ""
        forms = "'x', '(x, y)', '(x, y, index)' or a Data"
        raise TypeError(f"'batch' must be {forms} (got {type(batch).__name__}{size})")
    x, y, index = (*parts, None, None)[:3]
    x = _features(x)
    return Rows(x, check_classes(y, len(x)), index)


def _rows_of_data(data: Any, split: str | None) -> Rows:
    x = _features(data.x)
    y = check_classes(data.y, len(x))
    key = f"{split}_mask"
    if y is not None and split is not None and key in data:
        inside = check_mask(key, data[key], len(x))
        y = torch.where(inside, y, -1)
    # A Batch of several graphs has a 'batch_size' as well: their number.
    if "batch_size" not in data or isinstance(data, Batch):
        return Rows(x, y, None, data)
    size = int(data.batch_size)
    index = data.n_id[:size] if "n_id" in data else None
    return Rows(x[:size], None if y is None else y[:size], index, data, True)


def check_classes(y: object, num_rows: int) -> Tensor | None:  # [B]
    """Classes of rows, negative where unlabelled, if they are given."""
    if isinstance(y, Tensor) and y.is_floating_point():
        msg = f"'y' must hold whole numbers (got {y.dtype})"
        remedy = "For a regression add 'LaplacianLoss' to the loss of your own module"
        raise TypeError(f"{msg}. {remedy}")
    return None if y is None else check_group("y", y, num_rows)


def _features(x: object) -> Tensor:
    """Rows of features; a trainer may have turned them into half precision."""
    x = check_tensor("x", x)
    if x.dtype in (torch.float16, torch.bfloat16):
        check_rank("x", x, 2)
        return x
    check_floating("x", x)
    return check_rows("x", x)
