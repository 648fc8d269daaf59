"""Laws that all learners share, and input that they refuse."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, tensor

from pyg_glif.distances import CallableDistance, FairDistance
from pyg_glif.metric_learning import (
    EXPLORE,
    FACE,
    LogisticSubspace,
    SensitiveSVD,
    TaskEffect,
)

Learn = Callable[..., FairDistance]
# Each learns from features and three classes, which serve as groups and judgements.
LEARNERS: dict[str, Learn] = {
    "EXPLORE": lambda x, y, **options: EXPLORE(penalty=0.01, **options).fit(
        x[::2], x[1::2], y[::2] == y[1::2]
    ),
    "FACE": lambda x, y, **options: FACE(2, **options).fit(x, y),
    "LogisticSubspace": lambda x, y, **options: LogisticSubspace(**options).fit(x, y),
    "SensitiveSVD": lambda x, y, **options: SensitiveSVD(3, **options).fit(x),
    "SensitiveSVD, centered": lambda x, y, **options: SensitiveSVD(
        3, center=True, **options
    ).fit(x),
    "TaskEffect": lambda x, y, **options: TaskEffect(**options).fit(x, y),
    "TaskEffect, regression": lambda x, y, **options: TaskEffect(
        task="regression", **options
    ).fit(x, y),
}
OPTIONS = {
    EXPLORE(): "penalty=0.0, rtol=1e-05, max_iter=5000, throw=True, chunk_size=1024",
    FACE(2): "num_factors=2, chunk_size=1024",
    LogisticSubspace(): "ridge=1.0, protected_columns=(), rtol=1e-06, max_iter=500, "
    "throw=True, chunk_size=1024",
    SensitiveSVD(3): "num_components=3, center=False, chunk_size=1024",
    TaskEffect(weight=0.5): "distance=None, weight=0.5, predict=None, task=None, "
    "ridge=1.0, rtol=1e-06, max_iter=500, throw=True, chunk_size=1024",
}


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=generator, dtype=torch.float64)
    x = x * torch.arange(1, 7) + 1.0
    noise = torch.randn(120, generator=generator, dtype=torch.float64)
    y = torch.bucketize(x[:, 0] + noise, torch.tensor([0.5, 1.5], dtype=torch.float64))
    return x, y


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("chunk_size", [1, 13, 119, 120, 100_000])
def test_chunk_size_does_not_matter(name: str, chunk_size: int) -> None:
    x, y = samples()
    expected = LEARNERS[name](x, y)(x, x)
    found = LEARNERS[name](x, y, chunk_size=chunk_size)(x, x)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_float32_stays_close_and_is_returned(name: str) -> None:
    x, y = samples()
    double, single = LEARNERS[name](x, y), LEARNERS[name](x.float(), y.int())
    tensors = [*single.parameters(), *single.buffers()]
    assert {value.dtype for value in tensors if value.is_floating_point()} == {
        torch.float32
    }
    torch.testing.assert_close(
        single(x.float(), x.float()).double(), double(x, x), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_gradients_are_not_followed(name: str) -> None:
    x, y = samples()
    distance = LEARNERS[name](x.requires_grad_(), y)
    tensors = [*distance.parameters(), *distance.buffers()]
    assert tensors
    assert not any(value.requires_grad for value in tensors)


@pytest.mark.parametrize("learner", OPTIONS, ids=lambda value: type(value).__name__)
def test_options_are_shown(learner: Any) -> None:
    assert str(learner) == f"{type(learner).__name__}({OPTIONS[learner]})"


# Bad input

NAN, EYE, ONES = torch.nan, torch.eye(2), torch.ones(2, 2)
X = tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 5.0], [0.0, 3.0, 1.0]])
NONE = torch.zeros(0, dtype=torch.long)
PROBABILITIES = "'predict(z)' must hold probabilities (got -2). Use task=\"regression\""


def explore(similar: Any = (0, 1), x1: Tensor = EYE, x2: Tensor = ONES) -> object:
    return EXPLORE().fit(x1, x2, tensor(similar))


def face(group: Any, x: Tensor = EYE) -> object:
    return FACE(2).fit(x, tensor(group))


def logistic(labels: Any = (0, 1, 1), x: Tensor = X, columns: Any = ()) -> object:
    return LogisticSubspace(protected_columns=columns).fit(x, tensor(labels))


def svd(v: Any) -> object:
    return SensitiveSVD(2).fit(v)


def task(y: Any = (0, 1, 1), x: Tensor = X, **options: Any) -> object:
    return TaskEffect(**options).fit(x, tensor(y))


VALUES = [
    (
        lambda: explore([1, 1]),
        "'similar' must judge at least one pair dissimilar (below",
    ),
    (
        lambda: explore([False] * 2),
        "'similar' must judge at least one pair similar (abo",
    ),
    (lambda: explore([0, 2]), "'similar' must be between 0 and 1 (got 2)"),
    (
        lambda: explore([1.0]),
        "'similar' must have one entry per pair (got shape (1,) for",
    ),
    (
        lambda: explore(x2=torch.ones(3, 2)),
        "'x2' must have one row per pair (got 3 for 2",
    ),
    (lambda: explore(x2=torch.ones(2, 3)), "'x2' must have 2 columns (got 3)"),
    (
        lambda: explore([], EYE[:0], EYE[:0]),
        "'x1' must not be empty (got shape (0, 2))",
    ),
    (lambda: explore(x2=ONES * NAN), "'x2' must be finite (got nan at index (0, 0), 4"),
    (
        lambda: explore(x2=EYE[[0, 0]]),
        "'similar' must not call identical rows dissimila",
    ),
    (lambda: EXPLORE(penalty=-1.0), "'penalty' must be non-negative (got -1.0)"),
    (lambda: EXPLORE(rtol=0.0), "'rtol' must be positive (got 0.0)"),
    (lambda: EXPLORE(max_iter=0), "'max_iter' must be at least 1 (got 0)"),
    (lambda: face([0]), "'group' must have one entry per row (got shape (1,) for 2)"),
    (lambda: face([[0], [0]]), "'group' must have one entry per row (got shape (2, 1)"),
    (
        lambda: face([4, 5]),
        "'group' must hold a group of at least 2 rows (got 2 groups",
    ),
    (
        lambda: face([0, 0], ONES),
        "'num_factors' must be at most the rank of the variatio",
    ),
    (
        lambda: face([0, 0, 1], X),
        "'num_factors' must be at most the rank of the variatio",
    ),
    (lambda: FACE(2).fit(EYE[:0], NONE), "'x' must not be empty (got shape (0, 2))"),
    (lambda: face([0, 0], EYE * NAN), "'x' must be finite (got nan at index (0, 0), 4"),
    (lambda: FACE(0), "'num_factors' must be at least 1 (got 0)"),
    (
        lambda: logistic([[0, 1]] * 3),
        "'attributes[:, 0]' must take at least two values",
    ),
    (
        lambda: logistic([0, 1]),
        "'attributes' must have one row per row of 'x' (got shape",
    ),
    (
        lambda: logistic(x=X * 0),
        "'x' must have a column that varies (got constant colum",
    ),
    (lambda: logistic([], X[:0]), "'x' must not be empty (got shape (0, 3))"),
    (
        lambda: logistic(x=X * NAN),
        "'x' must be finite (got nan at index (0, 0), 9 such",
    ),
    (
        lambda: logistic(columns=(3,)),
        "'protected_columns' must be below the number of f",
    ),
    (lambda: logistic(columns=(0, 0)), "'protected_columns' must not repeat a column"),
    (
        lambda: logistic(columns=(0, 1, 2)),
        "'protected_columns' must not name every col",
    ),
    (
        lambda: logistic([0, 1, 0], X, (1, 2)),
        "'attributes' must have a rank below the n",
    ),
    (lambda: LogisticSubspace(ridge=0.0), "'ridge' must be positive (got 0.0)"),
    (lambda: svd(EYE[:0]), "'v' must not be empty (got shape (0, 2))"),
    (lambda: svd(ONES[0]), "'v' must be 2-dimensional (got shape (2,))"),
    (lambda: svd(EYE * NAN), "'v' must be finite (got nan at index (0, 0), 4 such"),
    (
        lambda: svd(torch.ones(5, 4)),
        "'num_components' must be at most the rank of 'v', 1",
    ),
    (
        lambda: svd(torch.zeros(5, 4)),
        "'num_components' must be at most the rank of 'v',",
    ),
    (
        lambda: svd(EYE),
        "'num_components' must be below the number of features, 2 (got 2)",
    ),
    (lambda: SensitiveSVD(0), "'num_components' must be at least 1 (got 0)"),
    (lambda: SensitiveSVD(chunk_size=0), "'chunk_size' must be at least 1 (got 0)"),
    (lambda: task(weight=-0.5), "'weight' must be non-negative (got -0.5)"),
    (
        lambda: task(task="ranking"),
        "'task' must be one of None, 'classification', 'reg",
    ),
    (lambda: task(ridge=0.0), "'ridge' must be positive (got 0.0)"),
    (lambda: task([0, 1]), "'y' must have one entry per row (got shape (2,) for 3)"),
    (lambda: task([1] * 3), "'y' must take at least two values (got [1] only)"),
    (lambda: task([0.5] * 3), "'y' must take at least two values (got [0.5] only)"),
    (lambda: task(x=X * 0), "'x' must have a column that varies (got constant columns"),
    (lambda: task(x=X - 2, predict=lambda z: z[:, 0]), PROBABILITIES),
    (
        lambda: task(predict=lambda z: z[:2, 0]),
        "'head(z)' must have as many rows as 'x'",
    ),
]
TYPES = [
    (lambda: face([0.0, 0.0]), "'group' must hold whole numbers (got torch.float32)"),
    (
        lambda: logistic([0.0, 1, 2]),
        "'attributes' must hold whole numbers (got torch.f",
    ),
    (lambda: svd([["one"]]), "'v' must hold numbers (got"),
    (lambda: svd(EYE * 1j), "'v' must hold real numbers (got torch.complex64)"),
    (
        lambda: task(distance=CallableDistance(torch.cdist)),
        "'distance' must have an emb",
    ),
    (lambda: task(predict=3), "'predict' must be callable (got int)"),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [(ValueError, *case) for case in VALUES] + [(TypeError, *case) for case in TYPES],
)
def test_bad_input_is_refused(
    error: type[Exception], call: Callable[[], object], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
