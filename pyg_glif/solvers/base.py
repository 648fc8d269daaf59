"""What all solvers share: the system, the certified result, the wording of failure."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._pattern import Pattern
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.laplacian import LaplacianOperator

_EPS = torch.finfo(torch.float64).eps


class SolveStatus(Enum):
    """How a solve ended; the value is a sentence, with a remedy where one is due."""

    CONVERGED = "Every column meets the tolerance."
    EPOCHS_DONE = "The requested epochs are done; 'residual' says how far they led."
    MAX_ITER = "The iteration limit was reached first. Raise 'max_iter'"
    STAGNATED = (
        "The residual stopped falling: float64 allows no more for this 'lam' and these "
        "degrees. Raise 'rtol'"
    )
    INDEFINITE = (
        "I + lam L has a negative eigenvalue, so the objective has no minimum. "
        "Use a smaller 'lam' or normalization=\"density\""
    )

    @property
    def is_failure(self) -> bool:
        """Whether a solver that may raise does so."""
        return self not in (SolveStatus.CONVERGED, SolveStatus.EPOCHS_DONE)


@dataclass(frozen=True, eq=False)
class Solution:
    r"""Result of a solve, with the evidence for it.

    Args:
        value (Tensor): The solution, in the type of the right-hand side.
        status (SolveStatus): How the solve ended.
        num_iter (int): Iterations (sparse products), epochs or factorisations spent.
        residual (Tensor): Norm of :math:`\hat y - (\mathbf{I} + \lambda \mathbf{L}) f`
            per column, recomputed in float64 before ``value`` is rounded to float32.
        error_bound (Tensor): Bound on :math:`\|f - f^*\|` per column: residual over the
            smallest eigenvalue (at least one for a PSD Laplacian), plus all rounding.
            Infinite if the system is not positive definite. For ``"nrw"`` it rests on
            an estimated eigenvalue.
        solver (str): The solver that did the work. (default: :obj:`""`)
    """

    value: Tensor
    status: SolveStatus
    num_iter: int
    residual: Tensor  # [C] float64
    error_bound: Tensor  # [C] float64
    solver: str = ""

    def __repr__(self) -> str:
        worst = float(self.residual.max()) if self.residual.numel() else 0.0
        bound = float(self.error_bound.max()) if self.error_bound.numel() else 0.0
        return (
            f"Solution(status={self.status.name}, num_iter={self.num_iter}, "
            f"residual={worst:.1e}, error_bound={bound:.1e}, solver={self.solver})"
        )


@dataclass(frozen=True, eq=False)
class System:
    r"""The system :math:`(\mathrm{diag}(s) - \mathbf{T}) f = y` of one smoothing step.

    With ``lam`` times its scale :math:`\mu`, :math:`s = 1 + \mu a` and
    :math:`t = \mu v` (:mod:`pyg_glif.laplacian`), both in float64: in float32 the one
    is lost from about :math:`\lambda d = 10^7`.
    """

    op: LaplacianOperator
    diagonal: Tensor  # [N]
    off_diagonal: Tensor  # [E]
    lam: float

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return self.op.num_nodes

    @property
    def pattern(self) -> Pattern:
        """Where the off-diagonal entries are."""
        return self.op.pattern

    def matmul(self, x: Tensor) -> Tensor:  # [N, C] float64
        """Product with a block of columns."""
        out = self.diagonal.unsqueeze(1) * x
        if self.pattern.num_edges and x.numel():
            out.addmm_(self.pattern.csr(self.off_diagonal), x, alpha=-1.0)
        return out

    def smallest_eigenvalue(self) -> float:
        """A lower bound: rigorous for PSD Laplacians, estimated for ``"nrw"``."""
        if self.op.is_psd:
            return 1.0
        gap = self.diagonal - self.pattern.row_sum(self.off_diagonal)  # Gershgorin
        disc = float(gap.min()) if self.num_nodes else 1.0
        return disc if disc > 0 else 1.0 + self.lam * self.op.scaled_eigenvalue[0]

    def indefinite_reason(self) -> str:
        """Names the largest safe ``lam``."""
        low, _ = self.op.scaled_eigenvalue
        safe = f"{-1.0 / low:.3g}" if low < 0 else "inf"
        return (
            f"I + lam L is not positive definite at lam = {self.lam:g} with "
            f"normalization={self.op.normalization!r}, so the objective has no "
            f"minimum. Use 'lam' below {safe} or normalization=\"density\""
        )


class Attempt(NamedTuple):
    """What a solver hands to certification."""

    value: Tensor  # [N, C] float64
    status: SolveStatus
    num_iter: int


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """Base of all solvers: small immutable objects named after their algorithm.

    A subclass implements :meth:`attempt`; :meth:`solve` recomputes the residual from
    its definition, bounds the error and raises on failure.

    Args:
        throw (bool): Whether failure raises :class:`~pyg_glif.errors.ConvergenceError`
            or only warns. (default: :obj:`True`)
    """

    throw: bool = True

    @abstractmethod
    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Solves in float64, with the status this solver believes in."""

    def saddle(self, system: System, rhs: Tensor) -> Tensor:
        """What to return, beside an error, where there is no minimum: NaN."""
        return torch.full_like(rhs, torch.nan)

    def choose(self, system: System) -> "Solver":
        """The solver that does the work, which is this one unless it delegates."""
        return self

    def limits(self, rhs: Tensor) -> Tensor | None:  # [N, C] -> [C]
        """Residual norm that each column must meet, if there is one."""
        return None

    @torch.no_grad()
    def solve(self, system: System, rhs: Tensor, x0: Tensor | None = None) -> Solution:
        """Solves for every column of ``rhs`` ``[N, C]``, and certifies the result."""
        solver = self.choose(system)
        y = rhs.double()
        smallest = system.smallest_eigenvalue()
        if smallest > 0:
            start = None if x0 is None else x0.double()
            value, status, num_iter = solver.attempt(system, y, start)
        else:
            value, num_iter = solver.saddle(system, y), 0
            status = SolveStatus.INDEFINITE
        residual = torch.linalg.vector_norm(y - system.matmul(value), dim=0)
        limit = solver.limits(y)
        missed = limit is not None and not bool((residual <= limit).all())
        if status is SolveStatus.CONVERGED and missed:
            status = SolveStatus.STAGNATED
        rounded = value.to(rhs.dtype)
        bound = _error_bound(system, value, rounded, residual, smallest)
        solution = Solution(rounded, status, num_iter, residual, bound, repr(solver))
        if status.is_failure:
            solver._complain(solution, system, y)
        return solution

    def _complain(self, solution: Solution, system: System, rhs: Tensor) -> None:
        """Raises, or warns if that is what the user asked for."""
        name = type(self).__name__
        if solution.status is SolveStatus.INDEFINITE:
            msg = f"{name}: {system.indefinite_reason()}"
        else:
            scale = torch.linalg.vector_norm(rhs, dim=0)
            relative = (solution.residual / scale).nan_to_num_(0.0)  # zero columns
            column = int(relative.argmax())
            msg = (
                f"{name} stopped after {solution.num_iter} iterations: worst relative "
                f"residual {relative[column]:.1e} in column {column} of {rhs.size(1)}, "
                f"{self._tolerance()}. {solution.status.value}"
            )
        if self.throw:
            raise ConvergenceError(msg)
        warnings.warn(msg, ConvergenceWarning, stacklevel=4)

    def _tolerance(self) -> str:
        """The tolerance in words."""
        return f"'rtol' is {getattr(self, 'rtol', None)}"


def _error_bound(
    system: System, value: Tensor, rounded: Tensor, residual: Tensor, smallest: float
) -> Tensor:  # [C]
    """Residual over the smallest eigenvalue, plus rounding of all that was computed."""
    if smallest <= 0:
        return torch.full_like(residual, torch.inf)
    # The two products and the difference in the residual round by a few units each.
    magnitude = (2.0 * system.diagonal.unsqueeze(1) * value).abs_()
    noise: Tensor = 4.0 * _EPS * torch.linalg.vector_norm(magnitude, dim=0)
    cast: Tensor = torch.linalg.vector_norm(value - rounded.double(), dim=0)
    return (residual + noise) / smallest + cast
