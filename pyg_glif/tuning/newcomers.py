"""Every fold arrives as newcomers among the others, for all strengths at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pyg_glif._pattern import csr_tensor
from pyg_glif.distances import FairDistance
from pyg_glif.graph import (
    KNNIndex,
    SimilarityGraph,
    decay_of,
    edge_weights,
    local_weights,
)
from pyg_glif.graph.knn_index import Neighbors
from pyg_glif.laplacian import entries_beside
from pyg_glif.links import Link, dual_of_people, outputs_of_people
from pyg_glif.path import solve_strengths
from pyg_glif.solvers import Solver, SolveStatus
from pyg_glif.tuning.folds import Fold
from pyg_glif.typing import Normalization


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
    ) -> None:
        self._x, self._distance, self.sizes = x, distance, radii
        self.graph = SimilarityGraph.search(
            x, max(radii), distance=distance, progress=progress
        )
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

    def split(
        self, tau: float, theta: float | None, fold: Fold
    ) -> tuple[SimilarityGraph, Ties]:
        """The graph of the fitted people, and the ties of the new ones."""
        if self._last is None or self._last[0] != tau:
            self._last = tau, self.graph.within(tau)
        graph = self._last[1]
        row, col = graph.edge_index
        place = row.new_empty(graph.num_nodes)
        for rows in fold:
            place[rows] = torch.arange(len(rows), device=place.device)
        fitted, new = (
            torch.zeros(graph.num_nodes, dtype=torch.bool, device=place.device)
            for _ in fold
        )
        fitted[fold.fitted], new[fold.new] = True, True
        known = fitted[col]
        inner, outer = (
            (some[row] & known).nonzero()[:, 0]  # in the order of the edges
            for some in (fitted, new)
        )
        edges = torch.stack([place[row[inner]], place[col[inner]]])
        sq_dist = graph.sq_dist[inner]
        ties = place[row[outer]], place[col[outer]]
        weight = edge_weights(graph.sq_dist[outer], decay_of(theta, tau))
        among = SimilarityGraph(edges, sq_dist, len(fold.fitted), tau)
        return among, Ties(*ties, weight.double())


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
        self._found: dict[tuple[float, int], tuple[SimilarityGraph, Neighbors]] = {}

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

    def fitted(self, k: int, fold: Fold) -> Tensor:
        """Outputs of the people fitted in fold ``k``."""
        y = self.y if self.references is None else self.references[k]
        return y[fold.fitted]

    def steps(
        self,
        k: int,
        fold: Fold,
        graph: SimilarityGraph,
        ties: Ties,
        theta: float | None,
        lams: Sequence[float],
    ) -> Iterator[Step]:
        """Fits some people and updates the others, as a post-processor does."""
        op = graph.laplacian(theta, self.normalization)
        none = Ties(*(part[:0] for part in ties))
        diagonal, value, _ = entries_beside(op, ties, none, len(fold.new))
        pull = _matrix(ties, value, (len(fold.new), len(fold.fitted)))
        alone = torch.bincount(ties.row, ties.weight, minlength=len(fold.new)) == 0
        y, y_new = self.fitted(k, fold), self.y[fold.new]
        eta, eta_new = self._dual(y), self._dual(y_new).double()
        for lam, found, status in solve_strengths(op, eta.double(), lams, self.solver):
            # A fit keeps its solution in the precision of the outputs.
            f = found.to(eta.dtype)
            mu = lam * op.lam_scale
            new = eta_new.addcmul(mu, pull @ f.double())
            new /= (1.0 + mu * diagonal).unsqueeze(1)
            keep = lam == 0
            yield Step(
                lam,
                self._outputs(f, y, (op.deg == 0) | keep),
                self._outputs(new, y_new, alone | keep),
                status,
            )

    def _dual(self, y: Tensor) -> Tensor:  # [N] or [N, C] -> [N, C]
        """Dual coordinates as a block of columns."""
        return dual_of_people(self.link, y).reshape(len(y), math.prod(y.shape[1:]))

    def _outputs(self, eta: Tensor, y: Tensor, alone: Tensor) -> Tensor:
        """Outputs in the shape and precision of those before."""
        eta = eta.to(y.dtype).reshape(y.shape)
        return outputs_of_people(self.link, eta, y, alone)


def _matrix(ties: Ties, value: Tensor, size: tuple[int, int]) -> Tensor:
    """Ties as a sparse matrix, from fitted people to newcomers."""
    count = torch.bincount(ties.row, minlength=size[0])
    ptr = torch.cat([count.new_zeros(1), count.cumsum(0)])
    return csr_tensor(ptr, ties.col, value, size)
