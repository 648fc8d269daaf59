"""Consistency of outputs with those of the nearest neighbors."""

import torch
from torch import Tensor

from pyg_glif._utils.arrays import like
from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_count,
    check_features,
    check_outputs,
    check_same_rows,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph.knn import NearestPoints, nearest_points

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
    r"""Difference of each output from the mean over the nearest neighbors.

    .. math::
        \Big| y_i - \frac{1}{k} \sum_{j \in \mathrm{kNN}(i)} y_j \Big|, \qquad
        i \notin \mathrm{kNN}(i)

    in fair distance, column by column. Where several samples are equally far away
    and not all of them fit into the :math:`k` places, they share the places that
    are left in equal parts: the average over all ways to choose. The order of the
    rows therefore does not matter, and duplicates are treated alike.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y (torch.Tensor): Outputs, float32 or float64.
        k (int, optional): Number of nearest neighbors. (default: 5)
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the search takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`
        - **output:** like the outputs, and in their unit

    The search is exact, that of :func:`~pyg_glif.fair_knn_graph`. Duplicates are
    searched for once, however many there are.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> knn_deviation(x, torch.tensor([0.0, 1.0, 0.0, 1.0]), k=1)
        tensor([1., 1., 1., 1.])
        >>> knn_deviation(x, torch.tensor([0.0, 0.5, 1.0, 1.0]), k=1)
        tensor([0.5000, 0.0000, 0.5000, 0.0000])
    """
    original, x = y, check_features("x", x, distance)
    y = check_outputs("y", y).detach().to(x.device)
    check_same_rows("y", y, "x", x)
    check_count("k", k, below=len(x))
    value = y.reshape(len(y), -1).double()
    nearest = nearest_points(x, k, distance, 2.0 * _SAME, progress)
    point, count = nearest.point, torch.bincount(nearest.point)
    total = value.new_zeros(len(count), value.size(1)).index_add_(0, point, value)
    # Duplicates come first; places may be left for other points.
    duplicates = count - 1
    share = (k / duplicates.clamp(min=1).double()).clamp_(max=1.0).unsqueeze(1)
    filled = (total[point] - value) * share[point]
    filled += _fill(nearest, k - duplicates, count, total)[point]
    deviation = (value - filled / k).abs_().view(y.shape).to(y.dtype)
    out: Tensor = like(original, deviation)
    return out


def _fill(
    nearest: NearestPoints, places: Tensor, count: Tensor, total: Tensor
) -> Tensor:
    """Sums of outputs over the places that other points fill, nearest first.

    Args:
        nearest: The nearest points of each.
        places: Number of places to fill for each point, which may be none.
        count: Number of rows at each point.
        total: Sums of their outputs.
    """
    order = nearest.dist.argsort()
    # Stable, so that the distances of each point stay in ascending order.
    order = order[nearest.row[order].argsort(stable=True)]
    row, col, dist = nearest.row[order], nearest.col[order], nearest.dist[order]
    size = count[col]
    reached = size.cumsum(0)
    first = torch.searchsorted(row, torch.arange(len(count), device=row.device))
    reached -= (reached - size)[first[row]]
    # The distance at which the last place is filled.
    enough = torch.where(reached >= places[row], dist, torch.inf)
    last = dist.new_full(count.shape, torch.inf).scatter_reduce_(0, row, enough, "amin")
    last = last.masked_fill_(places <= 0, -torch.inf)[row]
    nearer = dist < last * (1.0 - _SAME)
    tied = ~nearer & (dist <= last * (1.0 + _SAME))
    none = dist.new_zeros(count.shape)
    left = places - none.index_add(0, row, nearer * size.double())
    sharers = none.index_add(0, row, tied * size.double())
    part = torch.where(nearer, 1.0, (left / sharers)[row])
    used = nearer | tied
    out = torch.zeros_like(total)
    return out.index_add_(0, row[used], total[col[used]] * part[used].unsqueeze(1))


def knn_consistency(
    x: Tensor,
    y: Tensor,
    k: int = 5,
    *,
    distance: FairDistance | None = None,
    progress: bool | None = None,
) -> Tensor:
    r"""Consistency with the nearest neighbors in fair space (Zemel et al., ICML 2013).

    .. math::
        1 - \frac{1}{N C} \sum_{i, c} \Big| y_{ic} -
        \frac{1}{k} \sum_{j \in \mathrm{kNN}(i)} y_{jc} \Big|

    One means that every output is the average of its :math:`k` nearest neighbors. For
    outputs between 0 and 1 the result is too; in other units it may be negative.
    No sample is its own neighbor here, and ties are shared; :func:`knn_deviation` has
    the terms of the sum. AIF360's ``consistency_score`` counts each sample among
    its own :math:`k` nearest, so its value is
    :math:`1 - \frac{k - 1}{k} (1 - \mathrm{ours}_{k - 1})` without ties.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        y (torch.Tensor): Outputs, float32 or float64; labels as 0.0 and 1.0.
        k (int, optional): Number of nearest neighbors. (default: 5)
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
