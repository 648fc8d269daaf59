r"""Smoothing with the same energy per member in every group.

Let :math:`\mathbf{L}_g` be the part of the Laplacian that belongs to group :math:`g`:
edges inside it, and half of every edge that leaves it, so that
:math:`\sum_g \mathbf{L}_g = \mathbf{L}`. With :math:`m_g` its size,
:math:`E_g(f) = \mathrm{tr}(f^\top \mathbf{L}_g f) / m_g` is the energy per member.
Balanced smoothing makes the largest of them small,

.. math::
    f^* = \arg\min_f \|f - \hat y\|^2 + \lambda n \max_g E_g(f), \qquad
    n = \sum_g m_g ,

over the groups that have an edge; the others have no energy, whatever their strength.
The maximum is that over all mixtures :math:`b` of groups, and changes places with the
minimum (:mod:`pyg_glif.methods._minimax`). With :math:`\beta_g = n b_g / m_g` it is

.. math::
    \max_b \varphi(b), \qquad \varphi(b) = \min_f \|f - \hat y\|^2 + \lambda \,
    \mathrm{tr}\Bigl(f^\top \sum_g \beta_g \mathbf{L}_g f\Bigr)

whose inner solution is ordinary smoothing, each edge weighted by the mean of
:math:`\beta` at its ends. :math:`\varphi` is concave, and its gradient is
:math:`\lambda n E_g(f)` at that solution (the envelope theorem). So at the maximum all
groups with :math:`b_g > 0` have the same :math:`E_g`, and a group with :math:`b_g = 0`
a smaller one, although nothing is smoothed for its sake. Then no :math:`\beta \ge 0`
balances the groups, and this is the nearest to it.

The objective is 2-strongly convex, so whatever :math:`b` a search ends with, its
solution :math:`f` has

.. math::
    \|f - f^*\|^2 \le \lambda n \Bigl(\max_g E_g(f) - \sum_g b_g E_g(f)\Bigr) ,

the duality gap: a certificate that does not depend on the search.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from pyg_glif._utils.sparse import edge_energy
from pyg_glif._utils.validation import check_choice, check_group, check_signal
from pyg_glif.laplacian import LaplacianOperator, as_laplacian
from pyg_glif.links import Link
from pyg_glif.methods._minimax import MinimaxSearch
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Balance, Solution, Solver
from pyg_glif.typing import Normalization

#: What a group's energy is divided by.
Definition = Literal["members", "pairs", "guide"]
_DEFINITIONS = ("members", "pairs", "guide")


def smooth_balanced(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    groups: Tensor,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    link: Link | None = None,
    solver: Solver | None = None,
    batch: Tensor | None = None,
    definition: Definition = "members",
) -> Solution:
    r"""Smooths so that the energy per member is the same in every group.

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        edge_index (Tensor, SparseTensor or LaplacianOperator): The similarity graph.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        groups (Tensor): Group number of each node.
        lam (float or Tensor): Strength, shared out among the groups.
            (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None` or :obj:`"density"`.
            (default: :obj:`None`)
        link (Link, optional): Output space. (default: :obj:`None`)
        solver (Solver, optional): How systems are solved. (default: :obj:`Auto()`)
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)
        definition (str): What the energy of a group is divided by: its
            :obj:`"members"`, its :obj:`"pairs"`, or what the published code of GUIDE
            counts, :obj:`"guide"`. (default: :obj:`"members"`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, groups and batch :math:`(N)`
        - **output:** a :class:`~pyg_glif.solvers.Solution` whose ``balance`` holds the
          energies

    Gradients reach ``y_hat``, ``edge_weight`` and ``lam``; they take the shares of the
    groups as constants.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> y_hat = torch.tensor([0.0, 1.0, 0.0, 2.0])
        >>> groups = torch.tensor([0, 0, 1, 1])
        >>> smooth_balanced(y_hat, edge_index, groups=groups, lam=1.0).balance
        Balance(ratio=1, beta={0: 0.5, 1: 1.5})
    """
    check_signal("y_hat", y_hat, half=True)
    smoother = Smoother(lam, normalization=normalization, link=link, solver=solver)
    lap = as_laplacian(edge_index, edge_weight, normalization, batch, y_hat=y_hat)
    check_choice("normalization", lap.normalization, (None, "density"))
    groups = check_group("groups", groups, lap.num_nodes).to(lap.deg.device)
    solution = solve_balanced(
        smoother, lap, smoother.to_dual(y_hat), groups, definition=definition
    )
    value = smoother.from_dual(solution.value, y_hat, lap.deg.detach() == 0)
    return replace(solution, value=value)


def solve_balanced(
    smoother: Smoother,
    lap: LaplacianOperator,
    eta: Tensor,  # [N, C]
    groups: Tensor,  # [N]
    *,
    x0: Tensor | None = None,
    definition: Definition = "members",
) -> Solution:
    """The balanced solution in dual coordinates, for dual coordinates of outputs."""
    factor, balance, start = _balance(smoother, lap, eta, groups, x0, definition)
    # Gradients reach the weights of the graph, at the shares of the search.
    solution = smoother.solve_dual(lap.reweighted(factor), eta, x0=start)
    return replace(solution, balance=balance)


@torch.no_grad()
def _balance(
    smoother: Smoother,
    lap: LaplacianOperator,
    eta: Tensor,
    groups: Tensor,
    x0: Tensor | None,
    definition: Definition,
) -> tuple[Tensor, Balance, Tensor | None]:
    """Factors of the edges, energies of the groups, and the last solution."""
    label, group = torch.unique(groups, return_inverse=True)
    size = group_sizes(lap, group, label.numel(), definition)
    # A group without an edge has no energy, whatever its strength.
    linked = torch.bincount(group[lap.pattern.row], minlength=label.numel()) > 0
    total = size[linked].sum()
    lam = float(smoother.strength(eta))

    def beta(b: Tensor) -> Tensor:  # [G]
        out = torch.ones_like(size)
        out[linked] = b * total / size[linked]
        return out

    def solve(b: Tensor, guess: Tensor | None) -> Tensor:
        op = lap.reweighted(edge_shares(lap, beta(b)[group]))
        guess = x0 if guess is None else guess
        return smoother.solve_dual(op, eta, x0=guess).value

    def energies(f: Tensor) -> Tensor:
        return (group_energies(lap, f, group, size) / size)[linked]

    strength = float(lam * total)
    search = MinimaxSearch(eta.double(), strength, solve, energies)
    b = size[linked] / total  # every 'beta' is one
    # Without a strength nothing is smoothed, and one group is balanced with itself.
    if lam > 0 and b.numel() > 1:
        b = search.maximize(b, search.energies(b))
    energy = torch.zeros_like(size)
    energy[linked] = search.energies(b)
    some = energy[linked]
    worst, least = (float(some.max()), float(some.min())) if b.numel() else (0.0, 0.0)
    ratio = worst / least if least > 0 else (1.0 if worst == 0 else math.inf)
    gap = strength * max(worst - float(b @ some), 0.0)
    balance = Balance(label, beta(b), energy, ratio, gap, search.num_solves)
    return edge_shares(lap, beta(b)[group]), balance, search.f


def group_energies(
    lap: LaplacianOperator,
    f: Tensor,  # [N, C]
    group: Tensor,  # [N], from 0
    size: Tensor,  # [G]
) -> Tensor:  # [G] float64
    r""":math:`\mathrm{tr}(f^\top \mathbf{L}_g f)` of every group.

    The Laplacian is that which ``lam`` multiplies: for ``"density"`` times the average
    degree.
    """
    f, row = f.double(), lap.pattern.row
    scale = lap.lam_scale if lap.lam_scale.dim() == 0 else lap.lam_scale[row]
    edges = scale * lap.off_diagonal
    edges = edges * edge_energy(lap.pattern, f.new_ones(f.size(1)), f)
    # Both directions are stored: counting an edge by the group of its row gives each
    # side half, and an edge inside a group all of it.
    return torch.zeros_like(size).index_add(0, group[row], 0.5 * edges)


def group_sizes(
    lap: LaplacianOperator, group: Tensor, num_groups: int, definition: Definition
) -> Tensor:  # [G] float64
    """The size of each group, by which its energy is divided.

    ``"members"`` counts nodes. ``"pairs"`` counts edges inside the group and half of
    those that leave it. ``"guide"`` is what the published code of GUIDE divides by,
    once its doubled Laplacians are taken into account: half the entries of the
    similarity matrix in the rows of the group, self-loops included, so that an edge
    that leaves the group counts half and a node half.
    """
    check_choice("definition", definition, _DEFINITIONS)
    members = torch.bincount(group, minlength=num_groups).double()
    if definition == "members":
        return members
    degree = lap.pattern.rowptr.diff().double()
    entries = torch.zeros_like(members).index_add(0, group, degree)
    if definition == "guide":
        entries = entries + members
    return 0.5 * entries


def edge_shares(lap: LaplacianOperator, beta: Tensor) -> Tensor:  # [N] -> [E]
    """Factors of the edges: the mean of ``beta`` at both ends."""
    return 0.5 * (beta[lap.pattern.row] + beta[lap.pattern.col])
