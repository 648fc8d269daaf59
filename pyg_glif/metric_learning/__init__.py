"""Fair distances learned from data."""

from pyg_glif.metric_learning._base import SubspaceFit
from pyg_glif.metric_learning.explore import EXPLORE, MetricFit
from pyg_glif.metric_learning.face import FACE
from pyg_glif.metric_learning.logistic_subspace import LogisticFit, LogisticSubspace
from pyg_glif.metric_learning.sensitive_svd import SensitiveSVD
from pyg_glif.metric_learning.task_effect import LinearFit, TaskEffect

__all__ = [
    "EXPLORE",
    "FACE",
    "LinearFit",
    "LogisticFit",
    "LogisticSubspace",
    "MetricFit",
    "SensitiveSVD",
    "SubspaceFit",
    "TaskEffect",
]
