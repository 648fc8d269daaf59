from .glif_post_processor import Fit, GLIFPostProcessor
from .summary import FitSummary

__all__ = ["Fit", "FitSummary", "GLIFPostProcessor"]
