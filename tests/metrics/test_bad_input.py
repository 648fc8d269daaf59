"""Messages for input that no metric takes."""

import re

import pytest
import torch
from torch import tensor

from pyg_glif.metrics import (
    LaplacianEnergy,
    LocalLipschitz,
    PredictionConsistency,
    bootstrap_interval,
    group_disparity,
    group_gap,
    group_std,
    knn_consistency,
    laplacian_energy,
    lipschitz_violations,
    local_lipschitz,
    prediction_consistency,
    ranking_err,
    ranking_ndcg,
)

NAN, NONE = torch.nan, torch.empty(0, dtype=torch.long)
X, Y, PAIR = torch.zeros(3, 2), torch.zeros(3), tensor([[0, 1], [1, 0]])

OF_OUTPUTS = {
    "gap": lambda y: group_gap(y, torch.arange(len(y))),
    "std": lambda y: group_std(y, torch.zeros(len(y), dtype=torch.long)),
    "knn": lambda y: knn_consistency(X[: len(y)], y, 1),
    "violations": lambda y: lipschitz_violations(X[: len(y)], y, 1.0),
    "ratios": lambda y: local_lipschitz(y, PAIR, torch.ones(2)),
    "energy": lambda y: laplacian_energy(y, PAIR),
    "disparity": lambda y: group_disparity(y, PAIR, torch.arange(len(y))),
    "ndcg": lambda y: ranking_ndcg(y, X[: len(y)], k=1),
}


@pytest.mark.parametrize("name", OF_OUTPUTS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.ones(0), "'y' must not be empty (got shape (0,))"),
        (torch.ones(2, 0), "'y' must not be empty (got shape (2, 0))"),
        (tensor([0.0, NAN]), "'y' must be finite (got nan at index 1, 1 such values)"),
        (tensor([1j, 0]), "'y' must hold real numbers (got torch.complex64)"),
        (
            torch.ones(2, 1, 1),
            "'y' must be 1-dimensional or 2-dimensional (got shape (2, 1, 1))",
        ),
    ],
)
def test_bad_outputs_are_refused(name: str, y: torch.Tensor, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        OF_OUTPUTS[name](y)
    assert str(caught.value) == message


def gap(sensitive):
    return group_gap(torch.ones(2), tensor(sensitive))


def consistency(y, group):
    return prediction_consistency(tensor(y), tensor(group))


def knn(k=1, x=X, y=Y):
    return knn_consistency(x, y, k)


def violations(x=X, y=Y, lipschitz=1.0, **options):
    return lipschitz_violations(x, y, lipschitz, **options)


def ratios(edge_index=PAIR, sq_dist=(1.0, 1.0), **options):
    return local_lipschitz(torch.zeros(2), edge_index, tensor(sq_dist), **options)


def interval(statistic=lambda rows: torch.zeros(()), num_rows=4, **options):
    return bootstrap_interval(statistic, num_rows, **options)


LONE = " must hold a group of at least 2 rows (got {} groups of one). "
LONE = f"'group'{LONE}Rows are compared with those of the same number"
COLUMNS = "'y' must have at least 2 columns, one per class (got shape (2, 1)). "
COLUMNS += "Turn single scores into labels first"

VALUES = [
    (lambda: gap([1, 1]), "'sensitive' must take at least two values (got [1] only)"),
    (lambda: gap([0, -1]), "'sensitive' must be non-negative (got -1)"),
    (lambda: gap([0, 1, 1]), "'sensitive' must have one entry per row (got shape (3,)"),
    (lambda: group_std(torch.ones(1)), "'y' must have at least 2 rows (got 1)"),
    (lambda: group_std(Y, tensor([0, 1, 2])), LONE.format(3)),
    (lambda: group_std(Y, tensor([[0, 1, 2]])), "'group' must have one entry per row"),
    (lambda: consistency([0, 1], [0, 1]), LONE.format(2)),
    (lambda: prediction_consistency(NONE, NONE), LONE.format(0)),
    (lambda: consistency([[0.2], [0.7]], [0, 0]), COLUMNS),
    (lambda: consistency([[1, NAN], [1, 0]], [0, 0]), "'y' must be finite (got nan at"),
    (lambda: consistency([0, -1], [0, 0]), "'y' must be non-negative (got -1)"),
    (lambda: PredictionConsistency(groups=2), "Unexpected keyword arguments: `groups`"),
    (lambda: knn(3), "'k' must be below 3 (got 3)"),
    (lambda: knn(0), "'k' must be at least 1 (got 0)"),
    (lambda: knn(y=Y[:2]), "'y' must have as many rows as 'x' (got 2 for 3)"),
    (lambda: knn(x=X * NAN), "'x' must be finite (got nan at index (0, 0), 6 such"),
    (lambda: ranking_ndcg(Y), "'x' or 'graph' must be given, and not both"),
    (lambda: ranking_ndcg(Y, X, k=3), "'k' must be below 3 (got 3)"),
    (lambda: ranking_err(Y, X, k=1, outputs="taxi"), "'outputs' must be one of"),
    (lambda: violations(X[:1], Y[:1]), "'x' must have at least 2 rows (got 1)"),
    (lambda: violations(y=Y[:2]), "'y' must have as many rows as 'x' (got 2 for 3)"),
    (lambda: violations(X * NAN), "'x' must be finite (got nan at index (0, 0), 6"),
    (lambda: violations(lipschitz=-1.0), "'lipschitz' must be non-negative (got -1.0)"),
    (lambda: violations(rtol=-1.0), "'rtol' must be non-negative (got -1.0)"),
    (lambda: violations(tile_size=0), "'tile_size' must be at least 1 (got 0)"),
    (lambda: violations(bins=[1.0]), "'bins' must hold at least 2 edges (got 1)"),
    (lambda: violations(bins=[0, 2, 1]), "'bins' must be ascending (got [0.0, 2.0, 1"),
    (lambda: violations(bins=[-1, 1]), "'bins' must be non-negative (got -1)"),
    (lambda: violations(mask=Y[0, None] + 1 == Y), "'x[mask]' must have at least 2"),
    (lambda: violations(mask=tensor([True])), "'mask' must have one entry per row"),
    (lambda: ratios(PAIR + 1), "'edge_index' must hold node indices from 0 to 1 (got"),
    (lambda: ratios(sq_dist=[1.0]), "'sq_dist' must have one entry per edge (got shap"),
    (lambda: ratios(sq_dist=[1.0, -1]), "'sq_dist' must be non-negative (got -1)"),
    (lambda: ratios(sq_dist=[1.0, NAN]), "'sq_dist' must be finite (got nan at index"),
    (lambda: ratios(quantiles=[1.5]), "'quantiles' must be between 0 and 1 (got 1.5)"),
    (lambda: ratios(num_worst=-1), "'num_worst' must be at least 0 (got -1)"),
    (lambda: LocalLipschitz(-0.1), "'quantile' must be between 0 and 1 (got -0.1)"),
    (lambda: LaplacianEnergy("rw"), "'normalization' must be one of None, 'nrw', 'den"),
    (lambda: interval(level=1.0), "'level' must be below 1.0 (got 1.0)"),
    (lambda: interval(level=0.0), "'level' must be positive (got 0.0)"),
    (lambda: interval(num_rows=0), "'num_rows' must be at least 1 (got 0)"),
    (lambda: interval(num_samples=0), "'num_samples' must be at least 1 (got 0)"),
    (lambda: interval(lambda _: tensor(NAN)), "'statistic(...)' must be finite (got"),
    (lambda: interval(cluster=NONE), "'cluster' must have one entry per row (got"),
    (lambda: interval(strata=[0, 1, 2, -1]), "'strata' must be non-negative (got -1)"),
    (
        lambda: interval(strata=Y, cluster=Y),
        "'cluster' must not be given together with",
    ),
]
TYPES = [
    (
        lambda: consistency([0.2, 0.7], [0, 0]),
        "'y' must hold whole numbers (got torch.",
    ),
    (lambda: consistency([0, 1], [0.0, 0]), "'group' must hold whole numbers (got tor"),
    (
        lambda: prediction_consistency([0.5, 1], [0, 0]),
        "'y' must hold labels (got torch",
    ),
    (lambda: knn(1.5), "'k' must be a whole number (got 1.5)"),
    (lambda: violations(mask=tensor([0, 1, 2])), "'mask' must hold truth values (got"),
    (
        lambda: violations(distance=torch.cdist),
        "'distance' must be a FairDistance (got",
    ),
    (lambda: interval(3), "'statistic' must be callable (got int)"),
    (
        lambda: interval(lambda _: 0.5),
        "'statistic(...)' must be a torch.Tensor (got flo",
    ),
]


@pytest.mark.parametrize(
    ("error", "call", "message"),
    [(ValueError, *case) for case in VALUES] + [(TypeError, *case) for case in TYPES],
)
def test_bad_input_is_refused(error, call, message) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}"):
        call()
