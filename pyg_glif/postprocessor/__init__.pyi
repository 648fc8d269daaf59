from ._fitted import TransformInfo
from .audit import Bootstrap, audit
from .certificate import Certificate, NearbyBound, Sensitivity
from .explanation import Explanation
from .glif_post_processor import GLIFPostProcessor
from .peers import Peers
from .report import AuditReport, Estimate, Measure, Pair, Person
from .summary import FitSummary

__all__ = [
    "AuditReport",
    "Bootstrap",
    "Certificate",
    "Estimate",
    "Explanation",
    "FitSummary",
    "GLIFPostProcessor",
    "Measure",
    "NearbyBound",
    "Pair",
    "Peers",
    "Person",
    "Sensitivity",
    "TransformInfo",
    "audit",
]
