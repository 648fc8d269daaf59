from .bootstrap import Interval, bootstrap_interval
from .group_gap import GroupGap, group_gap
from .group_std import GroupStd, group_std
from .knn_consistency import (
    KNNConsistency,
    knn_consistency,
    knn_deviation,
)
from .laplacian_energy import LaplacianEnergy, laplacian_energy
from .lipschitz_violations import (
    LipschitzViolations,
    Violations,
    lipschitz_violations,
)
from .local_lipschitz import (
    LipschitzRatios,
    LocalLipschitz,
    local_lipschitz,
)
from .prediction_consistency import (
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
