"""The whole method as pure functions."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, overload

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_coefficient,
    check_count,
    check_finite,
    check_group,
    check_node_rows,
    check_rank,
    check_scalar,
    check_signal,
    full_precision,
)
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link, dual_of_people, outputs_of_people
from pyg_glif.solvers import (
    Auto,
    Balance,
    Definition,
    Disagreement,
    Noise,
    Solution,
    Solver,
    Uncertainty,
    balance as balance_groups,
    noise_root,
    own_shares,
    smooth,
    smooth_worst_case,
)
from pyg_glif.typing import Normalization


@overload
def glif_smooth(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = ...,
    *,
    lam: float | Tensor = ...,
    normalization: Normalization = ...,
    solver: Solver | None = ...,
    link: Link | None = ...,
    num_nodes: int | None = ...,
    batch: Tensor | None = ...,
    groups: Tensor | None = ...,
    balance: bool = ...,
    definition: Definition = ...,
    y_std: float | Tensor | None = ...,
    variance: float | Tensor | Noise | None = ...,
    return_solution: Literal[False] = ...,
) -> Tensor: ...


@overload
def glif_smooth(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = ...,
    *,
    lam: float | Tensor = ...,
    normalization: Normalization = ...,
    solver: Solver | None = ...,
    link: Link | None = ...,
    num_nodes: int | None = ...,
    batch: Tensor | None = ...,
    groups: Tensor | None = ...,
    balance: bool = ...,
    definition: Definition = ...,
    y_std: float | Tensor | None = ...,
    variance: float | Tensor | Noise | None = ...,
    return_solution: Literal[True],
) -> Solution: ...


def glif_smooth(
    y_hat: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    solver: Solver | None = Auto(),  # noqa: B008  (immutable)
    link: Link | None = None,
    num_nodes: int | None = None,
    batch: Tensor | None = None,
    groups: Tensor | None = None,
    balance: bool = False,
    definition: Definition = "members",
    y_std: float | Tensor | None = None,
    variance: float | Tensor | Noise | None = None,
    return_solution: bool = False,
) -> Tensor | Solution:
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
            ``edge_weight``, ``normalization``, ``num_nodes`` and ``batch``.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        lam (float or Tensor): Strength :math:`\lambda \ge 0`, a number or a 0-d tensor.
            Zero returns ``y_hat``. (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None`, :obj:`"nrw"` or :obj:`"density"`.
            (default: :obj:`None`)
        solver (Solver, optional): How the system is solved; :obj:`None` is the default
            too. (default: :obj:`Auto()`)
        link (Link, optional): Output space; outputs are smoothed in its dual
            coordinates, to which residual and bound then refer. (default: :obj:`None`)
        num_nodes (int, optional): Number of nodes, if a check of ``y_hat`` is wanted.
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)
        groups (Tensor, optional): A group number for everybody, for ``balance``.
            (default: :obj:`None`)
        balance (bool): Whether groups are to be treated equally alike: the strength is
            then shared out so that the energy per member is the same in every group,
            or as nearly so as it can be (:mod:`pyg_glif.solvers.balance`).
            ``Solution.balance`` tells how evenly. Gradients take the shares as given.
            (default: :obj:`False`)
        definition (str): What the energy of a group is divided by: its
            :obj:`"members"`, its :obj:`"pairs"`, or what the published code of GUIDE
            counts, :obj:`"guide"`. (default: :obj:`"members"`)
        y_std (float or Tensor, optional): Standard deviation of everybody's output, in
            the coordinates in which outputs are averaged, where some are known with
            more certainty than others. The system is then
            :math:`(\mathbf{S}^{-1} + \lambda \mathbf{L}) f = \mathbf{S}^{-1} \hat y`
            with :math:`\mathbf{S} = \mathrm{diag}(\sigma^2)`: whoever is known better
            keeps more of their own. Not for ``"nrw"``. (default: :obj:`None`, one for
            everybody)
        variance (float, Tensor or Noise, optional): Variance of independent errors of
            the outputs, for ``Solution.uncertainty``: the standard deviations of the
            smoothed outputs. It does not change these; pass ``y_std ** 2`` if that is
            what the outputs' errors are. (default: :obj:`None`)
        return_solution (bool): Whether to return the whole
            :class:`~pyg_glif.solvers.Solution`. (default: :obj:`False`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch, groups, standard deviations and variances
          :math:`(N)`
        - **output:** like the outputs

    A node without neighbours keeps its output exactly, and ``lam=0`` returns the input
    exactly, whatever the link. float16 and bfloat16 outputs are smoothed in higher
    precision and returned in their own. Gradients of any order reach
    ``y_hat``, ``edge_weight``, ``lam`` and ``y_std``, each at the cost of one more
    solve. Raises :class:`~pyg_glif.errors.ConvergenceError` if ``solver`` gives up, or
    if ``"nrw"`` makes the objective lose its minimum.

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> y_hat = torch.tensor([0.0, 3.0, 5.0])
        >>> glif_smooth(y_hat, edge_index)
        tensor([1., 2., 5.])
        >>> glif_smooth(y_hat, edge_index, y_std=torch.tensor([1.0, 2.0, 1.0]))
        tensor([0.5000, 1.0000, 5.0000])
    """
    check_signal("y_hat", y_hat, half=True)
    check_coefficient("lam", lam, minimum=0.0)
    lap = _as_operator(
        "y_hat", y_hat, edge_index, edge_weight, normalization, num_nodes, batch
    )
    strength = torch.as_tensor(lam, dtype=torch.float64, device=y_hat.device)
    solver = Auto() if solver is None else solver
    groups = _checked_groups(groups, balance, lap)
    precision = _checked_precision(y_std, lap)
    for name, given in (("y_std", y_std), ("variance", variance)):
        if balance and given is not None:
            raise ValueError(f"'{name}' must be None with balance=True")
    if variance is not None and not return_solution:
        msg = "'return_solution' must be True with 'variance' (got False)"
        raise ValueError(f"{msg}. The result is in 'Solution.uncertainty'")
    value, solution = smooth_outputs(
        lap,
        strength,
        y_hat,
        solver,
        link,
        groups=groups,
        definition=definition,
        precision=precision,
    )
    if variance is not None:
        found = _uncertainty(lap, strength, solver, variance, precision)
        solution = replace(solution, uncertainty=found)
    return replace(solution, value=value) if return_solution else value


def smooth_outputs(
    lap: LaplacianOperator,
    lam: Tensor,
    y_hat: Tensor,
    solver: Solver,
    link: Link | None,
    x0: Tensor | None = None,
    groups: Tensor | None = None,
    definition: Definition = "members",
    precision: Tensor | None = None,
) -> tuple[Tensor, Solution]:
    """Smoothed outputs, and the solve behind them in dual coordinates ``[N, C]``.

    This is what :func:`glif_smooth` and ``GLIFPostProcessor.fit`` do once arguments are
    checked; ``lam`` is a 0-d tensor, ``x0`` a first guess in dual coordinates, and
    ``groups``, if given, are balanced there. ``precision`` are float64 precisions of
    the outputs there, one for each person.
    """
    # A link's logarithms want more digits than half precision has.
    full = y_hat if link is None else full_precision(y_hat)
    eta = dual_of_people(link, full)
    columns = eta.reshape(eta.size(0), math.prod(eta.shape[1:]))
    shares: Balance | None = None
    if groups is not None:
        lap, shares, x0 = _balanced(lap, groups, lam, columns, solver, x0, definition)
    if precision is None:
        found, solution = smooth(lap, lam, columns, solver, x0)
    else:
        found, solution = _smooth_weighted(lap, lam, columns, solver, x0, precision)
    solution = replace(solution, balance=shares)
    value = outputs_of_people(link, found.view_as(eta), full, lap.deg.detach() == 0)
    if link is not None and float(lam.detach()) == 0.0:
        # The input itself, with the derivatives of the smoothing.
        value = full.detach() + (value - value.detach())
    return value.to(y_hat.dtype), solution


def _smooth_weighted(
    lap: LaplacianOperator,
    lam: Tensor,
    columns: Tensor,
    solver: Solver,
    x0: Tensor | None,
    precision: Tensor,
) -> tuple[Tensor, Solution]:
    """Smooths outputs of unequal certainty."""
    y = columns.double()
    rhs, start = precision.unsqueeze(1) * y, y.detach() if x0 is None else x0
    found, solution = smooth(lap, lam, rhs, solver, start, precision)
    # Nobody to average with: the output itself, whatever its precision rounds to.
    found = torch.where((lap.deg.detach() == 0).unsqueeze(1), y, found)
    if float(lam.detach()) == 0.0:
        found = y.detach() + (found - found.detach())
    solution = replace(solution, value=found.detach()).to(columns.dtype)
    found = found.to(columns.dtype)
    return found, replace(solution, value=found)


def _uncertainty(
    lap: LaplacianOperator,
    lam: Tensor,
    solver: Solver,
    variance: float | Tensor | Noise,
    precision: Tensor | None,
) -> Uncertainty:
    """Standard deviations of everybody's smoothed output."""
    noise = variance if isinstance(variance, Noise) else Noise(variance=variance)
    std = _per_person("variance", noise.variance, lap).sqrt()
    root = noise_root(lap, lam, solver, noise, std, precision)
    within = None
    if lap.is_psd:
        one = torch.ones_like(std) if precision is None else precision.detach()
        strength = lam.detach() * lap.lam_scale
        low, high = own_shares(lap, strength, one)
        size = std.detach().square()
        most = (one * size).max() if size.numel() else 0.0
        within = low.square() * size, most * high / one
    return root.uncertainty(root.value, within=within)


def _checked_precision(
    y_std: float | Tensor | None, lap: LaplacianOperator
) -> Tensor | None:
    """Precisions of everybody's output, if there are any."""
    if y_std is None:
        return None
    check_choice("normalization", lap.normalization, (None, "density"))
    return _per_person("y_std", y_std, lap, above=0.0).square().reciprocal()


def _per_person(
    name: str, value: float | Tensor, lap: LaplacianOperator, above: float | None = None
) -> Tensor:  # [N] float64
    """One number for each person, or for all of them: positive, or not negative."""
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


@torch.no_grad()
def _balanced(
    lap: LaplacianOperator,
    groups: Tensor,
    lam: Tensor,
    columns: Tensor,
    solver: Solver,
    x0: Tensor | None,
    definition: Definition,
) -> tuple[LaplacianOperator, Balance, Tensor | None]:
    """The Laplacian that balances groups, how well, and where to start its solve."""
    latest = x0

    def solve(op: LaplacianOperator, guess: Tensor | None) -> Tensor:
        nonlocal latest
        latest = smooth(op, lam, columns, solver, x0 if guess is None else guess)[0]
        return latest

    factor, shares = balance_groups(lap, groups, float(lam), columns, solve, definition)
    # Gradients reach the weights of the graph, at the shares that were found.
    with torch.enable_grad():
        return lap.reweighted(factor), shares, latest


def _checked_groups(
    groups: Tensor | None, balance: bool, lap: LaplacianOperator
) -> Tensor | None:
    """The groups, if they are to be balanced and can be."""
    if not balance:
        return None
    if groups is None:
        raise ValueError("'groups' must be given for balance=True (got None)")
    check_choice("normalization", lap.normalization, (None, "density"))
    return check_group("groups", groups, lap.num_nodes).to(lap.deg.device)


def glif_worst_case(
    y_hat: Tensor,
    graphs: Sequence[Any],
    *,
    lam: float | Tensor = 1.0,
    normalization: Normalization = None,
    solver: Solver | None = Auto(),  # noqa: B008  (immutable)
    link: Link | None = None,
) -> tuple[Tensor, Disagreement]:
    r"""Smooths for the annotator who sees the most unequal treatment.

    .. math::
        f = \arg\min_f \|f - \hat y\|^2
        + \lambda \max_a \mathrm{tr}(f^\top \mathbf{L}_a f)

    where every annotator :math:`a` has a graph of their own: nobody is outvoted, as
    they are if graphs are averaged. Convex; the result comes with its duality gap
    (:mod:`pyg_glif.solvers.disagreement`).

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        graphs (sequence): One graph for each annotator: edges, a pair of edges and
            weights, or a :class:`~pyg_glif.laplacian.LaplacianOperator`.
        lam (float or Tensor): Strength :math:`\lambda \ge 0`. (default: :obj:`1.0`)
        normalization (str, optional): :obj:`None` or :obj:`"density"`.
            (default: :obj:`None`)
        solver (Solver, optional): How systems are solved. (default: :obj:`Auto()`)
        link (Link, optional): Output space, as in :func:`glif_smooth`.
            (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`
        - **output:** like the outputs, and a
          :class:`~pyg_glif.solvers.Disagreement`

    Gradients reach ``y_hat``, weights and ``lam``; they take the shares of the
    annotators as given.

    Example:
        >>> y_hat = torch.tensor([0.0, 1.0, 4.0])
        >>> first = torch.tensor([[0, 1], [1, 0]])  # finds 0 and 1 alike
        >>> second = torch.tensor([[1, 2], [2, 1]])  # finds 1 and 2 alike
        >>> value, found = glif_worst_case(y_hat, [first, second], lam=1.0)
        >>> value.round(decimals=3)
        tensor([0.3330, 1.6670, 3.0000])
        >>> found.weight.round(decimals=3)
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    check_signal("y_hat", y_hat)
    check_coefficient("lam", lam, minimum=0.0)
    if len(graphs) == 0:
        raise ValueError("'graphs' must have one graph at least (got none)")
    laps = []
    for graph in graphs:
        edges, weight = graph if isinstance(graph, (tuple, list)) else (graph, None)
        laps.append(
            _as_operator("y_hat", y_hat, edges, weight, normalization, None, None)
        )
    strength = torch.as_tensor(lam, dtype=torch.float64, device=y_hat.device)
    eta = dual_of_people(link, y_hat)
    columns = eta.reshape(eta.size(0), math.prod(eta.shape[1:]))
    solver = Auto() if solver is None else solver
    found, evidence = smooth_worst_case(laps, strength, columns, solver)
    deg = sum(lap.deg.detach() for lap in laps)
    alone = torch.as_tensor(deg) == 0
    return outputs_of_people(link, found.view_as(eta), y_hat, alone), evidence


def laplacian_penalty(
    f: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    normalization: Normalization = None,
    reduction: Literal["sum", "mean", "consistent"] = "sum",
    theta: float | Tensor | None = None,
    num_dims: int | None = None,
    num_nodes: int | None = None,
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
            float32: a sum over people soon exceeds what those can hold.
        edge_index (Tensor, SparseTensor or LaplacianOperator): The graph, as in
            :func:`glif_smooth`.
        edge_weight (Tensor, optional): Weights. (default: :obj:`None`, all ones)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        reduction (str): See above. (default: :obj:`"sum"`)
        theta (float or Tensor, optional): Kernel parameter, for ``"consistent"``.
        num_dims (int, optional): Dimension :math:`d` of the fair space, for
            ``"consistent"`` with ``normalization=None``.
        num_nodes (int, optional): Number of nodes, if a check of ``f`` is wanted.
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)

    Shapes:
        - **input:** signal :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch :math:`(N)`
        - **output:** :math:`()`

    Unlike in :func:`glif_smooth`, the average degree does not enter. Gradients of any
    order reach ``f``, ``edge_weight`` and ``theta``; memory is that of edges and
    columns, never their product.

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> laplacian_penalty(torch.tensor([0.0, 3.0]), edge_index)
        tensor(9.)
    """
    check_choice("reduction", reduction, ("sum", "mean", "consistent"))
    check_signal("f", f, half=True)
    f = full_precision(f)
    lap = _as_operator("f", f, edge_index, edge_weight, normalization, num_nodes, batch)
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


def _as_operator(
    name: str,
    value: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None,
    normalization: Normalization,
    num_nodes: int | None,
    batch: Tensor | None,
) -> LaplacianOperator:
    """The graph as an operator with as many nodes as ``value`` has rows."""
    if num_nodes is not None:
        check_node_rows(name, value, check_count("num_nodes", num_nodes, minimum=0))
    if not isinstance(edge_index, LaplacianOperator):
        return LaplacianOperator(
            edge_index,
            edge_weight,
            normalization=normalization,
            num_nodes=value.size(0),
            batch=batch,
        )
    for other, given in (("edge_weight", edge_weight), ("batch", batch)):
        if given is not None:
            msg = f"'{other}' must be None when 'edge_index' is a LaplacianOperator"
            raise ValueError(f"{msg}. Pass it to the operator")
    if normalization is not None:
        check_choice("normalization", normalization, (edge_index.normalization,))
    check_node_rows(name, value, edge_index.num_nodes)
    return edge_index
