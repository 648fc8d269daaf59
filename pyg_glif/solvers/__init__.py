"""Solvers for the smoothing system, with numerical error bounds."""

from pyg_glif.solvers.auto import Auto
from pyg_glif.solvers.base import (
    AnnotatorEnergies,
    Balance,
    Solution,
    Solver,
    SolveStatus,
)
from pyg_glif.solvers.cg import CG
from pyg_glif.solvers.cholesky import Cholesky
from pyg_glif.solvers.coordinate_descent import CoordinateDescent
from pyg_glif.solvers.system import System

__all__ = [
    "CG",
    "AnnotatorEnergies",
    "Auto",
    "Balance",
    "Cholesky",
    "CoordinateDescent",
    "Solution",
    "SolveStatus",
    "Solver",
    "System",
]
