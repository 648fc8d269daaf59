r"""Standard errors of smoothed outputs under independent noise.

Smoothing is linear, :math:`f = \mathbf{K} y` with
:math:`\mathbf{K} = (\mathbf{P} + \lambda \mathbf{L})^{-1} \mathbf{P}`. If outputs carry
independent errors with standard deviations :math:`\sigma`, then

.. math::
    \mathrm{Var} f_i = \sum_j K_{ij}^2 \sigma_j^2 = \|g_i\|^2, \qquad
    \mathbf{G} = \mathbf{K} \, \mathrm{diag}(\sigma) \mathbf{Z}

for :math:`\mathbf{Z}` the identity. For many people :math:`\mathbf{Z}` has :math:`m`
columns of independent standard normal numbers. Every entry of row :math:`g_i` is then
normal with just that variance, so :math:`\|g_i\|^2 / \mathrm{Var} f_i` has the
:math:`\chi^2` distribution with :math:`m` degrees of freedom, whatever the graph: an
exact confidence interval, which a union bound makes one for everybody at once
(:doc:`/guarantees`).
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers.base import Solver, Uncertainty
from pyg_glif.solvers.implicit import smooth

# Columns that are solved for at once.
_WIDTH = 32


@dataclass(frozen=True, kw_only=True)
class Noise:
    r"""Independent errors of outputs, and how their effect is computed.

    Args:
        variance (float or Tensor): Variance of the errors, one for all or one for each
            person, in the coordinates in which outputs are averaged.
            (default: :obj:`1.0`)
        exact_up_to (int): Up to so many people everything is computed exactly, at the
            cost of as many solves as there are people. (default: :obj:`1024`)
        num_probes (int): Random vectors for more people than that, each the cost of a
            solve. The relative error of a standard deviation is about
            :math:`1 / \sqrt{2 m}`. (default: :obj:`256`)
        alpha (float): The intervals of everybody hold at once with probability at
            least :math:`1 - \alpha`. (default: :obj:`0.01`)
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
    op: LaplacianOperator,
    lam: Tensor,
    solver: Solver,
    noise: Noise,
    std: Tensor,  # [N] float64
    precision: Tensor | None,  # [N] float64
) -> NoiseRoot:
    """Solves for all people, or for random vectors, a block of columns at a time."""
    size = op.num_nodes
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
    parts, error = [z[:, :0]], 0.0
    for block in z.split(_WIDTH, 1):
        rhs = scale.unsqueeze(1) * block
        value, found = smooth(op, lam, rhs, solver, precision=precision)
        parts.append(value)
        error += float(found.error_bound.square().sum())
    return NoiseRoot(torch.cat(parts, 1), error**0.5, noise, exact)


def own_shares(
    op: LaplacianOperator, strength: Tensor, precision: Tensor
) -> tuple[Tensor, Tensor]:  # [N] twice
    r"""Bounds on the diagonal of :math:`\mathbf{K}`, in one pass over the edges.

    The lower one is :math:`p_i / (p_i + \lambda a_i)`. The upper one is the entry of
    the star that is left of the graph without the edges among other people.
    """
    col = op.pattern.col
    per_edge = strength if strength.dim() == 0 else strength[op.pattern.row]
    t = per_edge * op.off_diagonal
    through = t * precision[col] / (precision[col] + t)
    total, star = op.pattern.row_sum(t), op.pattern.row_sum(through)
    return precision / (precision + total), precision / (precision + star)
