"""Features in which similar people are near: pairwise fair representations."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_count, check_features, check_share
from pyg_glif.laplacian import LaplacianOperator


def pairwise_fair_features(
    x: Tensor,
    neighbors: Any,
    similarity: Any,
    *,
    num_components: int,
    gamma: float = 0.5,
) -> Tensor:
    r"""Fair features before training (PFR; Lahoti et al., VLDB 2019).

    .. math::
        \mathbf{Z} = \mathbf{X} \mathbf{V}, \qquad
        \min_{\mathbf{V}^\top \mathbf{V} = \mathbf{I}} \mathrm{tr} \bigl(
        \mathbf{V}^\top \mathbf{X}^\top ((1 - \gamma) \mathbf{L}_X + \gamma
        \mathbf{L}_S) \mathbf{X} \mathbf{V} \bigr) .

    The columns of :math:`\mathbf{V}` are the eigenvectors of the smallest eigenvalues.
    Any model can be trained on :math:`\mathbf{Z}`. Both Laplacians are divided by the
    sum of their weights, so that ``gamma`` does not depend on the number of edges.

    Args:
        x (torch.Tensor): Features.
        neighbors (tuple or LaplacianOperator): Who is near in the data, :math:`L_X`:
            edges and their weights, or an operator.
        similarity (tuple or LaplacianOperator): Who should be treated alike,
            :math:`L_S`.
        num_components (int): Features to return, at most as many as ``x`` has.
        gamma (float): How much the second graph counts, from 0 to 1.
            (default: :obj:`0.5`)

    Shapes:
        - **input:** features :math:`(N, F)`
        - **output:** :math:`(N, d)`, the fairest column first, signs such that the
          largest entry of each eigenvector is positive

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0], [2.0, 3.0]])
        >>> pairs = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), None
        >>> pairwise_fair_features(x, pairs, pairs, num_components=1)
        tensor([[0.],
                [0.],
                [2.],
                [2.]])
    """
    x = check_features("x", x)
    check_share("gamma", gamma)
    check_count("num_components", num_components, below=x.size(1) + 1)
    data = x.double()
    inner = torch.zeros(x.size(1), x.size(1), dtype=torch.float64, device=x.device)
    for share, graph in ((1.0 - gamma, neighbors), (gamma, similarity)):
        lap = graph
        if not isinstance(lap, LaplacianOperator):
            edge_index, edge_weight = graph
            lap = LaplacianOperator(edge_index, edge_weight, len(x))
        total = lap.deg.sum()
        if bool(total > 0):
            inner = inner + share / total * (data.T @ (lap @ data))
    vectors = torch.linalg.eigh(inner).eigenvectors[:, :num_components]
    largest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
    out: Tensor = data @ (vectors * largest.sign())
    return out.to(x.dtype)
