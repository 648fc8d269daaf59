"""What a batch holds, whichever form it comes in."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif._validate import (
    check_batch_form,
    check_group,
    check_mask,
    check_rank,
    check_rows,
    check_tensor,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a data set, and the graph they come with if they are all of it."""

    x: Tensor  # [B, F]
    y: Tensor | None  # [B], negative where unlabelled or outside the split
    index: Tensor | None  # [B], positions in the data set
    data: Any = None  # the Data itself, if the batch is one


def to_rows(batch: Any, split: str | None = None) -> Rows:
    """Reads ``x``, ``(x,)``, ``(x, y)``, ``(x, y, index)`` or a ``Data``.

    Of a ``Data``, all rows take part, and those outside the mask of ``split`` count
    as unlabelled.
    """
    if isinstance(batch, Data):
        x, y = batch.x, batch.y
        y = None if y is None else check_group("y", y, len(x))
        key = f"{split}_mask"
        if y is not None and split is not None and key in batch:
            inside = check_mask(key, batch[key], len(x))
            y = torch.where(inside, y, -1)
        return Rows(_features(x), y, None, batch)
    parts = (batch,) if isinstance(batch, Tensor) else batch
    check_batch_form("batch", parts, batch)
    x, y, index = (*parts, None, None)[:3]
    x = _features(x)
    return Rows(x, None if y is None else check_group("y", y, len(x)), index)


def _features(x: object) -> Tensor:
    """Rows of features; a trainer may have turned them into half precision."""
    x = check_tensor("x", x)
    if x.dtype in (torch.float16, torch.bfloat16):
        check_rank("x", x, 2)
        return x
    return check_rows("x", x)
