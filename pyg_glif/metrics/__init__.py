"""Fairness metrics: functions, and :class:`torchmetrics.Metric` classes over them."""

from pyg_glif.metrics.bootstrap import Interval, bootstrap_interval
from pyg_glif.metrics.group_gap import GroupGap, group_gap
from pyg_glif.metrics.group_std import GroupStd, group_std
from pyg_glif.metrics.knn_consistency import (
    KNNConsistency,
    knn_consistency,
    knn_deviation,
)
from pyg_glif.metrics.laplacian_energy import LaplacianEnergy, laplacian_energy
from pyg_glif.metrics.lipschitz_violations import (
    LipschitzViolations,
    Violations,
    lipschitz_violations,
)
from pyg_glif.metrics.local_lipschitz import (
    LipschitzRatios,
    LocalLipschitz,
    local_lipschitz,
)
from pyg_glif.metrics.prediction_consistency import (
    PredictionConsistency,
    prediction_consistency,
)

__all__ = [
    "GroupGap",
    "GroupStd",
    "Interval",
    "KNNConsistency",
    "LaplacianEnergy",
    "LipschitzRatios",
    "LipschitzViolations",
    "LocalLipschitz",
    "PredictionConsistency",
    "Violations",
    "bootstrap_interval",
    "group_gap",
    "group_std",
    "knn_consistency",
    "knn_deviation",
    "laplacian_energy",
    "lipschitz_violations",
    "local_lipschitz",
    "prediction_consistency",
]
