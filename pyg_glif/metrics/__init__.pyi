from .bootstrap import Interval, bootstrap_interval
from .group_gap import group_gap
from .group_std import group_std
from .knn_consistency import knn_consistency, knn_deviation
from .laplacian_energy import laplacian_energy
from .lipschitz_violations import Violations, lipschitz_violations
from .local_lipschitz import LipschitzRatios, local_lipschitz
from .modules import (
    GroupGap,
    GroupStd,
    KNNConsistency,
    LaplacianEnergy,
    LipschitzViolations,
    LocalLipschitz,
    PredictionConsistency,
)
from .prediction_consistency import prediction_consistency

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
