"""Exact k-nearest-neighbor graph in the fair metric."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import decide, exact_squares
from pyg_glif.graph._estimates import check_nearest, choose_basis, sample_nearest
from pyg_glif.graph._points import (
    Points,
    Strategy,
    as_distance,
    check_search_input,
    coordinates,
)
from pyg_glif.graph._search import PointSearch, callable_nearest
from pyg_glif.graph.radius import SearchResult, both_directions


@without_autocast()
def fair_knn_graph(
    x: Tensor,
    k: int,
    *,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    mutual: bool = False,
    tau: float | None = None,
    strategy: Strategy = "auto",
    tile_size: int = 256,
    memory_budget: int | None = None,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Joins each sample to its ``k`` nearest neighbors in fair distance, exactly.

    .. math::
        E = \{ (i, j) : i \ne j, \; d_{ij} \le \max(s_i, s_j), \; d_{ij} \le \tau \}

    where :math:`s_i` is the distance from :math:`i` to its :math:`k`-th nearest
    neighbor: :math:`i` is among the nearest of :math:`j`, or the reverse.
    ``mutual=True`` takes the smaller of the two in place of the larger: both are
    among the nearest of the other. Distances are those of
    :func:`~pyg_glif.fair_radius_graph`.

    Ties at the :math:`k`-th distance are all kept, so the order of rows does not
    matter; distances that differ by float64 rounding only count as tied. Of more
    than :math:`k` duplicates each is joined to all others. Where a graph of the batch
    has fewer than :math:`k` other samples, all of them count.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        k (int): Number of nearest neighbors.
        mutual (bool, optional): Whether both must be among the nearest of the other.
            (default: :obj:`False`)
        tau (float, optional): Largest distance of an edge, inclusive: samples further
            from all others stay isolated. (default: no limit)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        batch (torch.Tensor, optional): This, and what follows, is as in
            :func:`~pyg_glif.fair_radius_graph`. (default: :obj:`None`)
        strategy (str, optional): How pairs are ruled out. (default: ``"auto"``)
        tile_size (int, optional): Rows handled at once. (default: 256)
        memory_budget (int, optional): Bytes. (default: four fifths of what is free)
        progress (bool, optional): Whether to show a bar. (default: on a terminal)

    Shapes:
        - **input:** features :math:`(N, F)`, batch :math:`(N)`
        - **output:** edges :math:`(2, E)` as int64, squared distances :math:`(E)`

    Both directions of every edge are returned, sorted by (row, column), without
    self-loops. Each sample has at least :math:`k` neighbors, unless ``tau``,
    ``mutual`` or the number of samples prevents it, and may have many more: a hub is
    among the nearest of many.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> fair_knn_graph(x, k=1)
        (tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]]), tensor([1., 1., 4., 4.]))
        >>> fair_knn_graph(x, k=1, mutual=True)
        (tensor([[0, 1],
                [1, 0]]), tensor([1., 1.]))
    """
    result = search_nearest(
        x,
        k,
        distance,
        batch,
        mutual,
        tau,
        strategy,
        tile_size,
        memory_budget,
        progress,
    )
    return result.edge_index, result.sq_dist


def search_nearest(
    x: Tensor,
    k: int,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    mutual: bool = False,
    tau: float | None = None,
    strategy: Strategy = "auto",
    tile_size: int = 256,
    memory_budget: int | None = None,
    progress: bool | None = None,
) -> SearchResult:
    """Checks the arguments of :func:`fair_knn_graph` and searches."""
    x, distance, batch = check_search_input(x, distance, batch, strategy, tile_size)
    check_count("k", k)
    cap = math.inf
    if tau is not None:
        cap = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
    num_nodes, empty = x.size(0), x.new_empty(0)
    z = coordinates(distance, x) if distance.is_embedding else None
    if num_nodes < 2:
        scale = x.new_full((num_nodes,), cap, dtype=torch.float64)
        edges = both_directions([], num_nodes, empty)
        return SearchResult(*edges, cap, batch, z, empty if z is None else None, scale)
    if z is None:
        nearest = callable_nearest(x, k, distance, batch, cap, progress=progress)
        points = None
    else:
        points = Points.from_embedding(z, batch)
        sample = sample_nearest(points, k, cap)
        check_nearest(points, k, sample, memory_budget)
        basis = choose_basis(points, cap, strategy, sample)
        search = PointSearch(points, cap, basis, tile_size)
        nearest = search.nearest(k, progress=progress)
    # One end, or both, has the other among its nearest.
    count = torch.bincount(nearest.pair, minlength=nearest.i.numel())
    keep = count >= (2 if mutual else 1)
    i, j, value, error = (part[keep] for part in nearest[:4])
    if points is None:
        edge_index, dist = both_directions(
            [(i, j, value.to(x.dtype))], num_nodes, empty
        )
        scale, square = nearest.sq_kth.clamp(max=cap), dist.square()
        return SearchResult(edge_index, square, cap, batch, None, dist, scale)
    decided = decide(points, points, i, j, value, error, cap)
    edges = both_directions([decided], num_nodes, empty)
    scale = nearest.sq_kth.sqrt().div_(points.scale).clamp_(max=cap)
    return SearchResult(*edges, cap, batch, z, None, scale)


class NearestPoints(NamedTuple):
    """The k nearest distinct points of each, ties included, in no particular order.

    Samples with equal coordinates share one distinct point.
    """

    point: Tensor  # [N], the distinct point of each sample, from 0
    row: Tensor  # [Q], a distinct point
    col: Tensor  # [Q], one of the k distinct points nearest to it
    dist: Tensor  # [Q], float64, in a unit that keeps squares from overflowing


def nearest_points(
    x: Tensor,
    k: int,
    distance: FairDistance | None,
    slack: float,
    progress: bool | None,
) -> NearestPoints:
    """The k nearest distinct points of each sample; distances within ``slack`` tie."""
    distance, x = as_distance(distance), x.detach()
    if not distance.is_embedding:
        nearest = callable_nearest(x, k, distance, None, math.inf, progress=progress)
        point = torch.arange(len(x), device=x.device)
        dist = nearest.sq[nearest.pair]
        return NearestPoints(point, nearest.end, nearest.other, dist)
    distinct, point = coordinates(distance, x).unique(dim=0, return_inverse=True)
    if len(distinct) == 1:
        return NearestPoints(point, point[:0], point[:0], point[:0].double())
    points = Points.from_embedding(distinct, None)
    sample = sample_nearest(points, k, math.inf)
    check_nearest(points, k, sample, None)
    basis = choose_basis(points, math.inf, nearest=sample)
    search = PointSearch(points, math.inf, basis)
    nearest = search.nearest(k, slack=slack, progress=progress)
    dist = exact_squares(points, points, nearest.i, nearest.j).sqrt_()
    return NearestPoints(point, nearest.end, nearest.other, dist[nearest.pair])
