r"""How good and how unfair outputs are, and how sure that is.

Newcomers' outputs come from folds. A measure that is a mean over people has the
standard error of that mean, and the loss, being paired, that of the mean of
differences. A share or mean over pairs of similar people is a ratio of two sums over
newcomers, :math:`R = \sum_i u_i / \sum_i n_i`, with the standard error of a ratio,

.. math::
    \mathrm{se}(R)^2 = \frac{m}{m - 1} \sum_i (u_i - R n_i)^2 / (\sum_i n_i)^2

for :math:`m` newcomers. Of any other score only its value for all people is known: then
each of the :math:`K` folds in turn is the only one that is smoothed, :math:`\ell_k` is
what that costs, and :math:`\mathrm{se}^2 = K \, \mathrm{var}(\ell_k)`, which is the
error of a sum of :math:`K` independent parts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_labels
from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import (
    check_callable,
    check_exclusive,
    check_indices,
    check_labels,
    check_mask,
    check_not_empty,
    check_pairs,
    check_scalar,
    check_two_values,
)
from pyg_glif.graph import SimilarityGraph
from pyg_glif.model_selection.splits import Fold

#: From outputs to a number.
Function = Callable[[Tensor], float]


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error, ``None`` where that is not known."""

    value: float
    error: float | None = None


class Measures:
    """Outputs, what is known about their truth, and how they become decisions."""

    def __init__(
        self,
        y: Tensor,
        labels: Any,
        score: Function | None,
        unfairness: Function | None,
        pairs: Any,
        sensitive: Any,
        mask: Any,
        threshold: float,
    ) -> None:
        self.y, size = y, len(y)
        self._threshold = check_scalar("threshold", threshold)
        check_exclusive("score", score, "labels", labels)
        self.labels: Tensor | None = None
        if labels is not None:
            known = check_labels("labels", to_labels("labels", labels), size)
            self.labels = known.to(y.device)
        elif score is None:
            raise ValueError("'labels' must be given if 'score' is not (got None)")
        self.known = torch.ones(size, dtype=torch.bool, device=y.device)
        if mask is not None:
            chosen = to_labels("mask", mask).bool()
            self.known = check_mask("mask", chosen, size).to(y.device)
            if not bool(self.known.any()):
                raise ValueError("'mask' must select at least one row (got none)")
        if self.labels is not None:
            check_two_values("labels", self.labels[self.known].unique())
        self.score: Function = self._accuracy
        self.score_name = "accuracy"
        if score is not None:
            check_callable("score", score)
            self.score, self.score_name = _checked("score(...)", score), _name(score)
        check_exclusive("unfairness", unfairness, "pairs", pairs)
        check_exclusive("unfairness", unfairness, "sensitive", sensitive)
        check_exclusive("pairs", pairs, "sensitive", sensitive)
        #: Unfairness of everybody's outputs; ``None``: it is that of similar people.
        self.unfairness: Function | None = None
        self.unfairness_name = ""
        if unfairness is not None:
            check_callable("unfairness", unfairness)
            self.unfairness = _checked("unfairness(...)", unfairness)
            self.unfairness_name = _name(unfairness)
        elif pairs is not None:
            rows = check_pairs("pairs", to_labels("pairs", pairs)).to(y.device)
            check_indices("pairs", rows, size)
            check_not_empty("pairs", rows)
            i, j = rows.unbind(1)
            self.unfairness = lambda out: _mean(self.unlike(out[i], out[j]))
            self.unfairness_name = "mean distance of pairs"
            if self.labels is not None:
                self.unfairness_name = "share of pairs that disagree"
        self.sensitive: Tensor | None = None
        if sensitive is not None:
            value = check_labels("sensitive", to_labels("sensitive", sensitive), size)
            check_two_values("sensitive", value.unique())
            self.sensitive = value.to(y.device)

    def decide(self, y: Tensor) -> Tensor:  # [N] or [N, C] -> [N]
        """Predicted classes: the largest column, or 1 above the threshold."""
        return decisions(y, self._threshold)

    def _accuracy(self, y: Tensor) -> float:
        return _mean(self._right(y)[self.known])

    def _right(self, y: Tensor) -> Tensor:  # -> [N] bool
        """Whose decision is the true class."""
        assert self.labels is not None  # or there is another score
        return self.decide(y) == self.labels

    def unlike(self, a: Tensor, b: Tensor) -> Tensor:  # -> [P]
        """How unlike pairs of outputs are: other decisions, or else distances."""
        if self.labels is not None:
            return self.decide(a) != self.decide(b)
        return _sq_gap(a, b).sqrt()

    def of_newcomers(
        self, outputs: Tensor, folds: Sequence[Fold], cluster: Tensor | None
    ) -> tuple[Estimate, Estimate]:
        """Score of outputs that came from folds, and what they lose."""
        if self.labels is not None:
            rows = torch.cat([fold.new for fold in folds])
            right, before = (self._right(y)[rows].double() for y in (outputs, self.y))
            one = torch.ones_like(right)
            return ratio(right, one, cluster), ratio(before - right, one, cluster)
        base, parts = self.score_before, []
        for fold in folds:
            alone = self.y.clone()
            alone[fold.new] = outputs[fold.new]
            parts.append(base - self.score(alone))
        error = torch.tensor(parts).double().var() * len(parts)
        score = self.score(outputs)
        return Estimate(score), Estimate(base - score, float(error.sqrt()))

    @cached_property
    def score_before(self) -> float:
        """The score of the model as it is."""
        return self.score(self.y)


class Peers:
    """Similar people on one fixed graph, and how unlike they are treated.

    Every edge between a newcomer and a fitted person counts by its weight, with the
    squared difference of their outputs; if there is an attribute, every edge between
    different values of it counts as one, with whether their decisions differ.
    """

    def __init__(
        self, measures: Measures, graph: SimilarityGraph, theta: float | None
    ) -> None:
        self._measures = measures
        self._edges, self._weight = graph.edge_index, graph.weights(theta).double()
        sensitive = measures.sensitive
        if sensitive is not None:
            row, col = graph.edge_index
            differ = sensitive[row] != sensitive[col]
            self._edges = graph.edge_index[:, differ]
            self._weight = torch.ones_like(self._weight[differ])

    @property
    def name(self) -> str:
        """What is measured."""
        if self._measures.sensitive is None:
            return "squared gap of similar people"
        decided = self._measures.labels is not None
        what = "unlike decisions" if decided else "gap"
        return f"{what} of similar people across the attribute"

    def beside(self, fold: Fold) -> tuple[Tensor, Tensor, Tensor]:
        """Edges of a fold: places among the new, among the fitted, and weights."""
        place = self._edges.new_full((2, len(self._measures.y)), -1)
        place[0, fold.new] = torch.arange(len(fold.new), device=place.device)
        place[1, fold.fitted] = torch.arange(len(fold.fitted), device=place.device)
        i, j = place[0][self._edges[0]], place[1][self._edges[1]]
        keep = (i >= 0) & (j >= 0)
        return i[keep], j[keep], self._weight[keep]

    def unlike(self, a: Tensor, b: Tensor) -> Tensor:  # [P] or [P, C] -> [P]
        """How unlike pairs are treated."""
        if self._measures.sensitive is None:
            return _sq_gap(a, b)
        return self._measures.unlike(a, b).double()

    def everybody(self, y: Tensor) -> float:
        """The measure where everybody is fitted."""
        i, j = self._edges
        return ratio(self._weight * self.unlike(y[i], y[j]), self._weight).value


def ratio(u: Tensor, n: Tensor, cluster: Tensor | None = None) -> Estimate:
    """``sum(u) / sum(n)`` and its standard error, entries of a cluster as one."""
    if cluster is not None:
        _, at = torch.unique(cluster, return_inverse=True)
        zero = u.new_zeros(int(at.max()) + 1)
        u, n = zero.index_add(0, at, u), zero.index_add(0, at, n)
    total, num = float(n.sum()), len(u)
    if total == 0:
        return Estimate(0.0)
    value = float(u.sum()) / total
    if num < 2:
        return Estimate(value)
    spread = float((u - value * n).square().sum()) * num / (num - 1)
    return Estimate(value, spread**0.5 / total)


def _sq_gap(a: Tensor, b: Tensor) -> Tensor:  # [P] or [P, C] -> [P] float64
    """Squared Euclidean distance of the outputs in each row."""
    apart = (a - b).double().square()
    return apart if apart.dim() == 1 else apart.sum(1)


def _checked(name: str, function: Function) -> Function:
    """The user's function, which must return a finite number."""
    return lambda y: check_scalar(name, function(y))


def _mean(value: Tensor) -> float:
    """Mean in float64."""
    return float(value.double().mean())


def _name(function: Callable[..., Any]) -> str:
    """The name of a function, or the class name of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))
