r"""The effect of a column's values on a model: partial dependence, local effects.

``sklearn.inspection.partial_dependence`` asks an estimator once for every value. It
refuses whole numbers, missing categories and polars frames, and where numbers are
missing its grid is NaN (scikit-learn 1.9). Here a model is any function of frames and
is asked once per column. Values are taken from samples of the fit, so that no column
changes its type. A test compares the two where both apply.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.tables._columns import Column

Rows = NDArray[np.intp]
Effects = NDArray[np.float64]


@dataclass(frozen=True)
class EffectGrid:
    """Points of a column at which its effect is measured.

    Args:
        column (Column): The column.
        points (list): Categories, or ascending numbers.
        holders (numpy.ndarray): A sample of the fit with each; if a value is missing
            somewhere, a sample without it at the end.
    """

    column: Column
    points: list[Any]
    holders: Rows

    @classmethod
    def of(cls, column: Column, num_grid: int) -> "EffectGrid":
        """All values, if they are categories or few, else ``num_grid`` quantiles.

        Half of them are quantiles of samples, half quantiles of the different values:
        where most samples have the same value, as with capital gains, quantiles of
        samples see little else.
        """
        known = np.flatnonzero(~column.missing)
        values, first, counts = np.unique(
            column.values[known], return_index=True, return_counts=True
        )
        chosen = np.arange(len(values))
        if column.kind != "category" and len(values) > num_grid:
            half = num_grid // 2
            ranks = np.linspace(0, len(known) - 1, half)
            of_samples = np.searchsorted(counts.cumsum(), ranks, side="right")
            of_values = np.linspace(0, len(values) - 1, num_grid - half).round()
            chosen = np.unique(np.concatenate([of_samples, of_values.astype(np.intp)]))
        points = list(column.categories) or values[chosen].tolist()
        missing = np.flatnonzero(column.missing)[:1]
        return cls(column, points, np.concatenate([known[first[chosen]], missing]))


@dataclass(frozen=True)
class Inquiry:
    """Samples whose outputs give the effect of one column.

    Args:
        grid (EffectGrid): The column, and where its effects are measured.
        samples (numpy.ndarray): Samples whose other columns are taken.
        holders (numpy.ndarray): Samples whose value of the column is taken.
        reduce (callable): From the effects of these, :math:`(M, C)`, to those of the
            points of the grid, :math:`(P, C)`.
    """

    grid: EffectGrid
    samples: Rows
    holders: Rows
    reduce: Callable[[Effects], Effects]


def partial_dependence(grid: EffectGrid, background: Rows) -> Inquiry:
    """The mean over the background with the column set to each value."""
    shape = len(grid.holders), len(background)

    def reduce(effects: Effects) -> Effects:
        out: Effects = effects.reshape(*shape, -1).mean(axis=1)
        return out

    samples = np.tile(background, shape[0])
    return Inquiry(grid, samples, np.repeat(grid.holders, shape[1]), reduce)


def accumulated_local_effects(
    grid: EffectGrid,
    others: Sequence[Column],
    num_samples: int,
    random: np.random.RandomState,
) -> Inquiry:
    r"""Mean differences between neighboring values, summed up.

    `Apley and Zhu, 2020 <https://arxiv.org/abs/1612.08468>`_: no sample is given a
    value far from its own, so that correlated columns make no impossible samples.

    A step from one number to the next is measured on the samples between the two.
    Categories are in the paper's order, next to those with similar samples in the
    ``others``, and a step is measured on the samples with either; missing ones count
    as a category. The step to a missing number starts at the point next to the median
    and is measured on the samples without one.

    Args:
        grid (EffectGrid): The values.
        others (sequence of Column): The other columns, for the order of categories.
        num_samples (int): Samples per step, at most.
        random (RandomState): Draws them.
    """
    column, holders = grid.column, grid.holders
    if column.kind == "category":
        # Missing ones as one more category.
        codes = np.where(column.missing, len(grid.points), column.values)
        order = _by_similarity(codes.astype(np.intp), len(holders), others)
        place = order.argsort()[codes.astype(np.intp)]
        steps = [(order[k - 1], order[k]) for k in range(1, len(order))]
        groups = [
            np.flatnonzero((place == k - 1) | (place == k))
            for k in range(1, len(order))
        ]
    else:
        last = len(grid.points) - 1
        between = np.searchsorted(grid.points, column.values).clip(1, max(last, 1))
        between[column.missing] = -1
        steps = [(k - 1, k) for k in range(1, last + 1)]
        groups = [np.flatnonzero(between == k) for k in range(1, last + 1)]
        if column.missing.any():
            median = np.nanmedian(column.values)
            nearest = int(np.abs(np.array(grid.points) - median).argmin())
            steps.append((nearest, last + 1))
            groups.append(np.flatnonzero(column.missing))
    if not steps:  # of the only value to itself
        steps, groups = [(0, 0)], [holders[:1]]
    groups = [
        random.permutation(rows)[:num_samples] if len(rows) > num_samples else rows
        for rows in groups
    ]
    sizes = [len(rows) for rows in groups]
    low, high = (
        np.repeat(holders[list(end)], sizes) for end in zip(*steps, strict=True)
    )
    samples = np.concatenate(groups)

    def reduce(effects: Effects) -> Effects:
        differences = effects[len(samples) :] - effects[: len(samples)]
        out = np.zeros((len(holders), effects.shape[1]))
        parts = np.split(differences, np.cumsum(sizes)[:-1])
        for (start, end), part in zip(steps, parts, strict=True):
            out[end] = out[start] + part.mean(axis=0)
        return out

    return Inquiry(grid, np.tile(samples, 2), np.concatenate([low, high]), reduce)


def _by_similarity(codes: Rows, num_codes: int, others: Sequence[Column]) -> Rows:
    """Categories in an order in which neighbors have similar samples.

    Dissimilarity is summed over the other columns: the largest difference of the
    distribution functions of numbers, half the summed difference of the shares of
    categories. Its first principal coordinate is the order.
    """
    from scipy.spatial.distance import cdist

    total = np.zeros((num_codes, num_codes))
    for other in others:
        if other.kind == "category":
            place = np.where(other.missing, len(other.categories), other.values)
            width = len(other.categories) + 1
        else:
            known = other.values[~other.missing]
            cuts = np.unique(np.quantile(known, np.linspace(0, 1, 33)))
            place = np.where(
                other.missing, len(cuts), np.searchsorted(cuts, other.values)
            )
            width = len(cuts) + 1
        cells = codes * width + place.astype(np.intp)
        counts = np.bincount(cells, minlength=num_codes * width)
        shares = counts.reshape(num_codes, width) / np.bincount(codes)[:, None]
        if other.kind == "category":
            total += cdist(shares, shares, "cityblock") / 2
        else:
            shares = shares.cumsum(axis=1)
            total += cdist(shares, shares, "chebyshev")
    centered = total**2
    centered = centered - centered.mean(axis=0) - centered.mean(axis=1)[:, None]
    _, axes = np.linalg.eigh(-0.5 * (centered + (total**2).mean()))
    return axes[:, -1].argsort(kind="stable")
