"""Graph Laplacian individual fairness for PyTorch Geometric."""

import lazy_loader

# Names are looked up in '__init__.pyi' and imported when they are first used.
_find, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

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


def __getattr__(name: str) -> object:
    """Finds a name; the version is looked up when it is asked for, too."""
    if name == "__version__":
        from importlib.metadata import version

        return version("pyg_glif")
    return _find(name)
