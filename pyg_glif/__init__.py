"""Graph Laplacian individual fairness for PyTorch Geometric."""

from importlib.metadata import version

from pyg_glif.graph import edge_weights, fair_radius_graph, suggest_tau

__version__ = version("pyg_glif")

__all__ = [
    "edge_weights",
    "fair_radius_graph",
    "suggest_tau",
]
