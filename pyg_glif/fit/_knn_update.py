r"""Newcomers together, whose neighbours are counted, not measured: the ``k`` nearest.

Let :math:`s_i` be the distance of newcomer :math:`i` from their :math:`k`-th nearest
among everybody, fitted or new, and at most ``tau``. A fitted person keeps the
:math:`s_j` of the fit. Two people, at least one of them new, are neighbours if
:math:`d_{ij} \le s_i` or :math:`d_{ij} \le s_j`; with ``mutual``, if both hold.

Squared distances that agree to twelve digits, in float32 to five, are ties, and ties
count.
"""

from typing import NamedTuple

import torch
from torch import Tensor

_SAME = {torch.float32: 1e-5, torch.float64: 1e-12}


class Pairs(NamedTuple):
    """Pairs of a newcomer and somebody else, sorted by newcomer, then by the other."""

    row: Tensor  # [P]
    col: Tensor  # [P]
    sq_dist: Tensor  # [P]
    scale: Tensor | None = None  # [P], the larger scale of the two

    def counted(self, mine: Tensor, theirs: Tensor, mutual: bool) -> "Pairs":
        """The pairs that count, given the scales of newcomers and of the others."""
        mine, theirs = mine[self.row], theirs[self.col]
        limit = (torch.minimum if mutual else torch.maximum)(mine, theirs).square()
        slack = 1.0 + _SAME[self.sq_dist.dtype]
        keep = self.sq_dist.double() <= limit * slack
        scale = torch.maximum(mine, theirs)
        return Pairs(self.row[keep], self.col[keep], self.sq_dist[keep], scale[keep])


def scales(near: Pairs, inner: Pairs, num: int, k: int, tau: float) -> Tensor:
    """Distances of newcomers to their k-th nearest among everybody, ``[M]``.

    Args:
        near (Pairs): The ``k`` nearest fitted people of each newcomer.
        inner (Pairs): Pairs of newcomers, the ``k`` nearest of each among them.
        num (int): Number of newcomers.
        k (int): Number of neighbours.
        tau (float): The scale of those with fewer people within it.
    """
    value = torch.cat([near.sq_dist, inner.sq_dist]).double()
    row = torch.cat([near.row, inner.row])
    order = value.argsort()
    # Stable, so that the values of each row stay in ascending order.
    order = order[row[order].argsort(stable=True)]
    count = torch.bincount(row, minlength=num)
    out = value.new_full((num,), tau)
    known = count >= k
    place = (count.cumsum(0) - count + k - 1)[known]
    out[known] = value[order[place]].sqrt()
    return out
