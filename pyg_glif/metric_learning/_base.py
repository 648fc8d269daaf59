"""Moments in one pass over the rows, and the result of a subspace fit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_labels
from pyg_glif._utils.validation import check_features
from pyg_glif.distances import SensitiveSubspace

# Variances below this share of the largest count as zero: deviations under a
# millionth of the largest one, which is what rounding to float32 leaves behind.
RANK_RTOL = 1e-12


@dataclass(frozen=True, eq=False)
class SubspaceFit:
    r"""Directions of :class:`SensitiveSVD` and :class:`FACE`, and their variances.

    It is the ``fit_result`` of the distance they return.

    Args:
        variances (torch.Tensor): Mean square of the data along *every* principal
            direction, largest first, in float64. The first ``rank`` directions
            are the sensitive ones: plot the values to choose how many.
        rank (int): Number of sensitive directions.
        num_rows (int): Rows that were used.
        num_groups (int): Groups of at least two rows. One if there are no groups.
        num_single (int): Groups of one row, which were left out.
        mean (torch.Tensor, optional): Subtracted from all rows.

    Example:
        >>> fit = SubspaceFit(torch.tensor([3.0, 1.0, 0.0]), rank=1, num_rows=9)
        >>> fit
        SubspaceFit(rank=1, num_rows=9, num_groups=1, num_single=0)
        >>> fit.explained_ratio
        0.75
    """

    variances: Tensor = field(repr=False)
    rank: int
    num_rows: int
    num_groups: int = 1
    num_single: int = 0
    mean: Tensor | None = field(default=None, repr=False)

    @property
    def explained_ratio(self) -> float:
        """Share of the total variance that the sensitive directions hold."""
        return float(self.variances[: self.rank].sum() / self.variances.sum())


def features(name: str, value: Any) -> Tensor:  # [N, F]
    """Finite features without gradients, from a tensor, an array or a frame."""
    return check_features(name, value).detach()


def labels(name: str, value: Any) -> Any:
    """Whole numbers for the labels in an array or a frame; a tensor as it is."""
    return value if isinstance(value, Tensor) else to_labels(name, value)


def row_chunks(num_rows: int, chunk_size: int) -> Iterator[slice]:
    """Slices that cover all rows, in order."""
    for start in range(0, num_rows, chunk_size):
        yield slice(start, min(start + chunk_size, num_rows))


def column_means(x: Tensor, chunk_size: int) -> Tensor:  # [N, F] -> [F]
    """Means of the columns, in float64."""
    total = x.new_zeros(x.size(1), dtype=torch.float64)
    for rows in row_chunks(len(x), chunk_size):
        total += x[rows].sum(dim=0, dtype=torch.float64)
    return total / len(x)


def scatter_matrix(  # [N, F] -> [F, F]
    x: Tensor, chunk_size: int, mean: Tensor | None = None
) -> Tensor:
    """Sum of the rows' outer products about ``mean``, in float64."""
    out = x.new_zeros(x.size(1), x.size(1), dtype=torch.float64)
    for rows in row_chunks(len(x), chunk_size):
        block = x[rows].double()
        if mean is not None:
            block = block - mean
        out.addmm_(block.T, block)
    return out


def principal_directions(moment: Tensor) -> tuple[Tensor, Tensor, int]:
    """Descending eigenvalues ``[F]``, eigenvectors as rows, and the rank."""
    values, vectors = torch.linalg.eigh(moment)
    # Rounding may leave an eigenvalue of zero slightly below it.
    values, rows = values.flip(0).clamp_(min=0), vectors.T.flip(0)
    rank = int((values > RANK_RTOL * values[0]).sum())
    return values, rows, rank


def leading_subspace(
    moment: Tensor, count: int, *, name: str, data: str, dtype: torch.dtype
) -> tuple[SensitiveSubspace, Tensor]:
    """The distance that ignores the top directions of ``moment``, and its values."""
    values, rows, rank = principal_directions(moment)
    _check_num_directions(name, count, data, rank, moment.size(0))
    return SensitiveSubspace(rows[:count].to(dtype)), values


def _check_num_directions(
    name: str, value: int, data: str, rank: int, num_features: int
) -> None:
    """Raises unless there are at most ``rank`` directions, fewer than features."""
    if value > rank:
        msg = f"'{name}' must be at most the rank of {data}, {rank}"
        raise ValueError(f"{msg} (got {value})")
    if value >= num_features:
        msg = f"'{name}' must be below the number of features, {num_features}"
        msg = f"{msg} (got {value}). Every pair would be at distance 0"
        raise ValueError(msg)
