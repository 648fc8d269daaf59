"""Candidate pool of the exact k-nearest-neighbor search.

A pool holds pairs whose squared distance lies between two bounds. Once k pairs of a
point have upper bounds of at most u, none of its pairs with a lower bound above u is
needed any more. In the end few pairs are left open; those are evaluated in float64.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float32).eps
_FEWEST = 1 << 16  # pairs that are gathered before bounds are made smaller
_UNRESOLVED = 4  # times k pairs per point: beyond this, float32 bounds are too loose

#: Squared distances of pairs in float64, ``[P], [P] -> [P]``.
Exact = Callable[[Tensor, Tensor], Tensor]


class Nearest(NamedTuple):
    """The k nearest of each point, as ends of pairs."""

    i: Tensor  # [P], first points of the pairs
    j: Tensor  # [P], second points
    sq: Tensor  # [P], squared distances
    error: Tensor  # [P], how far they may be off
    end: Tensor  # [Q], a point
    pair: Tensor  # [Q], one of its pairs: the other point is among its nearest
    tied: Tensor  # [Q], whether at the k-th distance, not nearer
    sq_kth: Tensor  # [N], float64, infinite where there are fewer than k

    @property
    def other(self) -> Tensor:  # [Q]
        """The neighbor of ``end`` in each entry."""
        return self.i[self.pair] + self.j[self.pair] - self.end


class CandidatePool:
    """Pairs that may be among the ``k`` nearest of an end.

    Args:
        k: Number of neighbors.
        upper: Squared distance beyond which no neighbor of a point is wanted; lowered
            in place as pairs are added.
        exact: Evaluates pairs; not needed if no pair has an error.
        other: The same for the second points of pairs, if they are another set whose
            neighbors are not asked for; it is not changed.
    """

    def __init__(
        self,
        k: int,
        upper: Tensor,
        exact: Exact | None = None,
        other: Tensor | None = None,
    ) -> None:
        self.k, self.upper, self._exact, self._other = k, upper, exact, other
        empty = torch.empty(0, dtype=torch.long, device=upper.device)
        self._parts = [(empty, empty, upper.new_empty(0), upper.new_empty(0))]
        self._added, self._kept = 0, 0

    @property
    def reach(self) -> tuple[Tensor, Tensor]:
        """Bounds of the first and of the second points of pairs."""
        return self.upper, self.upper if self._other is None else self._other

    def add(self, i: Tensor, j: Tensor, sq: Tensor, error: Tensor) -> None:
        """Adds pairs; passing them through :meth:`wanted` first saves memory."""
        self._parts.append((i, j, sq, error))
        self._added += self._parts[-1][0].numel()
        # In steps that grow with what is kept: ties may be many.
        usual = max(_FEWEST, self.upper.numel() * self.k // 2)
        if self._added > max(usual, self._kept // 2):
            self._shrink()

    def _shrink(self) -> None:
        """Lowers the bounds by the pairs held, and drops pairs beyond them."""
        i, j, sq, error = (torch.cat(part) for part in zip(*self._parts, strict=True))
        self._parts, self._added = [], 0
        self._lower(i, j, sq + error)
        i, j, sq, error = self.wanted(i, j, sq, error)
        if i.numel() > _UNRESOLVED * self.k * self.upper.numel():
            sq, error = self._refine(i, j, sq, error)
            self._lower(i, j, sq + error)
            i, j, sq, error = self.wanted(i, j, sq, error)
        self._parts.append((i, j, sq, error))
        self._kept = i.numel()

    def _refine(
        self, i: Tensor, j: Tensor, sq: Tensor, error: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Evaluates the pairs whose float32 products are too inaccurate."""
        tiny = torch.finfo(sq.dtype).tiny
        which = (error > 8.0 * _EPS * sq + 2.0 * tiny).nonzero().view(-1)
        if self._exact is None or which.numel() == 0:
            return sq, error
        exact = self._exact(i[which], j[which]).to(sq.dtype)
        # Twice what rounding to float32 takes.
        rounded = exact * _EPS + tiny
        return sq.index_copy(0, which, exact), error.index_copy(0, which, rounded)

    def wanted(
        self, i: Tensor, j: Tensor, sq: Tensor, error: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pairs whose lower bound is within the bound of either end."""
        first, second = self.reach
        keep = (sq - error <= torch.maximum(first[i], second[j])).nonzero().view(-1)
        return i[keep], j[keep], sq[keep], error[keep]

    def _ends(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """Points whose neighbors are searched, and their pairs."""
        pair = torch.arange(i.numel(), device=i.device)
        if self._other is not None:
            return i, pair
        return torch.cat([i, j]), pair.repeat(2)

    def _lower(self, i: Tensor, j: Tensor, most: Tensor) -> None:
        """Lowers each bound to the k-th smallest upper bound ``most`` of its pairs."""
        end, pair = self._ends(i, j)
        most = most[pair]
        within = (most <= self.upper[end]).nonzero().view(-1)
        kth = kth_smallest(end[within], most[within], self.k, self.upper.numel())
        torch.minimum(self.upper, loosened(kth), out=self.upper)

    def resolve(self, slack: float) -> Nearest:
        """Final neighbors; squares within a relative ``slack`` are tied."""
        self._shrink()
        i, j, sq, error = self._parts[0]
        end, pair = self._ends(i, j)
        least, most = (sq - error).clamp_(min=0.0), sq + error
        within = (least[pair] <= self.upper[end]).nonzero().view(-1)
        end, pair = end[within], pair[within]
        # With fewer than k lower bounds below the k-th, whatever is certainly below
        # it is nearer than the k-th nearest.
        lowest = kth_smallest(end, least[pair], self.k, self.upper.numel())
        sure = most[pair] < lowest[end]
        value, unsure = sq.double(), torch.zeros_like(sq, dtype=torch.bool)
        unsure[pair[~sure]] = True
        which = (unsure & (error > 0.0)).nonzero().view(-1)
        if self._exact is not None and which.numel():
            value[which] = self._exact(i[which], j[which])
        rank = self.k - torch.bincount(end[sure], minlength=self.upper.numel())
        kth = kth_smallest(end[~sure], value[pair[~sure]], rank, self.upper.numel())
        limit, sq_dist = kth[end], value[pair]
        tied = ~sure & (sq_dist <= limit * (1.0 + slack))
        nearer = sure | (sq_dist < limit * (1.0 - slack))
        member = nearer | tied
        tied &= ~nearer
        return Nearest(i, j, sq, error, end[member], pair[member], tied[member], kth)


def loosened(upper: Tensor) -> Tensor:
    """Bounds that cover their own rounding, and ties that float64 rounding makes."""
    return upper * (1.0 + 8.0 * _EPS)


def kth_smallest(end: Tensor, value: Tensor, k: int | Tensor, size: int) -> Tensor:
    """K-th smallest value of each point, infinite if it has fewer.

    Args:
        end: Points ``[Q]``, in any order.
        value: Non-negative values ``[Q]``, float32 or float64.
        k: From 1; one for all points, or one for each.
        size: Number of points.
    """
    count = torch.bincount(end, minlength=size)
    place = count.cumsum(0) - count + k - 1
    enough = (count >= k).nonzero().view(-1)
    out = value.new_full((size,), torch.inf)
    if value.dtype == torch.float32:
        # Non-negative floats are ordered as their bits are: one sort of whole numbers.
        bits = (value + 0.0).view(torch.int32)
        key = (end << 32).bitwise_or_(bits)
        if key.device.type == "cpu":
            key.numpy().sort()  # in place, with vector instructions
        else:
            key = key.sort().values
        bits = (key[place[enough]] & 0x7FFFFFFF).to(torch.int32)
        out[enough] = bits.view(torch.float32)
        return out
    order = value.argsort()
    order = order[end[order].argsort(stable=True)]
    out[enough] = value[order[place[enough]]]
    return out
