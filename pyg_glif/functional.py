"""The method as pure functions."""

import math
from typing import Any, Literal

from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_scalar,
    check_signal,
    full_precision,
)
from pyg_glif.laplacian import LaplacianOperator, as_laplacian
from pyg_glif.links import Link
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Solution, Solver
from pyg_glif.typing import Normalization

__all__ = ["glif_smooth", "glif_solve", "laplacian_penalty"]


def glif_smooth(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    link: Link | None = None,
    solver: Solver | None = None,
    y_std: float | Tensor | None = None,
    batch: Tensor | None = None,
) -> Tensor:
    r"""Makes outputs individually fair (`GLIF <https://arxiv.org/abs/2110.13796>`_).

    .. math::
        f = \arg\min_f \|f - \hat y\|^2 + \lambda f^\top \mathbf{L} f
          = (\mathbf{I} + \lambda \mathbf{L})^{-1} \hat y

    with the symmetric Laplacians of :mod:`pyg_glif.laplacian`; for ``"nrw"`` and
    ``"density"``, :math:`\lambda` is first multiplied by the average degree of the
    graph, the self-weight counted.

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        edge_index (Tensor, SparseTensor or LaplacianOperator): The similarity graph,
            both directions of every edge; or a prepared
            :class:`~pyg_glif.laplacian.LaplacianOperator`, which then settles
            ``edge_weight``, ``normalization`` and ``batch``.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        lam (float or Tensor): Strength :math:`\lambda \ge 0`, a number or a 0-d tensor.
            Zero returns ``y_hat``. (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None`, :obj:`"nrw"` or :obj:`"density"`.
            (default: :obj:`None`)
        link (Link, optional): Output space; outputs are smoothed in its dual
            coordinates, to which residual and bound of :func:`glif_solve` then refer.
            (default: :obj:`None`)
        solver (Solver, optional): How the system is solved. (default: :obj:`Auto()`)
        y_std (float or Tensor, optional): Standard deviation of every output, in
            the coordinates in which outputs are averaged, where some are known with
            more certainty than others. The system is then
            :math:`(\mathbf{S}^{-1} + \lambda \mathbf{L}) f = \mathbf{S}^{-1} \hat y`
            with :math:`\mathbf{S} = \mathrm{diag}(\sigma^2)`: an output that is known
            better changes less. Not for ``"nrw"``. (default: :obj:`None`, one for all)
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch and standard deviations :math:`(N)`
        - **output:** like the outputs

    An isolated node keeps its output exactly, and ``lam=0`` returns the input
    exactly, whatever the link. float16 and bfloat16 outputs are smoothed in higher
    precision and returned in their own. Gradients of any order reach
    ``y_hat``, ``edge_weight``, ``lam`` and ``y_std``, each at the cost of one more
    solve. Raises :class:`~pyg_glif.errors.ConvergenceError` if ``solver`` gives up, or
    if ``"nrw"`` makes the objective lose its minimum.

    Example:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> y_hat = torch.tensor([0.0, 3.0, 5.0])
        >>> glif_smooth(y_hat, edge_index)
        tensor([1., 2., 5.])
        >>> glif_smooth(y_hat, edge_index, y_std=torch.tensor([1.0, 2.0, 1.0]))
        tensor([0.5000, 1.0000, 5.0000])
    """
    return glif_solve(
        y_hat,
        edge_index,
        edge_weight,
        lam=lam,
        normalization=normalization,
        link=link,
        solver=solver,
        y_std=y_std,
        batch=batch,
    ).value


def glif_solve(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    link: Link | None = None,
    solver: Solver | None = None,
    y_std: float | Tensor | None = None,
    batch: Tensor | None = None,
) -> Solution:
    r"""The solution behind :func:`glif_smooth`, with status and error bound.

    Arguments and shapes are those of :func:`glif_smooth`; ``value`` is what that
    returns.

    Example:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> solution = glif_solve(torch.tensor([0.0, 3.0]), edge_index)
        >>> solution.value, solution.status.name
        (tensor([1., 2.]), 'CONVERGED')
    """
    check_signal("y_hat", y_hat, half=True)
    smoother = Smoother(lam, normalization=normalization, link=link, solver=solver)
    lap = as_laplacian(edge_index, edge_weight, normalization, batch, y_hat=y_hat)
    return smoother.solve(lap, y_hat, y_std=y_std)


def laplacian_penalty(
    f: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    normalization: Normalization = None,
    reduction: Literal["sum", "mean", "consistent"] = "sum",
    theta: float | Tensor | None = None,
    num_dims: int | None = None,
    batch: Tensor | None = None,
) -> Tensor:
    r"""The penalty :math:`c \cdot \mathrm{tr}(f^\top \mathbf{L} f)` of a signal.

    ==================  ====================================================
    ``reduction``       :math:`c`
    ==================  ====================================================
    ``"sum"``           :math:`1`
    ``"mean"``          :math:`1 / n`, :math:`n` the number of nodes
    ``"consistent"``    :math:`4 \theta / n` for ``"nrw"`` and ``"density"``,
                        :math:`4 \theta (\theta / \pi)^{d/2} / n^2` for ``None``
    ==================  ====================================================

    ``"consistent"`` is the estimator of Theorem 4.1, for the kernel
    :math:`w_{ij} = \exp(-\theta \cdot \mathrm{dist}_{ij}^2)`, that is
    :math:`\sigma^2 = 1 / (2\theta)`, in a fair space of dimension :math:`d`. It tends
    to :math:`\mathbb{E} \|\nabla f(z)\|^2`, for ``None`` to
    :math:`\mathbb{E}[\|\nabla f(z)\|^2 p(z)]` with the density :math:`p` in that space.

    Args:
        f (Tensor): Signal on the nodes. The penalty of float16 and bfloat16 signals is
            float32: a sum over nodes soon exceeds what those can hold.
        edge_index (Tensor, SparseTensor or LaplacianOperator): The graph, as in
            :func:`glif_smooth`.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        reduction (str): See above. (default: :obj:`"sum"`)
        theta (float or Tensor, optional): Kernel parameter, for ``"consistent"``.
        num_dims (int, optional): Dimension :math:`d` of the fair space, for
            ``"consistent"`` with ``normalization=None``.
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)

    Shapes:
        - **input:** signal :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch :math:`(N)`
        - **output:** :math:`()`

    Unlike in :func:`glif_smooth`, the average degree does not enter. Gradients of any
    order reach ``f``, ``edge_weight`` and ``theta``; memory is that of edges and
    columns, never their product.

    Example:
        >>> import torch
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> laplacian_penalty(torch.tensor([0.0, 3.0]), edge_index)
        tensor(9.)
    """
    check_choice("reduction", reduction, ("sum", "mean", "consistent"))
    check_signal("f", f, half=True)
    f = full_precision(f)
    lap = as_laplacian(edge_index, edge_weight, normalization, batch, f=f)
    energy = lap.quadratic(f).sum()
    if reduction == "sum" or f.size(0) == 0:
        return energy
    if reduction == "mean":
        return energy / f.size(0)
    return energy * _consistent_factor(lap, theta, num_dims)


def _consistent_factor(
    lap: LaplacianOperator, theta: float | Tensor | None, num_dims: int | None
) -> float | Tensor:
    """The factor that makes the energy estimate the expected squared gradient."""
    if theta is None:
        raise ValueError(
            "'theta' must be given for reduction=\"consistent\" (got None)"
        )
    if not isinstance(theta, Tensor):
        check_scalar("theta", theta, above=0.0)
    factor = 4.0 * theta / lap.num_nodes
    if lap.normalization is not None:
        return factor
    if num_dims is None:
        msg = "'num_dims' must be given for reduction=\"consistent\" with"
        raise ValueError(f"{msg} normalization=None (got None)")
    check_count("num_dims", num_dims)
    return factor * (theta / math.pi) ** (num_dims / 2) / lap.num_nodes
