"""Sparse matrices in the one layout whose products are fast: CSR."""

import warnings

import torch
from torch import Tensor


def csr_tensor(
    crow: Tensor, col: Tensor, value: Tensor, size: tuple[int, int]
) -> Tensor:
    """A CSR tensor, without torch's note that the layout is in beta.

    The caller vouches for the indices; columns need not be sorted within a row.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(crow, col, value, size, check_invariants=False)


def sampled_products(row: Tensor, col: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Inner products ``a[row] . b[col]`` for sorted ``row``, without gathering.

    One fused pass over the pairs: gathering both sides first would write and read
    ``2 * num_pairs * a.size(1)`` numbers.
    """
    ends = torch.arange(a.size(0) + 1, device=row.device)
    crow = torch.searchsorted(row, ends)
    zero = a.new_zeros(1).expand(row.numel())
    pattern = csr_tensor(crow, col.long(), zero, (a.size(0), b.size(0)))
    product = torch.sparse.sampled_addmm(pattern, a, b.mT, beta=0.0)
    return product.values()


def flat_nonzero(mask: Tensor) -> Tensor:
    """Positions of the set entries of a contiguous mask, in row-major order."""
    if mask.device.type == "cpu":
        # NumPy's scan of booleans is several times faster than torch's.
        import numpy as np

        return torch.from_numpy(np.flatnonzero(mask.numpy()))
    return mask.view(-1).nonzero().view(-1)
