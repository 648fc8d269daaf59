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
    effect: Predict, people: pd.DataFrame, column: str, values: Sequence[Any]
) -> np.ndarray:
    """The mean effect over people who all have the same value, for each value."""
    out = []
    for value in values:
        changed = people.copy()
        changed[column] = pd.Series([value] * len(people), index=people.index).astype(
            people[column].dtype
        )
        out.append(np.asarray(effect(changed)).mean(axis=0))
    return np.array(out)


def local_effects(
    effect: Predict, people: pd.DataFrame, column: str, edges: Sequence[float]
) -> np.ndarray:
    """Accumulated local effects of a number at the edges of bins, from 0."""
    out = [0.0]
    for k in range(1, len(edges)):
        total, count = 0.0, 0
        for _, person in people.iterrows():
            first = k == 1 and person[column] == edges[0]
            if not (edges[k - 1] < person[column] <= edges[k] or first):
                continue
            low, high = (person.to_frame().T.infer_objects() for _ in range(2))
            low[column], high[column] = edges[k - 1], edges[k]
            total += float(effect(high)[0] - effect(low)[0])
            count += 1
        out.append(out[-1] + total / count)
    return np.array(out)


def chain_effects(
    effect: Predict, people: pd.DataFrame, column: str, order: Sequence[Any]
) -> np.ndarray:
    """Accumulated local effects of categories in a given order, from 0."""
    out = [0.0]
    for before, after in itertools.pairwise(order):
        either = people[people[column].isin([before, after])]
        steps = partial_dependence(effect, either, column, [before, after])
        out.append(out[-1] + steps[1] - steps[0])
    return np.array(out)
