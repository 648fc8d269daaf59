r"""The ``k`` nearest neighbors of new samples that are solved for together.

Let :math:`s_i` be the distance of new sample :math:`i` from its :math:`k`-th nearest
among all samples, fitted or new, and at most ``tau``. A fitted sample keeps the
:math:`s_j` of the fit. Two samples, at least one of them new, are neighbors if
:math:`d_{ij} \le s_i` or :math:`d_{ij} \le s_j`; with ``mutual``, if both hold.

Squared distances that agree to twelve digits, in float32 to five, are ties, and ties
count.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_SAME = {torch.float32: 1e-5, torch.float64: 1e-12}


class Pairs(NamedTuple):
    """Pairs of a new and any other sample, sorted by new sample, then by the other."""

    row: Tensor  # [P]
    col: Tensor  # [P]
    sq_dist: Tensor  # [P]
    scale: Tensor | None = None  # [P], the larger scale of the two

    def neighbors(self, new: Tensor, other: Tensor, mutual: bool) -> "Pairs":
        """Pairs of neighbors, given the scales of new samples and of the others."""
        new, other = new[self.row], other[self.col]
        limit = (torch.minimum if mutual else torch.maximum)(new, other).square()
        slack = 1.0 + _SAME[self.sq_dist.dtype]
        keep = self.sq_dist.double() <= limit * slack
        scale = torch.maximum(new, other)
        return Pairs(self.row[keep], self.col[keep], self.sq_dist[keep], scale[keep])


def scales(outer: Pairs, inner: Pairs, num: int, k: int, tau: float) -> Tensor:
    """Distances of new samples to their k-th nearest among all samples, ``[M]``.

    Args:
        outer (Pairs): The ``k`` nearest fitted samples of each new one.
        inner (Pairs): Pairs of new samples, the ``k`` nearest of each among them.
        num (int): Number of new samples.
        k (int): Number of neighbors.
        tau (float): Scale of those with fewer samples within it.
    """
    value = torch.cat([outer.sq_dist, inner.sq_dist]).double()
    row = torch.cat([outer.row, inner.row])
    order = value.argsort()
    # Stable, so that the values of each row stay in ascending order.
    order = order[row[order].argsort(stable=True)]
    count = torch.bincount(row, minlength=num)
    out = value.new_full((num,), tau)
    known = count >= k
    place = (count.cumsum(0) - count + k - 1)[known]
    out[known] = value[order[place]].sqrt()
    return out
