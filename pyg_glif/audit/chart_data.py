"""What charts show, counted: everybody is in them, and no one can be found in them."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pyg_glif.audit.pair_stats import Attribute, PairTreatment, Unlike

# Squares along each side of the chart of outputs, and bars of the others.
_SQUARES = 24
_BARS = 40
_STEPS = 20
# Groups that have a colour of their own, and attributes that have charts of their own.
_MAX_COLORS = 7
_MAX_CHARTS = 3

Rows = list[dict[str, Any]]


def bins_of(
    both: Tensor,  # [T, N, C]
    pairs: PairTreatment,
    num_peers: Tensor,  # [N]
    attributes: Mapping[str, Attribute],
    unlike: Unlike,
) -> dict[str, Rows]:
    """The data of every chart, by its name."""
    everybody = {"": (torch.zeros_like(num_peers), ("everybody",))}
    colored = {
        name: (label.codes, label.names)
        for name, label in attributes.items()
        if len(label.names) <= _MAX_COLORS
    }
    groups = dict(list(colored.items())[:_MAX_CHARTS]) or everybody
    out: dict[str, Rows] = {}
    if len(both) == 2:
        scores = both[:, :, 0] if both.size(2) == 1 else None
        for name, (codes, names) in groups.items():
            suffix = f"_by_{name}" if name else ""
            if scores is not None:
                out[f"before_after{suffix}"] = _squares(scores, codes, names)
                moved = scores[1] - scores[0]
            else:
                moved = torch.linalg.vector_norm(both[1] - both[0], dim=1)
            out[f"moved{suffix}"] = _bars(moved, codes, names)
            if unlike.decision is not None:
                before, after = unlike.decision
                out[f"changed{suffix}"] = _changed(before, after, codes, names)
    out["unlike_by_distance"] = _by_distance(pairs)
    out["num_peers"] = _counts(num_peers)
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
    """In which bin values are: from its lower edge up to its upper, last included."""
    found = torch.bucketize(values.cpu(), edges, right=True) - 1
    return found.clamp_(0, len(edges) - 2)


def _squares(both: Tensor, codes: Tensor, names: Any) -> Rows:  # [2, N]
    """People by the square in which their outputs before and after are."""
    low, high = float(both.min()), float(both.max())
    step = _round_up((high - low) / _SQUARES)
    start = math.floor(low / step)
    place = torch.floor(both.cpu() / step).long() - start  # [2, N]
    size = int(place.max()) + 1
    key = (codes.cpu() * size + place[0]) * size + place[1]
    found, count = key.unique(return_counts=True)
    rows = []
    for one, number in zip(found.tolist(), count.tolist(), strict=True):
        one, up = divmod(one, size)
        group, across = divmod(one, size)
        middle = [float(f"{(start + at + 0.5) * step:.10g}") for at in (across, up)]
        rows.append(
            {
                "before": middle[0],
                "after": middle[1],
                "people": number,
                "group": names[group],
            }
        )
    return rows


def _bars(values: Tensor, codes: Tensor, names: Any) -> Rows:
    """People between edges, by group."""
    edges = edges_of(values, _BARS)
    place, size = _place(values, edges), len(edges) - 1
    counts = torch.bincount(codes.cpu() * size + place, minlength=size * len(names))
    ends = [float(f"{edge:.10g}") for edge in edges.tolist()]
    return [
        {"from": ends[at], "to": ends[at + 1], "people": number, "group": name}
        for name, row in zip(names, counts.view(-1, size).tolist(), strict=True)
        for at, number in enumerate(row)
        if number
    ]


def _changed(before: Tensor, after: Tensor, codes: Tensor, names: Any) -> Rows:
    """People whose decision changed, by group and direction."""
    rows = []
    for at, name in enumerate(names):
        which = codes == at
        for way, sign in (("raised", 1), ("lowered", -1)):
            number = int((sign * (after - before)[which] > 0).sum())
            rows.append(
                {"group": name, "way": way, "people": number, "of": int(which.sum())}
            )
    return rows


def _by_distance(pairs: PairTreatment) -> Rows:
    """Median and 90% quantile of differences of outputs, by distance of the pairs.

    A quantile is the smallest difference that the share of pairs do not exceed.
    Identical people are left out.
    """
    apart_of = ~pairs.identical
    dist, apart = pairs.pairs.dist[apart_of].cpu(), pairs.apart[:, apart_of].cpu()
    if dist.numel() == 0:
        return []
    edges = edges_of(dist, _STEPS)
    place = _place(dist, edges)
    count = torch.bincount(place, minlength=len(edges) - 1)
    start = count.cumsum(0) - count
    whens = ("before", "after") if len(apart) == 2 else ("outputs",)
    rows = []
    for when, value in zip(whens, apart, strict=True):
        order = value.argsort()
        ordered = value[order[place[order].argsort(stable=True)]]
        for at, number in enumerate(count.tolist()):
            if number:
                held = ordered[int(start[at]) : int(start[at]) + number]
                middle, high = (
                    float(held[math.ceil(q * number - 1e-9) - 1]) for q in (0.5, 0.9)
                )
                rows.append(
                    {
                        "from": float(f"{float(edges[at]):.10g}"),
                        "to": float(f"{float(edges[at + 1]):.10g}"),
                        "pairs": number,
                        "when": when,
                        "median": middle,
                        "p90": high,
                    }
                )
    return rows


def _counts(num_peers: Tensor) -> Rows:
    """People by their number of peers; those without any are on their own."""
    top = int(num_peers.max()) if num_peers.numel() else 0
    width = max(1, math.ceil(_round_up(top / _BARS))) if top else 1
    place = torch.where(num_peers == 0, 0, (num_peers - 1) // width + 1).cpu()
    rows = []
    for at, number in enumerate(torch.bincount(place).tolist()):
        if number:
            low = 0 if at == 0 else (at - 1) * width + 1
            high = 0 if at == 0 else at * width
            rows.append({"from": low, "to": high, "people": number})
    return rows
