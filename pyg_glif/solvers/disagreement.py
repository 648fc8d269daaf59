r"""Annotators who disagree: outputs that are smooth in the eyes of all of them.

Every annotator :math:`a` has a graph of their own, with Laplacian :math:`\mathbf{L}_a`.
Averaging the graphs lets a majority outvote whoever sees the most unequal treatment.
The worst case does not,

.. math::
    f^* = \arg\min_f \|f - \hat y\|^2 + \lambda \max_a E_a(f), \qquad
    E_a(f) = \mathrm{tr}(f^\top \mathbf{L}_a f) .

The largest energy is the largest over mixtures of annotators, :math:`b_a \ge 0` and
:math:`\sum_a b_a = 1`; minimum and maximum change places, and for each :math:`b` the
inner solution is ordinary smoothing over :math:`\sum_a b_a \mathbf{L}_a`
(:mod:`pyg_glif.solvers.mixture`). Equal :math:`b_a` are the average.

Let :math:`f` be the computed solution for some :math:`b`, :math:`r` the residual of its
system :math:`\mathbf{A}`. Its objective exceeds the dual value of :math:`b`, and hence
the least objective, by no more than

.. math::
    \lambda \Bigl(\max_a E_a(f) - \sum_a b_a E_a(f)\Bigr) + r^\top \mathbf{A}^{-1} r ,

where :math:`r^\top \mathbf{A}^{-1} r \le \|r\|^2`. The objective is 2-strongly convex,
so that this gap bounds :math:`\|f - f^*\|^2`, whatever the search did. If the solution
is rounded to the precision of the outputs, by :math:`e`, then :math:`f` is the rounded
one, and the root of the last term grows by at most that of
:math:`e^\top \mathbf{A} e`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers.base import Solver
from pyg_glif.solvers.implicit import smooth
from pyg_glif.solvers.mixture import best_mixture

# Energies below this share of the outputs' squares are taken to be zero.
_NOTHING = 1e-24
# Rounding in a sum of squares that is added in pairs, in units of the precision.
_IN_PAIRS, _EPS = 128, torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Disagreement:
    r"""How smooth outputs are in the eyes of each annotator.

    Args:
        weight (Tensor): The share :math:`b_a` of each annotator in the graph that was
            smoothed over. Who has none is served better than others can be.
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


def smooth_worst_case(
    laps: Sequence[LaplacianOperator],
    lam: Tensor,
    y: Tensor,  # [N, C]
    solver: Solver,
) -> tuple[Tensor, Disagreement]:
    """Outputs for the worst annotator, and the evidence.

    Gradients take the shares of annotators as given.
    """
    union = _Union(laps)
    search = _Search(union, lam.detach(), y.detach().double(), solver)
    start = torch.full_like(union.value[:, 0].detach(), 1.0 / len(laps))
    average = search.energies(start)
    b = search.maximize(start, average)
    op = union.mixed(b)
    value, solution = smooth(op, lam, y.double(), solver, search.f)
    out = value.to(y.dtype)
    exact = value.detach()
    returned = out.detach().double()
    energy = union.energies(returned)
    gap = search.gap(b, energy, returned - exact, solution.error_bound)
    return out, Disagreement(b, energy, average, gap, search.num_solves)


class _Union:
    """The edges of all annotators, and what each of them has there."""

    def __init__(self, laps: Sequence[LaplacianOperator]) -> None:
        self._size = laps[0].num_nodes
        for lap in laps:
            check_choice("normalization", lap.normalization, (None, "density"))
        keys = [lap.pattern.row * self._size + lap.pattern.col for lap in laps]
        key = torch.unique(torch.cat(keys))
        self._edges = torch.stack([key // max(1, self._size), key % max(1, self._size)])
        values = []
        for lap, own in zip(laps, keys, strict=True):
            row = lap.pattern.row
            scale = lap.lam_scale if lap.lam_scale.dim() == 0 else lap.lam_scale[row]
            zero = lap.off_diagonal.new_zeros(key.numel())
            place = torch.searchsorted(key, own)
            values.append(zero.index_add(0, place, scale * lap.off_diagonal))
        self.value = torch.stack(values)  # [A, E]

    def mixed(self, b: Tensor) -> LaplacianOperator:
        """The Laplacian of a mixture."""
        return LaplacianOperator.from_sorted(self._edges, b @ self.value, self._size)

    def energies(self, f: Tensor) -> Tensor:  # [N, C] -> [A]
        """Energies in the eyes of each annotator."""
        ones = torch.ones(len(self.value), dtype=f.dtype, device=f.device)
        apart = torch.zeros_like(self.value[0].detach())
        for part in self.mixed(ones).pattern.chunks():
            row, col = self._edges[:, part]
            apart[part] = (f[row] - f[col]).square_().sum(1)
        # A sum, not a product: it adds in pairs, which '_Search.gap' counts on.
        return 0.5 * (self.value.detach() * apart).sum(1)


class _Search:
    """The mixture of annotators with the largest dual value."""

    def __init__(self, union: _Union, lam: Tensor, y: Tensor, solver: Solver) -> None:
        self._union, self._lam, self._y, self._solver = union, lam, y, solver
        self.f: Tensor | None = None  # the last solution, from which the next starts
        self.num_solves = 0

    @torch.no_grad()
    def energies(self, b: Tensor) -> Tensor:  # [A] -> [A]
        """Energies at the solution of a mixture."""
        op = self._union.mixed(b)
        self.f = smooth(op, self._lam, self._y, self._solver, self.f)[0]
        self.num_solves += 1
        return self._union.energies(self.f)

    def gap(self, b: Tensor, energy: Tensor, rounding: Tensor, error: Tensor) -> float:
        """Bound on how far the objective of rounded outputs is from the least."""
        lam, moved = float(self._lam), rounding.square().sum()
        moved += lam * (b @ self._union.energies(rounding))
        missed = torch.linalg.vector_norm(error) + moved.sqrt()
        unequal = float(energy.max() - b @ energy)
        if b.numel() > 1:  # energies are right up to the rounding of sums in pairs
            unequal += (_IN_PAIRS + self._y.size(1)) * _EPS * float(energy.max())
        return lam * max(unequal, 0.0) + float(missed.square()) * (1 + _IN_PAIRS * _EPS)

    def maximize(self, start: Tensor, first: Tensor) -> Tensor:
        """The mixture, from a first one and its energies."""
        lam = float(self._lam)
        unit = lam * float(first.max())
        if start.numel() == 1 or unit <= _NOTHING * float(self._y.square().sum()):
            return start

        def dual(b: Tensor) -> tuple[float, Tensor]:
            energy = self.energies(b)
            assert self.f is not None
            fit = float((self.f - self._y).square().sum())
            return fit + lam * float(b @ energy), lam * energy

        return best_mixture(dual, start, unit)
