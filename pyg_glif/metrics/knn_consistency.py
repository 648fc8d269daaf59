"""Is everybody treated like the people nearest to them?"""

import torch
from torch import Tensor

from pyg_glif._arrays import like
from pyg_glif._runtime import Progress, without_autocast
from pyg_glif._validate import (
    check_count,
    check_features,
    check_outputs,
    check_same_rows,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph.tiles import Tile, pair_distances, slices

_TILE_ENTRIES = 1 << 22
_SAME = 1e-12  # distances that agree to so many digits are ties


@without_autocast()
def knn_deviation(
    x: Tensor,
    y: Tensor,
    k: int = 5,
    *,
    distance: FairDistance | None = None,
    progress: bool | None = None,
) -> Tensor:
    r"""How far each person's output is from that of their nearest others.

    .. math::
        \Big| y_i - \frac{1}{k} \sum_{j \in \mathrm{kNN}(i)} y_j \Big|, \qquad
        i \notin \mathrm{kNN}(i)

    in fair distance, column by column. Where several people are equally far away
    and not all of them fit into the :math:`k` places, they share the places that
    are left in equal parts: the average over all ways to choose. The order of the
    rows therefore does not matter, and duplicates are treated alike.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y (torch.Tensor): Outputs, float32 or float64.
        k (int, optional): Number of nearest others. (default: 5)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the search takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
        - **output:** like the outputs, and in their unit

    The search is exact and goes in tiles: a few hundred MiB whatever the number of
    rows, and time proportional to its square.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> knn_deviation(x, torch.tensor([0.0, 1.0, 0.0, 1.0]), k=1)
        tensor([1., 1., 1., 1.])
        >>> knn_deviation(x, torch.tensor([0.0, 0.5, 1.0, 1.0]), k=1)
        tensor([0.5000, 0.0000, 0.5000, 0.0000])
    """
    given, x = y, check_features("x", x)
    y = check_outputs("y", y).detach().to(x.device)
    check_same_rows("y", y, "x", x)
    check_count("k", k, below=len(x))
    dists = pair_distances(x, distance)
    value = y.reshape(len(y), -1).double()
    everybody, parts = slice(0, len(x)), []
    with Progress(len(x), "nearest neighbours", progress) as bar:
        for rows in slices(0, len(x), max(1, _TILE_ENTRIES // len(x))):
            row, col, weight = _nearest(dists.tile(rows, everybody), rows.start, k)
            mean = torch.zeros_like(value[rows])
            mean.index_add_(0, row, value[col] * weight.unsqueeze(1))
            parts.append((value[rows] - mean).abs_())
            bar.update(rows.stop - rows.start)
    return like(given, torch.cat(parts).view(y.shape).to(y.dtype))


def _nearest(tile: Tile, start: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours of each row of a tile, and their weights, which sum to 1."""
    own = torch.arange(tile.sq_dist.size(0), device=tile.sq_dist.device)
    most = tile.sq_dist + tile.error
    most[own, own + start] = torch.inf
    # At least k others are within this bound, so nobody beyond it is needed.
    reach = most.kthvalue(k, dim=1, keepdim=True).values
    maybe = tile.sq_dist - tile.error <= reach
    maybe[own, own + start] = False
    row, col = maybe.nonzero(as_tuple=True)
    dist = tile.exact(row, col)
    farthest = _kth_in_row(dist, row, own.numel(), k)[row]
    nearer = dist < farthest * (1.0 - _SAME)
    tied = ~nearer & (dist <= farthest * (1.0 + _SAME))
    none = dist.new_zeros(own.numel())
    places = k - none.index_add(0, row, nearer.to(dist.dtype))
    sharers = none.index_add(0, row, tied.to(dist.dtype))
    weight = torch.where(nearer, 1.0, (places / sharers)[row]) / k
    used = nearer | tied
    return row[used], col[used], weight[used]


def _kth_in_row(value: Tensor, row: Tensor, num_rows: int, k: int) -> Tensor:
    """The k-th smallest value of each row, for rows in ascending order."""
    by_value = value.argsort()
    # Stable, so that the values of each row stay in ascending order.
    order = by_value[row[by_value].argsort(stable=True)]
    first = torch.searchsorted(row, torch.arange(num_rows, device=row.device))
    return value[order[first + k - 1]]


def knn_consistency(
    x: Tensor,
    y: Tensor,
    k: int = 5,
    *,
    distance: FairDistance | None = None,
    progress: bool | None = None,
) -> Tensor:
    r"""Consistency with the nearest others in fair space (Zemel et al., ICML 2013).

    .. math::
        1 - \frac{1}{N C} \sum_{i, c} \Big| y_{ic} -
        \frac{1}{k} \sum_{j \in \mathrm{kNN}(i)} y_{jc} \Big|

    One means that everybody gets the average of their :math:`k` nearest others. For
    outputs between 0 and 1 the result is too; in other units it may be negative.
    Nobody is their own neighbour here, and ties are shared; :func:`knn_deviation` has
    the terms of the sum. AIF360's ``consistency_score`` counts each person among
    their own :math:`k` nearest, so its value is
    :math:`1 - \frac{k - 1}{k} (1 - \mathrm{ours}_{k - 1})` where nobody is tied.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y (torch.Tensor): Outputs, float32 or float64; labels as 0.0 and 1.0.
        k (int, optional): Number of nearest others. (default: 5)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the search takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
        - **output:** a number, at most 1

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> knn_consistency(x, torch.tensor([0.0, 0.5, 1.0, 1.0]), k=1)
        tensor(0.7500)
    """
    y = check_outputs("y", y)
    deviation = knn_deviation(x, y, k, distance=distance, progress=progress)
    return (1.0 - deviation.double().mean()).to(deviation.dtype)
