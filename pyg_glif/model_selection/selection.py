"""Which of the settings tried is taken."""

import math
from collections.abc import Callable, Iterator, Sequence

from pyg_glif.model_selection.result import TunePoint


def choose(
    points: list[TunePoint],
    baseline: TunePoint,
    max_loss: float,
    rule: str,
    again: Callable[[TunePoint], TunePoint],
) -> TunePoint:
    """The fairest setting that costs little enough, with the numbers of a fit.

    A sweep and a single solve agree up to the tolerance of the solver, not to the
    last bit, and a decision may hang on that bit. So the choice is solved once more
    the way a fit solves it (``again``), takes on those numbers in ``points``, and has
    to be the best again.
    """
    confirmed = {id(baseline)}
    while True:
        if rule == "one_se":
            allowed = list(_walked(points, baseline, max_loss))
        else:
            allowed = [p for p in _solved(points) if _costs(p, 0.0) <= max_loss]
        best = min([baseline, *allowed], key=fairest)
        if id(best) in confirmed:
            return best
        found = again(best)
        points[points.index(best)] = found
        confirmed.add(id(found))


def _walked(
    points: Sequence[TunePoint], baseline: TunePoint, max_loss: float
) -> Iterator[TunePoint]:
    """Settings fairer than the model up to the first that may cost too much.

    This is a test of hypotheses in a fixed sequence, which needs no correction for
    their number: the order goes by unfairness, without a look at the loss. There is
    one sequence for each distance and decay, so that a bad one stops no other.
    """
    fairer = [p for p in _solved(points) if p.unfairness < baseline.unfairness]
    stopped = set()
    for point in sorted(fairer, key=fairest, reverse=True):
        family = point.distance, point.theta
        if _costs(point, 1.0) > max_loss:
            stopped.add(family)
        if family not in stopped:
            yield point


def front(points: Sequence[TunePoint]) -> Iterator[TunePoint]:
    """Points not beaten by any other in score and unfairness, by falling score."""
    least = math.inf
    order = sorted(_solved(points), key=lambda p: (-p.score, *fairest(p)))
    for point in order:
        if point.unfairness < least:
            least = point.unfairness
            yield point


def why_baseline(
    points: Sequence[TunePoint], baseline: TunePoint, max_loss: float
) -> str:
    """Why nothing but the model as it is was chosen, and what to try."""
    fairer = [p for p in _solved(points) if p.unfairness < baseline.unfairness]
    msg = "The choice is the model as it is: nothing tried is fairer"
    if not fairer:
        return f"{msg}. Try a larger radius, or more neighbors"
    near = min(fairer, key=lambda p: _costs(p, 1.0))
    error = "" if near.loss_se is None else f" ± {near.loss_se:.2g}"
    return (
        f"{msg} at a loss within {max_loss:g}. The cheapest, {near.describe()}, loses "
        f"{near.loss:.2g}{error}. Allow more by 'max_loss', or try weaker smoothing"
    )


def _solved(points: Sequence[TunePoint]) -> list[TunePoint]:
    return [point for point in points if not point.status.is_failure]


def _costs(point: TunePoint, errors: float) -> float:
    """The loss and so many standard errors.

    A loss equal to what is allowed must not fail by the rounding of a difference.
    """
    margin = 1e-12 * max(1.0, abs(point.score))
    return point.loss + errors * (point.loss_se or 0.0) - margin


def fairest(point: TunePoint) -> tuple[float, ...]:
    """Least unfairness first, then the higher score, the weaker and smaller setting."""
    return point.unfairness, -point.score, point.lam, point.tau, point.k or 0
