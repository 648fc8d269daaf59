"""Methods of fairlearn for groups, as baselines."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor

from pyg_glif._utils.optional import find, require

#: Why rows are missing where fairlearn is.
MISSING = (
    "ExponentiatedGradient and ThresholdOptimizer were left out: 'fairlearn' is not "
    "installed (extra 'benchmark')."
)
_FEATURE = "experiments"


def have_fairlearn() -> bool:
    """Whether fairlearn can be compared with."""
    return find("fairlearn") is not None


def exponentiated_gradient(
    model: Any,
    frame: Any,
    y: Tensor,
    group: Tensor,
    versions: Sequence[Any],
    max_iter: int,
    seed: int,
) -> Tensor:  # [N] yes and no as 1 and -1 for each version
    """Demographic parity by reductions; the same coin for all versions of a sample."""
    reductions = require("fairlearn.reductions", _FEATURE, "benchmark")
    name = "sample_weight"
    if hasattr(model, "steps"):
        name = f"{model.steps[-1][0]}__sample_weight"
    rival = reductions.ExponentiatedGradient(
        model,
        reductions.DemographicParity(),
        max_iter=max_iter,
        sample_weight_name=name,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old habits between fairlearn and pandas
        rival.fit(frame, y.numpy(), sensitive_features=group.numpy())
        told = [rival.predict(version, random_state=seed) for version in versions]
    return _signs(told)


def threshold_optimizer(
    scores: Tensor,
    y: Tensor,
    group: Tensor,
    versions: Tensor,
    groups: Tensor,
    seed: int,
) -> Tensor:
    """Thresholds per group for demographic parity; one coin for all versions.

    Args:
        scores (torch.Tensor): Probabilities of known people, ``[N]``.
        y (torch.Tensor): Their truth.
        group (torch.Tensor): Their group.
        versions (torch.Tensor): Probabilities of new people, a column for each
            version of them, ``[M, V]``.
        groups (torch.Tensor): Their group in each version, ``[M, V]``.
        seed (int): Of the coins that some people's decision depends on.
    """
    module = require("fairlearn.postprocessing", _FEATURE, "benchmark")
    rival = module.ThresholdOptimizer(
        estimator=_AsTheyAre(), prefit=True, predict_method="predict_proba"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rival.fit(_column(scores), y.numpy(), sensitive_features=group.numpy())
        told = [
            rival.predict(
                _column(versions[:, k]),
                sensitive_features=groups[:, k].numpy(),
                random_state=seed,
            )
            for k in range(versions.size(1))
        ]
    return _signs(told)


class _AsTheyAre(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose only feature is the probability that it returns."""

    classes_ = np.array([0, 1])

    def fit(self, x: Any, y: Any) -> "_AsTheyAre":
        """There is nothing to learn."""
        return self

    def predict_proba(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The feature, and what is missing to one."""
        return np.hstack([1 - np.asarray(x), np.asarray(x)])


def _column(values: Tensor) -> NDArray[np.float64]:
    out: NDArray[np.float64] = values.double().unsqueeze(1).numpy()
    return out


def _signs(told: Sequence[Any]) -> Tensor:  # 0 and 1 -> -1.0 and 1.0
    columns = [torch.as_tensor(np.asarray(answer, dtype=float)) for answer in told]
    return 2 * torch.stack(columns, dim=1) - 1
