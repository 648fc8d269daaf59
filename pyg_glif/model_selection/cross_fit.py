"""Every fold arrives as newcomers among the others, for all strengths at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.sparse import csr_tensor
from pyg_glif.distances import FairDistance
from pyg_glif.graph import (
    KNNIndex,
    SimilarityGraph,
    decay_of,
    edge_weights,
    local_weights,
)
from pyg_glif.graph.index import NearestPairs
from pyg_glif.laplacian import LaplacianOperator, entries_beside
from pyg_glif.links import Link
from pyg_glif.methods.group_balance import solve_balanced
from pyg_glif.model_selection.splits import Fold
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Solution, Solver, SolveStatus
from pyg_glif.solvers.multi_lam import FEW_COLUMNS, solve_lams, solve_parts
from pyg_glif.typing import Normalization

# Columns of strengths and folds that are solved side by side. More do not gain.
_WIDTH = 32


class Ties(NamedTuple):
    """Pairs of a newcomer and a fitted person, sorted by newcomer, with weights."""

    row: Tensor  # [P]
    col: Tensor  # [P]
    weight: Tensor  # [P]


class Step(NamedTuple):
    """Outputs at one strength."""

    lam: float
    fitted: Tensor
    new: Tensor
    status: SolveStatus


class WithinRadius:
    """Neighbourhoods of several radii, from one search for everybody.

    Whether two people are an edge depends on nobody else, so the graph of the people
    that are fitted, and the neighbours of those who are not, are parts of it.
    """

    def __init__(
        self,
        x: Tensor,
        radii: Sequence[float],
        distance: FairDistance | None,
        progress: bool | None,
        graph: SimilarityGraph | None = None,
    ) -> None:
        self._x, self._distance, self.sizes = x, distance, radii
        if graph is None:
            graph = SimilarityGraph.search(
                x, max(radii), distance=distance, progress=progress
            )
        self.graph = graph.within(max(radii))
        self._last: tuple[float, SimilarityGraph] | None = None

    def describe(self, tau: float) -> dict[str, Any]:
        """The keywords of a point."""
        return {"tau": tau}

    def paths(self) -> Iterator[tuple[float | None, SimilarityGraph, Sequence[float]]]:
        """Graphs of everybody and the radii to take from them."""
        yield None, self.graph, self.sizes

    def anew(self, tau: float) -> SimilarityGraph:
        """The graph of everybody, searched for as a fit does it."""
        return SimilarityGraph.search(
            self._x, tau, distance=self._distance, progress=False
        )

    def within(self, tau: float) -> SimilarityGraph:
        """The graph of everybody."""
        if self._last is None or self._last[0] != tau:
            self._last = tau, self.graph.within(tau)
        return self._last[1]

    def split(
        self, tau: float, theta: float | None, fold: Fold
    ) -> tuple[SimilarityGraph, Ties]:
        """The graph of the fitted people, and the ties of the new ones."""
        graph = self.within(tau)
        row, col = graph.edge_index
        place = row.new_full((2, graph.num_nodes), -1)
        for where, rows in zip(place, fold, strict=True):
            where[rows] = torch.arange(len(rows), device=place.device)
        fitted, new = place
        outer = ((new[row] >= 0) & (fitted[col] >= 0)).nonzero()[:, 0]
        weight = edge_weights(graph.sq_dist[outer], decay_of(theta, tau))
        ties = Ties(new[row[outer]], fitted[col[outer]], weight.double())
        return graph.subgraph(fitted >= 0), ties


class AmongNearest:
    """Neighbourhoods of the nearest people, searched for in every fold.

    Who is among the nearest depends on who is there.
    """

    def __init__(
        self,
        x: Tensor,
        ks: Sequence[int],
        distance: FairDistance | None,
        progress: bool | None,
    ) -> None:
        self._x, self._distance, self._progress = x, distance, progress
        self.sizes = ks
        self.graph = self.anew(max(ks))
        self._found: dict[tuple[float, int], tuple[SimilarityGraph, NearestPairs]] = {}

    def describe(self, k: float) -> dict[str, Any]:
        """The keywords of a point."""
        return {"tau": math.inf, "k": int(k)}

    def paths(self) -> Iterator[tuple[float | None, SimilarityGraph, None]]:
        """Graphs of everybody, one for each number of neighbours."""
        for k in self.sizes:
            yield k, self.anew(k), None

    def anew(self, k: float) -> SimilarityGraph:
        """The graph of everybody, searched for as a fit does it."""
        return self._nearest(self._x, k)

    def split(
        self, k: float, theta: float | None, fold: Fold
    ) -> tuple[SimilarityGraph, Ties]:
        """The graph of the fitted people, and the ties of the new ones."""
        if (k, id(fold)) not in self._found:
            x = self._x[fold.fitted]
            graph = self._nearest(x, k)
            index = KNNIndex(
                x, int(k), distance=self._distance, scale=graph.scale, copy=False
            )
            found = index.query(self._x[fold.new], self._progress)
            self._found[k, id(fold)] = graph, found
        graph, (row, col, sq_dist, scale) = self._found[k, id(fold)]
        if theta is None:
            weight = local_weights(sq_dist, scale)
        else:
            weight = edge_weights(sq_dist, theta)
        return graph, Ties(row, col, weight.double())

    def _nearest(self, x: Tensor, k: float) -> SimilarityGraph:
        return SimilarityGraph.nearest(
            x, int(k), distance=self._distance, progress=self._progress
        )


#: Where neighbours come from.
Source = WithinRadius | AmongNearest


@dataclass(frozen=True, eq=False)
class Method:
    """Outputs and how they are smoothed, whatever the neighbourhood."""

    y: Tensor  # [N] or [N, C]
    normalization: Normalization
    solver: Solver | None
    link: Link | None
    references: Sequence[Tensor] | None = None  # outputs of the fitted, fold by fold
    groups: Tensor | None = None  # [N] from 0, those to be treated equally alike

    def fitted(self, k: int, fold: Fold) -> Tensor:
        """Outputs of the people fitted in fold ``k``."""
        y = self.y if self.references is None else self.references[k]
        return y[fold.fitted]

    def solve(self, lap: LaplacianOperator, lam: float) -> Solution:
        """Smoothed outputs of all samples, balanced if there are groups."""
        smoother = self._smoother(lam)
        if self.groups is None:
            return smoother.solve(lap, self.y)
        solution = solve_balanced(smoother, lap, smoother.to_dual(self.y), self.groups)
        value = smoother.from_dual(solution.value, self.y, lap.deg == 0)
        return replace(solution, value=value)

    def rounds(
        self,
        source: Source,
        size: float,
        theta: float | None,
        folds: Sequence[Fold],
        lams: Sequence[float],
    ) -> Iterator[list[Step]]:
        """Fits some people and updates the others, fold by fold at all strengths."""
        columns = math.prod(self.y.shape[1:])
        shared = self.solver is None and self.normalization is None
        shared = shared and self.groups is None
        weight, at_once = None, 1
        if shared and isinstance(source, WithinRadius) and 0 < columns <= FEW_COLUMNS:
            # A fold's matrix is a part of everybody's: folds can share products.
            op = source.within(size).laplacian(theta)
            weight = op.pattern.csr(op.off_diagonal)
            at_once = max(1, _WIDTH // (columns * len(lams)))
        for first in range(0, len(folds), at_once):
            some = range(first, min(first + at_once, len(folds)))
            found: list[dict[float, Step]] = [{} for _ in some]
            if weight is not None:
                found = self._together(some, folds, weight, lams)
            for k, steps in zip(some, found, strict=True):
                left = [lam for lam in lams if lam not in steps]
                if left:
                    graph, ties = source.split(size, theta, folds[k])
                    alone = self._alone(k, folds[k], graph, ties, theta, left)
                    steps |= {step.lam: step for step in alone}
                yield [steps[lam] for lam in lams]

    def _together(
        self,
        some: Sequence[int],
        folds: Sequence[Fold],
        weight: Tensor,
        lams: Sequence[float],
    ) -> list[dict[float, Step]]:
        """What some folds come to by strength, solved side by side if that is sound."""
        known = [self.fitted(k, folds[k]) for k in some]
        duals = [self._smoother(0.0).to_dual(y) for y in known]
        inside = weight.values().new_zeros(len(self.y), len(some))
        eta = duals[0].new_zeros(len(self.y), len(some), duals[0].size(1))
        for place, k in enumerate(some):
            inside[folds[k].fitted, place] = 1.0
            eta[folds[k].fitted, place] = duals[place]
        strengths = weight.values().new_tensor(lams)
        value, degree, status = solve_parts(weight, inside, strengths, eta.double())
        # A fit keeps its solution in the precision of the outputs.
        f = value.to(eta.dtype)
        pull = (weight @ f.double().flatten(1)).view_as(value)  # [N, P, K, C]
        out = []
        for place, k in enumerate(some):
            fold, steps = folds[k], dict[float, Step]()
            old, new = degree[fold.fitted, place], degree[fold.new, place]
            y, y_new = known[place], self.y[fold.new]
            for which, lam in enumerate(lams):
                if status[place][which] is not SolveStatus.CONVERGED:
                    continue
                smoother = self._smoother(lam)
                steps[lam] = Step(
                    lam,
                    smoother.from_dual(f[fold.fitted, place, which], y, old == 0),
                    smoother.update(y_new, pull[fold.new, place, which], new),
                    SolveStatus.CONVERGED,
                )
            out.append(steps)
        return out

    def _alone(
        self,
        k: int,
        fold: Fold,
        graph: SimilarityGraph,
        ties: Ties,
        theta: float | None,
        lams: Sequence[float],
    ) -> Iterator[Step]:
        """Fits the people of one fold and updates the others."""
        op = graph.laplacian(theta, self.normalization)
        none = Ties(*(part[:0] for part in ties))
        diagonal, value, _ = entries_beside(op, ties, none, len(fold.new))
        alone = torch.bincount(ties.row, ties.weight, minlength=len(fold.new)) == 0
        y, y_new = self.fitted(k, fold), self.y[fold.new]
        eta = self._smoother(0.0).to_dual(y)
        size = len(fold.new), len(fold.fitted)
        solved: Iterator[tuple[float, Tensor, SolveStatus]]
        if self.groups is None:
            solved = solve_lams(op, eta.double(), lams, self.solver)
            pull = _matrix(ties, value, size)
        else:
            solved, shares = self._balanced(op, y, self.groups[fold.fitted], lams)
        for lam, found, status in solved:
            if self.groups is not None:
                share = shares[lam][self.groups]
                ends = share[fold.new][ties.row] + share[fold.fitted][ties.col]
                shared = 0.5 * ends * value
                pull = _matrix(ties, shared, size)
                diagonal = shared.new_zeros(size[0]).index_add(0, ties.row, shared)
            # A fit keeps its solution in the precision of the outputs.
            f = found.to(eta.dtype)
            smoother = self._smoother(lam)
            new = smoother.update(
                y_new,
                pull @ f.double(),
                diagonal,
                lam_scale=op.lam_scale,
                isolated=alone,
            )
            yield Step(lam, smoother.from_dual(f, y, op.deg == 0), new, status)

    def _balanced(
        self,
        op: LaplacianOperator,
        y: Tensor,
        groups: Tensor,
        lams: Sequence[float],
    ) -> tuple[Iterator[tuple[float, Tensor, SolveStatus]], dict[float, Tensor]]:
        """Solutions that treat groups equally alike, and shares by strength.

        A group that has nobody among the people fitted has the share one.
        """
        assert self.groups is not None
        shares = {
            lam: torch.ones(
                int(self.groups.max()) + 1, dtype=torch.float64, device=y.device
            )
            for lam in lams
        }

        def each() -> Iterator[tuple[float, Tensor, SolveStatus]]:
            for lam in lams:
                smoother = self._smoother(lam)
                found = solve_balanced(smoother, op, smoother.to_dual(y), groups)
                assert found.balance is not None
                shares[lam][found.balance.group] = found.balance.beta
                yield lam, found.value, found.status

        return each(), shares

    def _smoother(self, lam: float) -> Smoother:
        return Smoother(
            lam, normalization=self.normalization, link=self.link, solver=self.solver
        )


def _matrix(ties: Ties, value: Tensor, size: tuple[int, int]) -> Tensor:
    """Ties as a sparse matrix, from fitted people to newcomers."""
    count = torch.bincount(ties.row, minlength=size[0])
    ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return csr_tensor(ptr, ties.col, value, size)
