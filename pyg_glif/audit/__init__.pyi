from .audit import AuditContext, audit
from .audit_report import (
    AuditReport,
    Estimate,
    GroupTreatment,
    Lists,
    Measure,
    Pair,
    Person,
    Verdict,
)
from .measures import Bootstrap

__all__ = [
    "AuditContext",
    "AuditReport",
    "Bootstrap",
    "Estimate",
    "GroupTreatment",
    "Lists",
    "Measure",
    "Pair",
    "Person",
    "Verdict",
    "audit",
]
