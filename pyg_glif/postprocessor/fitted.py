"""What a fit leaves behind, and the steps that need it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_glif.distances import FairDistance
from pyg_glif.graph import RadiusIndex, edge_weights, fair_radius_graph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link
from pyg_glif.postprocessor.inductive import Anchors, GroundedOperator, Links
from pyg_glif.solvers import Auto, Solution, Solver, smooth
from pyg_glif.typing import Normalization

# What columns are called, if they came in a frame.
Names = tuple[Any, ...] | None

# New people whose pairs are held at once.
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of a fit, the radius decided."""

    distance: FairDistance | None
    tau: float
    theta: float
    lam: float
    normalization: Normalization
    solver: Solver
    link: Link | None

    @classmethod
    def of(cls, params: Mapping[str, Any], tau: float) -> "Settings":
        """The parameters of a post-processor, the radius decided."""
        return cls(
            distance=params["distance"],
            tau=float(tau),
            theta=float(params["theta"]),
            lam=float(params["lam"]),
            normalization=params["normalization"],
            solver=Auto() if params["solver"] is None else params["solver"],
            link=params["link"],
        )

    def to_dual(self, y: Tensor) -> Tensor:  # [N] or [N, C] -> [N, C]
        """Dual coordinates as a block of columns, in the precision of ``y``."""
        eta = y if self.link is None else self.link.to_dual(y)
        return eta.reshape(len(y), math.prod(y.shape[1:]))

    def from_dual(self, eta: Tensor, like: Tensor) -> Tensor:
        """Outputs with the shape and precision of ``like``."""
        eta = eta.to(like.dtype).reshape(like.shape)
        return eta if self.link is None else self.link.from_dual(eta)

    def solve(
        self, lap: LaplacianOperator, rhs: Tensor, x0: Tensor | None = None
    ) -> Solution:
        """The smoothing system for a block of columns."""
        lam = torch.tensor(self.lam, dtype=torch.float64, device=rhs.device)
        _, solution = smooth(lap, lam, rhs, self.solver, x0)
        out: Solution = solution
        return out

    def weights(self, sq_dist: Tensor) -> Tensor:
        """Weights, computed as anywhere else, in float64 from there on."""
        return edge_weights(sq_dist, self.theta).double()


@dataclass(frozen=True, eq=False)
class TransformInfo:
    r"""What a transform knows beside the outputs.

    Args:
        num_neighbors (Tensor): Fitted people within the radius of each new one;
            with ``joint=True`` other new people count as well.
        solution (Solution, optional): Certificate of the solve of ``joint=True``, in
            dual coordinates.
    """

    num_neighbors: Tensor = field(repr=False)  # [M]
    solution: Solution | None = None

    @property
    def num_isolated(self) -> int:
        """New people without a neighbour, whose outputs were returned unchanged."""
        return int((self.num_neighbors == 0).sum())


@dataclass(frozen=True, eq=False)
class Fitted:
    """People, their graph and their smoothed outputs; never changed in place."""

    settings: Settings
    x: Tensor  # [N, F]
    y_hat: Tensor  # [N] or [N, C]
    edge_index: Tensor  # [2, E]
    sq_dist: Tensor  # [E]
    solution: Solution  # in dual coordinates, value [N, C]
    names: tuple[Names, Names] = (None, None)  # of features, of outputs

    @cached_property
    def y_fair(self) -> Tensor:
        """Smoothed outputs; those of people without neighbours exactly as given."""
        out = self.settings.from_dual(self.solution.value, self.y_hat)
        return _keep(out, self.y_hat, self.lap.pattern.rowptr.diff() == 0)

    @cached_property
    def lap(self) -> LaplacianOperator:
        """The Laplacian of the fitted graph."""
        return _laplacian(self.settings, self.edge_index, self.sq_dist, len(self.x))

    @cached_property
    def index(self) -> RadiusIndex:
        """Search among the fitted people."""
        settings = self.settings
        return RadiusIndex(self.x, settings.tau, distance=settings.distance, copy=False)

    @cached_property
    def anchors(self) -> Anchors:
        """Degrees that stay fixed while new people come."""
        return Anchors(self.lap)

    @cached_property
    def f(self) -> Tensor:
        """Smoothed outputs in dual coordinates, float64."""
        return self.solution.value.double()

    @property
    def strength(self) -> Tensor:
        """``lam`` times its scale."""
        return self.settings.lam * self.anchors.lam_scale

    def links(self, x_new: Tensor) -> Links:
        """Weighted pairs of new rows and fitted people."""
        row, col, sq_dist = self.index.query(x_new)
        return Links(row, col, self.settings.weights(sq_dist))

    def update(self, x_new: Tensor, y_new: Tensor) -> tuple[Tensor, TransformInfo]:
        """One coordinate update per new person."""
        values, counts = [], []
        for rows in _blocks(len(x_new)):
            value, count = self._update_block(x_new[rows], y_new[rows])
            values.append(value)
            counts.append(count)
        if not values:
            return y_new.clone(), TransformInfo(torch.empty(0, dtype=torch.long))
        return torch.cat(values), TransformInfo(torch.cat(counts))

    def _update_block(self, x_new: Tensor, y_new: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and numbers of neighbours of some new people."""
        size, outer = len(x_new), self.links(x_new)
        rows = self.anchors.entries(outer, Links.none(outer.weight), size)
        eta = self.settings.to_dual(y_new).double()
        pull = outer.matmul(rows.outer, self.f, size)
        eta = eta.addcmul(self.strength, pull)
        eta /= (1.0 + self.strength * rows.diagonal).unsqueeze(1)
        count = torch.bincount(outer.row, minlength=size)
        out = self.settings.from_dual(eta, y_new)
        return _keep(out, y_new, count == 0), count

    def solve_jointly(
        self, x_new: Tensor, y_new: Tensor
    ) -> tuple[Tensor, TransformInfo]:
        """All new people together, fitted ones fixed."""
        settings, size = self.settings, len(x_new)
        if size == 0:
            return self.update(x_new, y_new)
        outer, inner = self.links(x_new), self._links_within(x_new)
        lap = GroundedOperator(self.anchors, outer, inner, size)
        rhs = settings.to_dual(y_new).double()
        pull = outer.matmul(lap.outer, self.f, size)
        solution = settings.solve(lap, rhs.addcmul(self.strength, pull))
        count = torch.bincount(torch.cat([outer.row, inner.row]), minlength=size)
        out = settings.from_dual(solution.value, y_new)
        return _keep(out, y_new, count == 0), TransformInfo(count, solution)

    def _links_within(self, x_new: Tensor) -> Links:
        """Weighted pairs of new people, both directions."""
        settings = self.settings
        edges, sq_dist = fair_radius_graph(
            x_new, settings.tau, distance=settings.distance
        )
        return Links(edges[0], edges[1], settings.weights(sq_dist))

    def extended(self, x: Tensor, y_hat: Tensor) -> "Fitted":
        """The fit with more people, solved from the present solution."""
        settings, old, size = self.settings, len(self.x), len(self.x) + len(x)
        row, col, outer = self.index.query(x)
        inner_edges, inner = fair_radius_graph(
            x, settings.tau, distance=settings.distance
        )
        forth = torch.stack([row + old, col])
        edges = torch.cat([self.edge_index, forth, forth.flip(0), inner_edges + old], 1)
        sq_dist = torch.cat([self.sq_dist, outer, outer, inner])
        order = (edges[0] * size + edges[1]).argsort()
        edges, sq_dist = edges[:, order], sq_dist[order]
        # The inductive step is the natural first guess for those who came.
        guess = settings.to_dual(self.update(x, y_hat)[0]).double()
        lap = _laplacian(settings, edges, sq_dist, size)
        y_hat = torch.cat([self.y_hat, y_hat])
        rhs = settings.to_dual(y_hat)
        solution = settings.solve(lap, rhs, torch.cat([self.f, guess]))
        x = torch.cat([self.x, x])
        out = Fitted(settings, x, y_hat, edges, sq_dist, solution, self.names)
        out.__dict__["lap"] = lap  # fills the cached property
        return out

    def row(self, i: int) -> Solution:
        """Row ``i`` of the inverse; the matrix is symmetric."""
        unit = torch.zeros(len(self.x), 1, dtype=torch.float64, device=self.x.device)
        unit[i] = 1.0
        return replace(self.settings, solver=Auto()).solve(self.lap, unit)

    def row_of_new(self, x_new: Tensor) -> tuple[Solution, float]:
        """Weights of the fitted people in a new person's output, and of their own."""
        outer = self.links(x_new)
        rows = self.anchors.entries(outer, Links.none(outer.weight), 1)
        own = 1.0 / (1.0 + self.strength * rows.diagonal[0])
        rhs = torch.zeros_like(self.f[:, :1])
        rhs[outer.col, 0] = own * self.strength * rows.outer
        found = replace(self.settings, solver=Auto()).solve(self.lap, rhs)
        return found, float(own)

    def dist_from(self, x_row: Tensor, others: Tensor) -> Tensor:  # [1, F], [K] -> [K]
        """Fair distances of one row to fitted people."""
        parts = [
            _distances(self.settings.distance, x_row, self.x[part])
            for part in others.split(_BLOCK)
        ]
        return torch.cat(parts) if parts else x_row.new_empty(0)


def fit_people(
    settings: Settings, x: Tensor, y_hat: Tensor, names: tuple[Names, Names]
) -> Fitted:
    """Searches, weighs and solves."""
    rhs = settings.to_dual(y_hat)  # refuses bad outputs before the search
    edges, sq_dist = fair_radius_graph(x, settings.tau, distance=settings.distance)
    lap = _laplacian(settings, edges, sq_dist, len(x))
    solution = settings.solve(lap, rhs)
    fitted = Fitted(settings, x, y_hat, edges, sq_dist, solution, names)
    fitted.__dict__["lap"] = lap  # fills the cached property
    return fitted


def _laplacian(
    settings: Settings, edges: Tensor, sq_dist: Tensor, size: int
) -> LaplacianOperator:
    """The operator of a graph."""
    weight, form = settings.weights(sq_dist), settings.normalization
    return LaplacianOperator(edges, weight, size, normalization=form)


def _keep(out: Tensor, y: Tensor, alone: Tensor) -> Tensor:
    """Undoes the rounding of a link for people who have nobody to average with."""
    alone = alone.view(-1, *[1] * (y.dim() - 1))
    return torch.where(alone, y, out)


def _blocks(size: int) -> Iterator[slice]:
    """Slices of new people."""
    for start in range(0, size, _BLOCK):
        yield slice(start, start + _BLOCK)


@torch.no_grad()
def _distances(
    distance: Callable[[Tensor, Tensor], Tensor] | None, x1: Tensor, x2: Tensor
) -> Tensor:
    """Fair distances of one row to some."""
    if distance is None:
        return (x2.double() - x1.double()).square_().sum(1).sqrt_().to(x1.dtype)
    return distance(x1, x2)[0]
