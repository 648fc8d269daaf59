"""Solvers for the smoothing system, with numerical error bounds."""

from pyg_glif.solvers.auto import Auto
from pyg_glif.solvers.balance import (
    Balance,
    Definition,
    balance,
    edge_shares,
    group_energies,
    group_sizes,
)
from pyg_glif.solvers.base import Solution, Solver, SolveStatus, Uncertainty
from pyg_glif.solvers.cg import CG
from pyg_glif.solvers.cholesky import Cholesky
from pyg_glif.solvers.coordinate_descent import CoordinateDescent
from pyg_glif.solvers.disagreement import Disagreement, smooth_worst_case
from pyg_glif.solvers.implicit import smooth
from pyg_glif.solvers.multi_lam import solve_parts, solve_together
from pyg_glif.solvers.preconditioner import Jacobi
from pyg_glif.solvers.system import System
from pyg_glif.solvers.uncertainty import Noise, NoiseRoot, noise_root, own_shares

__all__ = [
    "CG",
    "Auto",
    "Balance",
    "Cholesky",
    "CoordinateDescent",
    "Definition",
    "Disagreement",
    "Jacobi",
    "Noise",
    "NoiseRoot",
    "Solution",
    "SolveStatus",
    "Solver",
    "System",
    "Uncertainty",
    "balance",
    "edge_shares",
    "group_energies",
    "group_sizes",
    "noise_root",
    "own_shares",
    "smooth",
    "smooth_worst_case",
    "solve_parts",
    "solve_together",
]
