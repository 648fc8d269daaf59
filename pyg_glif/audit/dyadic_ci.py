r"""Shares of disagreeing pairs, with intervals.

Pairs are not independent: one sample is part of many. With :math:`B` pairs, of which
the share :math:`R` disagrees, :math:`e_{ij} = 1 - R` for those and :math:`-R` for the
others, and :math:`E_i = \sum_j e_{ij}`, the variance of :math:`R` that lets all pairs
with a sample in common depend on each other (dyadic-robust: Aronow, Samii and Assenova
2015) is

.. math::
    v = \frac{\sum_i E_i^2 - \sum_{i < j} e_{ij}^2}{B^2} .

:math:`m = R (1 - R) / v`, at most :math:`B`, is how many independent pairs would say as
much, and the interval is Wilson's for :math:`m` of them. Where no pair or every pair
disagrees, :math:`v` is zero and says nothing; then :math:`m = B^2 / (\sum_i n_i^2 - B)`
with :math:`n_i` pairs of sample :math:`i`, which is what is left if pairs with a sample
in common are always alike.
"""

from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif.audit.audit_report import IntervalEstimate


class NeighborDyads(NamedTuple):
    """Pairs of neighbors, each once, the smaller row first."""

    first: Tensor  # [P]
    second: Tensor  # [P]
    dist: Tensor  # [P]

    def only(self, which: Tensor | slice) -> "NeighborDyads":
        """Some of the pairs."""
        return NeighborDyads(*(part[which] for part in self))

    def sums(self, value: Tensor, num_samples: int) -> Tensor:  # [P] -> [N]
        """Sums of a value over the pairs of each sample."""
        out = torch.zeros(num_samples, dtype=torch.float64, device=self.first.device)
        value = value.to(out)
        return out.index_add(0, self.first, value).index_add(0, self.second, value)


def share_of(
    disagrees: Tensor, pairs: NeighborDyads, num_samples: int, level: float
) -> IntervalEstimate:
    """Share of disagreeing pairs, with its interval."""
    size = disagrees.numel()
    share = float(disagrees.double().mean())
    if 0.0 < share < 1.0:
        error = disagrees.double() - share
        total = pairs.sums(error, num_samples).square().sum()
        variance = float(total - error.square().sum()) / size**2
        variance = max(variance, share * (1.0 - share) / size)
        number = share * (1.0 - share) / variance
    else:
        degree = pairs.sums(torch.ones(size), num_samples)
        number = size**2 / (float(degree.square().sum()) - size)
    return IntervalEstimate(share, *wilson(share, number, level))


def wilson(share: float, number: float, level: float) -> tuple[float, float]:
    """Wilson's interval of a share of a number of independent draws."""
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    scale = 1.0 + z * z / number
    middle = (share + z * z / (2.0 * number)) / scale
    half = z / scale * (share * (1 - share) / number + (z / (2 * number)) ** 2) ** 0.5
    # Exactly, where rounding would leave a little.
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    return low, 1.0 if share == 1.0 else min(1.0, middle + half)
