"""The exact graph of nearest people, as many for everybody."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress, without_autocast
from pyg_glif._utils.validation import (
    check_batch,
    check_choice,
    check_count,
    check_features,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import called_within, decide, exact_squares, sq_dist_error
from pyg_glif.graph._knn_candidates import Nearest, Pool, kth_smallest
from pyg_glif.graph._memory import check_nearest, sample_nearest
from pyg_glif.graph._points import Points, Strategy, as_distance, coordinates
from pyg_glif.graph._pruning import Screen
from pyg_glif.graph._search import plain_nearest, projected_nearest
from pyg_glif.graph._strategy import choose_basis
from pyg_glif.graph.radius import both_directions

_CALLABLE_TILE = 256


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
    r"""Joins everybody to the ``k`` people nearest to them in fair distance, exactly.

    .. math::
        E = \{ (i, j) : i \ne j, \; d_{ij} \le \max(s_i, s_j), \; d_{ij} \le \tau \}

    where :math:`s_i` is the distance from :math:`i` to the :math:`k`-th nearest
    other person: :math:`i` is among the nearest of :math:`j`, or the reverse.
    ``mutual=True`` takes the smaller of the two in place of the larger: both are
    among the nearest of the other. Distances are those of
    :func:`~pyg_glif.fair_radius_graph`.

    Ties at the :math:`k`-th distance are all kept, so the order of rows does not
    matter; distances that differ by float64 rounding only count as tied. Of more
    than :math:`k` duplicates each is joined to all others. Where a graph of the batch
    has fewer than :math:`k` other people, all of them count.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        k (int): Number of nearest others.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        batch (torch.Tensor, optional): Graph number of each node, any non-negative
            whole numbers in any order; no edge joins two graphs.
            (default: :obj:`None`)
        mutual (bool, optional): Whether both must be among the nearest of the other.
            (default: :obj:`False`)
        tau (float, optional): Largest distance of an edge, inclusive: who is further
            from everybody stays alone. (default: no limit)
        strategy (str, optional): As in :func:`~pyg_glif.fair_radius_graph`.
            (default: ``"auto"``)
        tile_size (int, optional): Rows handled at once. (default: 256)
        memory_budget (int, optional): Bytes that edges and workspace may take.
            (default: four fifths of what is free)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the search takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, batch :math:`(N)`
        - **output:** edges :math:`(2, E)` as int64, squared distances :math:`(E)`

    Both directions of every edge are returned, sorted by (row, column), without
    self-loops. Everybody has at least :math:`k` neighbours, unless ``tau``,
    ``mutual`` or the number of people prevents it, and may have many more: popular
    people are among the nearest of many. Raises
    :class:`~pyg_glif.errors.MemoryBudgetError` before any long work if the graph
    would not fit, as where many are tied.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> fair_knn_graph(x, k=1)
        (tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]]), tensor([1., 1., 4., 4.]))
        >>> fair_knn_graph(x, k=1, mutual=True)
        (tensor([[0, 1],
                [1, 0]]), tensor([1., 1.]))
    """
    found = search_nearest(
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
    return found.edge_index, found.sq_dist


class FoundNearest(NamedTuple):
    """What a search returns: the edges in canonical order, and what decided."""

    edge_index: Tensor  # [2, E]
    sq_dist: Tensor  # [E]
    tau: float
    scale: Tensor  # [N], float64: distance to the k-th nearest, at most tau
    batch: Tensor | None  # [N], numbered from 0
    z: Tensor | None  # [N, D], coordinates, unless a function gave the distances
    dist: Tensor | None  # [E], what the function gave


def search_nearest(
    x: Tensor,
    k: int,
    distance: FairDistance | None,
    batch: Tensor | None,
    mutual: bool = False,
    tau: float | None = None,
    strategy: Strategy = "auto",
    tile_size: int = 256,
    memory_budget: int | None = None,
    progress: bool | None = None,
) -> FoundNearest:
    """Checks the arguments of :func:`fair_knn_graph` and searches."""
    x = check_features("x", x, distance).detach()
    check_count("k", k)
    cap = math.inf
    if tau is not None:
        cap = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
    check_choice("strategy", strategy, ("auto", "projected", "plain"))
    check_count("tile_size", tile_size)
    distance = as_distance(distance)
    if batch is not None:
        batch = check_batch(batch, x.size(0)).to(x.device)
    if not distance.is_embedding:
        near = called_nearest(x, k, distance, batch, cap, progress)
        keep = _kept(near, mutual)
        pairs = near.i[keep], near.j[keep], near.sq[keep].to(x.dtype)
        edge_index, dist = both_directions(iter([pairs]), x)
        scale = near.sq_kth.clamp(max=cap)
        return FoundNearest(edge_index, dist.square(), cap, scale, batch, None, dist)
    z = coordinates(distance, x)
    points = Points.from_embedding(z, batch) if len(z) > 1 else None
    if points is None:
        scale = x.new_full((x.size(0),), cap, dtype=torch.float64)
        empty = torch.empty(2, 0, dtype=torch.long, device=x.device)
        return FoundNearest(empty, x.new_empty(0), cap, scale, batch, z, None)
    sample = sample_nearest(points, k, cap)
    check_nearest(points, k, sample, memory_budget)
    basis = choose_basis(points, cap, strategy, sample)
    near = embedded_nearest(points, k, cap, basis, tile_size, progress)
    keep = _kept(near, mutual)
    some = near.i[keep], near.j[keep], near.sq[keep], near.error[keep]
    edge_index, sq_dist = both_directions(iter([decide(points, points, *some, cap)]), x)
    scale = near.sq_kth.sqrt().div_(points.scale).clamp_(max=cap)
    return FoundNearest(edge_index, sq_dist, cap, scale, batch, z, None)


class Within(NamedTuple):
    """All pairs of people within a radius, in both directions."""

    edge_index: Tensor  # [2, E]
    sq_dist: Tensor  # [E]
    tau: float


class Ranked(NamedTuple):
    """The nearest spots of each, ties included, in no particular order.

    A spot is where people are whose coordinates are the same.
    """

    spot: Tensor  # [N], the spot of each person, from 0
    row: Tensor  # [Q], a spot
    col: Tensor  # [Q], one of the k spots nearest to it
    dist: Tensor  # [Q], float64, in a unit that keeps squares from overflowing


def rank_nearest(
    x: Tensor,
    k: int,
    distance: FairDistance | None,
    slack: float,
    progress: bool | None,
    known: Callable[[Tensor], Within | None] | None = None,
) -> Ranked:
    """Whom each person has near, and how near; ``slack`` tells what is tied.

    ``known`` says which pairs of coordinates are known to be within a radius, if any:
    who has their nearest there is not searched for.
    """
    distance, x = as_distance(distance), x.detach()
    if not distance.is_embedding:
        near = called_nearest(x, k, distance, None, math.inf, progress)
        spot = torch.arange(len(x), device=x.device)
        return Ranked(spot, near.end, near.other, near.sq[near.pair])
    z = coordinates(distance, x)
    spots, spot = z.unique(dim=0, return_inverse=True)
    none = Ranked(spot, spot[:0], spot[:0], spot[:0].double())
    if len(spots) == 1:
        return none
    points = Points.from_embedding(spots, None)
    within = None if known is None else known(z)
    ready = none if within is None else _known_nearest(points, spot, k, within, slack)
    wanted = torch.ones(len(spots), dtype=torch.bool, device=x.device)
    wanted[ready.row] = False
    people = wanted.nonzero().view(-1)
    # Among themselves, every pair of spots is looked at once; as others, twice.
    if 2 * people.numel() >= len(spots):
        ready, people = none, torch.arange(len(spots), device=x.device)
    if people.numel() == 0:
        return ready
    others = points if ready is none else points.only(people)
    sample = sample_nearest(points, k, math.inf)
    check_nearest(points, k, sample, None)
    basis = choose_basis(points, math.inf, nearest=sample)
    # Others find themselves among the points, first of all.
    num = k if others is points else k + 1
    near = embedded_nearest(
        points, num, math.inf, basis, progress=progress, slack=slack, others=others
    )
    sq = exact_squares(others, points, near.i, near.j)
    row, col, dist = people[near.end], near.other, sq.sqrt_()[near.pair]
    apart = row != col
    found = row[apart], col[apart], dist[apart]
    return Ranked(
        spot, *(torch.cat(both) for both in zip(ready[1:], found, strict=True))
    )


def _known_nearest(
    points: Points, spot: Tensor, k: int, known: Within, slack: float
) -> Ranked:
    """The nearest of those spots who have ``k`` others well within the radius."""
    # One person stands for a spot.
    stands = torch.zeros_like(spot, dtype=torch.bool)
    number = torch.arange(spot.numel(), device=spot.device)
    stands[number.new_empty(points.num_nodes).index_copy_(0, spot, number)] = True
    row, col = known.edge_index
    both = (stands[row] & stands[col]).nonzero().view(-1)
    row, col, sq = spot[row[both]], spot[col[both]], known.sq_dist[both]
    kth = kth_smallest(row, sq, k, points.num_nodes)
    limits = torch.finfo(sq.dtype)
    loose = 1.0 + 4.0 * (sq_dist_error(sq.dtype, points.num_features) + slack)
    # Squares that the dtype cannot hold to full precision tell nothing.
    limit = (kth * loose + 2.0**30 * limits.tiny).masked_fill_(kth.isinf(), -1.0)
    near = (sq <= limit[row]).nonzero().view(-1)
    row, col = row[near], col[near]
    dist = exact_squares(points, points, row, col).sqrt_()
    # Ties of the k-th must be within the radius too, whatever rounding does.
    last = kth_smallest(row, dist, k, points.num_nodes) * (1.0 + 1e-9)
    settled = (last < known.tau * points.scale)[row]
    return Ranked(spot, row[settled], col[settled], dist[settled])


def embedded_nearest(
    points: Points,
    k: int,
    tau: float,
    basis: Tensor | None,
    tile_size: int = 256,
    progress: bool | None = None,
    slack: float = 0.0,
    others: Points | None = None,
) -> Nearest:
    """The k nearest of each point, or of others; squares are those of ``y``."""
    limit = min(points.bound(tau) * (1.0 + 1e-6), torch.finfo(torch.float32).max)
    left = points if others is None else others
    pool = Pool(
        k,
        torch.full_like(left.sq_norm, limit),
        lambda i, j: exact_squares(left, points, i, j),
        None if left is points else torch.zeros_like(points.sq_norm),
    )
    if basis is None:
        plain_nearest(left, points, pool, tile_size, progress)
    else:
        screen = Screen(points, tau, basis, tile_size)
        projected_nearest(left, screen, pool, progress)
    return pool.resolve(max(slack, tie_slack(points.num_features)))


def tie_slack(num_features: int) -> float:
    """How far rounding may tell equal squared distances apart, relatively."""
    return (num_features + 4) * torch.finfo(torch.float64).eps


def called_nearest(
    x: Tensor,
    k: int,
    distance: FairDistance,
    batch: Tensor | None,
    tau: float,
    progress: bool | None,
) -> Nearest:
    """The k nearest of each person by a function; distances are not squared."""
    upper = x.new_full((x.size(0),), math.inf, dtype=torch.float64)
    pool = Pool(k, upper)
    order = torch.arange(x.size(0), device=x.device)
    if batch is not None:
        order = batch.argsort(stable=True)
    tiles = order.split(_CALLABLE_TILE)
    with Progress(len(tiles), "nearest neighbours", progress) as bar:
        for start, rows in enumerate(tiles):
            for cols in tiles[start:]:
                if batch is not None and batch[rows[-1]] < batch[cols[0]]:
                    break
                dist = distance(x[rows], x[cols])
                wanted = dist <= torch.maximum(upper[rows].unsqueeze(1), upper[cols])
                wanted &= called_within(dist, tau)
                if cols is rows:
                    wanted = wanted.triu(1)
                if batch is not None:
                    wanted &= batch[rows].unsqueeze(1) == batch[cols]
                r, c = wanted.nonzero(as_tuple=True)
                value = dist[r, c].double()
                pool.add(rows[r], cols[c], value, torch.zeros_like(value))
            bar.update()
    return pool.resolve(slack=0.0)


def _kept(near: Nearest, mutual: bool) -> Tensor:  # -> [P]
    """Pairs that are edges: at least one end, or both, counts the other."""
    count = torch.bincount(near.pair, minlength=near.i.numel())
    return count >= (2 if mutual else 1)
