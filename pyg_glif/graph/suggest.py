"""Chooses a radius from a target mean degree or a target coverage."""

import math

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_batch,
    check_count,
    check_features,
    check_num_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import exact_distances
from pyg_glif.graph._estimates import PairSample, sample_pairs
from pyg_glif.graph._points import Points, as_distance, coordinates
from pyg_glif.graph.index import KNNIndex
from pyg_glif.graph.knn import search_nearest
from pyg_glif.graph.radius import SearchResult

_ALL_PAIRS = 2048
_ALL_NODES = 20_000  # up to here all nodes are searched
_SAMPLED_NODES = 2048


@without_autocast()
def suggest_tau(
    x: Tensor,
    target_degree: float | None = None,
    *,
    coverage: float | None = None,
    min_neighbors: int = 1,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> float:
    r"""Radius with a target mean degree, or with a target share of joined samples.

    With ``target_degree`` the smallest radius at which samples have so many neighbors
    on average,

    .. math::
        \tau = \min \{ t : |\{(i, j) : i \ne j, d_{ij} \le t\}|
        \ge N \cdot \mathrm{target\_degree} \} ,

    over all pairs up to 2,048 nodes, and over a sample of two million pairs beyond
    that, where the degree differs from the target by a few per cent. Where density is
    uneven, a few samples have most neighbors, and many have none. With ``coverage``
    the smallest radius at which that share of samples has ``min_neighbors`` neighbors,

    .. math::
        \tau = \min \{ t : |\{i : d_{i(m)} \le t\}|
        \ge N \cdot \mathrm{coverage} \} , \qquad m = \mathrm{min\_neighbors},

    for :math:`d_{i(m)}` the distance from :math:`i` to the :math:`m`-th nearest other:
    over all nodes up to 20,000, or with ``batch``, and over a sample of 2,048 nodes
    beyond that, where the share differs by about a hundredth.

    The radius is the distance of a pair: :func:`~pyg_glif.fair_radius_graph` finds that
    pair and all that are tied with it, up to float64 rounding.

    Args:
        x (torch.Tensor): Features.
        target_degree (float, optional): Wanted average number of neighbors.
        coverage (float, optional): Wanted share of samples with neighbors, above 0 and
            at most 1. One of ``target_degree`` and ``coverage`` must be given.
        min_neighbors (int, optional): Number of neighbors that counts.
            (default: 1)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        batch (torch.Tensor, optional): Graph number of each node, in any order;
            pairs across graphs do not count. (default: :obj:`None`)
        generator (torch.Generator, optional): Source of the sample. (default: a
            fixed seed, so that the answer does not change between calls)

    Shapes:
        - **input:** features :math:`(N, F)`, batch :math:`(N)`
        - **output:** a number

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
        >>> suggest_tau(x, target_degree=1)
        2.0
        >>> suggest_tau(x, coverage=1.0)
        4.0
    """
    x = check_features("x", x, distance)
    if (target_degree is None) == (coverage is None):
        msg = "one of 'target_degree' and 'coverage' must be given, and not both"
        raise ValueError(f"{msg} (got {target_degree} and {coverage})")
    check_num_rows("x", x.size(0), 2)
    if batch is not None:
        batch = check_batch(batch, x.size(0)).to(x.device)
    fair = as_distance(distance)
    if coverage is not None:
        if check_scalar("coverage", coverage, above=0.0) > 1.0:
            raise ValueError(f"'coverage' must be at most 1 (got {coverage})")
        check_count("min_neighbors", min_neighbors)
        if x.size(0) <= _ALL_NODES or batch is not None:
            search = search_nearest(x, min_neighbors, fair, batch)
            assert search.scale is not None
            return _covering(search.scale, coverage, x.size(1), search)
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        rows = torch.randperm(len(x), generator=generator)[:_SAMPLED_NODES].to(x.device)
        # The nearest of a sampled node is the node itself, hence one neighbor more.
        scale = x.new_zeros(len(x), dtype=torch.float64)
        num = min_neighbors + 1
        index = KNNIndex(x, num, distance=fair, scale=scale, copy=False)
        return _covering(index.reach(x[rows]), coverage, x.size(1))
    assert target_degree is not None
    check_scalar("target_degree", target_degree, above=0.0)
    points = None
    if fair.is_embedding:
        points = Points.from_embedding(coordinates(fair, x), None)

    def block(rows: Tensor, cols: Tensor) -> Tensor:  # [A], [B] -> [A, B]
        if points is not None:
            return points.rough_distances(rows, cols)
        dist: Tensor = fair(x[rows], x[cols])
        return dist

    size = (_ALL_PAIRS, _ALL_PAIRS) if x.size(0) <= _ALL_PAIRS else (1024, 2048)
    sample = sample_pairs(x.size(0), block, batch, size, generator, x.device)
    most = sample.dist.numel() * sample.weight / x.size(0)
    if target_degree > most * (1.0 + 1e-9):
        msg = f"'target_degree' must be at most {most:g} for these rows"
        raise ValueError(f"{msg} (got {target_degree:g})")
    rank = sample.rank(target_degree * x.size(0))
    if rank == 0:
        return 0.0
    if points is None:
        return float(sample.dist.kthvalue(rank).values)
    return _exact_kth(points, sample, rank)


def _exact_kth(points: Points, sample: PairSample, rank: int) -> float:
    """Smallest radius at which ``rank`` sampled pairs are edges.

    Pairs that differ from the last of them by rounding only are tied with it, and are
    edges as well.
    """
    dist = sample.dist.double() * points.scale
    square = dist.kthvalue(rank).values.square()
    # Squares are off by at most three times the bound, both here and there.
    error = 8.0 * points.error(2.0 * points.sq_norm.max()).double()
    low, high = (square - error).clamp_(min=0.0).sqrt_(), (square + error).sqrt_()
    open_pairs = sample.pairs((dist >= low) & (dist <= high))
    exact = exact_distances(points.z, *open_pairs).sort().values
    tau = exact[rank - 1 - int((dist < low).sum())]
    if not math.isfinite(tau):
        msg = "'x' must have distances whose square float64 can hold"
        raise ValueError(f"{msg} (got {float(tau)}). Divide the features")
    rounding = 4.0 * (points.num_features + 16) * torch.finfo(torch.float64).eps
    return float(exact[exact <= tau * (1.0 + rounding)][-1])


def _covering(
    reach: Tensor,
    coverage: float,
    num_features: int,
    search: SearchResult | None = None,
) -> float:
    """Smallest radius that covers the share, and distances tied with it."""
    ranked = reach.sort().values
    most = float(ranked.isfinite().double().mean())
    rank = math.ceil(coverage * ranked.numel() - 1e-9)
    tau = float(ranked[rank - 1])
    if math.isinf(tau):
        msg = f"'coverage' must be at most {most:g} for these rows (got {coverage:g})"
        raise ValueError(f"{msg}. The others have fewer than 'min_neighbors' neighbors")
    rounding = 4.0 * (num_features + 16) * torch.finfo(torch.float64).eps
    limit = tau * (1.0 + rounding)
    if search is None or search.z is None:
        return float(ranked[ranked <= limit][-1])
    # The search adds squares in an order of its own, and a radius a last digit too
    # small would lose the very pair it was taken from: ask for its exact distance.
    tied = (reach >= tau * (1.0 - rounding)) & (reach <= limit)
    pairs = search.edge_index[:, tied[search.edge_index[0]]]
    exact = exact_distances(search.z, *pairs)
    return float(exact[exact <= limit].max())
