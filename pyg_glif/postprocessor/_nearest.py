r"""Newcomers whose neighbours are counted, not measured: the ``k`` nearest.

Let :math:`s_i` be the distance of newcomer :math:`i` from their :math:`k`-th nearest,
among the fitted people or, where newcomers count as each other's neighbours too, among
everybody. A fitted person keeps the :math:`s_j` of the fit. Newcomer :math:`i` and
fitted person :math:`j` are neighbours if :math:`d_{ij} \le s_i` and, with ``mutual``,
:math:`d_{ij} \le s_j`. Two newcomers are if :math:`d_{ij} \le s_i` or
:math:`d_{ij} \le s_j`, with ``mutual`` if both. Nobody beyond ``tau`` is.

Distances that agree to twelve digits, in float32 to five, are ties, and ties count.
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

    def none(self) -> "Pairs":
        """Pairs like these, but none of them."""
        return Pairs(self.row[:0], self.col[:0], self.sq_dist[:0])

    def within(self, *limits: tuple[Tensor, Tensor], tau: float) -> Tensor:  # [P]
        """Which pairs are within all squared limits, each by whom it counts for."""
        slack = 1.0 + _SAME[self.sq_dist.dtype]
        sq_dist = self.sq_dist.double()
        inside = sq_dist.sqrt() <= tau
        for limit, whose in limits:
            inside &= sq_dist <= limit[whose] * slack
        return inside

    def where(self, keep: Tensor) -> "Pairs":
        """Some of the pairs."""
        return Pairs(self.row[keep], self.col[keep], self.sq_dist[keep])


def counted(
    outer: Pairs, inner: Pairs, num: int, k: int, scale: Tensor | None, tau: float
) -> tuple[Pairs, Pairs, Tensor]:
    """The pairs that count of those that might, and the newcomers' scales.

    Args:
        outer (Pairs): Pairs with fitted people: of each newcomer the ``k`` nearest.
        inner (Pairs): Pairs of newcomers in both directions, the ``k`` nearest of each
            or all, if they are fewer, among them; or none.
        num (int): Number of newcomers.
        k (int): Number of neighbours.
        scale (Tensor, optional): Scales of the fitted people; neighbours must then be
            near each other.
        tau (float): Largest distance.
    """
    row = torch.cat([outer.row, inner.row])
    reach = _kth(torch.cat([outer.sq_dist, inner.sq_dist]).double(), row, num, k)
    mine = (reach, outer.row)
    if scale is None:
        near = outer.within(mine, tau=tau)
        forth = inner.within((reach, inner.row), tau=tau)
        together = forth | inner.within((reach, inner.col), tau=tau)
    else:
        near = outer.within(mine, (scale.double().square(), outer.col), tau=tau)
        together = inner.within((reach, inner.row), (reach, inner.col), tau=tau)
    return outer.where(near), inner.where(together), reach.sqrt()


def _kth(value: Tensor, row: Tensor, num: int, k: int) -> Tensor:  # [P], [P] -> [M]
    """The k-th smallest value of each row, all of which have so many."""
    order = value.argsort()
    # Stable, so that the values of each row stay in ascending order.
    order = order[row[order].argsort(stable=True)]
    count = torch.bincount(row, minlength=num)
    return value[order[count.cumsum(0) - count + k - 1]]
