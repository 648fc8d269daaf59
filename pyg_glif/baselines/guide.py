"""A network that learns to treat groups equally alike (GUIDE)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax

from pyg_glif._validate import check_scalar
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import Definition, group_energies, group_sizes


class SimilarityAttention(MessagePassing):  # type: ignore[misc]
    r"""Averages over similar people, with learned attention (Song et al., KDD 2022).

    .. math::
        h_i' = \sum_j a_{ij} \mathbf{W} h_j, \qquad a_{ij} = \mathrm{softmax}_j \bigl(
        \mathrm{LeakyReLU}(u^\top \mathbf{W} h_i + v^\top \mathbf{W} h_j) \cdot s_{ij}
        \bigr)

    the layer of GUIDE: attention as in GAT, times the similarity :math:`s_{ij}`.
    Written from the paper. Everybody is similar to themselves with :math:`s_{ii} = 1`.

    Args:
        in_channels (int): Columns of the input.
        out_channels (int): Columns of the output.
        negative_slope (float): Of the LeakyReLU. (default: :obj:`0.2`)

    Shapes:
        - **input:** :math:`(N, F)`, edges :math:`(2, E)`, similarities :math:`(E)`
        - **output:** :math:`(N, F')`

    Example:
        >>> layer = SimilarityAttention(4, 2)
        >>> layer(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.ones(2)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, in_channels: int, out_channels: int, negative_slope: float = 0.2
    ) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.source = nn.Parameter(torch.empty(out_channels))
        self.target = nn.Parameter(torch.empty(out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.negative_slope = negative_slope
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights."""
        super().reset_parameters()
        nn.init.xavier_uniform_(self.linear.weight)
        for part in (self.source, self.target):
            nn.init.xavier_uniform_(part.unsqueeze(0))
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """Averages of everybody and those who are similar."""
        own = torch.arange(len(x), device=x.device)
        edges = torch.cat([edge_index, torch.stack([own, own])], dim=1)
        weight = torch.cat([edge_weight.to(x.dtype), x.new_ones(len(x))])
        h = self.linear(x)
        score = (h @ self.source)[edges[0]] + (h @ self.target)[edges[1]]
        score = nn.functional.leaky_relu(score, self.negative_slope) * weight
        attention = softmax(score, edges[1], num_nodes=len(x))
        out: Tensor = self.propagate(edges, h=h, attention=attention)
        return out + self.bias

    def message(self, h_j: Tensor, attention: Tensor) -> Tensor:
        """What a similar person says, times the attention paid."""
        return attention.unsqueeze(1) * h_j


class GroupEqualityLoss(nn.Module):
    r"""GUIDE's terms of a loss: individual unfairness, and its ratio between groups.

    .. math::
        \alpha \, \mathrm{tr}(f^\top \mathbf{L} f) + \beta \sum_{g \ne h}
        \Bigl(\frac{E_g}{E_h} - 1\Bigr)^2

    with the energies :math:`E_g` of :func:`~pyg_glif.metrics.group_disparity`.

    Args:
        alpha (float): Weight of the unfairness. (default: :obj:`5e-6`, as published
            for the graph ``"credit"``)
        beta (float): Weight of the ratios. (default: :obj:`1.0`)
        definition (str): What energies are divided by. (default: ``"guide"``)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, a
          :class:`~pyg_glif.laplacian.LaplacianOperator`, groups :math:`(N)`
        - **output:** :math:`()`

    Example:
        >>> lap = LaplacianOperator(torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]))
        >>> loss = GroupEqualityLoss(alpha=0.0)
        >>> loss(torch.tensor([0.0, 1.0, 0.0, 1.0]), lap, torch.tensor([0, 0, 1, 1]))
        tensor(0., dtype=torch.float64)
    """

    def __init__(
        self, alpha: float = 5e-6, beta: float = 1.0, definition: Definition = "guide"
    ) -> None:
        super().__init__()
        self.alpha = check_scalar("alpha", alpha, minimum=0.0)
        self.beta = check_scalar("beta", beta, minimum=0.0)
        self.definition: Definition = definition

    def forward(self, f: Tensor, lap: LaplacianOperator, group: Tensor) -> Tensor:
        """The two terms for one graph."""
        label, group = torch.unique(group, return_inverse=True)
        size = group_sizes(lap, group, label.numel(), self.definition)
        energy = group_energies(lap, f.reshape(len(f), -1), group, size)
        each = energy / size
        ratio = each.unsqueeze(1) / each.unsqueeze(0).clamp(min=1e-12)
        total: Tensor = self.alpha * energy.sum()
        return total + self.beta * (ratio - 1.0).square().sum()

    def extra_repr(self) -> str:
        """What the printed loss shows."""
        return f"alpha={self.alpha:g}, beta={self.beta:g}"


def guide_head(num_features: int, hidden: int = 16) -> Any:
    """GUIDE's network over the embeddings of another: attention, then one output.

    Args:
        num_features (int): Columns of the embeddings.
        hidden (int): Columns in between. (default: :obj:`16`)

    Returns a module of ``x``, ``edge_index`` and ``edge_weight``.

    Example:
        >>> head = guide_head(8)
        >>> head(torch.ones(3, 8), torch.tensor([[0, 1], [1, 0]]), torch.ones(2)).shape
        torch.Size([3, 1])
    """
    from torch_geometric.nn import Sequential

    return Sequential(
        "x, edge_index, edge_weight",
        [
            (
                SimilarityAttention(num_features, hidden),
                "x, edge_index, edge_weight -> x",
            ),
            (nn.BatchNorm1d(hidden), "x -> x"),
            (nn.ReLU(), "x -> x"),
            (nn.Linear(hidden, 1), "x -> x"),
        ],
    )
