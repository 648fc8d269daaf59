"""Effects of columns, one question at a time, from their definitions."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

Predict = Callable[[pd.DataFrame], np.ndarray]


def log_odds(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))


def partial_dependence(
    effect: Predict, rows: pd.DataFrame, column: str, values: Sequence[Any]
) -> np.ndarray:
    """The mean effect over rows that all have the same value, for each value."""
    out = []
    for value in values:
        changed = rows.copy()
        changed[column] = pd.Series([value] * len(rows), index=rows.index).astype(
            rows[column].dtype
        )
        out.append(np.asarray(effect(changed)).mean(axis=0))
    return np.array(out)


def local_effects(
    effect: Predict, rows: pd.DataFrame, column: str, edges: Sequence[float]
) -> np.ndarray:
    """Accumulated local effects of a number at the edges of bins, from 0."""
    out = [0.0]
    for k in range(1, len(edges)):
        total, count = 0.0, 0
        for _, row in rows.iterrows():
            first = k == 1 and row[column] == edges[0]
            if not (edges[k - 1] < row[column] <= edges[k] or first):
                continue
            low, high = (row.to_frame().T.infer_objects() for _ in range(2))
            low[column], high[column] = edges[k - 1], edges[k]
            total += float(effect(high)[0] - effect(low)[0])
            count += 1
        out.append(out[-1] + total / count)
    return np.array(out)


def chain_effects(
    effect: Predict, rows: pd.DataFrame, column: str, order: Sequence[Any]
) -> np.ndarray:
    """Accumulated local effects of categories in a given order, from 0."""
    out = [0.0]
    for before, after in itertools.pairwise(order):
        either = rows[rows[column].isin([before, after])]
        steps = partial_dependence(effect, either, column, [before, after])
        out.append(out[-1] + steps[1] - steps[0])
    return np.array(out)
