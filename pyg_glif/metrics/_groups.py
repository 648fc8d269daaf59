"""Sums over groups of rows, in float64."""

import torch
from torch import Tensor


def number_groups(label: Tensor) -> tuple[Tensor, Tensor]:  # [N] -> [N], [G]
    """Numbers groups from 0 in the order of their labels, and counts their rows."""
    _, index, count = label.unique(return_inverse=True, return_counts=True)
    return index, count


def group_means(
    y: Tensor, index: Tensor, count: Tensor
) -> Tensor:  # [N, ...], [N], [G] -> [G, ...]
    """Mean of each group, float64."""
    shape = (count.numel(), *y.shape[1:])
    total = torch.zeros(shape, dtype=torch.float64, device=y.device)
    total = total.index_add(0, index, y.double())
    return total / count.view(-1, *[1] * (y.dim() - 1))
