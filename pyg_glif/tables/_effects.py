r"""The effect of a column's values on a model: partial dependence, local effects.

``sklearn.inspection.partial_dependence`` asks an estimator once for every value. It
refuses whole numbers, missing categories and polars frames, and where numbers are
missing its grid is NaN (scikit-learn 1.9). Here a model is any function of frames, it
is asked once per column, and values are taken from people of the fit, so that no column
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
    """Where effects of a column are measured.

    Args:
        column (Column): The column.
        points (list): Categories, or ascending numbers.
        holders (numpy.ndarray): A person of the fit with each; if somebody has a
            missing value, a person with that at the end.
    """

    column: Column
    points: list[Any]
    holders: Rows

    @classmethod
    def of(cls, column: Column, num_grid: int) -> "EffectGrid":
        """All values, if they are categories or few, else ``num_grid`` quantiles.

        Half of them are quantiles of people, half quantiles of the different values:
        where most people have the same value, as with capital gains, quantiles of
        people see little else.
        """
        known = np.flatnonzero(~column.missing)
        values, first, counts = np.unique(
            column.values[known], return_index=True, return_counts=True
        )
        at = np.arange(len(values))
        if column.kind != "category" and len(values) > num_grid:
            half = num_grid // 2
            people = np.linspace(0, len(known) - 1, half)
            among = np.searchsorted(counts.cumsum(), people, side="right")
            spread = np.linspace(0, len(values) - 1, num_grid - half)
            at = np.unique(np.concatenate([among, spread.round().astype(np.intp)]))
        points = list(column.categories) or values[at].tolist()
        without = np.flatnonzero(column.missing)[:1]
        return cls(column, points, np.concatenate([known[first[at]], without]))


@dataclass(frozen=True)
class Inquiry:
    """What a model is asked about one column, and what the answers mean.

    Args:
        grid (EffectGrid): The column, and where its effects are measured.
        people (numpy.ndarray): People whose other columns are taken.
        holders (numpy.ndarray): People whose value of the column is taken.
        reduce (callable): From the effects of these, :math:`(M, C)`, to those of the
            points of the grid, :math:`(P, C)`.
    """

    grid: EffectGrid
    people: Rows
    holders: Rows
    reduce: Callable[[Effects], Effects]


def partial_dependence(grid: EffectGrid, background: Rows) -> Inquiry:
    """The mean over the background with the column set to each value."""
    shape = len(grid.holders), len(background)

    def reduce(effects: Effects) -> Effects:
        out: Effects = effects.reshape(*shape, -1).mean(axis=1)
        return out

    people = np.tile(background, shape[0])
    return Inquiry(grid, people, np.repeat(grid.holders, shape[1]), reduce)


def accumulated_local_effects(
    grid: EffectGrid,
    others: Sequence[Column],
    num_people: int,
    random: np.random.RandomState,
) -> Inquiry:
    r"""Mean differences between neighbouring values, summed up.

    `Apley and Zhu, 2020 <https://arxiv.org/abs/1612.08468>`_: nobody is given a value
    far from their own, so that correlated columns make no impossible people.

    A step from one number to the next is taken by the people between the two.
    Categories are put into the paper's order, next to those whose people are alike in
    the ``others``, and a step is taken by the people who have either; missing ones
    count as a category. The step to a missing number starts at the point next to the
    median and is taken by the people who miss it.

    Args:
        grid (EffectGrid): The values.
        others (sequence of Column): The other columns, for the order of categories.
        num_people (int): How many are asked about a step, of those who can be.
        random (RandomState): Which of them.
    """
    column, holders = grid.column, grid.holders
    if column.kind == "category":
        # Missing ones as one more category.
        codes = np.where(column.missing, len(grid.points), column.values)
        order = _by_similarity(codes.astype(np.intp), len(holders), others)
        place = order.argsort()[codes.astype(np.intp)]
        steps = [(order[k - 1], order[k]) for k in range(1, len(order))]
        takers = [
            np.flatnonzero((place == k - 1) | (place == k))
            for k in range(1, len(order))
        ]
    else:
        last = len(grid.points) - 1
        between = np.searchsorted(grid.points, column.values).clip(1, max(last, 1))
        between[column.missing] = -1
        steps = [(k - 1, k) for k in range(1, last + 1)]
        takers = [np.flatnonzero(between == k) for k in range(1, last + 1)]
        if column.missing.any():
            median = np.nanmedian(column.values)
            nearest = int(np.abs(np.array(grid.points) - median).argmin())
            steps.append((nearest, last + 1))
            takers.append(np.flatnonzero(column.missing))
    if not steps:  # of the only value to itself
        steps, takers = [(0, 0)], [holders[:1]]
    takers = [
        random.permutation(one)[:num_people] if len(one) > num_people else one
        for one in takers
    ]
    sizes = [len(one) for one in takers]
    low, high = (
        np.repeat(holders[list(end)], sizes) for end in zip(*steps, strict=True)
    )
    people = np.concatenate(takers)

    def reduce(effects: Effects) -> Effects:
        differences = effects[len(people) :] - effects[: len(people)]
        out = np.zeros((len(holders), effects.shape[1]))
        parts = np.split(differences, np.cumsum(sizes)[:-1])
        for (start, end), part in zip(steps, parts, strict=True):
            out[end] = out[start] + part.mean(axis=0)
        return out

    return Inquiry(grid, np.tile(people, 2), np.concatenate([low, high]), reduce)


def _by_similarity(codes: Rows, num_codes: int, others: Sequence[Column]) -> Rows:
    """Categories in an order in which neighbours have similar people.

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
    centred = total**2
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None]
    _, axes = np.linalg.eigh(-0.5 * (centred + (total**2).mean()))
    return axes[:, -1].argsort(kind="stable")
