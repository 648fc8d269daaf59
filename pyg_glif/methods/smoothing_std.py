r"""Standard errors of smoothed outputs under independent noise.

Smoothing is linear, :math:`f = \mathbf{K} y` with
:math:`\mathbf{K} = (\mathbf{P} + \lambda \mathbf{L})^{-1} \mathbf{P}`. If outputs carry
independent errors with standard deviations :math:`\sigma`, then

.. math::
    \mathrm{Var} f_i = \sum_j K_{ij}^2 \sigma_j^2 = \|g_i\|^2, \qquad
    \mathbf{G} = \mathbf{K} \, \mathrm{diag}(\sigma) \mathbf{Z}

for :math:`\mathbf{Z}` the identity. For many nodes :math:`\mathbf{Z}` has :math:`m`
columns of independent standard normal numbers. Every entry of row :math:`g_i` is then
normal with just that variance, so :math:`\|g_i\|^2 / \mathrm{Var} f_i` has the
:math:`\chi^2` distribution with :math:`m` degrees of freedom, whatever the graph: an
exact confidence interval, which a union bound makes one for all nodes at once
(:doc:`/guarantees`).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count, check_scalar, check_signal
from pyg_glif.laplacian import LaplacianOperator, as_laplacian
from pyg_glif.smoothing import Smoother, per_node, precision_of
from pyg_glif.solvers import Auto, Solver
from pyg_glif.solvers.implicit import smooth
from pyg_glif.typing import Normalization

# Columns that are solved for at once.
_WIDTH = 32


def smoothing_std(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    variance: "float | Tensor | Noise" = 1.0,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    solver: Solver | None = None,
    y_std: float | Tensor | None = None,
    batch: Tensor | None = None,
) -> "Uncertainty":
    r"""Standard deviations of smoothed outputs under independent noise.

    Args:
        y_hat (Tensor): Outputs of a model, of which only the number matters.
        edge_index (Tensor, SparseTensor or LaplacianOperator): The similarity graph.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        variance (float, Tensor or Noise): Variance of the errors of outputs, in the
            coordinates in which these are averaged; pass ``y_std ** 2`` if that is
            what it is. (default: :obj:`1.0`)
        lam (float or Tensor): Strength. (default: :obj:`1.0`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): How systems are solved. (default: :obj:`Auto()`)
        y_std (float or Tensor, optional): Standard deviations that the smoothing
            takes into account, as in :func:`~pyg_glif.glif_smooth`.
            (default: :obj:`None`)
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, variances, standard deviations and batch :math:`(N)`
        - **output:** an :class:`Uncertainty`

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> smoothing_std(torch.tensor([0.0, 3.0]), edge_index).std
        tensor([0.7454, 0.7454], dtype=torch.float64)
    """
    check_signal("y_hat", y_hat, half=True)
    smoother = Smoother(lam, normalization=normalization, solver=solver)
    lap = as_laplacian(edge_index, edge_weight, normalization, batch, y_hat=y_hat)
    precision = precision_of(y_std, lap)
    noise = variance if isinstance(variance, Noise) else Noise(variance=variance)
    std = per_node("variance", noise.variance, lap).sqrt()
    root = noise_root(smoother, lap, noise, std, precision)
    within = None
    if lap.is_psd:
        own = torch.ones_like(std) if precision is None else precision.detach()
        low, high = own_shares(
            lap, smoother.strength(std).detach() * lap.lam_scale, own
        )
        size = std.detach().square()
        most = (own * size).max() if size.numel() else 0.0
        within = low.square() * size, most * high / own
    return root.uncertainty(root.value, within=within)


@dataclass(frozen=True, eq=False)
class Uncertainty:
    r"""Standard deviations of smoothed outputs under independent noise.

    Everything is in the coordinates in which outputs are averaged, and the same for
    every output column.

    Args:
        std (Tensor): Standard deviation of every smoothed output.
        low (Tensor): Lower end of an interval for it, numerical error included.
        high (Tensor): Upper end.
        alpha (float): All intervals hold at once with probability at least
            ``1 - alpha``; zero where nothing is random.
        num_probes (int): Random vectors behind the estimate; zero if it is exact.

    Shapes:
        - **std**, **low**, **high:** :math:`(N)`
    """

    std: Tensor
    low: Tensor
    high: Tensor
    alpha: float
    num_probes: int

    def __repr__(self) -> str:
        share = (self.high - self.low) / (2.0 * self.std)
        worst = float(share.nan_to_num(0.0).max()) if share.numel() else 0.0
        return (
            f"{type(self).__name__}(num_nodes={self.std.numel()}, "
            f"relative_error={worst:.1g}, alpha={self.alpha:g}, "
            f"num_probes={self.num_probes})"
        )


@dataclass(frozen=True, kw_only=True)
class Noise:
    r"""Independent errors of outputs, and how their effect is computed.

    Args:
        variance (float or Tensor): Variance of the errors, one for all or one for each
            node, in the coordinates in which outputs are averaged.
            (default: :obj:`1.0`)
        exact_up_to (int): Up to so many nodes everything is computed exactly, at the
            cost of as many solves as there are nodes. (default: :obj:`1024`)
        num_probes (int): Random vectors for more nodes than that, each the cost of a
            solve. The relative error of a standard deviation is about
            :math:`1 / \sqrt{2 m}`. (default: :obj:`256`)
        alpha (float): All intervals hold at once with probability at least
            :math:`1 - \alpha`. (default: :obj:`0.01`)
        generator (torch.Generator, optional): For the random vectors.
            (default: one with seed 0)

    Example:
        >>> Noise(variance=0.04).num_probes
        256
    """

    variance: float | Tensor = 1.0
    exact_up_to: int = 1024
    num_probes: int = 256
    alpha: float = 0.01
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.variance, Tensor):
            check_scalar("variance", self.variance, minimum=0.0)
        check_count("exact_up_to", self.exact_up_to, minimum=0)
        check_count("num_probes", self.num_probes)
        check_scalar("alpha", self.alpha, above=0.0, below=1.0)


@dataclass(frozen=True, eq=False)
class NoiseRoot:
    """A matrix whose rows have the variances of outputs as squared norms."""

    value: Tensor  # [N, m] float64; divided by the root of m if that is random
    error: float  # bound on the norm of the error of any row
    noise: Noise
    is_exact: bool

    def uncertainty(
        self,
        rows: Tensor,  # [M, m], combinations of rows with weights of sum at most 1
        known: Tensor | float = 0.0,  # [M], variance that does not pass through these
        within: tuple[Tensor, Tensor] | None = None,  # [M], bounds on the variance
    ) -> Uncertainty:
        """Standard deviations, and an interval for each."""
        norm = torch.linalg.vector_norm(rows, dim=1)
        ends = (norm.detach() - self.error).clamp(min=0.0), norm.detach() + self.error
        count = 0
        if not self.is_exact:
            count = self.noise.num_probes
            ends = self._confident(*ends)
        low, high = (end.square() + known for end in ends)
        if within is not None:
            low, high = torch.maximum(low, within[0]), torch.minimum(high, within[1])
        least, most = low.sqrt(), high.sqrt()
        std = (norm.square() + known).clamp(min=torch.finfo(norm.dtype).tiny).sqrt()
        std = torch.minimum(torch.maximum(std, least), most)
        alpha = 0.0 if self.is_exact else self.noise.alpha
        return Uncertainty(std, least, most, alpha, count)

    def _confident(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of intervals that hold for all rows at once, with their confidence."""
        from scipy.stats import chi2

        m, tail = self.noise.num_probes, self.noise.alpha / (2 * max(1, len(low)))
        least, most = chi2.ppf(tail, m) / m, chi2.isf(tail, m) / m
        return low / most**0.5, high / least**0.5


def noise_root(
    smoother: Smoother,
    lap: LaplacianOperator,
    noise: Noise,
    std: Tensor,  # [N] float64
    precision: Tensor | None,  # [N] float64
) -> NoiseRoot:
    """Solves for unit or random vectors, a block of columns at a time."""
    size = lap.num_nodes
    exact = size <= noise.exact_up_to
    scale = std if precision is None else precision * std
    if exact:
        z = torch.eye(size, dtype=torch.float64, device=std.device)
    else:
        generator = noise.generator or torch.Generator().manual_seed(0)
        z = torch.randn(
            size, noise.num_probes, generator=generator, dtype=torch.float64
        ).to(std.device)
        z /= noise.num_probes**0.5
    lam = smoother.strength(std)
    solver = Auto() if smoother.solver is None else smoother.solver
    parts, error = [z[:, :0]], 0.0
    for block in z.split(_WIDTH, 1):
        rhs = scale.unsqueeze(1) * block
        value, solution = smooth(lap, lam, rhs, solver, precision=precision)
        parts.append(value)
        error += float(solution.error_bound.square().sum())
    return NoiseRoot(torch.cat(parts, 1), error**0.5, noise, exact)


def own_shares(
    op: LaplacianOperator, strength: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor]:  # [N] twice
    r"""Bounds on the diagonal of :math:`\mathbf{K}`, in one pass over the edges.

    The lower one is :math:`p_i / (p_i + \lambda a_i)`. The upper one is the entry of
    the star that is left of the graph without the edges among other nodes.
    """
    col = op.pattern.col
    per_edge = strength if strength.dim() == 0 else strength[op.pattern.row]
    t = per_edge * op.off_diagonal
    through = t * precision[col] / (precision[col] + t)
    total, star = op.pattern.row_sum(t), op.pattern.row_sum(through)
    return precision / (precision + total), precision / (precision + star)
