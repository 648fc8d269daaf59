from .audit import AuditContext, audit
from .audit_report import (
    AuditReport,
    Estimate,
    GroupTreatment,
    ListedPair,
    ListedSample,
    Lists,
    Measure,
    Verdict,
)
from .measures import Bootstrap

__all__ = [
    "AuditContext",
    "AuditReport",
    "Bootstrap",
    "Estimate",
    "GroupTreatment",
    "ListedPair",
    "ListedSample",
    "Lists",
    "Measure",
    "Verdict",
    "audit",
]
