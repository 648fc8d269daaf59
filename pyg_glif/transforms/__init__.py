"""Transforms that write similarity graphs, for use in ``T.Compose``."""

from pyg_glif.transforms.annotator_graph import AnnotatorGraph
from pyg_glif.transforms.fair_radius_graph import FairRadiusGraph

__all__ = ["AnnotatorGraph", "FairRadiusGraph"]
