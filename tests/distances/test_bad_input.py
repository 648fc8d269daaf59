"""Messages for input that no distance takes."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    Mahalanobis,
    SensitiveSubspace,
    TaskDistance,
)

NAN, EYE, ROW = torch.nan, torch.eye(2), torch.zeros(1, 2)
LINEAR = nn.Linear(5, 1)


def between(x1: Any, x2: Any = ROW) -> Tensor:
    """The same checks on both ways to a pairwise distance."""
    with pytest.raises((TypeError, ValueError)) as caught:
        CallableDistance(torch.cdist)(x1, x2)
    with pytest.raises(caught.type, match=f"^{re.escape(str(caught.value))}$"):
        Euclidean()(x1, x2)
    return Euclidean()(x1, x2)


def returned(value: Any) -> Tensor:
    return CallableDistance(lambda x1, x2: value)(torch.zeros(2, 1), torch.zeros(3, 1))


def task(head: Any = torch.sin, **options: Any) -> TaskDistance:
    return TaskDistance(**{"distance": Euclidean(), "head": head, **options})


VALUES = [
    (lambda: between(ROW, ROW[0]), "'x2' must be 2-dimensional (got shape (2,))"),
    (lambda: between(ROW, torch.zeros(1, 3)), "'x2' must have 2 columns (got 3)"),
    (
        lambda: between(ROW, ROW * NAN),
        "'x2' must be finite (got nan at index (0, 0), 2",
    ),
    (
        lambda: between(ROW + torch.inf),
        "'x1' must be finite (got inf at index (0, 0), 2",
    ),
    (lambda: Euclidean().embed(ROW[0]), "'x' must be 2-dimensional (got shape (2,))"),
    (lambda: returned(torch.zeros(3, 2)), "'function(x1, x2)' must have shape (2, 3)"),
    (
        lambda: returned(-torch.ones(2, 3)),
        "'function(x1, x2)' must be non-negative (got",
    ),
    (
        lambda: returned(torch.ones(2, 3) * NAN),
        "'function(x1, x2)' must be finite (got",
    ),
    (lambda: Mahalanobis(-EYE), "'sigma' must be positive semi-definite (got smallest"),
    (lambda: Mahalanobis(EYE.cumsum(0)), "'sigma' must be symmetric (got entries that"),
    (lambda: Mahalanobis(ROW), "'sigma' must be square (got shape (1, 2))"),
    (lambda: Mahalanobis(EYE * NAN), "'sigma' must be finite (got nan at index (0, 0)"),
    (lambda: Mahalanobis(EYE * 0), "'sigma' must not be zero (got rank 0). Every pair"),
    (lambda: Mahalanobis(EYE[:0, :0]), "'sigma' must not be empty (got shape (0, 0))"),
    (lambda: Mahalanobis(EYE, rtol=-1.0), "'rtol' must be non-negative (got -1.0)"),
    (lambda: Mahalanobis.from_factor(EYE[:, :0]), "'factor' must not be empty (got"),
    (lambda: Mahalanobis.from_factor(EYE[0]), "'factor' must be 2-dimensional (got"),
    (
        lambda: SensitiveSubspace(ROW),
        "'basis' must have a rank of at least 1 (got zero",
    ),
    (
        lambda: SensitiveSubspace(ROW[:0]),
        "'basis' must not be empty (got shape (0, 2))",
    ),
    (
        lambda: SensitiveSubspace(ROW[0]),
        "'basis' must be 2-dimensional (got shape (2,))",
    ),
    (lambda: SensitiveSubspace(ROW * NAN), "'basis' must be finite (got nan at index"),
    (
        lambda: SensitiveSubspace(EYE),
        "'basis' must have a rank below the number of fea",
    ),
    (lambda: task(weight=-1.0), "'weight' must be non-negative (got -1.0)"),
    (lambda: task(LINEAR).embed(EYE), "'x' must have 5 columns (got 2)"),
    (
        lambda: task(lambda z: z[:1]).embed(EYE),
        "'head(z)' must have as many rows as 'x'",
    ),
]
TYPES = [
    (
        lambda: between([["a"]]),
        "'x1' must hold numbers (got <U1). Encode text, categor",
    ),
    (lambda: between(ROW * 1j), "'x1' must hold real numbers (got torch.complex64)"),
    (lambda: between(ROW, ROW.double()), "'x2' must have the dtype of 'x1', torch.flo"),
    (
        lambda: returned(torch.zeros(2, 3).long()),
        "'function(x1, x2)' must be float32 or",
    ),
    (
        lambda: returned(1.0),
        "'function(x1, x2)' must be a torch.Tensor (got float). Use",
    ),
    (lambda: CallableDistance("euclidean"), "'function' must be callable (got str)"),
    (lambda: Mahalanobis(EYE * 1j), "'sigma' must hold real numbers (got torch.comple"),
    (lambda: task(distance=CallableDistance(torch.cdist)), "'distance' must have an e"),
    (lambda: task(3.0), "'head' must be callable (got float)"),
    (
        lambda: task(lambda z: z.long()).embed(EYE),
        "'head(z)' must be float32 or float64",
    ),
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
