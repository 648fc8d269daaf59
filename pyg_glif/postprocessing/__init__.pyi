from .glif_post_processor import GLIFPostProcessor
from .summary import FitSummary

__all__ = ["FitSummary", "GLIFPostProcessor"]
