"""Every setting of a grid, scored on the people fitted or on newcomers."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress
from pyg_glif.errors import ConvergenceWarning
from pyg_glif.graph import SimilarityGraph
from pyg_glif.methods.path import glif_path
from pyg_glif.model_selection.cross_fit import Method, Source
from pyg_glif.model_selection.measures import Estimate, Measures, Peers, ratio
from pyg_glif.model_selection.result import TunePoint
from pyg_glif.model_selection.splits import Fold
from pyg_glif.solvers import Auto, SolveStatus

# Beyond, one more solve of every fold costs more than that decisions hang on it.
_MANY = 10_000


class Neighborhood(NamedTuple):
    """A setting but for its strength."""

    distance: Any
    source: Source
    size: float
    theta: float | None

    def point(self, lam: float, status: SolveStatus) -> TunePoint:
        """A point whose numbers are not known."""
        at = self.source.describe(self.size)
        return TunePoint(
            **at,
            lam=lam,
            score=math.nan,
            unfairness=math.nan,
            status=status,
            theta=self.theta,
            distance=self.distance,
            loss=math.nan,
        )


@dataclass(frozen=True, eq=False)
class Grid:
    """What is tried."""

    sources: Mapping[Any, Source]
    thetas: Sequence[float | None]
    lams: Sequence[float]
    progress: bool | None

    def __iter__(self) -> Iterator[Neighborhood]:
        for (key, source), theta in product(self.sources.items(), self.thetas):
            for size in source.sizes:
                yield Neighborhood(key, source, size, theta)

    def __len__(self) -> int:
        sizes = sum(len(source.sizes) for source in self.sources.values())
        return sizes * len(self.thetas)

    def find(self, point: TunePoint) -> Neighborhood:
        """The neighbourhood of a point."""
        source = self.sources[point.distance]
        size = point.tau if point.k is None else point.k
        return Neighborhood(point.distance, source, size, point.theta)


class OnFitted:
    """Everybody is fitted, and the same people are scored."""

    def __init__(
        self,
        grid: Grid,
        method: Method,
        measures: Measures,
        yardstick: SimilarityGraph,
        theta: float | None,
    ) -> None:
        self._grid, self._method, self._measures = grid, method, measures
        if measures.unfairness is not None:
            self._gauge = measures.unfairness
            self.unfairness_name = measures.unfairness_name
        elif measures.sensitive is not None:
            peers = Peers(measures, yardstick, theta)
            self._gauge, self.unfairness_name = peers.everybody, peers.name
        else:
            lap = yardstick.laplacian(theta)
            self._gauge = lambda out: float(lap.quadratic(out.double()).sum())
            self.unfairness_name = "Laplacian energy"

    def baseline(self) -> TunePoint:
        """The model as it is."""
        point = next(iter(self._grid)).point(0.0, SolveStatus.CONVERGED)
        return self._measured(point, self._method.y)

    def points(self) -> Iterator[TunePoint]:
        """Every setting, from one path for each distance and decay."""
        grid, method = self._grid, self._method
        for (key, source), theta in product(grid.sources.items(), grid.thetas):
            for size, graph, radii in source.paths():
                if method.groups is not None:
                    yield from self._balanced(
                        key, source, graph, radii or [size], theta
                    )
                    continue
                path = glif_path(
                    method.y,
                    graph,
                    lams=grid.lams,
                    taus=radii,
                    theta=theta,
                    normalization=method.normalization,
                    solver=method.solver,
                    link=method.link,
                    progress=grid.progress,
                )
                for found in path:
                    reach = found.tau if size is None else size
                    at = Neighborhood(key, source, reach, theta)
                    yield self._measured(at.point(found.lam, found.status), found.value)

    def again(self, point: TunePoint) -> TunePoint:
        """The setting of a point, searched and solved anew the way a fit does it."""
        at, method = self._grid.find(point), self._method
        graph = at.source.anew(at.size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the status says so
            solver = replace(method.solver or Auto(), throw=False)
            found = replace(method, solver=solver).solve(
                graph.laplacian(point.theta, method.normalization), point.lam
            )
        return self._measured(replace(point, status=found.status), found.value)

    def _balanced(
        self,
        key: Any,
        source: Source,
        graph: SimilarityGraph,
        sizes: Sequence[float | None],
        theta: float | None,
    ) -> Iterator[TunePoint]:
        """Every strength and size of a graph, with groups treated equally alike."""
        method = self._method
        for size, lam in product(sizes, self._grid.lams):
            assert size is not None
            part = graph if graph.k is not None else graph.within(size)
            lap = part.laplacian(theta, method.normalization)
            found = method.solve(lap, lam)
            at = Neighborhood(key, source, size, theta)
            yield self._measured(at.point(lam, found.status), found.value)

    def _measured(self, point: TunePoint, outputs: Tensor) -> TunePoint:
        """The point with its numbers, unless there is no solution."""
        if point.status.is_failure:
            return point
        score = self._measures.score(outputs)
        loss = self._measures.score_before - score
        return replace(point, score=score, unfairness=self._gauge(outputs), loss=loss)


class OnNewcomers:
    """Every fold is scored as newcomers among the others."""

    def __init__(
        self,
        grid: Grid,
        method: Method,
        measures: Measures,
        yardstick: SimilarityGraph,
        theta: float | None,
        folds: Sequence[Fold],
        clusters: Tensor | None,
    ) -> None:
        self._grid, self._method, self._measures = grid, method, measures
        self._folds, self._rows = folds, torch.cat([fold.new for fold in folds])
        self._cluster = None if clusters is None else clusters[self._rows]
        self._peers: Peers | None = None
        self.unfairness_name = measures.unfairness_name
        if measures.unfairness is None:
            self._peers = Peers(measures, yardstick, theta)
            self.unfairness_name = self._peers.name
            self._ties = [self._peers.beside(fold) for fold in folds]

    def baseline(self) -> TunePoint:
        """The model as it is."""
        y = self._method.y
        gaps = [
            self._gap(k, self._method.fitted(k, fold), y[fold.new])
            for k, fold in enumerate(self._folds)
        ]
        point = next(iter(self._grid)).point(0.0, SolveStatus.CONVERGED)
        return self._measured(point, y, gaps)

    def points(self) -> Iterator[TunePoint]:
        """Every setting."""
        grid = self._grid
        total = len(grid) * len(self._folds)
        with Progress(total, "tune", grid.progress) as bar:
            for at in grid:
                yield from self._tried(at, grid.lams, self._method, bar)

    def again(self, point: TunePoint) -> TunePoint:
        """The setting of a point, solved alone the way a fit does it."""
        if len(self._method.y) > _MANY:
            return point
        alone = replace(self._method, solver=self._method.solver or Auto())
        (found,) = self._tried(self._grid.find(point), [point.lam], alone)
        return found

    def _tried(
        self,
        at: Neighborhood,
        lams: Sequence[float],
        method: Method,
        bar: Progress | None = None,
    ) -> Iterator[TunePoint]:
        """All strengths with one neighbourhood, fold by fold."""
        outputs = [method.y.clone() for _ in lams]
        gaps: list[list[Tensor]] = [[] for _ in lams]
        failed: dict[int, SolveStatus] = {}
        rounds = method.rounds(at.source, at.size, at.theta, self._folds, lams)
        for k, steps in enumerate(rounds):
            for place, step in enumerate(steps):
                outputs[place][self._folds[k].new] = step.new
                gaps[place].append(self._gap(k, step.fitted, step.new))
                if step.status.is_failure:
                    failed[place] = step.status
            if bar is not None:
                bar.update()
        for place, lam in enumerate(lams):
            point = at.point(lam, failed.get(place, SolveStatus.CONVERGED))
            yield self._measured(point, outputs[place], gaps[place])

    def _gap(self, k: int, fitted: Tensor, new: Tensor) -> Tensor:  # -> [M]
        """How unlike the newcomers of a fold and people similar to them are treated."""
        if self._peers is None:
            return new.new_empty(0)
        i, j, weight = self._ties[k]
        unlike = weight * self._peers.unlike(new[i], fitted[j])
        return unlike.new_zeros(len(new)).index_add_(0, i, unlike)

    def _measured(
        self, point: TunePoint, outputs: Tensor, gaps: list[Tensor]
    ) -> TunePoint:
        """The point with its numbers and errors, unless there is no solution."""
        if point.status.is_failure:
            return point
        measures = self._measures
        score, loss = measures.of_newcomers(outputs, self._folds, self._cluster)
        if measures.unfairness is None:
            unfairness = ratio(torch.cat(gaps), self._total, self._cluster)
        else:
            unfairness = Estimate(measures.unfairness(outputs))
        return replace(
            point,
            score=score.value,
            score_se=score.error,
            loss=loss.value,
            loss_se=loss.error,
            unfairness=unfairness.value,
            unfairness_se=unfairness.error,
        )

    @cached_property
    def _total(self) -> Tensor:  # [M of all folds]
        """Weights of the pairs of every newcomer."""
        return torch.cat(
            [
                weight.new_zeros(len(fold.new)).index_add_(0, i, weight)
                for fold, (i, _, weight) in zip(self._folds, self._ties, strict=True)
            ]
        )
