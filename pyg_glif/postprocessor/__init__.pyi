from .audit import audit
from .explanation import Explanation
from .fitted import TransformInfo
from .glif_post_processor import GLIFPostProcessor
from .report import AuditReport, Estimate, Measure, Pair, Person

__all__ = [
    "AuditReport",
    "Estimate",
    "Explanation",
    "GLIFPostProcessor",
    "Measure",
    "Pair",
    "Person",
    "TransformInfo",
    "audit",
]
