"""Methods built on smoothing: paths, balanced groups, worst case, standard errors."""

from pyg_glif.methods.group_balance import Definition, smooth_balanced
from pyg_glif.methods.path import PathPoint, glif_path
from pyg_glif.methods.smoothing_std import Noise, Uncertainty, smoothing_std
from pyg_glif.methods.worst_case import smooth_worst_case

__all__ = [
    "Definition",
    "Noise",
    "PathPoint",
    "Uncertainty",
    "glif_path",
    "smooth_balanced",
    "smooth_worst_case",
    "smoothing_std",
]
