r"""The disclosure rule: facts about samples that may be shown without access to them.

No feature or score is shown that fewer than :data:`MIN_SHARED` samples share. A value
is shared by the samples that have it, an average by the effective number of samples
behind it, :math:`(\sum_j |w_j|)^2 / \sum_j w_j^2` (Kish), which is their number where
weights are equal. Texts, pages and answers of the service ask here.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count, check_scalar

#: Smallest number of samples that share a disclosed fact.
MIN_SHARED = 5
# Rounding in sums of equal weights is not a sample less.
_SLACK = 1e-9


def effective_number(weight: Tensor) -> float:  # [K]
    """Effective number of samples behind a weighted average; zero if there are none.

    Example:
        >>> effective_number(torch.ones(6)), effective_number(torch.tensor([1.0, 0]))
        (6.0, 1.0)
    """
    size = weight.detach().double().abs()
    largest = float(size.max()) if size.numel() else 0.0
    if largest == 0.0:
        return 0.0
    size = size / largest  # squares of tiny weights would be zero
    return float(size.sum().square() / size.square().sum())


def is_shared(number: float, least: float = MIN_SHARED) -> bool:
    """Whether the effective number of samples suffices for disclosure."""
    return number >= least * (1.0 - _SLACK)


def shared_value(values: Sequence[Hashable]) -> Any:
    """The value of the majority, if enough samples have it, else :obj:`None`.

    Gaps (:obj:`None`) count toward the total and are no value.

    Example:
        >>> shared_value(["a"] * 5 + ["b"] * 4), shared_value(["a"] * 4)
        ('a', None)
        >>> shared_value(["a"] * 5 + [None] * 5) is None  # not most of them
        True
    """
    ((value, count),) = Counter(values).most_common(1) or [(None, 0)]
    return value if is_shared(count) and 2 * count > len(values) else None


def shared_mean(values: Sequence[float | None], weight: Tensor) -> float | None:
    """The weighted average of the known values, if enough samples share it.

    Example:
        >>> shared_mean([1.0, 2, 3, 4, 5, None], torch.ones(6))
        3.0
        >>> shared_mean([98765.0, None, None, None, None], torch.ones(5)) is None
        True
    """
    known = [index for index, value in enumerate(values) if value is not None]
    part = weight[known].double()
    if not is_shared(effective_number(part)):
        return None
    value = torch.tensor([values[index] for index in known], dtype=torch.float64)
    return float(part @ value / part.sum())


@dataclass(frozen=True)
class Disclosure:
    r"""Rounding and withholding of corrections of new samples.

    A corrected output is :math:`\eta = s \hat\eta + (1 - s) m` in the coordinates in
    which outputs are averaged: the own share :math:`s` and the neighbors' mean
    :math:`m` are all that it discloses about fitted samples, whatever
    :math:`\hat\eta` the caller chooses. Both are rounded *before* they are combined,
    so no choice of outputs, however large, and no repetition discloses more digits.

    Args:
        min_shared (int): Effective number of neighbors below which a correction is
            withheld.
        resolution (float): Steps of the own share, and of the mean in standard
            deviations of the fitted outputs; zero does not round.
    """

    min_shared: int = MIN_SHARED
    resolution: float = 0.02

    def __post_init__(self) -> None:
        check_count("min_shared", self.min_shared)
        check_scalar("resolution", self.resolution, minimum=0.0, below=1.0)

    def rounded(self, value: Tensor, spread: "Tensor | float" = 1.0) -> Tensor:
        """Values rounded to ``resolution * spread``; unchanged if that is zero."""
        step = self.resolution * torch.as_tensor(spread, dtype=torch.float64)
        step = step.to(value.device)
        inner = torch.where(step > 0, step, 1.0)
        return torch.where(step > 0, (value.double() / inner).round() * inner, value)

    def withheld(self, effective: Tensor) -> Tensor:  # [M] -> [M] bool
        """Mask of corrections that too few neighbors share."""
        return effective < self.min_shared * (1.0 - _SLACK)

    def corrected(
        self,
        eta_hat: Tensor,  # [M, C], outputs of the model
        eta: Tensor,  # [M, C], corrected
        own_share: Tensor,  # [M]
        spreads: tuple[Tensor, Tensor],  # of the fitted outputs
        by_row: bool = False,
    ) -> Tensor:  # [M, C]
        """Corrected outputs from rounded parts, all in dual coordinates.

        Rows that sum to one still do: their level and the rest of each column are
        rounded separately. ``by_row``: columns are defined up to a constant per row,
        which must not affect rounding.
        """
        if self.resolution == 0.0:
            return eta
        own = own_share.unsqueeze(1)
        rest = 1.0 - own
        mean = (eta - own * eta_hat) / torch.where(rest > 0, rest, 1.0)
        level, rest_of_row = map(self.rounded, _level_and_rest(mean), spreads)
        mean = rest_of_row - rest_of_row.mean(1, keepdim=True)
        mean = mean if by_row else mean + level
        own = self.rounded(own)
        return own * eta_hat + (1.0 - own) * mean


def spreads_of(fitted: Tensor) -> tuple[Tensor, Tensor]:  # [N, C] -> [1], [C]
    """Standard deviations of the level of outputs, and of columns around it."""
    level, rest = (part.std(0, correction=0) for part in _level_and_rest(fitted))
    # A level that is constant up to rounding discloses nothing about a sample.
    largest = float(fitted.abs().max())
    return torch.where(level > 1e-9 * largest, level, 0.0), rest


def _level_and_rest(rows: Tensor) -> tuple[Tensor, Tensor]:  # [M, C] -> [M, 1], [M, C]
    """Mean of each row, and the deviations from it."""
    level = rows.mean(1, keepdim=True)
    return level, rows - level
