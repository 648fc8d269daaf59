"""Methods built on smoothing: paths over settings."""

from pyg_glif.methods.path import PathPoint, glif_path

__all__ = ["PathPoint", "glif_path"]
