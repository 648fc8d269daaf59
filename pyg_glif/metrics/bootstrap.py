"""Bootstrap intervals of statistics of samples."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_callable,
    check_count,
    check_exclusive,
    check_finite,
    check_labels,
    check_scalar,
    check_tensor,
)
from pyg_glif.metrics.groups import number_groups


class Interval(NamedTuple):
    r"""A number and the interval it may lie in.

    Attributes:
        estimate (torch.Tensor): The statistic of the given rows.
        low (torch.Tensor): Lower end of the interval.
        high (torch.Tensor): Upper end.
    """

    estimate: Tensor
    low: Tensor
    high: Tensor


@torch.no_grad()
def bootstrap_interval(
    statistic: Callable[..., Tensor],
    num_rows: int,
    *,
    cluster: Tensor | None = None,
    strata: Tensor | None = None,
    level: float = 0.95,
    num_samples: int = 1000,
    generator: torch.Generator | None = None,
) -> Interval:
    r"""Percentile bootstrap interval of a statistic of rows.

    Rows are drawn with replacement ``num_samples`` times, as many as there are,
    and the interval goes from the :math:`(1 - \mathrm{level}) / 2` to the
    :math:`(1 + \mathrm{level}) / 2` quantile of the statistic over the draws.

    Args:
        statistic (callable): Maps row numbers, int64 and with repetitions, to a
            tensor of any fixed shape. With ``cluster`` it is called with a second
            tensor, the number of the draw that each row belongs to.
        num_rows (int): Number of rows.
        cluster (torch.Tensor, optional): Non-negative label of each row's cluster,
            such as a group of counterfactuals. Whole clusters are drawn, because
            their rows are not independent. (default: each row on its own)
        strata (torch.Tensor, optional): Non-negative label of each row's stratum.
            Rows are drawn within strata, so that every draw has as many rows
            of each group as the data. (default: one stratum)
        level (float, optional): Confidence level. (default: 0.95)
        num_samples (int, optional): Number of draws. (default: 1000)
        generator (torch.Generator, optional): Source of the draws. (default: a
            fixed seed, so that the answer does not change between calls)

    Shapes:
        - **statistic:** rows :math:`(M)`, draws :math:`(M)`; :math:`M = N` but for
          clusters of unequal size
        - **output:** :class:`Interval` of tensors shaped like the statistic

    A cluster that was drawn twice is two clusters: use the draw numbers, not the
    labels, where the statistic needs groups. The statistic must be defined on every
    draw; where a draw may lack a group, pass ``strata``. Percentile intervals
    are approximate: few rows, extremes and quantiles near 0 or 1 defeat them.

    Example:
        >>> y = torch.tensor([1, 1, 0, 1, 1, 1])
        >>> group = torch.tensor([0, 0, 1, 1, 2, 2])
        >>> from pyg_glif.metrics import prediction_consistency
        >>> def consistency(rows, draw):
        ...     return prediction_consistency(y[rows], draw)
        >>> interval = bootstrap_interval(consistency, 6, cluster=group)
        >>> interval.estimate, interval.low, interval.high
        (tensor(0.6667), tensor(0.), tensor(1.))
    """
    check_callable("statistic", statistic)
    check_count("num_rows", num_rows)
    level = check_scalar("level", level, above=0.0, below=1.0)
    check_count("num_samples", num_samples)
    check_exclusive("cluster", cluster, "strata", strata)
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    draw = _sampler(num_rows, cluster, strata, generator)
    all_rows = [torch.arange(num_rows, device=generator.device)]
    if cluster is not None:
        all_rows.append(number_groups(cluster.to(generator.device))[0])
    estimate = check_tensor("statistic(...)", statistic(*all_rows))
    samples = [
        check_tensor("statistic(...)", statistic(*draw())) for _ in range(num_samples)
    ]
    values = torch.stack([estimate, *samples]).double()
    check_finite("statistic(...)", values)
    ends = values.new_tensor([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    low, high = values[1:].quantile(ends, dim=0)
    if estimate.is_floating_point():
        low, high = low.to(estimate.dtype), high.to(estimate.dtype)
    return Interval(estimate, low, high)


def _sampler(
    num_rows: int,
    cluster: Tensor | None,
    strata: Tensor | None,
    generator: torch.Generator,
) -> Callable[[], tuple[Tensor, ...]]:
    """A function that draws samples, and the clusters they belong to."""
    device = generator.device
    if cluster is not None:
        label = check_labels("cluster", cluster, num_rows).to(device)
        return _cluster_sampler(label, generator)
    label = torch.zeros(num_rows, dtype=torch.long, device=device)
    if strata is not None:
        label = check_labels("strata", strata, num_rows).to(device)
    index, count = number_groups(label)
    order = index.argsort(stable=True)
    size = count.repeat_interleave(count)
    first = (count.cumsum(0) - count).repeat_interleave(count)

    def draw() -> tuple[Tensor, ...]:
        share = torch.rand(
            num_rows, dtype=torch.float64, device=device, generator=generator
        )
        # Rows of a stratum lie together in 'order', so a draw stays in its own.
        return (order[first + (share * size).long()],)

    return draw


def _cluster_sampler(
    label: Tensor, generator: torch.Generator
) -> Callable[[], tuple[Tensor, ...]]:
    """A function that draws whole clusters and numbers the draws."""
    index, count = number_groups(label)
    order = index.argsort(stable=True)
    first = count.cumsum(0) - count

    def draw() -> tuple[Tensor, ...]:
        shape = (count.numel(),)
        chosen = torch.randint(
            count.numel(), shape, device=label.device, generator=generator
        )
        size = count[chosen]
        number = torch.arange(shape[0], device=label.device).repeat_interleave(size)
        # Position of each row within its draw, then within the sorted rows.
        within = torch.arange(number.numel(), device=label.device)
        within -= (size.cumsum(0) - size)[number]
        return order[first[chosen][number] + within], number

    return draw
