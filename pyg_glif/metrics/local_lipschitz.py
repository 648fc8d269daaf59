"""Local Lipschitz constants: differences of outputs per fair distance."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_count,
    check_edge_values,
    check_edges,
    check_finite,
    check_non_negative,
    check_outputs,
    check_share,
)

_CHUNK_ENTRIES = 1 << 17  # float64 entries per gathered block: stays in cache


class LipschitzRatios(NamedTuple):
    r"""Local Lipschitz constants of the edges of a similarity graph, summed up.

    Attributes:
        max (torch.Tensor): The largest ratio; zero without edges.
        quantiles (torch.Tensor): The quantiles asked for, :math:`(Q)`.
        worst_pairs (torch.Tensor): Pairs with the largest ratios, largest first,
            each once with the smaller index first, :math:`(K, 2)`.
        worst_ratios (torch.Tensor): Their ratios, :math:`(K)`.
        by_sample (torch.Tensor): Largest ratio among each node's edges, zero for
            isolated nodes, :math:`(N)`.
        num_edges (int): Edges looked at.
    """

    max: Tensor
    quantiles: Tensor
    worst_pairs: Tensor
    worst_ratios: Tensor
    by_sample: Tensor
    num_edges: int


@torch.no_grad()
def local_lipschitz(
    y: Tensor,
    edge_index: Tensor,
    sq_dist: Tensor,
    *,
    quantiles: Iterable[float] = (0.5, 0.9, 0.99),
    num_worst: int = 10,
) -> LipschitzRatios:
    r"""Ratios of output difference to fair distance over the edges of a graph.

    .. math::
        r_{ij} = \frac{\| \mathbf{y}_i - \mathbf{y}_j \|_2}{d_{ij}}, \qquad
        (i, j) \in E

    Duplicates, :math:`d_{ij} = 0`, have the ratio 0 if their outputs are equal and
    infinity if they are not. Local individual fairness with constant :math:`L`
    holds on the graph iff the largest ratio is at most :math:`L`.

    Args:
        y (torch.Tensor): Outputs, float32 or float64.
        edge_index (torch.Tensor): Edges, in both directions or in one. Self-loops
            have the ratio 0 and are better left out.
        sq_dist (torch.Tensor): Squared fair distance of each edge, as from
            :func:`~pyg_glif.graph.fair_radius_graph`.
        quantiles (sequence of float, optional): Shares :math:`q` from 0 to 1. The
            quantile is the smallest ratio that at least a share :math:`q` of the
            edges do not exceed: always the ratio of some edge, never a value
            between two. (default: ``(0.5, 0.9, 0.99)``)
        num_worst (int, optional): How many of the worst pairs to list; on ties
            those that come first in ``edge_index``. (default: 10)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          squared distances :math:`(E)`
        - **output:** :class:`LipschitzRatios`, in units of output per distance

    All ratios of a graph without edges are zero.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> y, sq_dist = torch.tensor([0.0, 2.0, 3.0]), torch.tensor([1.0, 1, 4, 4])
        >>> ratios = local_lipschitz(y, edge_index, sq_dist, num_worst=1)
        >>> ratios.max, ratios.worst_pairs, ratios.by_sample
        (tensor(2.), tensor([[0, 1]]), tensor([2.0000, 2.0000, 0.5000]))
    """
    levels = [check_share("quantiles", q) for q in quantiles]
    check_count("num_worst", num_worst, minimum=0)
    y = check_outputs("y", y)
    ratio, edge_index = edge_ratios(y, edge_index, sq_dist)
    by_sample = ratio.new_zeros(len(y))
    by_sample.scatter_reduce_(0, edge_index[0], ratio, "amax")
    by_sample.scatter_reduce_(0, edge_index[1], ratio, "amax")
    ordered, order = ratio.sort(descending=True, stable=True)
    worst = _first_pairs(edge_index, order, num_worst)
    return LipschitzRatios(
        max=by_sample.amax(),
        quantiles=edge_quantiles(ordered.flip(0), levels),
        worst_pairs=edge_index[:, worst].sort(dim=0).values.T,
        worst_ratios=ratio[worst],
        by_sample=by_sample,
        num_edges=ratio.numel(),
    )


def edge_ratios(
    y: Tensor, edge_index: Tensor, sq_dist: Tensor
) -> tuple[Tensor, Tensor]:
    """Ratio of each edge in the precision of ``y``, and the edges."""
    y = check_outputs("y", y).detach()
    edge_index = check_edges(edge_index, y.size(0)).to(y.device)
    sq_dist = check_edge_values("sq_dist", sq_dist, edge_index.size(1))
    check_finite("sq_dist", sq_dist)
    check_non_negative("sq_dist", sq_dist)
    flat = y.reshape(y.size(0), -1)
    step = max(1, _CHUNK_ENTRIES // flat.size(1))
    gaps = [
        (flat[row].double() - flat[col].double()).square_().sum(1).sqrt_()
        for row, col in (part.unbind() for part in edge_index.split(step, dim=1))
    ]
    gap = torch.cat(gaps)
    ratio = gap / sq_dist.to(y.device).double().sqrt()
    # Equal outputs of duplicates are no violation, though 0 / 0 is NaN.
    return torch.where(gap == 0, 0.0, ratio).to(y.dtype), edge_index


def edge_quantiles(ordered: Tensor, levels: list[float]) -> Tensor:  # [E] -> [Q]
    """Smallest of the ascending values that a share of them do not exceed."""
    if ordered.numel() == 0:
        return ordered.new_zeros(len(levels))
    level = torch.tensor(levels, dtype=torch.float64, device=ordered.device)
    # Rounding in q * E must not push a whole number over the next one.
    rank = (level * ordered.numel() - 1e-9).ceil().long()
    return ordered[(rank - 1).clamp_(0, ordered.numel() - 1)]


def _first_pairs(edge_index: Tensor, order: Tensor, count: int) -> Tensor:
    """The first ``count`` edges in ``order`` that repeat no pair and are no loops."""
    taken: dict[tuple[int, int], int] = {}
    step = max(1, 2 * count)
    for start in range(0, order.numel(), step):
        if len(taken) >= count:
            break
        part = order[start : start + step]
        for edge, (i, j) in zip(
            part.tolist(), edge_index[:, part].T.tolist(), strict=True
        ):
            if i != j:
                taken.setdefault((min(i, j), max(i, j)), edge)
    edges = list(taken.values())[:count]
    return torch.tensor(edges, dtype=torch.long, device=order.device)
