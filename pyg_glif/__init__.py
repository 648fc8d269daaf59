"""Graph Laplacian individual fairness for PyTorch Geometric."""

from importlib.metadata import version

import lazy_loader

# Names are looked up in '__init__.pyi' and imported when they are first used.
__getattr__, __dir__, _attached = lazy_loader.attach_stub(__name__, __file__)

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
