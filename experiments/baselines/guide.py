"""A network that learns to treat groups equally alike (GUIDE)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from pyg_glif._utils.sparse import edge_dot, spmm
from pyg_glif._utils.validation import check_scalar
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.methods.group_balance import Definition, group_sizes


class SimilarityAttention(nn.Module):
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

    Similarity is symmetric: both directions of every edge. In place of edges and
    similarities, a :class:`~pyg_glif.laplacian.LaplacianOperator` of them can be given,
    so that a graph is sorted once and not at every step. Nothing of the size of edges
    times columns is ever held.

    Example:
        >>> layer = SimilarityAttention(4, 2)
        >>> layer(torch.ones(3, 4), torch.tensor([[0, 1], [1, 0]]), torch.ones(2)).shape
        torch.Size([3, 2])
    """

    def __init__(
        self, in_channels: int, out_channels: int, negative_slope: float = 0.2
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels, bias=False)
        self.source = nn.Parameter(torch.empty(out_channels))
        self.target = nn.Parameter(torch.empty(out_channels))
        self.bias = nn.Parameter(torch.empty(out_channels))
        self.negative_slope = negative_slope
        self._dense: tuple[LaplacianOperator, Tensor, Tensor] | None = None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new weights."""
        nn.init.xavier_uniform_(self.linear.weight)
        for part in (self.source, self.target):
            nn.init.xavier_uniform_(part.unsqueeze(0))
        nn.init.zeros_(self.bias)

    def forward(
        self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None
    ) -> Tensor:
        """Averages of everybody and those who are similar."""
        lap = edge_index
        if not isinstance(lap, LaplacianOperator):
            lap = LaplacianOperator(edge_index, edge_weight, len(x))
        pattern, weight = lap.pattern, lap.weight.to(x.dtype)
        h = self.linear(x)
        to, source = (h @ self.target).unsqueeze(1), (h @ self.source).unsqueeze(1)
        # Where many of all pairs are similar, dense products are several times faster.
        if lap.num_edges > len(x) ** 2 // 4:
            if self._dense is None or self._dense[0] is not lap:
                similar = torch.eye(len(x)).to(h)
                outside = torch.where(similar > 0, 0.0, -torch.inf).to(h)
                similar[pattern.row, pattern.col] = weight
                outside[pattern.row, pattern.col] = 0.0
                self._dense = lap, similar, outside
            _, similar, outside = self._dense
            score = nn.functional.leaky_relu(to + source.T, self.negative_slope)
            score = score * similar.to(h) + outside.to(h)
            out: Tensor = score.softmax(dim=1) @ h + self.bias
            return out
        one = torch.ones_like(to)
        # Sums of a number at either end are inner products of two columns.
        ends = edge_dot(
            pattern, torch.cat([to, one], dim=1), torch.cat([one, source], dim=1)
        )
        score = nn.functional.leaky_relu(ends, self.negative_slope) * weight
        own = nn.functional.leaky_relu(to + source, self.negative_slope)
        with torch.no_grad():  # the largest score of everybody cancels
            most = own[:, 0].scatter_reduce(0, pattern.row, score, "amax")
        power = (score - most[pattern.row]).exp()
        self_power = (own - most.unsqueeze(1)).exp()
        # Numerator and denominator of the softmax in one product.
        both = torch.cat([h, one], dim=1)
        total = spmm(pattern, power, both) + self_power * both
        return total[:, :-1] / total[:, -1:] + self.bias


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
        energy = _energies(lap, f.reshape(len(f), -1), group, label.numel())
        each = energy / size
        ratio = each.unsqueeze(1) / each.unsqueeze(0).clamp(min=1e-12)
        total: Tensor = self.alpha * energy.sum()
        return total + self.beta * (ratio - 1.0).square().sum()

    def extra_repr(self) -> str:
        """What the printed loss shows."""
        return f"alpha={self.alpha:g}, beta={self.beta:g}"


class _Symmetric(Function):
    """Product with a symmetric matrix, which is its own transpose."""

    @staticmethod
    def forward(ctx: Any, lap: LaplacianOperator, x: Tensor) -> Tensor:
        ctx.lap = lap
        return spmm(lap.pattern, lap.off_diagonal, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, _Symmetric.apply(ctx.lap, grad)  # type: ignore[no-untyped-call]


def _energies(
    lap: LaplacianOperator, f: Tensor, group: Tensor, num_groups: int
) -> Tensor:  # [N, C] -> [G] float64
    r"""Energy of every group, from two products in place of all differences.

    Half the sum over :math:`i \in g` of :math:`\sum_j w_{ij} (f_i - f_j)^2 = d_i f_i^2
    - 2 f_i (\mathbf{W} f)_i + (\mathbf{W} f^2)_i`. Outputs are centred first, which
    changes no difference and keeps the terms small.
    """
    f = f.double()
    f = f - f.detach().mean(0)
    square = f.square().sum(1, keepdim=True)
    both = torch.cat([f, square], dim=1)
    found: Tensor = _Symmetric.apply(lap, both)  # type: ignore[no-untyped-call]
    each = lap.diagonal * square[:, 0] - 2.0 * (f * found[:, :-1]).sum(1) + found[:, -1]
    each = 0.5 * lap.lam_scale * each
    return each.new_zeros(num_groups).index_add(0, group, each)


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
