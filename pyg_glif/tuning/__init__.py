"""Chooses radius and strength."""

from pyg_glif.tuning.guarantee import Guarantee, RiskControl, RiskTest
from pyg_glif.tuning.result import TunePoint, TuneResult
from pyg_glif.tuning.tune import tune

__all__ = ["Guarantee", "RiskControl", "RiskTest", "TunePoint", "TuneResult", "tune"]
