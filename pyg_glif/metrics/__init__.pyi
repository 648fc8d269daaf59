from .bootstrap import Interval, bootstrap_interval
from .group_disparity import group_disparity
from .groups import group_gap, group_std, prediction_consistency
from .knn_consistency import knn_consistency, knn_deviation
from .laplacian_energy import laplacian_energy
from .lipschitz_violations import Violations, lipschitz_violations
from .local_lipschitz import LipschitzRatios, local_lipschitz
from .modules import (
    GroupDisparity,
    GroupGap,
    GroupStd,
    KNNConsistency,
    LaplacianEnergy,
    LipschitzViolations,
    LocalLipschitz,
    PredictionConsistency,
    RankingERR,
    RankingNDCG,
)
from .ranking import ranking_err, ranking_ndcg

__all__ = [
    "GroupDisparity",
    "GroupGap",
    "GroupStd",
    "Interval",
    "KNNConsistency",
    "LaplacianEnergy",
    "LipschitzRatios",
    "LipschitzViolations",
    "LocalLipschitz",
    "PredictionConsistency",
    "RankingERR",
    "RankingNDCG",
    "Violations",
    "bootstrap_interval",
    "group_disparity",
    "group_gap",
    "group_std",
    "knn_consistency",
    "knn_deviation",
    "laplacian_energy",
    "lipschitz_violations",
    "local_lipschitz",
    "prediction_consistency",
    "ranking_err",
    "ranking_ndcg",
]
