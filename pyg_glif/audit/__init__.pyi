from .audit import AuditData, audit
from .audit_report import (
    AuditReport,
    GroupTreatment,
    IntervalEstimate,
    ListedPair,
    ListedSample,
    Lists,
    Measure,
    Verdict,
)
from .measures import Bootstrap

__all__ = [
    "AuditData",
    "AuditReport",
    "Bootstrap",
    "GroupTreatment",
    "IntervalEstimate",
    "ListedPair",
    "ListedSample",
    "Lists",
    "Measure",
    "Verdict",
    "audit",
]
