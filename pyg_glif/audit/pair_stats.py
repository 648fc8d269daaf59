"""Outputs of samples, pairs and groups, beside those of their neighbors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_labels
from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import (
    check_group,
    check_known,
    check_labels,
    check_two_values,
)
from pyg_glif.audit.audit_report import (
    GroupTreatment,
    IntervalEstimate,
    ListedPair,
    ListedSample,
    Output,
)
from pyg_glif.audit.dyadic_ci import NeighborDyads, wilson
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator


@dataclass(frozen=True, eq=False)
class Attribute:
    """Groups of samples: a number for each sample, a name for each number."""

    codes: Tensor  # [N] from 0, each number used
    names: tuple[str, ...]

    @classmethod
    def of(cls, name: str, value: Any, num: int, device: torch.device) -> "Attribute":
        """Groups from labels of any kind, or from numbers and their names."""
        named: Sequence[Any] | None = None
        if isinstance(value, tuple) and len(value) == 2:
            value, named = value
        label = check_labels(name, to_labels(name, value), num).to(device)
        numbers, codes = label.unique(return_inverse=True)
        check_two_values(name, numbers)
        if named is not None:
            names = [named[k] for k in numbers.tolist()]
        elif isinstance(value, Tensor):
            names = numbers.tolist()
        else:  # labels are their own names
            first = np.unique(codes.cpu().numpy(), return_index=True)[1]
            names = np.asarray(value)[first].tolist()
        return cls(codes, tuple(map(str, names)))

    def members(self) -> Iterator[Tensor]:  # [N] bool
        """Masks of the groups."""
        return (self.codes == k for k in range(len(self.names)))


@dataclass(frozen=True, eq=False)
class DisagreementRule:
    """Rule by which the outputs of two neighbors disagree."""

    decision: Tensor | None  # [T, N]
    difference: float | None  # of outputs, where it is not decisions that count

    @classmethod
    def of(
        cls, y: Tensor, threshold: float | None, difference: float | None
    ) -> "DisagreementRule":
        """By decisions, or by a difference if it is given or if there are none."""
        decision = None
        if y.size(2) > 1 or threshold is not None:
            decision = decisions(y, 0.5 if threshold is None else threshold)
        elif difference is None:
            spread = y[0].std() if y.size(1) > 1 else y.new_zeros(())
            difference = float(spread) / 2.0
        return cls(decision, difference)

    def among(self, pairs: "PairTreatment", when: int) -> Tensor:  # [P]
        """Mask of disagreeing pairs: never those with equal outputs."""
        if self.difference is not None:
            return pairs.gap[when] > self.difference
        assert self.decision is not None
        decision = self.decision[when]
        differ = decision[pairs.pairs.first] != decision[pairs.pairs.second]
        return differ & (pairs.gap[when] > 0)


class PairTreatment:
    """Every pair of neighbors once, and the distance of their outputs.

    Outputs that are equal up to their numerical error, ``error``, are at distance zero.
    """

    def __init__(self, graph: SimilarityGraph, y: Tensor, error: Tensor) -> None:
        row, col = graph.edge_index.to(y.device)
        once = row < col
        dist = graph.sq_dist.to(y.device)[once].double().sqrt()
        self.y, self.pairs = y, NeighborDyads(row[once], col[once], dist)
        first, second = self.pairs.first, self.pairs.second
        # By column: gathered rows of many outputs would not fit.
        square = y.new_zeros(len(y), dist.numel())
        for column in y.unbind(2):
            square += (column[:, first] - column[:, second]).square_()
        self.gap = square.sqrt_()  # [T, P]
        self.gap[self.gap <= error[:, first] + error[:, second]] = 0.0

    @cached_property
    def identical(self) -> Tensor:  # [P]
        """Mask of pairs at distance zero."""
        return self.pairs.dist == 0

    def facts(self) -> dict[str, Any]:
        """Number of identical pairs, and of those with different outputs."""
        facts = {"num_identical": int(self.identical.sum())}
        if facts["num_identical"]:
            differing = (self.gap[:, self.identical] > 0).sum(1).tolist()
            names = ("num_identical_differing_before", "num_identical_differing_after")
            facts |= zip(names, differing, strict=False)
        return facts

    def worst(self, when: int, identical: bool, count: int) -> tuple[ListedPair, ...]:
        """Pairs of the largest gaps; of equal ones the nearer, then the first."""
        if when >= len(self.y):
            return ()
        which = self.identical if identical else ~self.identical
        rows = (which & (self.gap[when] > 0)).nonzero().flatten()
        gap = self.gap[when, rows]
        if rows.numel() > count > 0:  # sort only those that may be among the first
            rows = rows[gap >= gap.topk(count).values[-1]]
            gap = self.gap[when, rows]
        order = self.pairs.dist[rows].sort(stable=True).indices
        order = order[gap[order].sort(descending=True, stable=True).indices]
        return tuple(self._pair(k) for k in rows[order[:count]].tolist())

    def _pair(self, k: int) -> ListedPair:
        i, j = int(self.pairs.first[k]), int(self.pairs.second[k])
        values: list[Any] = []
        for y, gap in zip(self.y, self.gap[:, k].tolist(), strict=True):
            values += [(output_of(y[i]), output_of(y[j])), gap]
        return ListedPair(i, j, float(self.pairs.dist[k]), *values)


def settled(y: Tensor, error: Tensor, threshold: float | None) -> Tensor:
    """Outputs ``[T, N, C]``, set to where they cannot be distinguished from.

    Up to the numerical error, ``[T, N]``, an output may be what it was before, or be at
    the threshold.
    """
    if len(y) == 2:
        moved = torch.linalg.vector_norm(y[1] - y[0], dim=1)
        same = (moved <= error[1]).unsqueeze(1)
        y = torch.stack([y[0], torch.where(same, y[0], y[1])])
    if threshold is not None and y.size(2) == 1:
        at_threshold = (y[:, :, 0] - threshold).abs() <= error
        y = torch.where(at_threshold.unsqueeze(2), threshold, y)
    return y


class SampleTreatment:
    """Outputs of all samples and averages of their neighbors, before and after."""

    def __init__(self, lap: LaplacianOperator, y: Tensor, error: Tensor) -> None:
        self.y = y
        self.num_neighbors = lap.pattern.rowptr.diff().long()  # [N]
        self.neighbors = y  # [T, N, C]
        deg = lap.deg.detach().unsqueeze(1)
        if lap.num_edges:
            matrix = lap.pattern.csr(lap.weight)
            # Any divisor will do for samples without weight: they keep their output.
            total = torch.where(deg == 0, 1.0, deg)
            means = [torch.where(deg == 0, out, matrix @ out / total) for out in y]
            self.neighbors = torch.stack(means)
        gap = torch.linalg.vector_norm(y - self.neighbors, dim=2).T
        equal = gap <= error.T + error.amax(1)
        self.deviation = gap.masked_fill((deg == 0) | equal, 0.0)  # [N, T]
        self.moved: Tensor | None = None  # [N]
        if len(y) == 2:
            self.moved = torch.linalg.vector_norm(y[1] - y[0], dim=1)

    def facts(self) -> dict[str, Any]:
        """Sizes, and the movement of outputs."""
        facts: dict[str, Any] = {
            "num_samples": len(self.num_neighbors),
            "num_outputs": self.y.size(2),
            "num_edges": int(self.num_neighbors.sum()) // 2,
            "num_isolated": int((self.num_neighbors == 0).sum()),
        }
        if self.moved is not None:
            facts["mean_movement"] = float(self.moved.mean())
            facts["largest_movement"] = float(self.moved.max())
        return facts

    def worst(self, when: int, count: int) -> tuple[ListedSample, ...]:
        """Samples with neighbors that deviate most from them."""
        if when >= len(self.y):
            return ()
        return self._first(self.deviation[:, when], self.num_neighbors > 0, count)

    def most_moved(self, count: int) -> tuple[ListedSample, ...]:
        """Samples whose output moved furthest, if it moved at all."""
        if self.moved is None:
            return ()
        return self._first(self.moved, self.moved > 0, count)

    def isolated(self) -> tuple[ListedSample, ...]:
        """All samples without neighbors."""
        rows = (self.num_neighbors == 0).nonzero().flatten()
        return tuple(map(self._sample, rows.tolist()))

    def _first(
        self, value: Tensor, which: Tensor, count: int
    ) -> tuple[ListedSample, ...]:
        order = value.sort(descending=True, stable=True).indices
        return tuple(map(self._sample, order[which[order]][:count].tolist()))

    def _sample(self, i: int) -> ListedSample:
        num, values = int(self.num_neighbors[i]), []
        for when, y in enumerate(self.y):
            mean = output_of(self.neighbors[when, i]) if num else None
            values += [output_of(y[i]), mean, float(self.deviation[i, when])]
        if self.moved is not None:
            values.append(float(self.moved[i]))
        return ListedSample(i, num, *values)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class GroupRate:
    """Shares of groups with a positive decision, of all or of some samples."""

    name: str  # of the measure and of the verdict
    attribute: str
    title: str
    of: str  # the samples, in words
    chosen: Tensor  # [T, M, 1] float64, 0 or 1
    label: Attribute  # of these samples

    def rates(self) -> list[list[float]]:  # [T][G]
        """The share of every group, for each set of outputs."""
        groups = list(self.label.members())
        return [[float(y[group].mean()) for group in groups] for y in self.chosen]


def group_rates(
    attributes: Mapping[str, Attribute],
    decision: Tensor | None,  # [T, N]
    y: Tensor,
    labels: Tensor | None,
) -> Iterator[GroupRate]:
    """Selection rates and, with labels, true-positive rates, by attribute.

    Only of a single output: of several classes none is the positive one.
    """
    if labels is not None:
        labels = check_group("labels", labels, y.size(1)).to(y.device)
        if y.size(2) == 1:  # -1 where a label is unknown
            check_known("labels", labels.unique().tolist(), (-1, 0, 1))
    if decision is None or y.size(2) > 1:
        return
    chosen = decision.double().unsqueeze(2)
    for name, label in attributes.items():
        key, title = f"selection_by_{name}", f"Decisions of yes by {name}"
        yield GroupRate(key, name, title, "Of all people", chosen, label)
        if labels is None:
            continue
        which = labels == 1
        present, codes = label.codes[which].unique(return_inverse=True)
        if present.numel() > 1:
            positive = Attribute(codes, tuple(label.names[k] for k in present.tolist()))
            key, title = f"true_positives_by_{name}", f"True positives by {name}"
            of = "Of people whose true class is 1"
            yield GroupRate(key, name, title, of, chosen[:, which], positive)


def group_treatment(
    label: Attribute, y: Tensor, decision: Tensor | None, level: float
) -> Iterator[GroupTreatment]:
    """Averages, rates and changed decisions of every group of an attribute."""
    whens = ("before", "after")[: len(y)]
    for name, group in zip(label.names, label.members(), strict=True):
        num = int(group.sum())
        values: dict[str, Any] = {}
        for k, when in enumerate(whens if y.size(2) == 1 else ()):
            values[f"mean_{when}"] = _mean(y[k, group, 0], level)
            if decision is not None:
                rate = float(decision[k, group].double().mean())
                values[f"rate_{when}"] = IntervalEstimate(
                    rate, *wilson(rate, num, level)
                )
        if decision is not None and len(y) == 2:
            before, after = decision[:, group]
            values["num_raised"] = int((after > before).sum())
            values["num_lowered"] = int((after < before).sum())
        yield GroupTreatment(name, num, **values)


def _mean(value: Tensor, level: float) -> IntervalEstimate:
    """A mean with its normal interval; of one sample there is none."""
    mean = float(value.mean())
    if value.numel() < 2:
        return IntervalEstimate(mean)
    half = NormalDist().inv_cdf((1.0 + level) / 2.0)
    half *= float(value.std()) / sqrt(value.numel())
    return IntervalEstimate(mean, mean - half, mean + half)


def output_of(row: Tensor) -> Output:
    """One output as plain data."""
    values = row.reshape(-1).tolist()
    return values[0] if len(values) == 1 else tuple(values)
