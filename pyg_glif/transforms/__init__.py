"""Transforms that write similarity graphs and smooth over them, in ``T.Compose``."""

from pyg_glif.transforms.annotator_graph import AnnotatorGraph
from pyg_glif.transforms.fair_knn_graph import FairKNNGraph
from pyg_glif.transforms.fair_radius_graph import FairRadiusGraph
from pyg_glif.transforms.fair_subgraph import FairSubgraph
from pyg_glif.transforms.glif_smooth import GLIFSmooth

__all__ = [
    "AnnotatorGraph",
    "FairKNNGraph",
    "FairRadiusGraph",
    "FairSubgraph",
    "GLIFSmooth",
]
