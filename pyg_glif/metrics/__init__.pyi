from .bootstrap import Interval, bootstrap_interval
from .groups import group_gap, group_std, prediction_consistency
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
