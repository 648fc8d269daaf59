r"""How outputs are smoothed: strength, Laplacian, link and solver in one object.

Smoothing happens in the dual coordinates :math:`\eta = \nabla F(\hat y)` of a link
(:mod:`pyg_glif.links`), as a block of columns. All nodes of a graph together solve

.. math::
    (\mathbf{P} + \lambda \mathbf{L}) f = \mathbf{P} \eta , \qquad
    \mathbf{P} = \mathrm{diag}(1 / \sigma^2) ,

where :math:`\sigma` is one unless outputs are known with unequal certainty. A new node
whose neighbors keep their outputs :math:`f_j` takes one coordinate step of the same
objective (eq. 3.7 of the paper), the *inductive* step

.. math::
    f_i = \frac{p_i \eta_i + \lambda \sum_j v_{ij} f_j}{p_i + \lambda a_i} ,

with the entries :math:`a_i` and :math:`v_{ij}` of :mod:`pyg_glif.laplacian`.
"""

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_coefficient,
    check_finite,
    check_kind,
    check_node_rows,
    check_rank,
    check_scalar,
    full_precision,
)
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link, dual_of, outputs_of
from pyg_glif.solvers import Auto, Solution, Solver
from pyg_glif.solvers.implicit import smooth
from pyg_glif.typing import Normalization

__all__ = ["Smoother"]


@dataclass(frozen=True)
class Smoother:
    r"""Settings of the method, and its two steps.

    Args:
        lam (float or Tensor): Strength :math:`\lambda \ge 0`, a number or a 0-d tensor.
            (default: :obj:`1.0`)
        normalization (str, optional): Form of the Laplacian: :obj:`None`, :obj:`"nrw"`
            or :obj:`"density"`. (default: :obj:`None`)
        link (Link, optional): Output space. (default: :obj:`None`, averages as they
            are)
        solver (Solver, optional): How the system is solved. (default: :obj:`Auto()`)

    Example:
        >>> lap = LaplacianOperator(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> smoother = Smoother(lam=1.0)
        >>> f = smoother.solve(lap, torch.tensor([0.0, 3.0])).value
        >>> f
        tensor([1., 2.])
        >>> pull = f[:1].unsqueeze(1)  # a new node beside node 0, weight 1
        >>> smoother.update(torch.tensor([4.0]), pull, diagonal=torch.ones(1))
        tensor([2.5000])
    """

    lam: float | Tensor = 1.0
    normalization: Normalization = field(default=None, kw_only=True)
    link: Link | None = field(default=None, kw_only=True)
    solver: Solver | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_coefficient("lam", self.lam, minimum=0.0)
        check_choice("normalization", self.normalization, (None, "nrw", "density"))
        if self.link is not None:
            check_kind("link", self.link, Link)
        if self.solver is not None:
            check_kind("solver", self.solver, Solver)

    def strength(self, like: Tensor) -> Tensor:
        """``lam`` as a float64 tensor on the device of ``like``."""
        return torch.as_tensor(self.lam, dtype=torch.float64, device=like.device)

    def to_dual(self, y_hat: Tensor) -> Tensor:  # [N] or [N, C] -> [N, C]
        """Dual coordinates as a block of columns."""
        # A link's logarithms want more digits than half precision has.
        full = y_hat if self.link is None else full_precision(y_hat)
        eta = dual_of(self.link, full)
        return eta.reshape(eta.size(0), math.prod(eta.shape[1:]))

    def from_dual(
        self, eta: Tensor, y_hat: Tensor, isolated: Tensor | None = None
    ) -> Tensor:  # [N, C] -> like y_hat
        """Outputs with the shape and precision of those before, ``y_hat``.

        A link may clamp or round on the way there and back: ``isolated`` rows, and all
        of them if ``lam`` is zero, keep ``y_hat`` to the last digit.
        """
        if self.link is None:
            return eta.reshape(y_hat.shape).to(y_hat.dtype)
        full = full_precision(y_hat)
        if isolated is None:
            isolated = torch.zeros(len(full), dtype=torch.bool, device=full.device)
        eta = eta.reshape(full.shape).to(full.dtype)
        value = outputs_of(self.link, eta, full, isolated)
        if float(torch.as_tensor(self.lam).detach()) == 0.0:
            # The input itself, with the derivatives of the smoothing.
            value = full.detach() + (value - value.detach())
        return value.to(y_hat.dtype)

    def solve(
        self,
        lap: LaplacianOperator,
        y_hat: Tensor,
        *,
        y_std: float | Tensor | None = None,
        x0: Tensor | None = None,
    ) -> Solution:
        """Smoothed outputs of all nodes; residual and bound in dual coordinates.

        Args:
            lap (LaplacianOperator): The graph.
            y_hat (Tensor): Outputs of a model, :math:`(N)` or :math:`(N, C)`.
            y_std (float or Tensor, optional): Standard deviation of every output, in
                dual coordinates. (default: :obj:`None`, one for all)
            x0 (Tensor, optional): First guess in dual coordinates, :math:`(N, C)`.
                (default: :obj:`None`)
        """
        precision = precision_of(y_std, lap)
        eta = self.to_dual(y_hat)
        solution = self.solve_dual(lap, eta, precision=precision, x0=x0)
        value = self.from_dual(solution.value, y_hat, lap.deg.detach() == 0)
        return replace(solution, value=value)

    def solve_dual(
        self,
        lap: LaplacianOperator,
        eta: Tensor,  # [N, C]
        *,
        precision: Tensor | None = None,  # [N] float64
        x0: Tensor | None = None,
    ) -> Solution:
        """The solution in dual coordinates, for dual coordinates of outputs."""
        if self.normalization is not None:
            check_choice("normalization", self.normalization, (lap.normalization,))
        lam = self.strength(eta)
        solver = Auto() if self.solver is None else self.solver
        if precision is None:
            return smooth(lap, lam, eta, solver, x0)[1]
        y = eta.double()
        rhs, start = precision.unsqueeze(1) * y, y.detach() if x0 is None else x0
        value, solution = smooth(lap, lam, rhs, solver, start, precision)
        # An isolated node keeps its output, whatever its precision rounds to.
        value = torch.where((lap.deg.detach() == 0).unsqueeze(1), y, value)
        if float(lam.detach()) == 0.0:
            value = y.detach() + (value - value.detach())
        solution = replace(solution, value=value.detach()).to(eta.dtype)
        return replace(solution, value=value.to(eta.dtype))

    def update(
        self,
        y_new: Tensor,
        pull: Tensor,
        diagonal: Tensor,
        *,
        lam_scale: float | Tensor = 1.0,
        precision: Tensor | None = None,
        isolated: Tensor | None = None,
    ) -> Tensor:
        r"""Outputs of new nodes after the inductive step, each for itself.

        Args:
            y_new (Tensor): Outputs of a model, :math:`(M)` or :math:`(M, C)`.
            pull (Tensor): Sums :math:`\sum_j v_{ij} f_j` over neighbors that keep their
                outputs, in dual coordinates, :math:`(M, C)`.
            diagonal (Tensor): Entries :math:`a_i`, :math:`(M)`.
            lam_scale (float or Tensor): The ``lam_scale`` of the Laplacian that these
                rows extend. (default: :obj:`1.0`)
            precision (Tensor, optional): :math:`p_i`, float64 :math:`(M)`.
                (default: :obj:`None`, ones)
            isolated (Tensor, optional): Rows without a neighbor, :math:`(M)`.
                (default: those whose ``diagonal`` is zero)
        """
        eta, mu = self.to_dual(y_new).double(), self.strength(y_new) * lam_scale
        own = torch.ones_like(diagonal) if precision is None else precision
        eta = (eta * own.unsqueeze(1)).addcmul(mu, pull)
        eta = eta / (own + mu * diagonal).unsqueeze(1)
        if isolated is None:
            isolated = diagonal == 0
        return self.from_dual(eta, y_new, isolated)


def precision_of(
    y_std: float | Tensor | None, lap: LaplacianOperator
) -> Tensor | None:  # [N] float64
    """Precisions of outputs with standard deviations ``y_std``, if these are given."""
    if y_std is None:
        return None
    check_choice("normalization", lap.normalization, (None, "density"))
    return per_node("y_std", y_std, lap, above=0.0).square().reciprocal()


def per_node(
    name: str, value: float | Tensor, lap: LaplacianOperator, above: float | None = None
) -> Tensor:  # [N] float64
    """One number for each node, or one for all: positive, or not negative."""
    if not isinstance(value, Tensor):
        number = check_scalar(name, value, minimum=0.0, above=above)
        return torch.full_like(lap.deg.detach(), number)
    check_rank(name, value, 0, 1)
    if value.dim() == 1:
        check_node_rows(name, value, lap.num_nodes)
    check_finite(name, value)
    if value.numel():
        check_scalar(name, float(value.detach().min()), minimum=0.0, above=above)
    return value.double().expand(lap.num_nodes).to(lap.deg.device)
