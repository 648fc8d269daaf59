from ._fitted import TransformInfo
from ._measures import Bootstrap
from .audit import audit
from .explanation import Explanation
from .glif_post_processor import GLIFPostProcessor
from .report import (
    AuditReport,
    Estimate,
    GroupTreatment,
    Lists,
    Measure,
    Pair,
    Person,
    Verdict,
)
from .summary import FitSummary

__all__ = [
    "AuditReport",
    "Bootstrap",
    "Estimate",
    "Explanation",
    "FitSummary",
    "GLIFPostProcessor",
    "GroupTreatment",
    "Lists",
    "Measure",
    "Pair",
    "Person",
    "TransformInfo",
    "Verdict",
    "audit",
]
