"""Graph Laplacian individual fairness for PyTorch Geometric."""

from importlib.metadata import version

from pyg_glif.functional import glif_smooth, laplacian_penalty
from pyg_glif.graph import edge_weights, fair_radius_graph, suggest_tau
from pyg_glif.nn import GLIFConv, LaplacianLoss
from pyg_glif.path import glif_path
from pyg_glif.postprocessor import GLIFPostProcessor
from pyg_glif.transforms import AnnotatorGraph, FairRadiusGraph, GLIFSmooth

__version__ = version("pyg_glif")

__all__ = [
    "AnnotatorGraph",
    "FairRadiusGraph",
    "GLIFConv",
    "GLIFPostProcessor",
    "GLIFSmooth",
    "LaplacianLoss",
    "edge_weights",
    "fair_radius_graph",
    "glif_path",
    "glif_smooth",
    "laplacian_penalty",
    "suggest_tau",
]
