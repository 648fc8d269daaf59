"""Aggregated, anonymous data behind the charts of a report."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_glif.audit.pair_stats import Attribute, PairTreatment

# Squares along each side of the chart of outputs, and bars of the others.
_SQUARES = 24
_BARS = 40
_STEPS = 20
# Groups that have a color of their own, and attributes that have charts.
_MAX_COLORS = 7
_MAX_CHARTS = 3

Rows = list[dict[str, Any]]


def bins_of(
    y: Tensor,  # [T, N, C]
    pairs: PairTreatment,
    num_neighbors: Tensor,  # [N]
    attributes: Mapping[str, Attribute],
    decision: Tensor | None,  # [T, N]
) -> dict[str, Rows]:
    """The data of every chart, by its name."""
    all_samples = {"": Attribute(torch.zeros_like(num_neighbors), ("everybody",))}
    colored = {n: a for n, a in attributes.items() if len(a.names) <= _MAX_COLORS}
    groups = dict(list(colored.items())[:_MAX_CHARTS]) or all_samples
    out: dict[str, Rows] = {}
    for name, label in groups.items() if len(y) == 2 else ():
        suffix = f"_by_{name}" if name else ""
        moved = torch.linalg.vector_norm(y[1] - y[0], dim=1)
        if y.size(2) == 1:
            out[f"before_after{suffix}"] = _squares(y[:, :, 0], label)
            moved = (y[1] - y[0])[:, 0]
        out[f"moved{suffix}"] = _bars(moved, label)
        if decision is not None:
            out[f"changed{suffix}"] = _changed(decision[1] - decision[0], label)
    out["difference_by_distance"] = _by_distance(pairs)
    out["num_neighbors"] = _counts(num_neighbors)
    return out


def edges_of(values: Tensor, count: int) -> Tensor:
    """Round edges of about ``count`` equal steps that hold all values and zero."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    step = _round_up((high - low) / count)
    first = math.floor(low / step)
    # Rounding must not leave the largest value out.
    last = max(first + 1, math.ceil(high / step - 1e-9))
    while last * step < high:
        last += 1
    return torch.arange(first, last + 1, dtype=torch.float64) * step


def _round_up(step: float) -> float:
    """The next number of the form 1, 2 or 5 times a power of ten."""
    if step <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    for factor in (1.0, 2.0, 5.0, 10.0):
        if step <= factor * power * (1 + 1e-9):
            return float(f"{factor * power:.12g}")
    return 10.0 * power


def _place(values: Tensor, edges: Tensor) -> Tensor:
    """Bins of values: from the lower edge up to the upper, the last one included."""
    place = torch.bucketize(values.cpu(), edges, right=True) - 1
    return place.clamp_(0, len(edges) - 2)


def _squares(y: Tensor, label: Attribute) -> Rows:  # [2, N]
    """Samples by the square in which their outputs before and after are."""
    low, high = float(y.min()), float(y.max())
    step = _round_up((high - low) / _SQUARES)
    start = math.floor(low / step)
    place = torch.floor(y.cpu() / step).long() - start  # [2, N]
    squares = torch.stack([label.codes.cpu(), *place], 1)
    squares, counts = squares.unique(dim=0, return_counts=True)
    return [
        {
            "before": _rounded((start + across + 0.5) * step),
            "after": _rounded((start + up + 0.5) * step),
            "num_samples": count,
            "group": label.names[group],
        }
        for (group, across, up), count in zip(
            squares.tolist(), counts.tolist(), strict=True
        )
    ]


def _bars(values: Tensor, label: Attribute) -> Rows:
    """Samples between edges, by group."""
    edges = edges_of(values, _BARS)
    place, ends = _place(values, edges), list(map(_rounded, edges.tolist()))
    rows = []
    for name, group in zip(label.names, label.members(), strict=True):
        for k, count in enumerate(torch.bincount(place[group.cpu()]).tolist()):
            if count:
                bar = {"from": ends[k], "to": ends[k + 1], "num_samples": count}
                rows.append({**bar, "group": name})
    return rows


def _changed(change: Tensor, label: Attribute) -> Rows:
    """Samples whose decision changed, by group and direction."""
    rows = []
    for name, group in zip(label.names, label.members(), strict=True):
        for way, mask in (("raised", change > 0), ("lowered", change < 0)):
            count, of = int(mask[group].sum()), int(group.sum())
            rows.append({"group": name, "way": way, "num_samples": count, "of": of})
    return rows


def _by_distance(pairs: PairTreatment) -> Rows:
    """Median and 90% quantile of differences of outputs, by distance of the pairs.

    A quantile is the smallest difference that the share of pairs do not exceed.
    Identical samples are left out.
    """
    which = ~pairs.identical
    dist, gaps = pairs.pairs.dist[which].cpu(), pairs.gap[:, which].cpu()
    if dist.numel() == 0:
        return []
    edges = edges_of(dist, _STEPS)
    place = _place(dist, edges)
    count = torch.bincount(place, minlength=len(edges) - 1)
    start = count.cumsum(0) - count
    ends = list(map(_rounded, edges.tolist()))
    whens = ("before", "after") if len(gaps) == 2 else ("outputs",)
    rows = []
    for when, gap in zip(whens, gaps, strict=True):
        order = gap.argsort()
        ordered = gap[order[place[order].argsort(stable=True)]]
        for k, num in enumerate(count.tolist()):
            if num:
                inside = ordered[int(start[k]) : int(start[k]) + num]
                median, p90 = (
                    float(inside[math.ceil(q * num - 1e-9) - 1]) for q in (0.5, 0.9)
                )
                row = {"from": ends[k], "to": ends[k + 1], "num_pairs": num}
                rows.append({**row, "when": when, "median": median, "p90": p90})
    return rows


def _counts(num_neighbors: Tensor) -> Rows:
    """Samples by their number of neighbors; isolated ones have a bar of their own."""
    top = int(num_neighbors.max()) if num_neighbors.numel() else 0
    width = max(1, math.ceil(_round_up(top / _BARS))) if top else 1
    place = (num_neighbors + width - 1) // width
    return [
        {"from": max(0, (k - 1) * width + 1), "to": k * width, "num_samples": count}
        for k, count in enumerate(torch.bincount(place.cpu()).tolist())
        if count
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.10g}")
