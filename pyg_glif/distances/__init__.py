"""Fair distances between samples."""

from pyg_glif.distances.base import FairDistance
from pyg_glif.distances.callable_distance import CallableDistance
from pyg_glif.distances.euclidean import Euclidean
from pyg_glif.distances.mahalanobis import Mahalanobis
from pyg_glif.distances.sensitive_subspace import SensitiveSubspace
from pyg_glif.distances.task_distance import TaskDistance

__all__ = [
    "CallableDistance",
    "Euclidean",
    "FairDistance",
    "Mahalanobis",
    "SensitiveSubspace",
    "TaskDistance",
]
