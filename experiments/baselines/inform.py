"""InFoRM: debiasing of results, which is GLIF, and of the graph that is mined."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.arrays import like, to_tensor
from pyg_glif._utils.validation import (
    check_coefficient,
    check_count,
    check_edges,
    check_finite,
    check_non_negative,
    check_scalar,
    check_signal,
    full_precision,
)
from pyg_glif.functional import glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import Solver


def inform_debias(
    result: Any,
    similarity: Any,
    alpha: float | Tensor,
    *,
    edge_weight: Tensor | None = None,
    solver: Solver | None = None,
) -> Any:
    r"""Debiases a result (`InFoRM <https://doi.org/10.1145/3394486.3403080>`_).

    .. math::
        \arg\min_{\mathbf{Y}} \| \mathbf{Y} - \bar{\mathbf{Y}} \|_F^2 +
        \alpha \operatorname{tr}(\mathbf{Y}^{\top} \mathbf{L}_S \mathbf{Y}) =
        (\mathbf{I} + \alpha \mathbf{L}_S)^{-1} \bar{\mathbf{Y}}, \qquad
        \mathbf{L}_S = \operatorname{diag}(\mathbf{S} \mathbf{1}) - \mathbf{S}

    Published a year before GLIF, for results on the nodes of a graph (PageRank,
    spectral embeddings, LINE) and a matrix :math:`\mathbf{S}` of their similarities. It
    is :func:`~pyg_glif.functional.glif_smooth` with these similarities as weights,
    ``lam=alpha`` and ``normalization=None``, and this function calls just that. InFoRM
    also measures bias by :math:`\operatorname{tr}(\mathbf{Y}^{\top} \mathbf{L}_S
    \mathbf{Y})`, which is :func:`~pyg_glif.functional.laplacian_penalty`.

    Args:
        result (torch.Tensor or array): The result :math:`\bar{\mathbf{Y}}`, float32 or
            float64. What comes back is of the same kind.
        similarity (torch.Tensor, array or sparse matrix): Symmetric, non-negative
            similarities: a dense matrix, a ``torch.sparse`` or SciPy matrix, a
            ``SparseTensor``, edges with both directions as whole numbers
            :math:`(2, E)`, or a :class:`~pyg_glif.laplacian.LaplacianOperator`. The
            diagonal does not matter.
        alpha (float or torch.Tensor): Strength :math:`\alpha \ge 0`. Zero returns
            ``result``.
        edge_weight (torch.Tensor, optional): Similarities of the edges, if
            ``similarity`` holds edges. (default: :obj:`None`, all ones)
        solver (Solver, optional): How the system is solved. (default: :obj:`Auto()`)

    Shapes:
        - **input:** result :math:`(N)` or :math:`(N, C)`, similarity :math:`(N, N)` or
          edges :math:`(2, E)`, weights :math:`(E)`
        - **output:** like the result

    Gradients reach ``result``, ``alpha`` and the similarities, if they are tensors.
    Where InFoRM's own code stops its iteration after 100 rounds, converged or not,
    this one raises :class:`~pyg_glif.errors.ConvergenceError`.

    Example:
        >>> similarity = torch.tensor([[1.0, 0.5], [0.5, 1.0]])
        >>> inform_debias(torch.tensor([0.0, 3.0]), similarity, alpha=2.0)
        tensor([1., 2.])
    """
    value = result if isinstance(result, Tensor) else to_tensor("result", result)
    check_signal("result", value)
    check_coefficient("alpha", alpha, minimum=0.0)
    known = isinstance(similarity, LaplacianOperator)
    graph = similarity if known else _to_graph(similarity)
    if isinstance(graph, Tensor):
        graph = graph.to(value.device)
        if graph.layout == torch.strided:
            check_edges(graph, len(value), name="similarity")
        else:
            _check_similarity("similarity", graph, len(value))
            if edge_weight is not None:
                msg = "'edge_weight' must be None when 'similarity' is a matrix"
                raise ValueError(f"{msg}. Its values are the weights")
    fair = glif_smooth(value, graph, edge_weight, lam=alpha, solver=solver)
    return fair if isinstance(result, Tensor) else like(result, fair)


def inform_debias_graph(
    outputs: Callable[[Tensor], Tensor],
    edge_weight: Tensor,
    lap: LaplacianOperator,
    alpha: float,
    *,
    start: Tensor | None = None,
    num_steps: int = 10,
    lr: float = 0.1,
) -> Tensor:
    r"""Debiases the graph (`InFoRM <https://doi.org/10.1145/3394486.3403080>`_).

    Descends, from the weights as they are, the objective

    .. math::
        \| w - \bar w \|_2^2 + \alpha \operatorname{tr}(\mathbf{Y}(w)^{\top}
        \mathbf{L}_S \mathbf{Y}(w)), \qquad w \ge 0 ,

    over the weights of the edges that there are: whatever is mined from the graph,
    :math:`\mathbf{Y}(w)`, shall treat similar nodes alike. Written from the paper,
    where the result is mined anew at every step; here ``outputs`` says how it depends
    on the weights, so that a network can be trained again between two calls, with
    ``start`` the weights so far.

    Args:
        outputs (callable): The result from the weights, differentiable. If an edge has
            a weight in either direction, it should use their mean.
        edge_weight (torch.Tensor): The weights :math:`\bar w`.
        lap (LaplacianOperator): Laplacian of the similarities of nodes.
        alpha (float): How much likeness counts.
        start (torch.Tensor, optional): Where to begin.
            (default: :obj:`None`, at ``edge_weight``)
        num_steps (int): Steps of gradient descent. (default: :obj:`10`)
        lr (float): Their length. (default: :obj:`0.1`)

    Shapes:
        - **input:** weights :math:`(E)`
        - **output:** weights :math:`(E)`

    Example:
        >>> lap = LaplacianOperator(torch.tensor([[0, 1], [1, 0]]))
        >>> inform_debias_graph(
        ...     lambda w: torch.stack([w[0], -w[0]]), torch.ones(1), lap, 0.25
        ... )
        tensor([0.5030])
    """
    check_coefficient("alpha", alpha, minimum=0.0)
    check_count("num_steps", num_steps)
    check_scalar("lr", lr, minimum=0.0)
    given = edge_weight.detach()
    weight = (given if start is None else start.detach()).clone()
    for _ in range(num_steps):
        with torch.enable_grad():
            weight.requires_grad_()
            change = (weight - given).square().sum()
            unlike = lap.quadratic(outputs(weight)).sum()
            (slope,) = torch.autograd.grad(change + alpha * unlike, weight)
        weight = (weight.detach() - lr * slope).clamp(min=0.0)
    return weight


def _to_graph(similarity: Any) -> Any:
    """A form that smoothing takes: dense and SciPy matrices become sparse ones."""
    if hasattr(similarity, "tocoo"):  # SciPy
        matrix = similarity.tocoo()
        ends = np.stack([matrix.row, matrix.col]).astype(np.int64)
        value = to_tensor("similarity", matrix.data)
        # Said explicitly, or torch warns that it will not check the indices.
        similarity = torch.sparse_coo_tensor(
            torch.from_numpy(ends), value, matrix.shape, check_invariants=False
        )
    elif not isinstance(similarity, Tensor) and not hasattr(similarity, "coo"):
        similarity = to_tensor("similarity", similarity)
    if not isinstance(similarity, Tensor) or hasattr(similarity, "as_tensor"):
        return similarity  # SparseTensor, EdgeIndex
    similarity = full_precision(similarity)
    if similarity.dtype == torch.bool:
        similarity = similarity.double()
    if similarity.is_floating_point() and similarity.layout != torch.sparse_coo:
        similarity = similarity.to_sparse_coo()  # whole numbers are edges
    return similarity.coalesce() if similarity.is_sparse else similarity


def _check_similarity(name: str, value: Tensor, num_nodes: int) -> None:
    """A symmetric, non-negative sparse matrix, ``[N, N]``."""
    if tuple(value.shape) != (num_nodes, num_nodes):
        shape = " x ".join(str(size) for size in value.shape)
        msg = f"'{name}' must be {num_nodes} x {num_nodes}, one row per row of 'result'"
        raise ValueError(f"{msg} (got {shape})")
    entries = value.detach().values()
    check_finite(name, entries)
    check_non_negative(name, entries)
    if entries.numel() == 0:
        return
    gap = float((value.detach() - value.detach().t()).coalesce().values().abs().max())
    if gap > 1e-4 * float(entries.max()):
        msg = f"'{name}' must be symmetric (got entries that differ by {gap:.3g})"
        raise ValueError(f"{msg}. Use '({name} + {name}.T) / 2'")
