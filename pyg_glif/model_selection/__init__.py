"""Chooses radius and strength."""

from pyg_glif.model_selection.result import TunePoint, TuneResult
from pyg_glif.model_selection.risk_control import Guarantee, RiskControl, RiskTest
from pyg_glif.model_selection.tune import tune

__all__ = ["Guarantee", "RiskControl", "RiskTest", "TunePoint", "TuneResult", "tune"]
