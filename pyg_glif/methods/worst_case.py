r"""Smoothing for the annotator whose graph has the largest energy.

Every annotator :math:`a` has a graph, with Laplacian :math:`\mathbf{L}_a`. In an
average of the graphs a majority outvotes the annotator whose graph has the largest
energy; in the worst case it does not,

.. math::
    f^* = \arg\min_f \|f - \hat y\|^2 + \lambda \max_a E_a(f), \qquad
    E_a(f) = \mathrm{tr}(f^\top \mathbf{L}_a f) .

The largest energy is the largest over mixtures of annotators, :math:`b_a \ge 0` and
:math:`\sum_a b_a = 1`; minimum and maximum change places, and for each :math:`b` the
inner solution is ordinary smoothing over :math:`\sum_a b_a \mathbf{L}_a`
(:mod:`pyg_glif.methods._minimax`). Equal :math:`b_a` are the average.

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
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_choice, check_signal
from pyg_glif.laplacian import LaplacianOperator, as_laplacian
from pyg_glif.links import Link
from pyg_glif.methods._minimax import MinimaxSearch
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import AnnotatorEnergies, Solution, Solver
from pyg_glif.typing import Normalization

# Rounding in a sum of squares that is added in pairs, in units of the precision.
_IN_PAIRS, _EPS = 128, torch.finfo(torch.float64).eps


def smooth_worst_case(
    y_hat: Tensor,
    graphs: Sequence[Any],
    *,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    link: Link | None = None,
    solver: Solver | None = None,
) -> Solution:
    r"""Smooths for the annotator whose graph has the largest energy.

    .. math::
        f = \arg\min_f \|f - \hat y\|^2
        + \lambda \max_a \mathrm{tr}(f^\top \mathbf{L}_a f)

    where every annotator :math:`a` has a graph: none is outvoted, as in an average of
    graphs. Convex; the result comes with its duality gap.

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        graphs (sequence): One graph for each annotator: edges, a pair of edges and
            weights, or a :class:`~pyg_glif.laplacian.LaplacianOperator`.
        lam (float or Tensor): Strength :math:`\lambda \ge 0`. (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None` or :obj:`"density"`.
            (default: :obj:`None`)
        link (Link, optional): Output space, as in :func:`~pyg_glif.glif_smooth`.
            (default: :obj:`None`)
        solver (Solver, optional): How systems are solved. (default: :obj:`Auto()`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`
        - **output:** a :class:`~pyg_glif.solvers.Solution` whose ``disagreement`` holds
          energies and gap

    Gradients reach ``y_hat``, weights and ``lam``; they take the shares of the
    annotators as constants.

    Example:
        >>> y_hat = torch.tensor([0.0, 1.0, 4.0])
        >>> first = torch.tensor([[0, 1], [1, 0]])  # finds 0 and 1 similar
        >>> second = torch.tensor([[1, 2], [2, 1]])  # finds 1 and 2 similar
        >>> solution = smooth_worst_case(y_hat, [first, second], lam=1.0)
        >>> solution.value.round(decimals=3)
        tensor([0.3330, 1.6670, 3.0000])
        >>> solution.disagreement.weight.round(decimals=3)
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    check_signal("y_hat", y_hat)
    smoother = Smoother(lam, link=link, solver=solver)
    if len(graphs) == 0:
        raise ValueError("'graphs' must have one graph at least (got none)")
    laps = []
    for graph in graphs:
        edges, weight = graph if isinstance(graph, (tuple, list)) else (graph, None)
        laps.append(as_laplacian(edges, weight, normalization, None, y_hat=y_hat))
    union = _Union(laps)
    eta = smoother.to_dual(y_hat)
    y, strength = eta.detach().double(), float(smoother.strength(eta).detach())
    search = MinimaxSearch(
        y,
        strength,
        lambda b, guess: smoother.solve_dual(union.mixed(b), y, x0=guess).value,
        union.energies,
    )
    start = torch.full_like(union.value[:, 0].detach(), 1.0 / len(laps))
    average = search.energies(start)
    b = search.maximize(start, average)
    solution = smoother.solve_dual(union.mixed(b), eta.double(), x0=search.f)
    dual = solution.value.to(eta.dtype)
    energy = union.energies(dual.detach().double())
    rounding = dual.detach().double() - solution.value.detach()
    gap = _gap(union, strength, b, energy, rounding, solution.error_bound)
    energies = AnnotatorEnergies(b, energy, average, gap, search.num_solves)
    isolated = torch.stack([lap.deg.detach() for lap in laps]).sum(0) == 0
    value = smoother.from_dual(dual, y_hat, isolated)
    solution = replace(solution, value=solution.value.detach()).to(eta.dtype)
    return replace(solution, value=value, disagreement=energies)


class _Union:
    """The edges of all graphs, with the weights of each graph."""

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
        """Energies on the graph of each annotator."""
        ones = torch.ones(len(self.value), dtype=f.dtype, device=f.device)
        sq_diff = torch.zeros_like(self.value[0].detach())
        for part in self.mixed(ones).pattern.chunks():
            row, col = self._edges[:, part]
            sq_diff[part] = (f[row] - f[col]).square_().sum(1)
        # A sum, not a product: it adds in pairs, which '_gap' counts on.
        return 0.5 * (self.value.detach() * sq_diff).sum(1)


def _gap(
    union: _Union,
    lam: float,
    b: Tensor,
    energy: Tensor,  # [A], of the rounded solution
    rounding: Tensor,  # [N, C]
    error: Tensor,  # [C], of the solution before it is rounded
) -> float:
    """Bound on the excess of the objective at the rounded solution."""
    moved = rounding.square().sum() + lam * (b @ union.energies(rounding))
    missed = torch.linalg.vector_norm(error) + moved.sqrt()
    unequal = float(energy.max() - b @ energy)
    if b.numel() > 1:  # energies are right up to the rounding of sums in pairs
        unequal += (_IN_PAIRS + rounding.size(1)) * _EPS * float(energy.max())
    return lam * max(unequal, 0.0) + float(missed.square()) * (1 + _IN_PAIRS * _EPS)
