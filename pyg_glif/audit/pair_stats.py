"""Who got what: people, pairs and groups, with the outputs of their peers."""

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
from pyg_glif.audit.audit_report import Estimate, GroupTreatment, Output, Pair, Person
from pyg_glif.audit.dyadic_ci import Pairs, wilson
from pyg_glif.graph import SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.reporting import number


@dataclass(frozen=True, eq=False)
class Attribute:
    """Groups of people: a number for each person, a name for each number."""

    codes: Tensor  # [N] from 0, each number used
    names: tuple[str, ...]

    @classmethod
    def of(cls, name: str, value: Any, num: int, device: torch.device) -> "Attribute":
        """Groups from labels of any kind, or from numbers and their names."""
        named: Sequence[Any] | None = None
        if isinstance(value, tuple) and len(value) == 2:
            value, named = value
        label = check_labels(name, to_labels(name, value), num).to(device)
        found, codes = label.unique(return_inverse=True)
        check_two_values(name, found)
        if named is None:
            named = _names_of(value, codes, found)
        else:
            named = [named[at] for at in found.tolist()]
        return cls(codes, tuple(map(str, named)))


def _names_of(value: Any, codes: Tensor, found: Tensor) -> list[Any]:
    """What labels are called: by themselves, wherever each stands first."""
    if isinstance(value, Tensor):
        return found.tolist()
    array = np.asarray(value)
    order = codes.cpu().argsort(stable=True)
    starts = torch.bincount(codes.cpu()).cumsum(0).roll(1)
    starts[0] = 0
    names = [array[int(order[start])] for start in starts]
    return [one.item() if hasattr(one, "item") else one for one in names]


@dataclass(frozen=True, eq=False)
class Unlike:
    """When two people are treated unlike."""

    decision: Tensor | None  # [T, N]
    difference: float | None  # of outputs, where it is not decisions that count

    @classmethod
    def of(
        cls, both: Tensor, threshold: float | None, difference: float | None
    ) -> "Unlike":
        """By decisions, or by a difference if it is given or if there are none."""
        decision = None
        if both.size(2) > 1 or threshold is not None:
            decision = decisions(both, 0.5 if threshold is None else threshold)
        if decision is None and difference is None:
            # Of several people; one has nobody to be compared with.
            spread = both[0].std() if both.size(1) > 1 else both.new_zeros(())
            difference = float(spread) / 2.0
        return cls(decision, difference)

    @property
    def got(self) -> str:
        """What people got who were treated unlike."""
        if self.difference is None:
            return "got different decisions"
        return f"got outputs more than {number(self.difference)} apart"

    def among(self, pairs: "PairTreatment", when: int) -> Tensor:  # [P]
        """Which pairs are treated unlike: never those with equal outputs."""
        if self.difference is not None:
            return pairs.apart[when] > self.difference
        assert self.decision is not None
        decision = self.decision[when]
        differ = decision[pairs.pairs.first] != decision[pairs.pairs.second]
        return differ & (pairs.apart[when] > 0)


class PairTreatment:
    """Every pair of neighbours once, and how far their outputs are apart.

    Outputs that are equal up to their numerical error, ``error``, are not apart.
    """

    def __init__(self, graph: SimilarityGraph, both: Tensor, error: Tensor) -> None:
        row, col = graph.edge_index.to(both.device)
        once = row < col
        dist = graph.sq_dist.to(both.device)[once].double().sqrt()
        self.both, self.pairs = both, Pairs(row[once], col[once], dist)
        first, second = self.pairs.first, self.pairs.second
        # By column: gathered rows of many outputs would not fit.
        square = both.new_zeros(len(both), dist.numel())
        for y in both.unbind(2):
            square += (y[:, first] - y[:, second]).square_()
        self.apart = square.sqrt_()  # [T, P]
        self.apart[self.apart <= error[:, first] + error[:, second]] = 0.0

    @cached_property
    def identical(self) -> Tensor:  # [P]
        """Which pairs are identical in everything that counts."""
        return self.pairs.dist == 0

    def facts(self) -> dict[str, Any]:
        """How many are identical, and treated differently at all."""
        num = int(self.identical.sum())
        if not num:
            return {"num_identical": 0}
        apart = self.apart[:, self.identical] > 0
        names = ("num_identical_apart_before", "num_identical_apart_after")
        found = dict(zip(names, apart.sum(1).tolist(), strict=False))
        return {"num_identical": num, **found}

    def worst(self, when: int, identical: bool, count: int) -> tuple[Pair, ...]:
        """The pairs furthest apart; of equal ones the nearer, then the first."""
        if when >= len(self.both):
            return ()
        which = self.identical if identical else ~self.identical
        rows = (which & (self.apart[when] > 0)).nonzero().flatten()
        apart = self.apart[when, rows]
        if rows.numel() > count > 0:  # those that may be among the first
            least = apart.topk(count).values[-1]
            rows = rows[apart >= least]
            apart = self.apart[when, rows]
        order = self.pairs.dist[rows].sort(stable=True).indices
        order = order[apart[order].sort(descending=True, stable=True).indices]
        return tuple(self._pair(at) for at in rows[order[:count]].tolist())

    def _pair(self, at: int) -> Pair:
        first, second, dist = (part[at].item() for part in self.pairs)
        i, j = int(first), int(second)
        found: list[Any] = []
        for y, apart in zip(self.both, self.apart[:, at].tolist(), strict=True):
            found += [(_output(y[i]), _output(y[j])), apart]
        return Pair(i, j, float(dist), *found)


def settled(both: Tensor, error: Tensor, threshold: float | None) -> Tensor:
    """Outputs, where those that are what they were, or at the threshold, are just that.

    Up to the numerical error, ``[T, N]``, nobody can tell.
    """
    if len(both) == 2:
        moved = torch.linalg.vector_norm(both[1] - both[0], dim=1)
        same = (moved <= error[1]).unsqueeze(1)
        both = torch.stack([both[0], torch.where(same, both[0], both[1])])
    if threshold is not None and both.size(2) == 1:
        near = (both[:, :, 0] - threshold).abs() <= error
        both = torch.where(near.unsqueeze(2), threshold, both)
    return both


class Treatment:
    """Everybody's outputs and those of their peers, for each set of outputs."""

    def __init__(self, lap: LaplacianOperator, both: Tensor, error: Tensor) -> None:
        self.both = both
        self.num_peers = lap.pattern.rowptr.diff().long()  # [N]
        self.peers = _peer_means(lap, both)  # [T, N, C]
        apart = torch.linalg.vector_norm(both - self.peers, dim=2).T
        alone = (lap.deg.detach() == 0).unsqueeze(1)
        equal = apart <= error.T + error.amax(1)
        self.deviation = apart.masked_fill(alone | equal, 0.0)  # [N, T]
        self.moved: Tensor | None = None  # [N]
        if len(both) == 2:
            self.moved = torch.linalg.vector_norm(both[1] - both[0], dim=1)

    def facts(self) -> dict[str, Any]:
        """Sizes, and how far outputs moved."""
        facts = {
            "num_people": len(self.num_peers),
            "num_outputs": self.both.size(2),
            "num_edges": int(self.num_peers.sum()) // 2,
            "num_isolated": int((self.num_peers == 0).sum()),
        }
        if self.moved is None:
            return facts
        moved = {
            "mean_movement": float(self.moved.mean()),
            "largest_movement": float(self.moved.max()),
        }
        return {**facts, **moved}

    def worst(self, when: int, count: int) -> tuple[Person, ...]:
        """The people with peers who are furthest from them."""
        if when >= len(self.both):
            return ()
        return self._first(self.deviation[:, when], self.num_peers > 0, count)

    def most_moved(self, count: int) -> tuple[Person, ...]:
        """The people whose output moved furthest, if it moved at all."""
        if self.moved is None:
            return ()
        return self._first(self.moved, self.moved > 0, count)

    def isolated(self) -> tuple[Person, ...]:
        """Everybody without peers."""
        rows = (self.num_peers == 0).nonzero().flatten()
        return tuple(map(self._person, rows.tolist()))

    def _first(self, value: Tensor, which: Tensor, count: int) -> tuple[Person, ...]:
        order = value.sort(descending=True, stable=True).indices
        order = order[which[order]]
        return tuple(map(self._person, order[:count].tolist()))

    def _person(self, i: int) -> Person:
        found: list[Any] = []
        alone = int(self.num_peers[i]) == 0
        for when, y in enumerate(self.both):
            peers = None if alone else _output(self.peers[when, i])
            found += [_output(y[i]), peers, float(self.deviation[i, when])]
        if self.moved is not None:
            found.append(float(self.moved[i]))
        return Person(i, int(self.num_peers[i]), *found)


@dataclass(frozen=True, eq=False)
class GroupRate:
    """Shares of groups with a positive decision, of all or of some samples."""

    name: str  # of the measure and of the verdict
    attribute: str
    title: str
    of: str  # of whom, in words
    chosen: Tensor  # [T, M, 1] float64, 0 or 1
    label: Attribute  # of these samples

    def rates(self) -> list[list[float]]:  # [T][G]
        """The share of every group, for each set of outputs."""
        groups = [self.label.codes == at for at in range(len(self.label.names))]
        return [[float(y[which].mean()) for which in groups] for y in self.chosen]


def group_rates(
    attributes: Mapping[str, Attribute],
    unlike: Unlike,
    both: Tensor,
    labels: Tensor | None,
) -> Iterator[GroupRate]:
    """Selection rates and, with labels, true-positive rates, by attribute.

    Of a single output alone: of several classes none is the positive one.
    """
    if labels is not None:
        labels = check_group("labels", labels, both.size(1)).to(both.device)
        if both.size(2) == 1:  # -1 where a label is not known
            check_known("labels", labels.unique().tolist(), (-1, 0, 1))
    if unlike.decision is None or both.size(2) > 1:
        return
    chosen = unlike.decision.double().unsqueeze(2)
    for name, label in attributes.items():
        key, title = f"selection_by_{name}", f"Decisions of yes by {name}"
        yield GroupRate(key, name, title, "Of all people", chosen, label)
        if labels is None:
            continue
        which = labels == 1
        found, codes = label.codes[which].unique(return_inverse=True)
        if found.numel() < 2:
            continue
        among = Attribute(codes, tuple(label.names[at] for at in found.tolist()))
        key, title = f"true_positives_by_{name}", f"True positives by {name}"
        of = "Of people whose true class is 1"
        yield GroupRate(key, name, title, of, chosen[:, which], among)


def group_treatment(
    label: Attribute, both: Tensor, unlike: Unlike, level: float
) -> Iterator[GroupTreatment]:
    """How every group of an attribute fares."""
    scores = both[:, :, 0] if both.size(2) == 1 else None
    names = ("before", "after")[: len(both)]
    for at, name in enumerate(label.names):
        which = label.codes == at
        num = int(which.sum())
        found: dict[str, Any] = {}
        for when, y in enumerate(names):
            if scores is not None:
                found[f"mean_{y}"] = _mean(scores[when][which], level)
                if unlike.decision is not None:
                    rate = float(unlike.decision[when][which].double().mean())
                    found[f"rate_{y}"] = Estimate(rate, *wilson(rate, num, level))
        if unlike.decision is not None and len(both) == 2:
            before, after = unlike.decision[:, which]
            found["num_raised"] = int((after > before).sum())
            found["num_lowered"] = int((after < before).sum())
        yield GroupTreatment(name, num, **found)


def _mean(value: Tensor, level: float) -> Estimate:
    """A mean with its normal interval; of one person there is none."""
    mean = float(value.mean())
    if value.numel() < 2:
        return Estimate(mean)
    half = NormalDist().inv_cdf((1.0 + level) / 2.0)
    half *= float(value.std()) / sqrt(value.numel())
    return Estimate(mean, mean - half, mean + half)


def _peer_means(lap: LaplacianOperator, both: Tensor) -> Tensor:  # -> [T, N, C]
    """Weighted average of the outputs of neighbours, own output without weight."""
    if lap.num_edges == 0:
        return both
    matrix = lap.pattern.csr(lap.weight)
    deg = lap.deg.detach().unsqueeze(1)
    # Any divisor will do for people without weight: their own output is taken.
    total = torch.where(deg == 0, 1.0, deg)
    return torch.stack([torch.where(deg == 0, y, matrix @ y / total) for y in both])


def _output(row: Tensor) -> Output:  # [C]
    """An output as plain data."""
    found = row.tolist()
    return found[0] if len(found) == 1 else tuple(found)
