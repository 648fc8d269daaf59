"""Laplacian energy of outputs."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import check_outputs
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization


def laplacian_energy(
    y: Tensor,
    edge_index: Any,
    edge_weight: Tensor | None = None,
    *,
    normalization: Normalization = None,
    unit_variance: bool = False,
) -> Tensor:
    r"""Laplacian energy of outputs on a similarity graph.

    .. math::
        \sum_c \mathbf{y}_c^{\top} \mathbf{L} \, \mathbf{y}_c, \qquad
        \text{for } \mathbf{L} = \mathbf{D} - \mathbf{W}: \quad
        \frac{1}{2} \sum_{i, j} W_{ij} \| \mathbf{y}_i - \mathbf{y}_j \|_2^2

    the value of :func:`~pyg_glif.laplacian_penalty` under its name as a metric, and
    the quantity that smoothing trades against staying close to the model. Compare
    values on the same graph only; it grows with nodes and edges. The average
    degree by which ``"nrw"`` and ``"density"`` multiply ``lam`` is not included.

    Args:
        y (torch.Tensor): Outputs, float32 or float64.
        edge_index (torch.Tensor): Both directions of every edge, or whatever else
            :class:`~pyg_glif.laplacian.LaplacianOperator` takes.
        edge_weight (torch.Tensor, optional): Similarities. (default: all ones)
        normalization (str, optional): Form of the Laplacian. With ``"nrw"`` the
            energy may be negative. (default: :obj:`None`)
        unit_variance (bool): Whether to divide by the variance of the outputs, summed
            over columns. Without it, outputs times 0.1 have a hundredth of the
            energy, although no neighbors are more alike. Zero for constant outputs.
            (default: :obj:`False`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`
        - **output:** a number, in the squared unit of the outputs, or without unit

    Gradients reach ``y`` and ``edge_weight``.

    Example:
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> laplacian_energy(torch.tensor([0.0, 3.0]), edge_index, torch.ones(2))
        tensor(9.)
    """
    y = check_outputs("y", y)
    lap = edge_index
    if not isinstance(lap, LaplacianOperator):
        lap = LaplacianOperator(
            edge_index, edge_weight, len(y), normalization=normalization
        )
    energy = lap.quadratic(y).sum()
    if not unit_variance:
        return energy
    spread = y.double().var(0, correction=0).sum()
    return torch.where(spread > 0, energy / spread, 0.0).to(y.dtype)
