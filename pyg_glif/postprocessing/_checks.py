"""Signs that who counts as similar is not what was meant, said as warnings."""

import math
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.target_names import outcome_like
from pyg_glif._utils.warn import warn_caller
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.errors import SimilarityWarning

# Below so many people there is nothing to conclude from shares.
_ENOUGH_PEOPLE = 20
_ENOUGH_NEWCOMERS = 10
#: Share of all pairs from which on a radius joins almost everybody.
ALMOST_ALL = 0.9
#: Ratio of the largest spread of a column to the smallest that is no accident.
UNEVEN = 100.0
# Arrays wider than this are embeddings rather than tables.
_TABLE_WIDTH = 64


def doubt_features(
    x: Tensor, names: tuple[Any, ...] | None, distance: FairDistance | None
) -> None:
    """Warns about columns of a table that should not be compared as they are."""
    if names is not None:
        outcomes = [
            name
            for at, name in enumerate(names)
            if outcome_like(name) and bool(((x[:, at] == 0) | (x[:, at] == 1)).all())
        ]
        if outcomes:
            listed = ", ".join(repr(name) for name in outcomes)
            _warn(
                f"'x' has columns of 0 and 1 named like an outcome ({listed}), and "
                "they say who is similar. Leave them out of 'x'"
            )
    plain = distance is None or type(distance) is Euclidean
    is_table = names is not None or x.size(1) <= _TABLE_WIDTH
    if not plain or not is_table or len(x) < _ENOUGH_PEOPLE:
        return
    spread, counts = _spread(x)
    if names is None and not bool(counts.any()):
        return  # coordinates rather than a table
    varying = (spread > 0.0).nonzero().flatten()  # constant columns have no say
    if varying.numel() < 2:
        return
    low, high = varying[spread[varying].argmin()], varying[spread[varying].argmax()]
    ratio = float(spread[high] / spread[low])
    if ratio > UNEVEN:
        label = list(range(x.size(1))) if names is None else list(map(repr, names))
        _warn(
            f"Nothing was standardised: column {label[high]} of 'x' spreads "
            f"{ratio:.3g} times as far as column {label[low]}, which has next to no "
            "say in who is similar. Divide columns by their standard deviation, or use "
            "'pyg_glif.tables.FairTable'"
        )


def doubt_graph(share: float, num_people: int, tau: float, k: int | None) -> None:
    """Warns if everybody is made the same; an infinite radius was asked to do so."""
    if share < ALMOST_ALL or num_people < _ENOUGH_PEOPLE:
        return
    if k is None and math.isinf(tau):
        return
    rule, remedy = f"'tau' = {tau:.4g}", "'tau' or 'target_degree', or 'k'"
    if k is not None:
        rule, remedy = f"'k' = {k}", "'k'"
    _warn(
        f"{rule} joins {share:.1%} of all pairs: almost everybody is similar to almost "
        f"everybody, and outputs move towards one mean. Use a smaller {remedy}"
    )


def doubt_newcomers(num_isolated: int, num: int) -> None:
    """Warns if most newcomers are like nobody who was fitted."""
    if num >= _ENOUGH_NEWCOMERS and 2 * num_isolated > num:
        _warn(
            f"{num_isolated} of {num} newcomers have no neighbour among the fitted "
            "people and keep their outputs. Fit on people like them, or use a larger "
            "'tau' or 'k'"
        )


def _spread(x: Tensor) -> tuple[Tensor, Tensor]:  # [N, F] -> [F], [F]
    """Spread of the columns, and which of them count something.

    The spread is the standard deviation, and for columns of two values half their
    difference: a rare 1 among zeros is rare, not small.
    """
    x = x.double()
    low, high = x.amin(0), x.amax(0)
    two = ((x == low) | (x == high)).all(0)
    spread = torch.where(two, (high - low) / 2.0, x.std(0))
    return spread, (x == x.round()).all(0) & ~two


def _warn(message: str) -> None:
    """Warns whoever called the method of the post-processor."""
    warn_caller(message, SimilarityWarning)
