# Every public part, so that 'import pyg_glif' gives access to all of them.
from . import (
    audit as audit,
    baselines as baselines,
    cli as cli,
    datasets as datasets,
    distances as distances,
    distributed as distributed,
    errors as errors,
    explain as explain,
    fit as fit,
    functional as functional,
    graph as graph,
    guarantees as guarantees,
    laplacian as laplacian,
    lightning as lightning,
    links as links,
    methods as methods,
    metric_learning as metric_learning,
    metrics as metrics,
    model_selection as model_selection,
    monitoring as monitoring,
    neighbors as neighbors,
    nn as nn,
    postprocessing as postprocessing,
    registry as registry,
    reporting as reporting,
    serve as serve,
    sklearn as sklearn,
    smoothing as smoothing,
    solvers as solvers,
    tables as tables,
    transforms as transforms,
    typing as typing,
)
from .functional import glif_smooth, glif_solve, laplacian_penalty
from .graph import edge_weights, fair_knn_graph, fair_radius_graph, suggest_tau
from .methods import glif_path
from .model_selection import tune
from .neighbors import KNearest, Radius
from .nn import GLIFConv, LaplacianLoss
from .postprocessing import GLIFPostProcessor
from .transforms import AnnotatorGraph, FairKNNGraph, FairRadiusGraph, GLIFSmooth

__version__: str

__all__ = [
    "AnnotatorGraph",
    "FairKNNGraph",
    "FairRadiusGraph",
    "GLIFConv",
    "GLIFPostProcessor",
    "GLIFSmooth",
    "KNearest",
    "LaplacianLoss",
    "Radius",
    "edge_weights",
    "fair_knn_graph",
    "fair_radius_graph",
    "glif_path",
    "glif_smooth",
    "glif_solve",
    "laplacian_penalty",
    "suggest_tau",
    "tune",
]
