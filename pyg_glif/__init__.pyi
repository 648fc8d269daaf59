# Every public part, so that 'import pyg_glif' gives access to all of them.
from . import (
    baselines as baselines,
    cli as cli,
    datasets as datasets,
    distances as distances,
    distributed as distributed,
    errors as errors,
    functional as functional,
    graph as graph,
    kinds as kinds,
    laplacian as laplacian,
    lightning as lightning,
    links as links,
    metric_learning as metric_learning,
    metrics as metrics,
    monitoring as monitoring,
    nn as nn,
    pages as pages,
    path as path,
    postprocessor as postprocessor,
    serve as serve,
    sklearn as sklearn,
    solvers as solvers,
    tables as tables,
    transforms as transforms,
    tuning as tuning,
    typing as typing,
)
from .functional import glif_smooth, glif_worst_case, laplacian_penalty
from .graph import edge_weights, fair_knn_graph, fair_radius_graph, suggest_tau
from .nn import GLIFConv, LaplacianLoss
from .path import glif_path
from .postprocessor import GLIFPostProcessor
from .transforms import AnnotatorGraph, FairKNNGraph, FairRadiusGraph, GLIFSmooth
from .tuning import tune

__version__: str

__all__ = [
    "AnnotatorGraph",
    "FairKNNGraph",
    "FairRadiusGraph",
    "GLIFConv",
    "GLIFPostProcessor",
    "GLIFSmooth",
    "LaplacianLoss",
    "edge_weights",
    "fair_knn_graph",
    "fair_radius_graph",
    "glif_path",
    "glif_smooth",
    "glif_worst_case",
    "laplacian_penalty",
    "suggest_tau",
    "tune",
]
