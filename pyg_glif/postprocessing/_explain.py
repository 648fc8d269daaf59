"""Explanations of the output of a fitted and of a new sample."""

import operator
from typing import Any

import torch

from pyg_glif._utils.validation import check_count
from pyg_glif.explain.explanation import Explanation
from pyg_glif.explain.facts import Subject, explained, features_of, stochastic
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.fit.fit import Fit
from pyg_glif.fit.queries import (
    read_features,
    read_groups,
    read_outputs,
    read_std,
)
from pyg_glif.fit.transform_info import (
    beside,
    inductive_step,
    inverse_row,
    inverse_row_of_new,
    own_weight,
)


def explain_fitted(fit: Fit, i: int | str, top: int | None) -> Explanation:
    """Contributions to the output of a fitted sample, by number or id."""
    if isinstance(i, str):
        i = int(fit.sample_info.rows_of(i, len(fit.x))[0])
    i = check_count("i", operator.index(i), minimum=0, below=len(fit.x))
    if top is not None:
        check_count("top", top)
    weight, bound = stochastic(inverse_row(fit, i), 0.0, fit.lap.is_psd)
    ptr, features = fit.lap.pattern.rowptr, features_of(fit)
    row = slice(i, i + 1)
    subject = Subject(
        fit.x[row],
        i,
        fit.graph.edge_index[1, int(ptr[i]) : int(ptr[i + 1])],
        fit.y_hat[row],
        fit.y_fair[row],
        None if features is None else features.select(torch.tensor([i])),
    )
    return explained(fit, subject, weight, 0.0, bound, top)


def explain_query(
    fit: Fit,
    x_new: Any,
    top: int | None,
    y_hat_new: Any,
    features: Any,
    *,
    y_std: Any,
    groups: Any,
) -> Explanation:
    """Contributions to the output of one new sample, from one search."""
    x = read_features(fit, x_new)
    if len(x) != 1:
        raise ValueError(f"'x_new' must have one row (got {len(x)})")
    if top is not None:
        check_count("top", top)
    own = own_weight(fit, read_std(fit, y_std, x), 1)
    lap = beside(fit, x, read_groups(fit, groups, x))
    total = own + fit.mu * lap.diagonal
    share = float(own / total)
    rows = inverse_row_of_new(fit, lap, total)
    weight, bound = stochastic(rows, share, fit.lap.is_psd)
    before = after = None
    if y_hat_new is not None:
        before = read_outputs(fit, y_hat_new, x).value
        after = inductive_step(fit, lap, before, own)[0]
    known, described = features_of(fit), None
    if features is not None and known is not None:
        described = known.read(features)
    elif known is not None and fit.sample_info.features is None:
        described = DisplayFeatures.of_numbers(known.names, x.cpu())
    subject = Subject(x, None, lap.tied, before, after, described)
    return explained(fit, subject, weight, share, bound, top)
