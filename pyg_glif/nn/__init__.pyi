from .glif_conv import GLIFConv
from .laplacian_loss import LaplacianLoss

__all__ = ["GLIFConv", "LaplacianLoss"]
