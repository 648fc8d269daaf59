"""InFoRM's debiasing of results, which is GLIF with a given similarity matrix."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._arrays import like, to_tensor
from pyg_glif._validate import (
    check_coefficient,
    check_edge_values,
    check_edges,
    check_floating,
    check_signal,
    check_similarity,
)
from pyg_glif.functional import glif_smooth
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
            ``SparseTensor``, or edges with both directions as whole numbers
            :math:`(2, E)`. The diagonal does not matter.
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
    matrix = _to_sparse(similarity, edge_weight, len(value)).to(value.device)
    check_similarity("similarity", matrix, len(value))
    fair = glif_smooth(value, matrix, lam=alpha, solver=solver)
    return fair if isinstance(result, Tensor) else like(result, fair)


def _to_sparse(similarity: Any, weight: Tensor | None, num_nodes: int) -> Tensor:
    """Any accepted form as a coalesced COO matrix."""
    if hasattr(similarity, "sparse_sizes"):  # torch_sparse.SparseTensor
        similarity = _from_sparse_tensor(similarity)
    elif hasattr(similarity, "tocoo"):  # SciPy
        similarity = _from_scipy(similarity.tocoo())
    elif not isinstance(similarity, Tensor):
        similarity = to_tensor("similarity", similarity)
    if hasattr(similarity, "as_tensor"):  # torch_geometric.EdgeIndex
        similarity = similarity.as_tensor()
    if similarity.layout == torch.strided and _holds_edges(similarity):
        return _from_edges(similarity, weight, num_nodes)
    if weight is not None:
        msg = "'edge_weight' must be None when 'similarity' is a matrix"
        raise ValueError(f"{msg}. Its values are the weights")
    if similarity.dtype == torch.bool:
        similarity = similarity.double()
    check_floating("similarity", similarity)
    matrix: Tensor = similarity
    if matrix.layout != torch.sparse_coo:
        matrix = matrix.to_sparse_coo()
    return matrix.coalesce()


def _holds_edges(similarity: Tensor) -> bool:
    """Whole numbers are node numbers; similarities are floating-point or truth."""
    return not similarity.is_floating_point() and similarity.dtype != torch.bool


def _from_edges(edges: Tensor, weight: Tensor | None, num_nodes: int) -> Tensor:
    """Edges and weights as a matrix; repeated edges add up."""
    edges = check_edges(edges, num_nodes, name="similarity")
    if weight is None:
        weight = torch.ones(edges.size(1), dtype=torch.float32, device=edges.device)
    weight = check_edge_values("edge_weight", weight, edges.size(1))
    return _matrix(edges, weight, (num_nodes, num_nodes)).coalesce()


def _from_sparse_tensor(matrix: Any) -> Tensor:
    """A ``SparseTensor``; without values its entries are ones."""
    row, col, value = matrix.coo()
    if value is None:
        value = torch.ones(row.numel(), dtype=torch.float32, device=row.device)
    return _matrix(torch.stack([row, col]), value, tuple(matrix.sparse_sizes()))


def _from_scipy(matrix: Any) -> Tensor:
    """A SciPy COO matrix, in double precision unless it is in single."""
    index = torch.stack([torch.from_numpy(matrix.row), torch.from_numpy(matrix.col)])
    value = to_tensor("similarity", matrix.data)
    return _matrix(index.long(), value, matrix.shape)


def _matrix(index: Tensor, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A COO matrix of indices that are known to be within its shape."""
    # Said explicitly, or torch warns that it will not check them.
    return torch.sparse_coo_tensor(index, value, shape, check_invariants=False)
