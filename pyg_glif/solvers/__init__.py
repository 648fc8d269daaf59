"""Certified solvers for the smoothing system."""

from pyg_glif.solvers.auto import Auto
from pyg_glif.solvers.balance import (
    Balance,
    Definition,
    balance,
    group_energies,
    group_sizes,
)
from pyg_glif.solvers.base import Solution, Solver, SolveStatus
from pyg_glif.solvers.cg import CG
from pyg_glif.solvers.cholesky import Cholesky
from pyg_glif.solvers.coordinate_descent import CoordinateDescent
from pyg_glif.solvers.implicit import smooth
from pyg_glif.solvers.preconditioner import Jacobi
from pyg_glif.solvers.system import System
from pyg_glif.solvers.together import solve_parts, solve_together

__all__ = [
    "CG",
    "Auto",
    "Balance",
    "Cholesky",
    "CoordinateDescent",
    "Definition",
    "Jacobi",
    "Solution",
    "SolveStatus",
    "Solver",
    "System",
    "balance",
    "group_energies",
    "group_sizes",
    "smooth",
    "solve_parts",
    "solve_together",
]
