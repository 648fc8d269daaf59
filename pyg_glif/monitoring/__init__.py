"""Monitoring of disparities and of drift after deployment."""

from pyg_glif.monitoring.drift import DriftReference
from pyg_glif.monitoring.treatment_monitor import TreatmentMonitor

__all__ = ["DriftReference", "TreatmentMonitor"]
