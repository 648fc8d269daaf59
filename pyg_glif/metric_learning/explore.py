"""A metric from pairs that were judged similar or not."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.arrays import column_names, to_tensor
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import (
    check_comparable,
    check_count,
    check_judgements,
    check_not_empty,
    check_rows,
    check_scalar,
    check_tensor,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.distances import Mahalanobis
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.metric_learning._base import features, row_chunks
from pyg_glif.metric_learning._pair_likelihood import (
    JudgedPairs,
    PairLikelihood,
    robust_whitener,
)


@dataclass(frozen=True, eq=False)
class MetricFit:
    r"""How well the metric of :class:`EXPLORE` explains the pairs.

    It is the ``fit_result`` of the distance; the metric itself is its ``sigma``.

    Args:
        log_likelihood (float): Mean log-likelihood of a pair.
        objective (tuple): Minimised value after every iteration: the mean negative
            log-likelihood plus the penalty. It never rises.
        residual (float): Size of the projected gradient, see :class:`EXPLORE`.
        num_iter (int): Iterations spent.
        converged (bool): Whether ``residual`` met the tolerance.
        num_directions (int): Directions in which the pairs differ at all. Where
            none do nothing is known, and the distance ignores the rest.
    """

    log_likelihood: float
    objective: tuple[float, ...] = field(repr=False)
    residual: float
    num_iter: int
    converged: bool
    num_directions: int


@dataclass(frozen=True)
class EXPLORE:
    r"""Learns a Mahalanobis distance from pairs judged similar or not.

    Embedded xenial pairs logistic regression (`Mukherjee et al., 2020
    <https://arxiv.org/abs/2006.11439>`_). Let :math:`\boldsymbol{\delta}_p` be the
    difference of pair :math:`p` and :math:`d_p^2 = \boldsymbol{\delta}_p^{\top}
    \mathbf{\Sigma} \boldsymbol{\delta}_p`. The pair is judged similar with probability

    .. math::
        P(y_p = 1) = \frac{2}{1 + \exp(d_p^2)},

    and :math:`\mathbf{\Sigma}` minimises, over positive semi-definite matrices,

    .. math::
        -\frac{1}{P} \sum_{p=1}^{P} \Big( y_p \log \frac{2}{1 + e^{d_p^2}}
        + (1 - y_p) \log \tanh \frac{d_p^2}{2} - \alpha \, d_p^2 \Big) .

    The problem is convex. Its scale has a meaning: a pair at distance
    :math:`\sqrt{\log 3} \approx 1.05` is judged similar half of the time, so this is a
    natural ``tau``.

    Args:
        penalty (float, optional): Weight :math:`\alpha` of the mean squared distance.
            At 0 the result is the maximum likelihood estimate, which exists only if
            the differences of similar pairs span those of all pairs; with a penalty
            it always does. (default: :obj:`0.0`)
        rtol (float, optional): The projected gradient must become this small, per
            direction, in coordinates in which a typical difference has length 1 in
            every direction. (default: :obj:`1e-5`)
        max_iter (int, optional): Largest number of iterations.
            (default: :obj:`5000`)
        throw (bool, optional): If :obj:`True`, failure to converge raises
            :class:`~pyg_glif.errors.ConvergenceError`, otherwise it warns.
            (default: :obj:`True`)
        chunk_size (int, optional): Pairs read at a time; it bounds memory and does
            not change the result. (default: :obj:`1024`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)

    Shapes:
        - **x1, x2:** features :math:`(P, F)`
        - **similar:** :math:`(P)`

    Solved by accelerated projected gradients with restarts, over all pairs, in
    float64. Directions in which no pair differs get weight zero. The units of the
    columns do not matter: rescaled features give the same distances. ``fit_result``
    of the distance is an :class:`MetricFit`. inFairness' ``EXPLOREDistance``
    minimises the same function at :math:`\alpha = 0` by a fixed number of stochastic
    steps from a random start, so it only approaches this result.

    Example:
        >>> x1 = torch.zeros(4, 2)
        >>> x2 = torch.tensor([[0.2, 9.0], [0.5, -4.0], [2.0, 0.1], [1.0, 0.2]])
        >>> similar = torch.tensor([True, True, False, False])
        >>> distance = EXPLORE(penalty=0.1).fit(x1, x2, similar)
        >>> distance.sigma.round(decimals=2) + 0.0  # the second column is ignored
        tensor([[1.2300, 0.0100],
                [0.0100, 0.0000]])
        >>> round(distance.fit_result.log_likelihood, 3)  # of a pair, on average
        -0.2
    """

    penalty: float = 0.0
    rtol: float = 1e-5
    max_iter: int = 5000
    throw: bool = True
    chunk_size: int = 1024
    # Display is no part of the learner.
    progress: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scalar("penalty", self.penalty, minimum=0)
        check_scalar("rtol", self.rtol, above=0)
        check_count("max_iter", self.max_iter)
        check_count("chunk_size", self.chunk_size)

    def fit(self, x1: Any, x2: Any, similar: Any) -> Mahalanobis:
        r"""Returns the distance that explains the judgements best.

        Args:
            x1 (torch.Tensor or array): Features :math:`(P, F)` of one sample of each
                pair.
            x2 (torch.Tensor or array): Features of the other.
            similar (torch.Tensor or array): Truth values, 0 and 1, or anything between,
                such as the share of annotators who found the pair similar.
        """
        pairs = _checked_pairs(x1, x2, similar, self.chunk_size)
        whitener = robust_whitener(pairs)
        if self.penalty == 0:
            _check_estimate_exists(pairs, whitener)
        problem = PairLikelihood(pairs, whitener, self.penalty)
        factor, fit = _minimize(problem, self.rtol, self.max_iter, self.progress)
        if not fit.converged:
            self._give_up(fit)
        distance = Mahalanobis.from_factor((whitener @ factor).to(pairs.x1.dtype))
        distance.fit_result, distance.feature_names = fit, column_names("x1", x1)
        return distance

    def _give_up(self, fit: MetricFit) -> None:
        """Says by how much the tolerance was missed."""
        msg = (
            f"EXPLORE stopped after {fit.num_iter} iterations: relative residual "
            f"{fit.residual:.1e}, 'rtol' is {self.rtol:g}. "
            "Raise 'max_iter' or 'penalty'"
        )
        if self.throw:
            raise ConvergenceError(msg)
        warn_caller(msg, ConvergenceWarning)


def _checked_pairs(x1: Any, x2: Any, similar: Any, chunk_size: int) -> JudgedPairs:
    """Pairs that some metric could explain."""
    names = column_names("x1", x1)
    x1 = features("x1", x1)
    x2 = features("x2", check_rows("x2", x2, names=names))
    if not isinstance(similar, Tensor):
        similar = to_tensor("similar", similar)
    check_comparable("x2", x2, "x1", x1)
    _check_pair_rows("x2", x2, len(x1))
    check_not_empty("x1", x1)
    similar = _check_similar("similar", similar, len(x1)).to(x1.device)
    _check_both_judgements("similar", similar)
    pairs = JudgedPairs(x1, x2, similar, chunk_size)
    chunks = row_chunks(len(x1), chunk_size)
    same = torch.cat([(x1[rows] == x2[rows]).all(1) for rows in chunks])
    _check_separable_pairs("similar", same & (similar < 1))
    return pairs


def _check_estimate_exists(pairs: JudgedPairs, whitener: Tensor) -> None:
    """Raises if making the metric larger could improve the likelihood for ever.

    Outside the span of similar differences a larger metric costs nothing and moves
    dissimilar pairs apart; inside, the cost grows linearly with it.
    """
    spread = whitener.T @ pairs.moment(pairs.similar) @ whitener
    values = torch.linalg.eigvalsh(spread)
    # To be compared with 1, the mean square over typical pairs.
    num_spanned = int((values > 1e-10).sum())
    _check_spanning_pairs("similar", num_spanned, len(values))


@dataclass
class _Point:
    """A metric, the squared distances it gives, and its objective."""

    metric: Tensor  # [R, R]
    sq_dist: Tensor  # [P]
    value: float
    factor: Tensor  # [R, K]


def _point(problem: PairLikelihood, metric: Tensor) -> _Point:
    """The positive semi-definite matrix nearest to ``metric``."""
    values, vectors = torch.linalg.eigh(metric)
    # An eigenvalue of zero must not come back as a coordinate of rounding errors.
    keep = values > len(values) * torch.finfo(values.dtype).eps * values[-1].clamp(
        min=0
    )
    factor = vectors[:, keep] * values[keep].sqrt()
    metric = factor @ factor.T
    sq_dist = problem.sq_dist(factor)
    return _Point(metric, sq_dist, problem.objective(sq_dist), factor)


def _extrapolate(
    problem: PairLikelihood, new: _Point, old: _Point, momentum: float
) -> tuple[Tensor, Tensor, float]:
    """A metric beyond ``new``, or ``new`` itself if no likelihood is defined there."""
    sq_dist = torch.lerp(old.sq_dist, new.sq_dist, 1 + momentum)
    value = math.inf
    if bool((sq_dist[problem.pairs.similar < 1] > 0).all()):
        metric = torch.lerp(old.metric, new.metric, 1 + momentum)
        value = problem.objective(sq_dist)
    if not math.isfinite(value):
        return new.metric, new.sq_dist, new.value
    return metric, sq_dist, value


def _minimize(
    problem: PairLikelihood, rtol: float, max_iter: int, progress: bool | None
) -> tuple[Tensor, MetricFit]:
    """Accelerated projected gradients with backtracking and restarts."""
    size = problem.whitener.size(1)
    eye = torch.eye(size, dtype=torch.float64, device=problem.whitener.device)
    best = _point(problem, eye / size)  # typical squared distance 1
    metric, sq_dist, value = best.metric, best.sq_dist, best.value
    curvature, weight, residual = 1.0, 1.0, math.inf
    trace = []
    with Progress(max_iter, "EXPLORE", progress) as bar:
        for _ in range(max_iter):
            gradient = problem.gradient(sq_dist)
            new, curvature = _step(problem, metric, value, gradient, curvature)
            residual = curvature * float((new.metric - metric).norm()) / size**0.5
            if new.value > best.value and weight > 1:
                # Momentum led uphill: go on from the best point, without it.
                metric, sq_dist, value = best.metric, best.sq_dist, best.value
                weight, residual = 1.0, math.inf
            else:
                after = (1 + math.sqrt(1 + 4 * weight * weight)) / 2
                momentum = (weight - 1) / after
                metric, sq_dist, value = _extrapolate(problem, new, best, momentum)
                best, weight = new, after
            trace.append(best.value)
            bar.update()
            if residual <= rtol:
                break
            # Steps may grow again where the objective is flatter.
            curvature *= 0.9
    fit = MetricFit(
        log_likelihood=-problem.neg_log_likelihood(best.sq_dist),
        objective=tuple(trace),
        residual=residual,
        num_iter=len(trace),
        converged=residual <= rtol,
        num_directions=size,
    )
    return best.factor, fit


def _step(
    problem: PairLikelihood,
    metric: Tensor,
    value: float,
    gradient: Tensor,
    curvature: float,
) -> tuple[_Point, float]:
    """One projected step, as long as its quadratic model bounds the objective."""
    slack = 1e-14 * max(1.0, abs(value))  # rounding of the objective itself
    while True:
        new = _point(problem, metric - gradient / curvature)
        move = new.metric - metric
        model = value + float((gradient * move).sum())
        model += curvature / 2 * float(move.square().sum())
        if new.value <= model + slack:
            return new, curvature
        curvature *= 2


def _check_pair_rows(name: str, value: Tensor, num_pairs: int) -> None:
    """Raises unless there is one row per pair."""
    if len(value) != num_pairs:
        msg = f"'{name}' must have one row per pair (got {len(value)} for {num_pairs})"
        raise ValueError(msg)


def _check_similar(name: str, value: object, num_pairs: int) -> Tensor:
    """One judgement from 0 to 1 per pair, of any dtype, as float64."""
    value = check_tensor(name, value)
    if not value.dtype.is_floating_point and not value.dtype.is_complex:
        value = value.double()
    return check_judgements(name, value, num_pairs).detach().double()


def _check_both_judgements(name: str, value: Tensor) -> None:
    """Raises unless some pairs are judged similar and some dissimilar."""
    for kind, value_is, mask in (
        ("similar (above 0)", 0, value > 0),
        ("dissimilar (below 1)", 1, value < 1),
    ):
        if not bool(mask.any()):
            msg = f"'{name}' must judge at least one pair {kind}"
            msg = f"{msg} (got {len(value)} pairs, all {value_is})"
            raise ValueError(f"{msg}. Nothing can be learned from one kind of pair")


def _check_separable_pairs(name: str, contradicts: Tensor) -> None:
    """Raises on identical rows that are judged dissimilar."""
    if bool(contradicts.any()):
        where, count = int(contradicts.nonzero()[0]), int(contradicts.sum())
        msg = f"'{name}' must not call identical rows dissimilar"
        msg = f"{msg} (got pair {where}, {count} such pairs)"
        raise ValueError(f"{msg}. Drop them: no metric tells them apart")


def _check_spanning_pairs(name: str, num_spanned: int, num_directions: int) -> None:
    """Raises unless similar pairs span all directions in which pairs differ."""
    if num_spanned < num_directions:
        msg = (
            f"'{name}' must judge pairs similar in all directions in which pairs differ"
        )
        msg = f"{msg} (got {num_spanned} of {num_directions})"
        raise ValueError(f"{msg}. Add such pairs or pass 'penalty=1e-3'")
