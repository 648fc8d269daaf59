r"""Groups that are treated equally alike: one strength for each group.

Let :math:`\mathbf{L}_g` be the part of the Laplacian that belongs to group :math:`g`:
edges inside it, and half of every edge that leaves it, so that
:math:`\sum_g \mathbf{L}_g = \mathbf{L}`. With :math:`m_g` its size,
:math:`E_g(f) = \mathrm{tr}(f^\top \mathbf{L}_g f) / m_g` says how unlike the members of
a group are treated. Balanced smoothing makes the worst of them small,

.. math::
    f^* = \arg\min_f \|f - \hat y\|^2 + \lambda n \max_g E_g(f), \qquad
    n = \sum_g m_g ,

over the groups that have an edge; the others have no energy, whatever their strength.
The maximum is that over all mixtures :math:`b` of groups, :math:`b_g \ge 0` and
:math:`\sum_g b_g = 1`. The objective is convex in :math:`f` and linear in :math:`b`, so
minimum and maximum change places (Sion's theorem), and with
:math:`\beta_g = n b_g / m_g`

.. math::
    \max_b \varphi(b), \qquad \varphi(b) = \min_f \|f - \hat y\|^2 + \lambda \,
    \mathrm{tr}\Bigl(f^\top \sum_g \beta_g \mathbf{L}_g f\Bigr)

whose inner solution is ordinary smoothing, each edge weighted by the mean of
:math:`\beta` at its ends. :math:`\varphi` is concave, and its gradient is
:math:`\lambda n E_g(f)` at that solution (the envelope theorem). So at the maximum all
groups with :math:`b_g > 0` have the same :math:`E_g`, and a group with :math:`b_g = 0`
a smaller one: its members are treated more alike than the others can be, although
nothing is smoothed for its sake. Then no :math:`\beta \ge 0` balances the groups, and
this is the nearest to it.

The objective is 2-strongly convex, so whatever :math:`b` a search ends with, its
solution :math:`f` has

.. math::
    \|f - f^*\|^2 \le \lambda n \Bigl(\max_g E_g(f) - \sum_g b_g E_g(f)\Bigr) ,

the duality gap: a certificate that does not depend on the search.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pyg_glif._utils.sparse import edge_energy
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
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers.mixture import best_mixture

#: What a group's energy is divided by.
Definition = Literal["members", "pairs", "guide"]
_DEFINITIONS = ("members", "pairs", "guide")
# Energies below this share of the largest at the start are taken to be zero.
_NOTHING = 1e-24
# Energies that differ by less than this, relative to the smallest, are called equal.
_EVEN = 1e-3


@dataclass(frozen=True, eq=False)
class Balance:
    r"""How evenly groups are treated, and what it took.

    Args:
        group (Tensor): The label of each group.
        beta (Tensor): Factor of ``lam`` for each group; the mean over their sizes is 1.
        energy (Tensor): :math:`E_g`, the energy of each group over its size.
        ratio (float): Largest energy over the smallest, among groups with an edge; one
            is perfect balance, and :obj:`inf` a group that is treated alike entirely
            while another is not.
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

        If not, groups with a ``beta`` of zero are treated more alike than the others
        can be.
        """
        return self.ratio <= 1.0 + _EVEN

    def __repr__(self) -> str:
        pairs = zip(self.group.tolist(), self.beta.tolist(), strict=True)
        beta = ", ".join(f"{label}: {value:.4g}" for label, value in pairs)
        return f"Balance(ratio={self.ratio:.4g}, beta={{{beta}}})"


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
    """What a group's energy is divided by.

    ``"members"`` counts people. ``"pairs"`` counts edges inside the group and half of
    those that leave it. ``"guide"`` is what the published code of GUIDE divides by,
    once its doubled Laplacians are taken into account: half the entries of the
    similarity matrix in the rows of the group, everybody's entry with themselves
    included, so that an edge that leaves the group counts half and a person half.
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
    """The mean of ``beta`` at both ends of every edge: what its weight is times."""
    return 0.5 * (beta[lap.pattern.row] + beta[lap.pattern.col])


def balance(
    lap: LaplacianOperator,
    group: Tensor,  # [N]
    lam: float,
    y: Tensor,  # [N, C]
    solve: Callable[[LaplacianOperator, Tensor | None], Tensor],
    definition: Definition = "members",
) -> tuple[Tensor, Balance]:  # [E] and the evidence
    """Factors of the edges that treat groups equally alike, and how well they do.

    Args:
        lap (LaplacianOperator): The graph, positive semidefinite.
        group (Tensor): A whole number for everybody.
        lam (float): Strength.
        y (Tensor): Right-hand side, in dual coordinates if there is a link.
        solve (callable): Smooths ``y`` with a given operator, from a first guess.
        definition (str): What a group's energy is divided by, see :func:`group_sizes`.
    """
    search = _Search(lap, group, lam, y.double(), solve, definition)
    b = search.start
    # Without a strength nothing is smoothed, and one group is balanced with itself.
    if lam > 0 and b.numel() > 1:
        b = search.maximize(b)
    return search.result(b)


class _Search:
    """The mixture ``b`` of groups, one number for each group that has an edge."""

    def __init__(
        self,
        lap: LaplacianOperator,
        group: Tensor,
        lam: float,
        y: Tensor,
        solve: Callable[[LaplacianOperator, Tensor | None], Tensor],
        definition: Definition,
    ) -> None:
        self.lap, self.y, self.solve = lap, y, solve
        self.label, self.group = torch.unique(group, return_inverse=True)
        num = self.label.numel()
        self.size = group_sizes(lap, self.group, num, definition)
        # A group without an edge has no energy, whatever its strength.
        self.linked = torch.bincount(self.group[lap.pattern.row], minlength=num) > 0
        self.total = self.size[self.linked].sum()
        self.strength = float(lam * self.total)
        self.f: Tensor | None = None  # the last solution, from which the next starts
        self.num_solves = 0

    @property
    def start(self) -> Tensor:
        """The mixture that is smoothing as it is: every ``beta`` is one."""
        return self.size[self.linked] / self.total

    def beta(self, b: Tensor) -> Tensor:  # [G]
        """Factors of all groups; one where there is nothing to weight."""
        out = torch.ones_like(self.size)
        out[self.linked] = b * self.total / self.size[self.linked]
        return out

    def factor(self, b: Tensor) -> Tensor:  # [E]
        """The mean of ``beta`` at both ends of every edge."""
        return edge_shares(self.lap, self.beta(b)[self.group])

    def energies(self, b: Tensor) -> Tensor:  # [G]
        """Energies over sizes, at the solution of a mixture."""
        self.f = self.solve(self.lap.reweighted(self.factor(b)), self.f).double()
        self.num_solves += 1
        return group_energies(self.lap, self.f, self.group, self.size) / self.size

    def maximize(self, b: Tensor) -> Tensor:
        """The mixture with the largest dual value, by sequential quadratic steps."""
        first = self.energies(b)
        unit = self.strength * float(first.max())
        if unit <= _NOTHING * float(self.y.square().sum()):
            return b  # everybody is treated alike already

        def dual(at: Tensor) -> tuple[float, Tensor]:
            energy = self.energies(at)[self.linked]
            assert self.f is not None
            fit = float((self.f - self.y).square().sum())
            return fit + self.strength * float(at @ energy), self.strength * energy

        return best_mixture(dual, b, unit)

    def result(self, b: Tensor) -> tuple[Tensor, Balance]:
        """The factors of a mixture, and how evenly they treat the groups."""
        energy = self.energies(b)
        some = energy[self.linked]
        worst, least = (float(some.max()), float(some.min())) if b.numel() else (0, 0)
        ratio = worst / least if least > 0 else (1.0 if worst == 0 else math.inf)
        gap = self.strength * max(worst - float(b @ some), 0.0)
        found = Balance(self.label, self.beta(b), energy, ratio, gap, self.num_solves)
        return self.factor(b), found
