"""Global individual fairness: the nearest outputs that obey every constraint."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.arrays import like
from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_count,
    check_features,
    check_outputs,
    check_same_rows,
    check_scalar,
)
from pyg_glif.baselines._constraint_generation import ConstraintGeneration
from pyg_glif.distances import FairDistance
from pyg_glif.graph.pairwise import pair_distances


class Projection(NamedTuple):
    r"""Outputs that obey a Lipschitz condition, and the proof that they are nearest.

    Violation, objective and gap are computed from ``value`` as returned, rounding to
    its dtype included, and do not trust the solver: ``max_violation`` looks at all
    pairs again, and any multipliers whatsoever give a lower bound.

    Attributes:
        value (torch.Tensor): The fair outputs, with shape and dtype of ``y_hat``; an
            array or a series where ``y_hat`` is one.
        max_violation (float): The largest
            :math:`\| \mathbf{f}_i - \mathbf{f}_j \|_2 - L d_{ij}` of all pairs, in
            units of the outputs, or zero if no pair exceeds its limit.
        duality_gap (float): :math:`(P - D) / P`, where :math:`P` is ``objective`` and
            :math:`D` a lower bound of the minimum; zero if :math:`P` is.
        num_active (int): Number of pairs that hold others back: those with a
            multiplier. Pairs at distance zero do not count.
        objective (float): :math:`P = \sum_i \| \mathbf{f}_i - \hat{\mathbf{y}}_i \|^2`.
        num_iter (int): How often the working set was solved.
        active_pairs (torch.Tensor): The active pairs :math:`i < j`, int64,
            :math:`(2, A)`.
        multipliers (torch.Tensor): What each active pair :math:`(i, j)` takes from
            :math:`\hat{\mathbf{y}}_i` and gives to :math:`\hat{\mathbf{y}}_j`, float64,
            :math:`(A)` or :math:`(A, C)`. It points along
            :math:`\mathbf{f}_i - \mathbf{f}_j`.
    """

    value: Tensor
    max_violation: float
    duality_gap: float
    num_active: int
    objective: float
    num_iter: int
    active_pairs: Tensor
    multipliers: Tensor

    @property
    def error_bound(self) -> float:
        r"""Bound on the distance of ``value`` to the exact solution.

        :math:`\| \mathbf{F} - \mathbf{F}^{\star} \|_F \le \sqrt{P - D}`, if no pair
        exceeds its limit.
        """
        return math.sqrt(self.duality_gap * self.objective)


@without_autocast()
def lipschitz_projection(
    x: Tensor,
    y_hat: Tensor,
    lipschitz: float,
    *,
    distance: FairDistance | None = None,
    rtol: float = 1e-6,
    max_iter: int = 100,
    tile_size: int = 256,
    progress: bool | None = None,
) -> Projection:
    r"""Nearest outputs with a Lipschitz condition on all pairs.

    .. math::
        \min_{\mathbf{F}} \sum_i \| \mathbf{f}_i - \hat{\mathbf{y}}_i \|_2^2
        \quad \text{s.t.} \quad
        \| \mathbf{f}_i - \mathbf{f}_j \|_2 \le L \, d(\mathbf{x}_i, \mathbf{x}_j)
        \quad \text{for all } i, j ,

    the global individual fairness that the
    `paper <https://arxiv.org/abs/2110.13796>`_ compares with (eq. 2.3,
    "IF-constraints"). Hardly more constraints than samples are active at the solution.
    So the problem is solved for a working set, all pairs are searched in tiles for
    those that it breaks, the worst ones join the set, idle ones leave it, and so on
    until a feasible point and a lower bound meet. Memory grows with the number of
    samples, not of pairs.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y_hat (torch.Tensor): Outputs, float32 or float64.
        lipschitz (float): The constant :math:`L \ge 0`, outputs per distance. Zero
            gives all samples the mean, infinity changes nothing.
        distance (FairDistance, optional): Fair distance. It need not obey the
            triangle inequality. (default: Euclidean)
        rtol (float, optional): Relative duality gap to reach: the objective is at
            most this share above the minimum. (default: :obj:`1e-6`)
        max_iter (int, optional): How often the working set may be solved before
            :class:`~pyg_glif.errors.ConvergenceError` is raised.
            (default: :obj:`100`)
        tile_size (int, optional): Rows and columns searched at once.
            (default: :obj:`256`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the work takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
        - **output:** :class:`Projection`

    Constants are always feasible, so there is a solution, and only one. Samples at
    distance zero get the same output. The mean output stays. All work is done in
    float64; no gradient reaches the inputs. The outputs returned are shrunk towards
    their mean by the tiny factor that makes every pair feasible, up to rounding to
    the dtype of ``y_hat``. Only where some samples are so close to each other that this
    would cost more than ``rtol``, pairs may exceed their limit, by at most
    ``max(1e-3 * rtol, 1e-10)`` times the largest :math:`|\hat{y} - \text{mean}|`;
    ``max_violation`` says by how much.

    The objective is known to ``rtol``, the outputs themselves to its square root, see
    :attr:`Projection.error_bound`: lower ``rtol`` to 1e-10 to compare single outputs.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> fair = lipschitz_projection(x, torch.tensor([0.0, 3.0, 2.0]), 1.0)
        >>> fair.value.round(decimals=3)
        tensor([1., 2., 2.])
        >>> fair.num_active, fair.active_pairs.T.tolist()
        (1, [[0, 1]])
        >>> round(fair.max_violation, 6), round(fair.duality_gap, 6)
        (0.0, 0.0)
    """
    original, x = y_hat, check_features("x", x).detach()
    y_hat = check_outputs("y_hat", y_hat).detach()
    check_same_rows("y_hat", y_hat, "x", x)
    lipschitz = check_scalar("lipschitz", lipschitz, minimum=0.0, allow_inf=True)
    check_scalar("rtol", rtol, above=0.0)
    check_count("max_iter", max_iter)
    check_count("tile_size", tile_size)
    dists = pair_distances(x, distance)
    if math.isinf(lipschitz):
        return _unchanged(y_hat, like(original, y_hat.clone()))
    problem = ConstraintGeneration(dists, y_hat, lipschitz, tile_size)
    num_iter = problem.solve(rtol, max_iter, progress)
    nodes, value = problem.rounded()
    pairs, multipliers = problem.active()
    return Projection(
        like(original, value),
        problem.max_violation(value),
        problem.gap(nodes),
        pairs.size(1),
        problem.objective(nodes),
        num_iter,
        pairs,
        multipliers.reshape(-1, *y_hat.shape[1:]),
    )


def _unchanged(y_hat: Tensor, value: Any) -> Projection:
    """The result without constraints."""
    pairs = torch.empty(2, 0, dtype=torch.long)
    multipliers = torch.empty(0, *y_hat.shape[1:], dtype=torch.float64)
    return Projection(value, 0.0, 0.0, 0, 0.0, 0, pairs, multipliers)
