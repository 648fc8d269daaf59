"""Chooses a solver by size and structure."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count
from pyg_glif.registry import register
from pyg_glif.solvers.base import Attempt, Solver
from pyg_glif.solvers.cg import CG
from pyg_glif.solvers.cholesky import Cholesky
from pyg_glif.solvers.system import System

# A component of this size is factorised faster than CG runs its first iterations.
_SMALL_COMPONENT = 128


@register
@dataclass(frozen=True, kw_only=True)
class Auto(Solver):
    r"""Factorises small components, runs conjugate gradients on everything else.

    The solution's ``solver`` names the choice.

    Args:
        rtol (float): Relative residual that every column must meet.
            (default: :obj:`1e-6`)
        max_iter (int, optional): Limit on iterations; see :class:`CG`.
            (default: :obj:`None`)
        throw (bool): Whether failure raises. (default: :obj:`True`)

    Example:
        >>> Auto(rtol=1e-8)
        Auto(throw=True, rtol=1e-08, max_iter=None)
    """

    rtol: float = 1e-6
    max_iter: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_iter is not None:
            check_count("max_iter", self.max_iter)

    def choose(self, system: System) -> Solver:
        """The solver for this system."""
        small = system.num_nodes <= _SMALL_COMPONENT
        # A node with that many neighbors settles it without a search for components.
        if not small and int(system.pattern.rowptr.diff().max()) < _SMALL_COMPONENT:
            small = bool(torch.max(system.op.components[1]) <= _SMALL_COMPONENT)
        if small:
            return Cholesky(rtol=self.rtol, throw=self.throw)
        return CG(rtol=self.rtol, max_iter=self.max_iter, throw=self.throw)

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Solves with the solver that :meth:`choose` picks."""
        return self.choose(system).attempt(system, rhs, x0)
