from ._fitted import TransformInfo
from .audit import Bootstrap, audit
from .explanation import Explanation
from .glif_post_processor import GLIFPostProcessor
from .report import AuditReport, Estimate, Measure, Pair, Person

__all__ = [
    "AuditReport",
    "Bootstrap",
    "Estimate",
    "Explanation",
    "GLIFPostProcessor",
    "Measure",
    "Pair",
    "Person",
    "TransformInfo",
    "audit",
]
