"""Fast paths for scattered pairs of rows that torch has, but not in one call."""

import numpy as np
import torch
from torch import Tensor

from pyg_glif._pattern import csr_tensor


def sampled_products(row: Tensor, col: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Inner products ``a[row] . b[col]`` for sorted ``row``, without gathering.

    One fused pass over the pairs: gathering both sides first would write and read
    ``2 * num_pairs * a.size(1)`` numbers.
    """
    ends = torch.arange(a.size(0) + 1, device=row.device)
    zero = a.new_zeros(1).expand(row.numel())
    crow = torch.searchsorted(row, ends)
    pattern = csr_tensor(crow, col, zero, (a.size(0), b.size(0)))
    product: Tensor = torch.sparse.sampled_addmm(pattern, a, b.mT, beta=0.0)
    return product.values()


def flat_nonzero(mask: Tensor) -> Tensor:
    """Positions of the set entries of a contiguous mask, in row-major order."""
    if mask.device.type == "cpu":
        # NumPy's scan of booleans is several times faster than torch's.
        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.view(-1).nonzero().view(-1)
