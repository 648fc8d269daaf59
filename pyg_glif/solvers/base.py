"""Base class of solvers, results with error bounds, the wording of failure."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_finite,
    check_integer,
    check_non_negative,
    check_rank,
    check_same_rows,
    check_scalar,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.registry import Registered
from pyg_glif.solvers._extended_precision import residual_of, total_bound
from pyg_glif.solvers.system import System

# Columns whose largest entry is within these powers of two are solved as they are.
_MAX_POWER = 100
# Energies that differ by less than this, relative to the smallest, are called equal.
_EVEN = 1e-3


class SolveStatus(Enum):
    """End of a solve; the value is a sentence, with a remedy where one is due."""

    CONVERGED = "Every column meets the tolerance."
    EPOCHS_DONE = "The requested epochs are done; 'residual' says how far they led."
    MAX_ITER = "The iteration limit was reached first. Raise 'max_iter'"
    STAGNATED = (
        "Rounding leaves no more to gain, or hides whether there is: float64 allows no "
        "more for this 'lam' and these degrees. Raise 'rtol'"
    )
    INDEFINITE = (
        "I + lam L has a negative eigenvalue, so the objective has no minimum. "
        "Use a smaller 'lam' or normalization=\"density\""
    )

    @property
    def is_failure(self) -> bool:
        """Whether the solve failed, on which ``throw=True`` raises."""
        return self not in (SolveStatus.CONVERGED, SolveStatus.EPOCHS_DONE)


@dataclass(frozen=True, eq=False)
class Balance:
    r"""Energies of groups, and the strengths that balance them.

    Args:
        group (Tensor): The label of each group.
        beta (Tensor): Factor of ``lam`` for each group; the mean over their sizes is 1.
        energy (Tensor): :math:`E_g`, the energy of each group over its size.
        ratio (float): Largest energy over the smallest, among groups with an edge; one
            is perfect balance, and :obj:`inf` a group with an energy of zero beside
            one that has more.
        gap (float): Duality gap; its root bounds how far, in all columns together, the
            outputs are from the balanced ones.
        num_solves (int): Systems solved on the way.

    Shapes:
        - **group**, **beta**, **energy:** :math:`(G)`
    """

    group: Tensor
    beta: Tensor
    energy: Tensor
    ratio: float
    gap: float
    num_solves: int

    def __post_init__(self) -> None:
        check_integer("group", self.group)
        for name in ("group", "beta", "energy"):
            value = getattr(self, name)
            check_rank(name, value, 1)
            check_same_rows(name, value, "group", self.group)
        for name in ("beta", "energy"):
            check_finite(name, getattr(self, name))
            check_non_negative(name, getattr(self, name))
        check_scalar("ratio", self.ratio, minimum=1.0, allow_inf=True)
        check_scalar("gap", self.gap, minimum=0.0)
        check_count("num_solves", self.num_solves, minimum=0)

    @property
    def is_balanced(self) -> bool:
        """Whether the energies agree up to 0.1%.

        If not, groups with a ``beta`` of zero have less energy than the others can
        have.
        """
        return self.ratio <= 1.0 + _EVEN

    def __repr__(self) -> str:
        pairs = zip(self.group.tolist(), self.beta.tolist(), strict=True)
        beta = ", ".join(f"{label}: {value:.4g}" for label, value in pairs)
        return f"Balance(ratio={self.ratio:.4g}, beta={{{beta}}})"


@dataclass(frozen=True, eq=False)
class AnnotatorEnergies:
    r"""Energies of outputs on the graph of each annotator.

    Args:
        weight (Tensor): The share :math:`b_a` of each annotator in the graph that was
            smoothed over; zero where the energy is below what others can have.
        energy (Tensor): :math:`E_a` of the outputs, for each annotator.
        average_energy (Tensor): The same if all annotators weigh the same.
        gap (float): Duality gap of the outputs as they are returned, in the coordinates
            in which outputs are averaged; its root bounds how far, in all columns
            together, they are from the optimal ones.
        num_solves (int): Systems solved on the way.

    Shapes:
        - **weight**, **energy**, **average_energy:** :math:`(A)`
    """

    weight: Tensor
    energy: Tensor
    average_energy: Tensor
    gap: float
    num_solves: int

    def __repr__(self) -> str:
        weight = ", ".join(f"{value:.4g}" for value in self.weight.tolist())
        worst, average = float(self.energy.max()), float(self.average_energy.max())
        return (
            f"{type(self).__name__}(worst={worst:.4g}, of_average={average:.4g}, "
            f"weight=[{weight}], gap={self.gap:.1e})"
        )


@dataclass(frozen=True, eq=False)
class Solution:
    r"""Result of a solve, with the evidence for it.

    Args:
        value (Tensor): The solution, in the type of the right-hand side.
        status (SolveStatus): How the solve ended.
        num_iter (int): Iterations (sparse products), epochs or factorisations spent.
        residual (Tensor): Norm of :math:`\hat y - (\mathbf{I} + \lambda \mathbf{L}) f`
            per column, recomputed before the solution is rounded to the type of
            ``value``. Where ``lam`` times a degree is large, the solver carries more
            digits than float64 has, and this is the residual with all of them.
        error_bound (Tensor): Bound on :math:`\|f - f^*\|` per column, :math:`f^*` being
            the exact solution for the weights and the ``lam`` given: residual over the
            smallest eigenvalue (at least one for a PSD Laplacian), plus all rounding
            on the way, that of ``value`` included (:doc:`/maths`). Infinite if the
            system is not positive definite. For ``"nrw"`` it rests on an estimated
            eigenvalue.
        solver (str): The solver that did the work. (default: :obj:`""`)
        balance (Balance, optional): Energy of each group, if these were balanced; the
            other fields are those of the last solve, for its ``beta``.
            (default: :obj:`None`)
        disagreement (AnnotatorEnergies, optional): Energy of each graph, if there are
            several. (default: :obj:`None`)
    """

    value: Tensor
    status: SolveStatus
    num_iter: int
    residual: Tensor  # [C] float64
    error_bound: Tensor  # [C] float64
    solver: str = ""
    balance: Balance | None = None
    disagreement: AnnotatorEnergies | None = None

    def to(self, dtype: torch.dtype, system: System | None = None) -> "Solution":
        """The solution in another type, the error of the conversion in its bound.

        ``system`` is needed where other processes hold some of its nodes.
        """
        if dtype == self.value.dtype:
            return self
        value = self.value.to(dtype)
        gap = self.value.detach().double() - value.detach().double()
        if system is None:
            size, error = len(gap), torch.linalg.vector_norm(gap, dim=0)
        else:
            size, error = system.num_nodes, system.norm(gap)
        # Norms of N entries are rounded N times.
        slack = 1.0 + (size + 8) * torch.finfo(torch.float64).eps
        bound = (slack * (self.error_bound + error)).nan_to_num_(
            nan=torch.inf, posinf=torch.inf
        )
        return replace(self, value=value, error_bound=bound)

    def __repr__(self) -> str:
        worst = float(self.residual.max()) if self.residual.numel() else 0.0
        bound = float(self.error_bound.max()) if self.error_bound.numel() else 0.0
        return (
            f"Solution(status={self.status.name}, num_iter={self.num_iter}, "
            f"residual={worst:.1e}, error_bound={bound:.1e}, solver={self.solver})"
        )


class Attempt(NamedTuple):
    """Result of :meth:`Solver.attempt`, before the residual is verified."""

    value: Tensor  # [N, C] float64
    status: SolveStatus
    num_iter: int
    low: Tensor | None = None  # [N, C] digits of the value beyond float64


@dataclass(frozen=True, kw_only=True)
class Solver(Registered, ABC):
    """Base of all solvers: small immutable objects named after their algorithm.

    A subclass implements :meth:`attempt`; :meth:`solve` recomputes the residual from
    its definition, bounds the error and raises on failure.

    Args:
        throw (bool): Whether failure raises :class:`~pyg_glif.errors.ConvergenceError`
            or only warns. (default: :obj:`True`)
        rtol (float, optional): Relative residual that every column must meet.
            (default: :obj:`None`, no limit)
    """

    family: ClassVar[str] = "solver"

    throw: bool = True
    rtol: float | None = None

    def __post_init__(self) -> None:
        check_choice("throw", self.throw, (True, False))
        if self.rtol is not None:
            check_scalar("rtol", self.rtol, minimum=0.0)

    @abstractmethod
    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Solves in float64; :meth:`solve` verifies the status that is returned."""

    def saddle(self, system: System, rhs: Tensor) -> Attempt:
        """Result where the objective has no minimum: NaN by default."""
        return Attempt(torch.full_like(rhs, torch.nan), SolveStatus.INDEFINITE, 0)

    def choose(self, system: System) -> "Solver":
        """The solver that does the work, which is this one unless it delegates."""
        return self

    def limits(self, norm: Tensor) -> Tensor | None:  # [C] -> [C]
        """Residual norm that each column must meet, by the norm of its outputs."""
        return None if self.rtol is None else self.rtol * norm

    @torch.no_grad()
    def solve(self, system: System, rhs: Tensor, x0: Tensor | None = None) -> Solution:
        """Solves for every column of ``rhs`` ``[N, C]``, and bounds the error."""
        solver = self.choose(system)
        y = rhs.double()
        start = None if x0 is None else x0.double()
        power = _odd_scale(y, system)
        if power is not None:
            # Powers of two change no digit. They keep squares, and so norms, in range.
            y = _times_two_to(y, -power)
            start = None if start is None else _times_two_to(start, -power)
        solution, noise = solver._certified(system, y, start)
        if solution.status.is_failure:
            solver._complain(solution, system, y, noise)
        if power is not None:
            solution = _scaled_back(solution, power, system.num_nodes)
        return solution.to(rhs.dtype, system)

    def _certified(
        self, system: System, y: Tensor, x0: Tensor | None
    ) -> tuple[Solution, Tensor]:
        """The solution with its bound, and the rounding in its residual."""
        smallest = system.smallest_eigenvalue()
        if smallest > 0:
            value, status, num_iter, low = self.attempt(system, y, x0)
            # An isolated node keeps its output to the last digit, whatever the solver
            # rounds on its way.
            isolated = system.isolated().unsqueeze(1)
            if bool(isolated.any()):
                value = torch.where(isolated, y, value)
                low = None if low is None else low.masked_fill(isolated, 0.0)
        else:
            value, status, num_iter, low = self.saddle(system, y)
        limit = self.limits(system.norm(y))
        _, norm, noise, entries = residual_of(system, y, value, low, limit)
        if status is SolveStatus.CONVERGED and limit is not None:
            # Noise above the limit could hide a residual above it.
            met = (norm <= limit) & (noise <= limit)
            if not bool(met.all()):
                status = SolveStatus.STAGNATED
        if smallest > 0:
            parts = [(norm + noise) / smallest + entries / min(smallest, 1.0)]
            if low is not None:  # 'value' is the certified point without it
                parts.append(system.norm(low))
            bound = total_bound(system, *parts).nan_to_num_(
                nan=torch.inf, posinf=torch.inf
            )
        else:
            bound = torch.full_like(norm, torch.inf)
        return Solution(value, status, num_iter, norm, bound, repr(self)), noise

    def _complain(
        self, solution: Solution, system: System, rhs: Tensor, noise: Tensor
    ) -> None:
        """Raises, or warns if that is what the user asked for."""
        name = type(self).__name__
        if solution.status is SolveStatus.INDEFINITE:
            msg = f"{name}: {system.indefinite_reason()}"
        else:
            scale = system.norm(rhs)
            relative = (solution.residual / scale).nan_to_num_(0.0)  # zero columns
            noise = (noise / scale).nan_to_num_(0.0)
            column = int(torch.maximum(relative, noise).argmax())
            rounding = ""
            if bool(noise[column] > relative[column]):
                rounding = f" (rounding up to {noise[column]:.1e})"
            msg = (
                f"{name} stopped after {solution.num_iter} iterations: worst relative "
                f"residual {relative[column]:.1e}{rounding} in column {column} of "
                f"{rhs.size(1)}, 'rtol' is {self.rtol}. "
                f"{solution.status.value}"
            )
        if self.throw:
            raise ConvergenceError(msg)
        warn_caller(msg, ConvergenceWarning)


def _odd_scale(y: Tensor, system: System) -> Tensor | None:  # [N, C] -> [C] int32
    """Binary exponents of columns, if the squares of one would leave the range."""
    if y.numel() == 0:
        return None
    power = torch.frexp(system.peak(y))[1]
    return power if bool((power.abs() > _MAX_POWER).any()) else None


def _times_two_to(y: Tensor, power: Tensor) -> Tensor:
    """Product with powers of two, in two steps because one may be out of range."""
    half = torch.div(power, 2, rounding_mode="floor")
    two = torch.full_like(y[:1], 2.0)
    return y * two.pow(half) * two.pow(power - half)


def _scaled_back(solution: Solution, power: Tensor, size: int) -> Solution:
    """Undoes the scaling; what leaves the normal range is rounded once more."""
    bound = _times_two_to(solution.error_bound.unsqueeze(0), power)[0]
    return replace(
        solution,
        value=_times_two_to(solution.value, power),
        residual=_times_two_to(solution.residual.unsqueeze(0), power)[0],
        error_bound=bound + (math.sqrt(size) + 1.0) * 5e-324,
    )
