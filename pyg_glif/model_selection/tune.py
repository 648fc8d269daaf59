"""Chooses radius and strength: what does fairness cost, and how much is wanted?"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_labels, to_tensor
from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_exclusive,
    check_features,
    check_group,
    check_outputs,
    check_same_rows,
    check_scalar,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.distances import FairDistance
from pyg_glif.graph import SimilarityGraph, suggest_tau
from pyg_glif.links import Link
from pyg_glif.model_selection.calibration_split import with_guarantee
from pyg_glif.model_selection.cross_fit import (
    AmongNearest,
    Method,
    Source,
    WithinRadius,
)
from pyg_glif.model_selection.evaluate import Grid, OnFitted, OnNewcomers
from pyg_glif.model_selection.measures import Measures
from pyg_glif.model_selection.result import TuneResult
from pyg_glif.model_selection.risk_control import RiskControl
from pyg_glif.model_selection.selection import choose, front, why_baseline
from pyg_glif.model_selection.splits import Fold, make_folds
from pyg_glif.solvers import Solver
from pyg_glif.typing import Normalization

_DEGREES = (5.0, 10.0, 20.0, 40.0)
_LAMS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


@without_autocast()
def tune(
    x: Any,
    y_hat: Any,
    labels: Any = None,
    *,
    score: Callable[[Tensor], float] | None = None,
    pairs: Any = None,
    sensitive: Any = None,
    unfairness: Callable[[Tensor], float] | None = None,
    taus: Sequence[float] | None = None,
    ks: Sequence[int] | None = None,
    lams: Sequence[float] = _LAMS,
    thetas: Sequence[float | None] | None = None,
    distances: Mapping[Any, FairDistance] | None = None,
    max_loss: float = 0.01,
    rule: Literal["one_se", "best"] = "one_se",
    cv: Any = 5,
    references: Sequence[Any] | None = None,
    clusters: Any = None,
    generator: torch.Generator | None = None,
    threshold: float = 0.5,
    mask: Any = None,
    distance: FairDistance | None = None,
    theta: float | None = None,
    normalization: Normalization = None,
    solver: Solver | None = None,
    link: Link | None = None,
    groups: Any = None,
    progress: bool | None = None,
    graph: SimilarityGraph | None = None,
    guarantee: RiskControl | None = None,
) -> TuneResult:
    r"""Tries radii and strengths on newcomers, and picks the fairest that costs little.

    .. math::
        \min_{\tau, \lambda} \; \mathrm{unfairness}(f_{\tau, \lambda})
        \quad \text{s.t.} \quad \mathrm{loss}(f_{\tau, \lambda}) +
        \mathrm{se}(\mathrm{loss}) \le \mathrm{max\_loss}, \qquad
        \mathrm{loss}(f) = \mathrm{score}(\hat y) - \mathrm{score}(f)

    People are split into folds. In turn each fold is left out of the fit and arrives
    as newcomers, by the step of ``GLIFPostProcessor.transform``; score and unfairness
    are those of the newcomers' outputs, and the loss compares the same people with and
    without smoothing.

    Args:
        x (array-like): Features.
        y_hat (array-like): Outputs of the model for people whose truth is known and
            whom the model was not trained on: a validation set, or out-of-fold
            predictions.
        labels (array-like, optional): True classes. The score is then accuracy.
        score (callable, optional): In place of ``labels``, any function of the outputs
            of all people, higher is better.
        pairs (array-like, optional): Pairs of rows that should agree. Unfairness is
            then the share of pairs with different decisions if there are ``labels``,
            and the mean distance of their outputs if not.
        sensitive (array-like, optional): A protected attribute of each sample, such as
            sex. Unfairness is then the share of different decisions (without
            ``labels``: the mean distance of outputs) among pairs of a newcomer and a
            similar person for whom it differs.
        unfairness (callable, optional): Any other function of the outputs of all
            people, lower is better. (default: the weighted mean of
            :math:`(f_i - f_j)^2` over newcomers :math:`i` and the fitted people
            :math:`j` similar to them)
        taus (sequence of float, optional): Radii. (default: those of 5, 10, 20 and
            40 neighbours on average)
        ks (sequence of int, optional): In place of ``taus``, how many of the nearest
            people are neighbours. (default: :obj:`None`)
        lams (sequence of float): Strengths. (default: from 0.001 to 10)
        thetas (sequence of float, optional): Decays of the weights, in the unit of
            ``theta``; :obj:`None` among them is the one that follows the radius.
            (default: ``theta`` alone)
        distances (dict, optional): Distances by name or number, to choose among them
            too; :attr:`TunePoint.distance` says which. (default: ``distance`` alone)
        max_loss (float): Score that may be lost, in its own unit: 0.01 is one
            percentage point of accuracy. (default: :obj:`0.01`)
        rule (str): ``"one_se"``: from the model on to ever fairer settings, up to the
            first whose loss plus its standard error exceeds ``max_loss``; ``"best"``:
            the fairest whose loss is at most ``max_loss``. (default: ``"one_se"``)
        cv (int, splitter, iterable or None): Number of folds, classes spread evenly;
            or a splitter of scikit-learn or pairs of row numbers (fitted, new) that
            make nobody a newcomer twice. :obj:`None` fits everybody and scores the
            same people, and knows no errors. (default: :obj:`5`)
        references (sequence of array-like, optional): For every fold of a given ``cv``
            the outputs of all people to fit, from models that have not seen its
            newcomers; theirs are not looked at. (default: ``y_hat`` in every fold)
        clusters (array-like, optional): Who belongs together, such as variants of one
            text or members of one household: never split between folds, and one
            observation where errors are estimated. (default: :obj:`None`)
        generator (torch.Generator, optional): Shuffles people before they are split.
            (default: seed 0)
        threshold (float): A single output above it means class 1.
            (default: :obj:`0.5`)
        mask (array-like, optional): Rows whose label is known; the others are
            neighbours only. (default: all)
        distance (FairDistance, optional): Who is similar. Beside ``distances``: who
            is similar where unfairness is measured. (default: Euclidean; the first of
            ``distances``)
        theta (float, optional): Decay of the weights. (default: :obj:`None`, which
            follows the radius)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): See :func:`~pyg_glif.glif_path`.
        link (Link, optional): Output space. (default: :obj:`None`)
        groups (array-like, optional): Groups that are to be treated equally alike, as
            by ``GLIFPostProcessor.fit(..., groups=...)``: shares of the strength are
            found in every fold, and newcomers' groups are known. Each strength is then
            solved for by itself. Not with ``guarantee``. (default: :obj:`None`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal. (default: :obj:`None`)
        graph (SimilarityGraph, optional): What a search for the largest of ``taus``
            in ``distance`` has found, if there was one: it is not searched again.
            (default: :obj:`None`)
        guarantee (RiskControl, optional): What is promised to newcomers, and how
            surely. Some people are set aside, and the choice is the fairest setting
            that they certify; ``max_loss`` and ``rule`` are not used. See below.
            (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, outputs :math:`(N)` or :math:`(N, C)`,
          labels, sensitive, clusters, groups and mask :math:`(N)`, pairs :math:`(P, 2)`
        - **output:** :class:`TuneResult`

    **Cost.** One search per distance, at its largest radius, serves all folds, radii
    and newcomers. There are folds x radii x decays x distances graphs; on each of them
    all strengths are solved together, in about twice the time of the largest alone.
    The default grid is 20 graphs and 180 settings of folds. Memory: the edges of that
    search, and outputs for all strengths of one radius.

    **Similar people** are those within the largest radius, on one graph for all
    settings; with several distances see ``distance``. Functions of your own get the
    outputs of all people as one tensor, everybody's from the fold in which they were
    the newcomer; who never was one has the output of the model.

    **Errors** are those of a mean over newcomers for accuracy and unfairness
    (:mod:`pyg_glif.model_selection.measures` has the formulas); for a ``score`` of
    your own they come from the folds, each smoothed alone. The rule ``"one_se"`` does
    not search for the luckiest of many settings: their order does not depend on labels,
    and the first that may cost too much ends the walk, in each distance and decay.
    Ties go to the higher score, then to the smaller strength and radius. Up to
    10,000 samples the choice is solved once more as
    :class:`~pyg_glif.GLIFPostProcessor` does it, so that fitting the folds with
    :meth:`TuneResult.settings` gives the numbers reported; with more they agree up to
    the tolerance of the solver. If nothing tried is both fairer
    than the model and cheap enough, the choice is the model, with a warning.

    **Guarantee.** A choice by folds comes without a proof: its numbers are those of the
    people it was made on. With ``guarantee``, a share of the people is set aside before
    anything is tried, radii included. The promise is about newcomers who are drawn like
    them, and about the fit to the others, ``found.guarantee.fitted``: fit those rows
    with :meth:`TuneResult.settings`. If nothing is certified, the choice is the model,
    with a warning that says what to do (:doc:`/guarantees`).

    Example:
        >>> x = torch.arange(40.0).unsqueeze(1) / 40
        >>> labels = x[:, 0] > 0.5
        >>> y_hat = labels + 0.6 * torch.cos(9 * torch.arange(40.0))
        >>> found = tune(x, y_hat, labels, taus=[0.1], lams=[0.1, 1.0])
        >>> found.best.lam, round(found.best.loss, 3)  # less than none: a gain
        (1.0, -0.2)
        >>> sorted(found.settings())
        ['distance', 'lam', 'link', 'normalization', 'solver', 'tau', 'theta']
    """
    if guarantee is not None:
        return with_guarantee(tune, **locals())
    x = check_features("x", x, distance).detach()
    y = check_outputs("y_hat", to_tensor("y_hat", y_hat)).to(x.device)
    check_same_rows("y_hat", y, "x", x)
    max_loss = check_scalar("max_loss", max_loss, minimum=0.0)
    check_choice("rule", rule, ("one_se", "best"))
    measures = Measures(y, labels, score, unfairness, pairs, sensitive, mask, threshold)
    if clusters is not None:
        clusters = check_group("clusters", to_labels("clusters", clusters), len(x)).to(
            x.device
        )
    decays = _decays([theta] if thetas is None else thetas)
    strengths = _numbers("lams", lams)
    folds = None
    if cv is None:
        rule = "best"  # there are no errors to go by
    else:
        folds = make_folds(cv, measures.known, measures.labels, clusters, generator)
    known = _references(references, y, folds, own=not isinstance(cv, Integral))
    if graph is not None:
        _check_graph(graph, len(x), taus, distances)
    sources, yardstick = _searched(x, distance, distances, taus, ks, progress, graph)
    grid = Grid(sources, decays, strengths, progress)
    if groups is not None:
        check_choice("normalization", normalization, (None, "density"))
        groups = check_group("groups", to_labels("groups", groups), len(x))
        groups = torch.unique(groups, return_inverse=True)[1].to(x.device)
    method = Method(y, normalization, solver, link, known, groups)
    shared = grid, method, measures
    trial: OnFitted | OnNewcomers
    if folds is None:
        trial = OnFitted(*shared, yardstick.graph, theta)
    else:
        trial = OnNewcomers(*shared, yardstick.graph, theta, folds, clusters)
    baseline, points = trial.baseline(), list(trial.points())
    best = choose(points, baseline, max_loss, rule, trial.again)
    if folds is not None and best is baseline:
        warn_caller(why_baseline(points, baseline, max_loss))
    return TuneResult(
        points=tuple(points),
        baseline=baseline,
        best=best,
        front=tuple(front([baseline, *points])),
        max_loss=max_loss,
        names=(measures.score_name, trial.unfairness_name),
        rule=rule,
        num_folds=None if folds is None else len(folds),
        shared={
            "distance": distance,
            "normalization": normalization,
            "solver": solver,
            "link": link,
        },
        distances={} if distances is None else dict(distances),
        num_scored=None if folds is None else sum(len(fold.new) for fold in folds),
    )


def _references(
    given: Sequence[Any] | None, y: Tensor, folds: list[Fold] | None, *, own: bool
) -> list[Tensor] | None:
    """Outputs of the fitted people of every fold, checked."""
    if given is None:
        return None
    if folds is None or not own:
        msg = "'references' must come with folds of your own (got none in 'cv')"
        raise ValueError(f"{msg}. Pass pairs of row numbers or a splitter")
    if len(given) != len(folds):
        msg = f"'references' must have one set of outputs per fold, {len(folds)}"
        raise ValueError(f"{msg} (got {len(given)})")
    out = []
    for value, fold in zip(given, folds, strict=True):
        one = to_tensor("references", value).to(y)
        if one.shape != y.shape:
            msg = "'references' must have the shape of 'y_hat'"
            raise ValueError(f"{msg}, {tuple(y.shape)} (got {tuple(one.shape)})")
        check_outputs("references", one[fold.fitted])
        out.append(one)
    return out


def _searched(
    x: Tensor,
    distance: FairDistance | None,
    distances: Mapping[Any, FairDistance] | None,
    taus: Sequence[float] | None,
    ks: Sequence[int] | None,
    progress: bool | None,
    graph: SimilarityGraph | None,
) -> tuple[dict[Any, Source], Source]:
    """Neighbourhoods in every distance, and those where unfairness is measured."""
    check_exclusive("ks", ks, "taus", taus)
    radii = None if taus is None else _numbers("taus", taus)
    nearest = None if ks is None else sorted({check_count("ks", k) for k in ks})
    if nearest is not None and not nearest:
        raise ValueError("'ks' must hold at least one number (got none)")
    if distances is not None and not distances:
        raise ValueError("'distances' must hold at least one distance (got none)")

    def search(which: FairDistance | None) -> Source:
        if nearest is not None:
            return AmongNearest(x, nearest, which, progress)
        sizes = _radii(x, which) if radii is None else radii
        return WithinRadius(x, sizes, which, progress, graph)

    tried = {None: distance} if distances is None else distances
    out = {key: search(which) for key, which in tried.items()}
    if distances is None or distance is None:
        return out, next(iter(out.values()))
    return out, search(distance)


def _check_graph(
    graph: SimilarityGraph,
    num_people: int,
    taus: Sequence[float] | None,
    distances: Mapping[Any, FairDistance] | None,
) -> None:
    """Raises unless a graph can hold what a search would find."""
    check_exclusive("graph", graph, "distances", distances)
    if taus is None:
        raise ValueError("'taus' must be given with 'graph' (got None)")
    if graph.num_nodes != num_people or graph.k is not None:
        msg = f"'graph' must be of a radius, with the {num_people} rows of 'x'"
        raise ValueError(f"{msg} (got {graph!r})")


def _numbers(name: str, values: Sequence[float]) -> list[float]:
    """Non-negative numbers, once each in ascending order; there must be one."""
    out = sorted({check_scalar(name, value, minimum=0.0) for value in values})
    if not out:
        raise ValueError(f"'{name}' must hold at least one number (got none)")
    return out


def _decays(thetas: Sequence[float | None]) -> list[float | None]:
    """The decays, that which follows the radius first."""
    given = [theta for theta in thetas if theta is not None]
    if not len(thetas):
        raise ValueError("'thetas' must hold at least one number (got none)")
    first: list[float | None] = [None] if len(given) < len(thetas) else []
    return first + (list(_numbers("thetas", given)) if given else [])


def _radii(x: Tensor, distance: FairDistance | None) -> list[float]:
    """Radii for the usual degrees that are below the number of people."""
    degrees = [degree for degree in _DEGREES if degree < len(x)] or [1.0]
    found = {suggest_tau(x, degree, distance=distance) for degree in degrees}
    return sorted(found)
