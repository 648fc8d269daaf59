"""Similarity graphs: exact neighbor searches, edge weights, annotators."""

from pyg_glif.graph.annotators import annotator_graph
from pyg_glif.graph.index import KNNIndex, RadiusIndex
from pyg_glif.graph.knn import fair_knn_graph
from pyg_glif.graph.radius import fair_radius_graph
from pyg_glif.graph.similarity_graph import SimilarityGraph
from pyg_glif.graph.structural import structural_similarity
from pyg_glif.graph.suggest import suggest_tau
from pyg_glif.graph.weights import (
    decay_of,
    edge_sq_dist,
    edge_weights,
    local_weights,
)

__all__ = [
    "KNNIndex",
    "RadiusIndex",
    "SimilarityGraph",
    "annotator_graph",
    "decay_of",
    "edge_sq_dist",
    "edge_weights",
    "fair_knn_graph",
    "fair_radius_graph",
    "local_weights",
    "structural_similarity",
    "suggest_tau",
]
