from ._fitted import TransformInfo
from .audit import Bootstrap, audit
from .explanation import Explanation
from .glif_post_processor import GLIFPostProcessor
from .peers import Peers
from .report import AuditReport, Estimate, Measure, Pair, Person
from .summary import FitSummary

__all__ = [
    "AuditReport",
    "Bootstrap",
    "Estimate",
    "Explanation",
    "FitSummary",
    "GLIFPostProcessor",
    "Measure",
    "Pair",
    "Peers",
    "Person",
    "TransformInfo",
    "audit",
]
