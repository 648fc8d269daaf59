r"""What share of pairs of people are treated unlike, and how sure is that?

Pairs are not independent: one person is part of many. With :math:`B` pairs, of which
the share :math:`R` is treated unlike, :math:`e_{ij} = 1 - R` for those and :math:`-R`
for the others, and :math:`E_i = \sum_j e_{ij}`, the variance of :math:`R` that lets all
pairs with a person in common depend on each other (dyadic-robust: Aronow, Samii and
Assenova 2015) is

.. math::
    v = \frac{\sum_i E_i^2 - \sum_{i < j} e_{ij}^2}{B^2} .

:math:`m = R (1 - R) / v`, at most :math:`B`, is how many independent pairs would say as
much, and the interval is Wilson's for :math:`m` of them. Where nobody or everybody is
treated unlike, :math:`v` is zero and tells nothing; then
:math:`m = B^2 / (\sum_i n_i^2 - B)` with :math:`n_i` pairs of person :math:`i`, which
is what is left if pairs with a person in common always agree.
"""

from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif.audit.audit_report import Estimate


class Pairs(NamedTuple):
    """Pairs of neighbours, each once, the smaller number first."""

    first: Tensor  # [P]
    second: Tensor  # [P]
    dist: Tensor  # [P]

    def only(self, which: Tensor) -> "Pairs":  # [P] bool
        """Some of the pairs."""
        return Pairs(*(part[which] for part in self))


def share_of(unlike: Tensor, pairs: Pairs, num_people: int, level: float) -> Estimate:
    """Share of pairs treated unlike, with its interval."""
    size = unlike.numel()
    share = float(unlike.double().mean())
    per_person = _by_person(torch.ones(size, dtype=torch.float64), pairs, num_people)
    alike = (float(per_person.square().sum()) - size) / size**2
    variance = share * (1.0 - share) * alike
    if 0.0 < share < 1.0:
        apart = unlike.double() - share
        total = _by_person(apart, pairs, num_people).square().sum()
        variance = float(total - apart.square().sum()) / size**2
        variance = max(variance, share * (1.0 - share) / size)
        number = share * (1.0 - share) / variance
    else:
        number = 1.0 / alike
    return Estimate(share, *wilson(share, number, level))


def wilson(share: float, number: float, level: float) -> tuple[float, float]:
    """Wilson's interval of a share among a number of independent ones."""
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    scale = 1.0 + z * z / number
    middle = (share + z * z / (2.0 * number)) / scale
    half = z / scale * (share * (1 - share) / number + (z / (2 * number)) ** 2) ** 0.5
    # Exactly, where rounding would leave a little.
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    return low, 1.0 if share == 1.0 else min(1.0, middle + half)


def _by_person(value: Tensor, pairs: Pairs, num_people: int) -> Tensor:  # [P] -> [N]
    """Sum of a value over the pairs of each person."""
    out = torch.zeros(num_people, dtype=torch.float64, device=pairs.first.device)
    value = value.to(out.device)
    return out.index_add(0, pairs.first, value).index_add(0, pairs.second, value)
