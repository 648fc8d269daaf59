from ._fitted import TransformInfo
from ._measures import Bootstrap
from .audit import audit
from .certificate import Certificate, NearbyBound, Sensitivity
from .explanation import Contribution, Difference, Explanation
from .glif_post_processor import GLIFPostProcessor
from .peers import Peers
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
    "Certificate",
    "Contribution",
    "Difference",
    "Estimate",
    "Explanation",
    "FitSummary",
    "GLIFPostProcessor",
    "GroupTreatment",
    "Lists",
    "Measure",
    "NearbyBound",
    "Pair",
    "Peers",
    "Person",
    "Sensitivity",
    "TransformInfo",
    "Verdict",
    "audit",
]
