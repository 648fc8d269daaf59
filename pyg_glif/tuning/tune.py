"""Chooses radius and strength: what does fairness cost, and how much is wanted?"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pyg_glif._arrays import to_labels, to_tensor
from pyg_glif._runtime import without_autocast
from pyg_glif._validate import (
    check_callable,
    check_exclusive,
    check_features,
    check_indices,
    check_labels,
    check_mask,
    check_not_empty,
    check_outputs,
    check_pairs,
    check_same_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.errors import ConvergenceWarning
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import SimilarityGraph, suggest_tau
from pyg_glif.links import Link
from pyg_glif.path import PathPoint, glif_path
from pyg_glif.solvers import Auto, Solver, SolveStatus
from pyg_glif.tuning.result import TunePoint, TuneResult
from pyg_glif.typing import Normalization

_DEGREES = (5.0, 10.0, 20.0, 40.0)
_LAMS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

#: From outputs to a number.
_Function = Callable[[Tensor], float]


@without_autocast()
def tune(
    x: Any,
    y_hat: Any,
    labels: Any = None,
    *,
    score: Callable[[Tensor], float] | None = None,
    pairs: Any = None,
    unfairness: Callable[[Tensor], float] | None = None,
    taus: Sequence[float] | None = None,
    lams: Sequence[float] = _LAMS,
    max_loss: float = 0.01,
    threshold: float = 0.5,
    mask: Any = None,
    distance: FairDistance | None = None,
    theta: float = 1e-4,
    normalization: Normalization = None,
    solver: Solver | None = None,
    link: Link | None = None,
    progress: bool | None = None,
) -> TuneResult:
    r"""Tries radii and strengths, and picks the fairest that costs little enough.

    .. math::
        \min_{\tau, \lambda} \; \mathrm{unfairness}(f_{\tau, \lambda})
        \quad \text{s.t.} \quad \mathrm{score}(f_{\tau, \lambda}) \ge
        \mathrm{score}(\hat y) - \mathrm{max\_loss}

    Args:
        x (array-like): Features.
        y_hat (array-like): Outputs of the model for people whose truth is known, such
            as a validation set: not those the model was trained on.
        labels (array-like, optional): True classes. The score is then accuracy.
        score (callable, optional): In place of ``labels``, any function of smoothed
            outputs, higher is better.
        pairs (array-like, optional): Pairs of rows that should agree. Unfairness is
            then the share of pairs with different decisions if there are ``labels``,
            and the mean distance of their outputs if not. (default: the Laplacian
            energy on one fixed graph, that of the largest radius)
        unfairness (callable, optional): Any other function of smoothed outputs, lower
            is better.
        taus (sequence of float, optional): Radii. (default: those of 5, 10, 20 and
            40 neighbours on average)
        lams (sequence of float): Strengths. (default: from 0.001 to 10)
        max_loss (float): Score that may be lost, in its own unit: 0.01 is one
            percentage point of accuracy. (default: :obj:`0.01`)
        threshold (float): A single output above it means class 1.
            (default: :obj:`0.5`)
        mask (array-like, optional): Rows whose label is known; the others are
            neighbours only. (default: all)
        distance (FairDistance, optional): Who is similar. (default: Euclidean)
        theta (float): Decay of the weights. (default: :obj:`1e-4`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): See :func:`~pyg_glif.glif_path`.
        link (Link, optional): Output space. (default: :obj:`None`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`,
          labels :math:`(N)`, pairs :math:`(P, 2)`, mask :math:`(N)`
        - **output:** :class:`TuneResult`

    One search and one sweep (:func:`~pyg_glif.glif_path`) serve all settings; the
    chosen one is then searched and solved as :class:`~pyg_glif.GLIFPostProcessor`
    does it, so that fitting it gives the numbers reported. Ties go to the higher
    score, then to the smaller strength and radius. The chosen score is that of the
    best of many settings on the same people, so it flatters a little: confirm it on
    others.

    Example:
        >>> x = torch.tensor([[0.0], [0.1], [3.0], [3.1]])
        >>> y_hat = torch.tensor([0.1, 0.6, 0.9, 0.7])
        >>> found = tune(x, y_hat, [0, 0, 1, 1], taus=[0.5], lams=[0.1, 1.0])
        >>> found.best.lam, found.best.score
        (1.0, 1.0)
    """
    x = check_features("x", to_tensor("x", x))
    y = check_outputs("y_hat", to_tensor("y_hat", y_hat)).to(x.device)
    check_same_rows("y_hat", y, "x", x)
    max_loss = check_scalar("max_loss", max_loss, minimum=0.0)
    task = _Measures(y, labels, mask, threshold)
    judge, judge_name = task.score(score)
    gauge = task.unfairness(unfairness, pairs)
    strengths = _numbers("lams", lams)
    radii = _radii(x, distance) if taus is None else _numbers("taus", taus)
    graph = SimilarityGraph.search(x, max(radii), distance=distance, progress=progress)
    path = glif_path(
        y,
        graph,
        lams=strengths,
        taus=radii,
        theta=theta,
        normalization=normalization,
        solver=solver,
        link=link,
        progress=progress,
    )
    if gauge is None:
        lap = graph.laplacian(theta)

        def energy(outputs: Tensor) -> float:
            return float(lap.quadratic(outputs.double()).sum())

        gauge = energy, "Laplacian energy"
    measure, gauge_name = gauge

    def refit(point: TunePoint) -> TunePoint:
        """The setting of a point, searched and solved anew the way a fit does it."""
        again = SimilarityGraph.search(x, point.tau, distance=distance, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the status says so
            found = glif_smooth(
                y,
                again.laplacian(theta, normalization),
                lam=point.lam,
                solver=replace(Auto() if solver is None else solver, throw=False),
                link=link,
                return_solution=True,
            )
        fitted = PathPoint(point.tau, point.lam, found.value, found.status)
        return _point(fitted, judge, measure)

    baseline = _point(
        PathPoint(min(radii), 0.0, y, SolveStatus.CONVERGED), judge, measure
    )
    points = [_point(found, judge, measure) for found in path]
    best = _confirmed(points, baseline, baseline.score - max_loss, refit)
    return TuneResult(
        points=tuple(points),
        baseline=baseline,
        best=best,
        front=tuple(_front(_usable(points, baseline))),
        max_loss=max_loss,
        names=(judge_name, gauge_name),
    )


def _point(found: PathPoint, judge: _Function, gauge: _Function) -> TunePoint:
    """Score and unfairness of a solution, NaN where there is none."""
    score = unfairness = math.nan
    if not found.status.is_failure:
        score = check_scalar("score(...)", judge(found.value))
        unfairness = check_scalar("unfairness(...)", gauge(found.value))
    return TunePoint(found.tau, found.lam, score, unfairness, found.status)


class _Measures:
    """Outputs, what is known about their truth, and how they become decisions."""

    def __init__(self, y: Tensor, labels: Any, mask: Any, threshold: float) -> None:
        self._size, self._device = len(y), y.device
        self._threshold = check_scalar("threshold", threshold)
        self._labels: Tensor | None = None
        if labels is not None:
            known = to_labels("labels", labels)
            self._labels = check_labels("labels", known, len(y)).to(y.device)
        self._rows = torch.arange(len(y), device=y.device)
        if mask is not None:
            chosen = to_labels("mask", mask).bool()
            chosen = check_mask("mask", chosen, len(y)).to(y.device)
            self._rows = self._rows[chosen]
            if len(self._rows) == 0:
                raise ValueError("'mask' must select at least one row (got none)")

    def decide(self, y: Tensor) -> Tensor:  # [N] or [N, C] -> [N]
        """Predicted classes: the largest column, or 1 above the threshold."""
        if y.dim() == 2 and y.size(1) > 1:
            return y.argmax(1)
        return (y.reshape(len(y)) > self._threshold).long()

    def score(self, given: Callable[[Tensor], float] | None) -> tuple[_Function, str]:
        """The user's score or else accuracy, and its name."""
        check_exclusive("score", given, "labels", self._labels)
        if given is not None:
            check_callable("score", given)
            return given, _name(given)
        if self._labels is None:
            raise ValueError("'labels' must be given if 'score' is not (got None)")
        truth, rows = self._labels[self._rows], self._rows
        return lambda y: _mean(self.decide(y)[rows] == truth), "accuracy"

    def unfairness(
        self, given: Callable[[Tensor], float] | None, pairs: Any
    ) -> tuple[_Function, str] | None:
        """The user's measure, or that of ``pairs``, and its name; ``None`` without."""
        check_exclusive("unfairness", given, "pairs", pairs)
        if given is not None:
            check_callable("unfairness", given)
            return given, _name(given)
        if pairs is None:
            return None
        rows = check_pairs("pairs", to_labels("pairs", pairs)).to(self._device)
        check_indices("pairs", rows, self._size)
        check_not_empty("pairs", rows)
        i, j = rows.unbind(1)
        if self._labels is None:
            return lambda y: _mean(_gap(y[i], y[j])), "mean distance of pairs"

        def disagree(y: Tensor) -> float:
            decision = self.decide(y)
            return _mean(decision[i] != decision[j])

        return disagree, "share of pairs that disagree"


def _mean(value: Tensor) -> float:
    """Mean in float64."""
    return float(value.double().mean())


def _gap(a: Tensor, b: Tensor) -> Tensor:  # [P] or [P, C] -> [P]
    """Euclidean distance of the outputs in each row."""
    out: Tensor = torch.linalg.vector_norm((a - b).reshape(len(a), -1), dim=1)
    return out


def _name(function: Callable[..., Any]) -> str:
    """The name of a function, or the class name of a callable object."""
    return str(getattr(function, "__name__", type(function).__name__))


def _numbers(name: str, values: Sequence[float]) -> list[float]:
    """Checks numbers: not negative, at least one."""
    out = [check_scalar(name, value, minimum=0.0) for value in values]
    if not out:
        raise ValueError(f"'{name}' must hold at least one number (got none)")
    return out


def _radii(x: Tensor, distance: FairDistance | None) -> list[float]:
    """Radii for the usual degrees that are below the number of people."""
    degrees = [degree for degree in _DEGREES if degree < len(x)] or [1.0]
    return [suggest_tau(x, degree, distance=distance) for degree in degrees]


def _usable(points: list[TunePoint], baseline: TunePoint) -> list[TunePoint]:
    """The model as it is, and every setting that was solved."""
    return [baseline, *(point for point in points if not point.status.is_failure)]


def _confirmed(
    points: list[TunePoint],
    baseline: TunePoint,
    floor: float,
    refit: Callable[[TunePoint], TunePoint],
) -> TunePoint:
    """The best setting, with the numbers that a fit of it gives.

    A sweep and a single solve agree up to the tolerance of the solver, not to the
    last bit, and a decision may hang on that bit. So the choice is solved once more
    the way a fit solves it, takes on those numbers in ``points``, and has to be the
    best again.
    """
    confirmed = {id(baseline)}
    while True:
        best = _best(_usable(points, baseline), floor)
        if id(best) in confirmed:
            return best
        again = refit(best)
        points[points.index(best)] = again
        confirmed.add(id(again))


def _best(points: list[TunePoint], floor: float) -> TunePoint:
    """Least unfairness among scores that are high enough."""
    # A score equal to the floor must not fail by the rounding of the subtraction.
    margin = 1e-12 * max(1.0, abs(floor))
    allowed = [point for point in points if point.score >= floor - margin]
    return min(allowed, key=lambda p: (p.unfairness, -p.score, p.lam, p.tau))


def _front(points: list[TunePoint]) -> Iterator[TunePoint]:
    """Points not beaten by any other, by falling score."""
    least = math.inf
    for point in sorted(points, key=lambda p: (-p.score, p.unfairness, p.lam, p.tau)):
        if point.unfairness < least:
            least = point.unfairness
            yield point
