"""Measures, with intervals from draws of samples."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_count,
    check_labels,
    check_repeated,
    check_scalar,
)
from pyg_glif.audit.audit_report import IntervalEstimate, Measure
from pyg_glif.audit.pair_stats import Attribute, GroupRate
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import laplacian_energy, local_lipschitz
from pyg_glif.metrics.groups import group_means, number_groups

_QUANTILES = (0.5, 0.9, 0.99)
# Means over more samples than this are normal to all that intervals show.
_MANY = 5_000
# Draws whose rows are held at once, times samples.
_AT_ONCE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """Draws behind the intervals of an audit.

    Args:
        level (float): Confidence level. (default: :obj:`0.95`)
        num_samples (int): Number of draws. (default: :obj:`1000`)
        generator (torch.Generator, optional): Source of the draws.
            (default: a fixed seed)

    Example:
        >>> Bootstrap(num_samples=200).level
        0.95
    """

    level: float = 0.95
    num_samples: int = 1000
    generator: torch.Generator | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_scalar("level", self.level, above=0.0, below=1.0)
        check_count("num_samples", self.num_samples)


class Draws:
    """Measures with intervals, before and after over the same draws."""

    def __init__(self, options: Bootstrap) -> None:
        self._options = options

    def mean(self, name: str, title: str, better: str, value: Tensor) -> Measure:
        """The mean of a value that every sample has, ``[M, T]``."""
        estimates = self._estimates(value.mean(0), self._drawn([value])[:, 0])
        return Measure(name, title, better, *estimates)

    def gap(self, name: str, y: Tensor, label: Attribute) -> Measure:
        """Difference of group means, drawn within groups."""
        value = y.transpose(0, 1).to(label.codes.device)  # [N, T, C]
        groups = [value[members] for members in label.members()]
        is_signed = len(groups) == 2 and value.size(2) == 1

        def gap(mean: Tensor) -> Tensor:  # [..., G, T, C] -> [..., T]
            if is_signed:
                return (mean[..., 1, :, :] - mean[..., 0, :, :])[..., 0]
            return (mean.amax(-3) - mean.amin(-3)).amax(-1)

        means = torch.stack([group.mean(0) for group in groups])
        estimates = self._estimates(gap(means), gap(self._drawn(groups)))
        title = f"gap by {name}"
        if is_signed:
            title = f"{title} ({label.names[1]} - {label.names[0]})"
        return Measure(f"gap_by_{name}", title, "", *estimates)

    def rate_gap(self, rate: GroupRate) -> Measure:
        """Difference of the shares of groups with a positive decision."""
        measure = self.gap(rate.attribute, rate.chosen, rate.label)
        what = rate.title.partition(" by ")[0].lower()
        return replace(measure, name=rate.name, title=f"{what}, {measure.title}")

    def _drawn(self, groups: list[Tensor]) -> Tensor:  # [S, G, ...]
        """Draws of the means of groups."""
        generator = self._options.generator
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        num = self._options.num_samples
        return torch.stack([_drawn_means(g, num, generator) for g in groups], 1)

    def _estimates(self, value: Tensor, drawn: Tensor) -> list[IntervalEstimate]:
        """Before or, from a statistic with two entries, before, after and change."""
        level = self._options.level
        value = torch.cat([value, value.diff()])
        drawn = torch.cat([drawn, drawn.diff(dim=1)], dim=1)
        ends = drawn.new_tensor([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        low, high = drawn.quantile(ends, dim=0)
        return list(map(IntervalEstimate, value.tolist(), low.tolist(), high.tolist()))


def _drawn_means(
    value: Tensor, num_draws: int, generator: torch.Generator
) -> Tensor:  # [M, ...] -> [S, ...]
    """Means of as many samples as there are, drawn with replacement."""
    num, flat = len(value), value.reshape(len(value), -1)
    source: dict[str, Any] = {"device": generator.device, "generator": generator}
    out: Tensor
    if num > _MANY:
        # The same mean and variance, without the draws.
        mean = flat.mean(0)
        cov = (flat - mean).T @ (flat - mean) / num**2
        size, axes = torch.linalg.eigh(cov)
        root = axes * size.clamp(min=0.0).sqrt()
        noise = torch.randn(num_draws, len(size), dtype=flat.dtype, **source)
        out = mean + noise.to(flat.device) @ root.T
    else:
        parts = []
        step = max(1, _AT_ONCE // (num * flat.size(1)))
        for start in range(0, num_draws, step):
            rows = torch.randint(num, (min(step, num_draws - start), num), **source)
            parts.append(flat[rows.to(flat.device)].mean(1))
        out = torch.cat(parts)
    return out.view(num_draws, *value.shape[1:])


def edge_measures(
    lap: LaplacianOperator, outputs: list[Tensor], graph: SimilarityGraph
) -> Iterator[Measure]:
    """Sums and quantiles over edges, without intervals."""
    flat = [y.reshape(len(y), -1).double() for y in outputs]
    energy = [float(laplacian_energy(y, lap)) for y in flat]
    yield _exact("laplacian_energy", "Laplacian energy", energy)
    # Identical samples have no ratio; they are counted by themselves.
    row, col = graph.edge_index
    keep = (row < col) & (graph.sq_dist > 0)
    edges, sq_dist = graph.edge_index[:, keep], graph.sq_dist[keep]
    ratios = [
        local_lipschitz(y, edges, sq_dist, quantiles=_QUANTILES, num_worst=0)
        for y in outputs
    ]
    for k, level in enumerate(_QUANTILES):
        name = f"lipschitz_ratio_p{100 * level:g}"
        title = f"Lipschitz ratio, {100 * level:g}% of pairs"
        yield _exact(name, title, [float(r.quantiles[k]) for r in ratios])
    largest = [float(r.max) for r in ratios]
    yield _exact("lipschitz_ratio_max", "Lipschitz ratio, largest", largest)


def _exact(name: str, title: str, values: list[float]) -> Measure:
    """A measure without an interval."""
    changes = [values[1] - values[0]] if len(values) == 2 else []
    return Measure(name, title, "lower", *map(IntervalEstimate, values + changes))


def variant_measures(
    draw: Draws, y: Tensor, variants: Tensor, decided: Tensor | None
) -> Iterator[Measure]:
    """Spread and agreement of decisions among variants, which are drawn together."""
    label = check_labels("variants", variants, y.size(1)).to(y.device)
    index, count = number_groups(label)
    several = count > 1
    check_repeated("variants", int(several.sum()), count.numel())
    size = count[several].view(-1, 1).double()
    spread = []
    for out in y:
        mean = group_means(out, index, count)
        square = group_means((out - mean[index]).square(), index, count)[several]
        spread.append((square * size / (size - 1.0)).sqrt().mean(1))
    title = "standard deviation in groups"
    yield draw.mean("group_std", title, "lower", torch.stack(spread, 1))
    if decided is None:
        return
    agree = []
    for decision in decided:
        low = decision.new_zeros(count.numel())
        # The zeros to start from are no decisions, hence 'include_self=False'.
        high = low.scatter_reduce(0, index, decision, "amax", include_self=False)
        low = low.scatter_reduce(0, index, decision, "amin", include_self=False)
        agree.append((low == high)[several].double())
    title = "same decision in groups"
    yield draw.mean("group_agreement", title, "higher", torch.stack(agree, 1))
