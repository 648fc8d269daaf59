from pyg_glif.fit.fit import Fit

from .glif_post_processor import GLIFPostProcessor
from .summary import FitSummary

__all__ = ["Fit", "FitSummary", "GLIFPostProcessor"]
