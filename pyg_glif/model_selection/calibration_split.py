"""People who are set aside before anything is learned, and what they lose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_labels, to_tensor
from pyg_glif._utils.validation import (
    check_exclusive,
    check_features,
    check_group,
    check_kind,
    check_outputs,
    check_pairs,
    check_same_rows,
)
from pyg_glif._utils.warn import warn_caller
from pyg_glif.model_selection.cross_fit import (
    AmongNearest,
    Method,
    Source,
    WithinRadius,
)
from pyg_glif.model_selection.evaluate import Grid, Neighborhood
from pyg_glif.model_selection.measures import Measures
from pyg_glif.model_selection.result import TunePoint, TuneResult
from pyg_glif.model_selection.risk_control import Guarantee, Losses, RiskControl
from pyg_glif.model_selection.selection import fairest
from pyg_glif.model_selection.splits import Fold
from pyg_glif.solvers import Auto

# Of the people who are fitted, those who come as newcomers to find the order of tests.
_PILOT = 0.2
# Arguments of 'tune' with an entry for each person.
_BY_PERSON = ("x", "y_hat", "labels", "sensitive", "clusters", "mask")
# What cannot be told apart by person, or was not made without those set aside; and
# groups, whose shares a fit finds for them together.
_REFUSED = ("score", "unfairness", "references", "graph", "groups")


@dataclass(frozen=True, eq=False)
class Aside:
    """Some people apart from the others, drawn at random without a look at anybody.

    Args:
        fitted (Tensor): Rows of those who are fitted, ascending.
        new (Tensor): Rows of those who come as newcomers, ascending.
        unit (Tensor): The cluster of each new sample, or the sample itself; numbers
            are in random order.
    """

    fitted: Tensor
    new: Tensor
    unit: Tensor

    @classmethod
    def draw(
        cls,
        rows: Tensor,
        may_be_new: Tensor,
        clusters: Tensor | None,
        share: float,
        generator: torch.Generator,
    ) -> "Aside":
        """A share of the people in ``rows`` who may be new; whole groups."""
        unit = rows if clusters is None else clusters[rows]
        _, unit = torch.unique(unit, return_inverse=True)
        known = torch.unique(unit[may_be_new[rows]])
        order = known[torch.randperm(len(known), generator=generator)]
        order = order[: round(share * len(order))]
        place = torch.full((len(rows),), -1)
        place[order] = torch.arange(len(order))
        at = place[unit]
        new = (at >= 0) & may_be_new[rows]
        return cls(rows[at < 0], rows[new], at[new])

    @property
    def num_units(self) -> int:
        """How many independent losses there are."""
        return int(self.unit.max()) + 1 if len(self.unit) else 0

    def means(self, value: Tensor) -> Losses:
        """Means over units, in random order, of one number for each newcomer."""
        total = torch.bincount(self.unit, value.double().cpu())
        out: Losses = (total / torch.bincount(self.unit)).numpy()
        return out


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Losses of newcomers at settings of a grid.

    Args:
        grid (Grid): The settings.
        method (Method): How outputs are smoothed.
        measures (Measures): How outputs become decisions.
        yardstick (Source): Who is similar where decisions are compared.
        theta (float, optional): The decay of the weights there.
        aside (Aside): Who is fitted, and who comes.
        alone (bool): Whether every strength is solved alone, as a fit does it.
    """

    grid: Grid
    method: Method
    measures: Measures
    yardstick: Source
    theta: float | None
    aside: Aside
    alone: bool
    _known: dict[tuple[Neighborhood, float], dict[str, Losses]] = field(
        default_factory=dict
    )

    def __call__(self, point: TunePoint) -> Mapping[str, Losses]:
        """Losses of every newcomer."""
        at, lams = self.grid.find(point), self.grid.lams
        if (at, point.lam) not in self._known:
            lams = [point.lam] if self.alone or point.lam not in lams else lams
            method = self.method
            if self.alone:
                method = replace(method, solver=method.solver or Auto())
            rounds = method.rounds(at.source, at.size, at.theta, [self._fold], lams)
            for step in next(iter(rounds)):
                losses = self._losses(step.fitted, step.new)
                if step.status.is_failure:  # the worst that can be
                    losses = {name: np.ones_like(v) for name, v in losses.items()}
                self._known[at, step.lam] = losses
        return self._known[at, point.lam]

    @cached_property
    def _fold(self) -> Fold:
        # One and the same object, by which sources remember what they found.
        device = self.method.y.device
        return Fold(self.aside.fitted.to(device), self.aside.new.to(device))

    def _losses(self, fitted: Tensor, new: Tensor) -> dict[str, Losses]:
        """All losses that are known, by name."""
        before, after = (self.measures.decide(y) for y in (self._before, new))
        out = {"unlike": self._unlike(self.measures.decide(fitted), after)}
        if self.measures.labels is not None:
            truth = self.measures.labels[self._fold.new]
            out["loss"] = (before == truth).double() - (after == truth).double()
        return {name: self.aside.means(value) for name, value in out.items()}

    @property
    def _before(self) -> Tensor:
        return self.method.y[self._fold.new]

    def _unlike(self, fitted: Tensor, new: Tensor) -> Tensor:  # [K], [M] -> [M]
        """By weight, the share of peers with another decision, zero without peers."""
        size = max(self.yardstick.sizes)
        _, (row, col, weight) = self.yardstick.split(size, self.theta, self._fold)
        sensitive = self.measures.sensitive
        if sensitive is not None:
            fold = self._fold
            differ = sensitive[fold.new][row] != sensitive[fold.fitted][col]
            row, col = row[differ], col[differ]
            weight = torch.ones_like(weight[differ])
        unlike = weight * (new[row] != fitted[col])
        total, part = (
            torch.bincount(row, value, minlength=len(new)) for value in (weight, unlike)
        )
        return part / total.clamp(min=torch.finfo(total.dtype).tiny)


def calibration_split(
    guarantee: RiskControl,
    known: Tensor,  # [N] bool
    clusters: Tensor | None,
    generator: torch.Generator | None = None,
) -> Aside:
    """The split that ``tune`` makes: whatever learns from samples may see the fitted.

    Only samples whose label is ``known`` are set aside. Raises if they are too few.
    """
    generator = generator or torch.Generator().manual_seed(0)
    rows = torch.arange(len(known))
    out = Aside.draw(rows, known, clusters, guarantee.share, generator)
    guarantee.check_enough(out.num_units, len(known))
    return out


def with_guarantee(
    tune: Callable[..., TuneResult], *, guarantee: RiskControl, **given: Any
) -> TuneResult:
    """Tunes on some people, and certifies on others."""
    check_kind("guarantee", guarantee, RiskControl)
    for name in _REFUSED:
        check_exclusive(name, given[name], "guarantee", guarantee)
    given["x"] = x = check_features("x", given["x"], given["distance"]).detach()
    y = check_outputs("y_hat", to_tensor("y_hat", given["y_hat"])).to(x.device)
    check_same_rows("y_hat", y, "x", x)
    given["y_hat"] = y
    for name in ("labels", "sensitive", "clusters", "mask"):
        if given[name] is not None:
            given[name] = to_labels(name, given[name])
    nothing = (None, None, None)
    measures = Measures(
        y,
        given["labels"],
        *nothing,
        given["sensitive"],
        given["mask"],
        given["threshold"],
    )
    clusters = given["clusters"]
    if clusters is not None:
        clusters = check_group("clusters", clusters, len(x)).cpu()
    generator = given["generator"] or torch.Generator().manual_seed(0)
    known = measures.known.cpu()
    aside = calibration_split(guarantee, known, clusters, generator)
    pilot = Aside.draw(aside.fitted, known, clusters, _PILOT, generator)
    found = tune(**_among(aside.fitted, len(x), given))
    arrivals = _arrivals(found, given, measures)
    points = [p for p in found.points if not p.status.is_failure]
    points = [p for p in points if p.unfairness < found.baseline.unfairness]
    if "unlike" in guarantee.limits:
        points.append(found.baseline)
    first = Arrivals(*arrivals, pilot, alone=False)
    points.sort(key=lambda point: -guarantee.promise(first(point)))
    tests = guarantee.certify(points, Arrivals(*arrivals, aside, alone=True))
    certified = (test for test in tests if test.certified)
    best = min(certified, key=lambda test: fairest(test.point), default=None)
    promise = Guarantee(
        guarantee, tests, best, aside.fitted, aside.new, aside.num_units
    )
    if best is None:
        warn_caller(promise.to_text())
    choice = found.baseline if best is None else best.point
    return replace(found, best=choice, guarantee=promise)


def _among(rows: Tensor, num: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``tune`` for some of the people."""
    some = {name: given[name] for name in _BY_PERSON}
    out = {
        **given,
        **{
            name: None if v is None else v[rows.to(v.device)]
            for name, v in some.items()
        },
        # All but failures: who is chosen is decided later.
        "rule": "best",
        "max_loss": 1.0,
    }
    if given["pairs"] is not None:
        place = torch.full((num,), -1)
        place[rows] = torch.arange(len(rows))
        pairs = place[check_pairs("pairs", to_labels("pairs", given["pairs"])).cpu()]
        out["pairs"] = pairs[(pairs >= 0).all(1)]
    return out


def _arrivals(
    found: TuneResult, given: Mapping[str, Any], measures: Measures
) -> tuple[Grid, Method, Measures, Source, float | None]:
    """What losses depend on, but for who comes.

    Radii are those of the people who are fitted. Everybody is searched at once: whether
    two people are neighbours within a radius depends on nobody else, and the nearest
    are searched for among those who are fitted.
    """
    x, distance, progress = given["x"], given["distance"], given["progress"]

    def search(which: Any, points: Sequence[TunePoint]) -> Source:
        if given["ks"] is not None:
            ks = sorted({point.k for point in points if point.k is not None})
            return AmongNearest(x, ks, which, progress)
        return WithinRadius(x, sorted({p.tau for p in points}), which, progress)

    tried = {None: distance} if given["distances"] is None else given["distances"]
    sources = {
        key: search(which, [p for p in found.points if p.distance == key])
        for key, which in tried.items()
    }
    yardstick = next(iter(sources.values()))
    if given["distances"] is not None and distance is not None:
        yardstick = search(distance, found.points)
    thetas = sorted({p.theta for p in found.points}, key=lambda t: (t is not None, t))
    lams = sorted({point.lam for point in found.points})
    grid = Grid(sources, thetas, lams, progress)
    method = Method(
        given["y_hat"], given["normalization"], given["solver"], given["link"]
    )
    return grid, method, measures, yardstick, given["theta"]
