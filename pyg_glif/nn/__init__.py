"""Layers and losses."""

from pyg_glif.nn.glif_conv import GLIFConv
from pyg_glif.nn.laplacian_loss import LaplacianLoss

__all__ = ["GLIFConv", "LaplacianLoss"]
