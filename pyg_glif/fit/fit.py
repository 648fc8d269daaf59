"""What a fit leaves behind, and the steps that need it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_comparable,
    check_count,
    check_features,
    check_finite,
    check_floating,
    check_indices,
    check_integer,
    check_kind,
    check_outputs,
    check_rank,
    check_same_rows,
    check_scalar,
    check_width,
)
from pyg_glif.distances import FairDistance
from pyg_glif.fit._inductive import GroundedOperator, Ties
from pyg_glif.fit._knn_update import Pairs, scales
from pyg_glif.fit.certificate import Certificate, certificate_of
from pyg_glif.fit.fitted_neighbors import Peers
from pyg_glif.fit.sample_info import SampleInfo
from pyg_glif.graph import (
    KNNIndex,
    RadiusIndex,
    SimilarityGraph,
    edge_weights,
    local_weights,
)
from pyg_glif.graph.weights import DECAY
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link, dual_of
from pyg_glif.methods import Noise, Uncertainty
from pyg_glif.methods.group_balance import edge_shares, solve_balanced
from pyg_glif.methods.smoothing_std import NoiseRoot, noise_root
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, Solution, Solver
from pyg_glif.solvers.implicit import smooth
from pyg_glif.typing import Normalization

# What columns are called, if they came in a frame.
Names = tuple[Any, ...] | None

# New people whose pairs are held at once.
_BLOCK = 1 << 14
# Relative error of distances, beyond all that a search allows itself.
_SLACK = 0.01


@dataclass(frozen=True, eq=False)
class Settings:
    """The parameters of a fit, with the radius and the decay that are used."""

    distance: FairDistance | None
    tau: float  # with k a cap, infinite if there is none
    theta: float | None  # none: by the distances from the k-th nearest, and 'decay'
    lam: float
    normalization: Normalization
    solver: Solver
    link: Link | None
    progress: bool | None = None
    k: int | None = None
    mutual: bool = False
    decay: float = DECAY
    asked: Mapping[str, Any] = field(default_factory=dict)  # as the user set them

    def __post_init__(self) -> None:
        check_scalar("tau", self.tau, minimum=0.0, allow_inf=True)
        if self.theta is not None:
            check_scalar("theta", self.theta, minimum=0.0)
        elif self.k is None:
            raise ValueError("'theta' must be a number without 'k' (got None)")
        check_scalar("lam", self.lam, minimum=0.0)
        check_choice("normalization", self.normalization, (None, "nrw", "density"))
        check_kind("solver", self.solver, Solver)
        if self.k is not None:
            check_count("k", self.k)
        check_choice("mutual", self.mutual, (True, False))
        check_scalar("decay", self.decay, minimum=0.0)
        for name in ("tau", "theta"):
            wanted = self.asked.get(name)
            if wanted is not None and float(wanted) != getattr(self, name):
                msg = f"'{name}' must be what was asked for, {wanted}"
                raise ValueError(f"{msg} (got {getattr(self, name)})")

    @classmethod
    def of(
        cls,
        params: Mapping[str, Any],
        tau: float,
        theta: float | None,
        decay: float = DECAY,
    ) -> "Settings":
        """The settings for parameters of a post-processor, a radius and a decay."""
        return cls(
            distance=params["distance"],
            tau=float(tau),
            theta=None if theta is None else float(theta),
            lam=float(params["lam"]),
            normalization=params["normalization"],
            solver=Auto() if params["solver"] is None else params["solver"],
            link=params["link"],
            progress=params.get("progress"),
            k=params["k"],
            mutual=params["mutual"],
            decay=float(decay),
            asked=params,
        )

    @property
    def smoother(self) -> Smoother:
        """How outputs are smoothed."""
        return Smoother(
            self.lam,
            normalization=self.normalization,
            link=self.link,
            solver=self.solver,
        )

    def search(self, x: Tensor) -> SimilarityGraph:
        """Who is similar to whom, without the coordinates that decided it."""
        options: dict[str, Any]
        options = {"distance": self.distance, "progress": self.progress}
        if self.k is None:
            found = SimilarityGraph.search(x, self.tau, **options)
        else:
            options |= {"mutual": self.mutual, "tau": self.tau}
            found = SimilarityGraph.nearest(x, self.k, **options)
        return replace(found, _z=None, _dist=None)

    def weights(self, sq_dist: Tensor, scale: Tensor | None) -> Tensor:
        """Weights of pairs, given the larger scale of each pair."""
        if self.theta is not None:
            return edge_weights(sq_dist, self.theta)
        assert scale is not None
        return local_weights(sq_dist, scale, self.decay)

    def graph_weights(self, graph: SimilarityGraph) -> Tensor:
        """Weights of the edges of a graph."""
        scale = None
        if graph.scale is not None:
            row, col = graph.edge_index
            scale = torch.maximum(graph.scale[row], graph.scale[col])
        return self.weights(graph.sq_dist, scale)

    def ties(
        self, row: Tensor, col: Tensor, sq_dist: Tensor, scale: Tensor | None = None
    ) -> Ties:
        """Pairs with their weights."""
        return Ties(row, col, self.weights(sq_dist, scale).double(), sq_dist)

    def laplacian(self, graph: SimilarityGraph) -> LaplacianOperator:
        """The Laplacian of a graph with these settings."""
        return LaplacianOperator.from_sorted(
            graph.edge_index,
            self.graph_weights(graph),
            graph.num_nodes,
            normalization=self.normalization,
        )


@dataclass(frozen=True, eq=False)
class TransformInfo:
    r"""What a transform knows beside the outputs.

    Args:
        num_neighbors (Tensor): Neighbours of each new person among the fitted ones;
            with ``joint=True`` other new people count as well.
        solution (Solution, optional): Error bound of the solve of ``joint=True``, in
            dual coordinates.
        certificate (Certificate, optional): What holds for each new person;
            :obj:`None` with ``joint=True``, where it depends on who else is new.
        uncertainty (Uncertainty, optional): Standard deviations with their intervals,
            if they were asked for.
        peers (Peers, optional): The neighbours among the fitted people, one by one.
    """

    num_neighbors: Tensor = field(repr=False)  # [M]
    solution: Solution | None = None
    certificate: Certificate | None = None
    uncertainty: Uncertainty | None = None
    peers: Peers | None = None

    @property
    def num_isolated(self) -> int:
        """New people without a neighbour, whose outputs were returned unchanged."""
        return int((self.num_neighbors == 0).sum())


@dataclass(frozen=True, eq=False)
class Fit:
    """SampleInfo, their graph and their smoothed outputs; never changed in place."""

    settings: Settings
    x: Tensor  # [N, F]
    y_hat: Tensor  # [N] or [N, C]
    graph: SimilarityGraph
    lap: LaplacianOperator
    y_fair: Tensor  # smoothed outputs, as y_hat
    solution: Solution  # the solve behind them in dual coordinates, value [N, C]
    names: tuple[Names, Names] = (None, None)  # of features, of outputs
    people: SampleInfo = field(default_factory=SampleInfo)

    def __post_init__(self) -> None:
        x, y_hat, settings = self.x, self.y_hat, self.settings
        check_features("x", x, settings.distance)
        check_outputs("y_hat", y_hat)
        for name, rows in (("y_hat", y_hat), ("value", self.solution.value)):
            check_same_rows(name, rows, "x", x)
        width = None if settings.distance is None else settings.distance.num_features
        check_width("x", x, x.size(1) if width is None else width)
        rule = (self.graph.num_nodes, self.graph.tau, self.graph.k)
        if rule != (len(x), settings.tau, settings.k):
            wanted = f"{len(x)} samples, tau={settings.tau:g}, k={settings.k}"
            raise ValueError(f"'graph' must be of {wanted} (got {self.graph!r})")
        check_solution(self.solution, y_hat[0].numel())
        check_comparable("value", self.solution.value, "y_hat", y_hat.view(len(x), -1))
        if self.y_fair.shape != y_hat.shape:
            msg = f"'y_fair' must have the shape of 'y_hat', {tuple(y_hat.shape)}"
            raise ValueError(f"{msg} (got {tuple(self.y_fair.shape)})")
        for names, size in zip(self.names, (x.size(1), y_hat[0].numel()), strict=True):
            if names is not None and not len(set(names)) == len(names) == size:
                msg = f"'names' must be {size} different names"
                raise ValueError(f"{msg} (got {len(names)})")
        self._check_people()

    def _check_people(self) -> None:
        """Raises unless what is known about samples goes with the rest of the fit."""
        people, balance = self.people, self.solution.balance
        people.check(len(self.x))
        if (people.groups is None) != (balance is None):
            raise ValueError("'groups' must be given if and only if 'balance' is")
        if people.groups is not None and balance is not None:
            check_choice(
                "normalization", self.settings.normalization, (None, "density")
            )
            known = range(len(people.groups.labels))
            if balance.group.tolist() != list(known):
                msg = f"'balance' must be about all {len(known)} groups in order"
                raise ValueError(f"{msg} (got {balance.group.tolist()})")
        if people.features is not None and people.features.places is not None:
            places = torch.tensor(people.features.places)
            check_same_rows("places", places, "names", people.features.values.T)
            check_indices("places", check_integer("places", places), self.x.size(1))

    @property
    def precision(self) -> Tensor | None:  # [N] float64
        """Precisions of outputs in dual coordinates, where they are not all one."""
        return self.people.precision

    @cached_property
    def shares(self) -> Tensor | None:  # [G] float64
        """The factor of ``lam`` for every group, where groups are balanced."""
        groups, balance = self.people.groups, self.solution.balance
        return None if groups is None or balance is None else groups.shares(balance)

    @property
    def graph_lap(self) -> LaplacianOperator:
        """The Laplacian of the graph; ``lap`` has shares of groups in it."""
        return self.lap if self.shares is None else self.settings.laplacian(self.graph)

    @property
    def isolated(self) -> Tensor:
        """Numbers of the people without a neighbour."""
        return (self.lap.pattern.rowptr.diff() == 0).nonzero().flatten()

    @cached_property
    def index(self) -> RadiusIndex | KNNIndex:
        """Search among the fitted people."""
        settings = self.settings
        if settings.k is None:
            return RadiusIndex(
                self.x, settings.tau, distance=settings.distance, copy=False
            )
        return self._nearest_index(self.graph.scale, settings.mutual)

    def wider_index(self, delta: float) -> RadiusIndex:
        """Search for everybody who may be a peer within ``delta`` of a newcomer."""
        held: tuple[float, RadiusIndex] | None = self.__dict__.get("_wider")
        if held is None or held[0] != delta:
            settings = self.settings
            index = RadiusIndex(
                self.x,
                # More than rounding in distances can hide.
                (settings.tau + delta) * (1.0 + _SLACK),
                distance=settings.distance,
                copy=False,
            )
            held = self.__dict__["_wider"] = delta, index
        return held[1]

    @cached_property
    def noise_root(self) -> NoiseRoot:
        """What the noise of fitted people's outputs makes of their smoothed ones."""
        std = self.people.y_std
        if std is None:
            std = torch.ones(len(self.x), dtype=torch.float64, device=self.x.device)
        smoother = Smoother(self.settings.lam)
        return noise_root(smoother, self.lap, Noise(), std, self.precision)

    @cached_property
    def forward_index(self) -> KNNIndex:
        """Search for the nearest fitted people alone, whomever they are nearest to."""
        return self._nearest_index(torch.zeros(len(self.x), dtype=torch.float64), False)

    def _nearest_index(self, scale: Tensor | None, mutual: bool) -> KNNIndex:
        """Search for the nearest among the fitted people."""
        settings = self.settings
        assert settings.k is not None
        return KNNIndex(
            self.x,
            settings.k,
            distance=settings.distance,
            mutual=mutual,
            tau=settings.tau,
            scale=scale,
            copy=False,
        )

    @cached_property
    def f(self) -> Tensor:
        """Smoothed outputs in dual coordinates, float64."""
        return self.solution.value.double()

    def error(self, y_fair: Tensor) -> Tensor:  # [M] or [M, C] -> the same
        """Bound on the numerical error of every output of fitted or of new samples.

        A new sample's is an average of those of its neighbors. What storing outputs
        rounds is included. A link without an ``interval`` of its own is taken to grow.
        """
        link, eps = self.settings.link, torch.finfo(y_fair.dtype).eps
        value = y_fair.double()
        eta = dual_of(link, value)
        bound = self.solution.error_bound.double().reshape(eta.shape[1:])
        half = bound + eps * eta.abs()
        low, high = eta - half, eta + half
        if link is not None:
            try:
                low, high = link.interval(low, high)
            except TypeError:
                low, high = link.from_dual(low), link.from_dual(high)
        widest = torch.maximum((high - value).abs(), (value - low).abs())
        return widest + 2.0 * eps * value.abs()

    @property
    def mu(self) -> Tensor:
        """``lam`` times the factor by which the Laplacian scales it."""
        return self.settings.lam * self.lap.lam_scale

    def beside(
        self,
        x_new: Tensor,
        *,
        joint: bool = False,
        groups: Tensor | None = None,
        found: tuple[Tensor, ...] | None = None,
    ) -> GroundedOperator:
        """The system of new people, each for themselves or all together.

        ``groups`` are numbers of their groups, ``[M]``, if the fit is balanced and
        they are known; ``found`` what a query of the index returns, if it is known.
        """
        settings = self.settings
        if found is None:
            found = self.index.query(x_new, settings.progress)
        outer, inner = found, tuple(part[:0] for part in found)
        if joint and settings.k is None:
            graph = settings.search(x_new)
            inner = (*graph.edge_index, graph.sq_dist)
        elif joint:
            outer, inner = self._nearest_together(x_new, *found)
        ties = settings.ties(*outer), settings.ties(*inner)
        shares = self._shares_of(*ties, groups)
        return GroundedOperator(self.lap, *ties, len(x_new), shares)

    def _shares_of(
        self, outer: Ties, inner: Ties, groups: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        """What balance multiplies the ties of new people by."""
        if self.shares is None or self.people.groups is None:
            return None
        theirs = self.shares[self.people.groups.code[outer.col]]
        if groups is None:
            return theirs, torch.ones_like(inner.weight)
        own = self.shares[groups]
        within = 0.5 * (own[inner.row] + own[inner.col])
        return 0.5 * (own[outer.row] + theirs), within

    def _nearest_together(self, x_new: Tensor, *found: Tensor) -> tuple[Any, Any]:
        """Pairs of new and fitted people, and of new people, of everybody's nearest."""
        settings, scale = self.settings, self.graph.scale
        assert settings.k is not None
        assert scale is not None
        near = Pairs(*self.forward_index.query(x_new, settings.progress))
        # Not the mutual ones alone: scales need the nearest of everybody.
        graph = replace(settings, mutual=False).search(x_new)
        row, col = graph.edge_index
        inner = Pairs(row, col, graph.sq_dist)
        own = scales(near, inner, len(x_new), settings.k, settings.tau)
        mutual = settings.mutual
        outer = Pairs(*found).counted(own, scale, mutual)
        return outer, inner.counted(own, own, mutual)

    def update(
        self,
        x_new: Tensor,
        y_new: Tensor,
        y_std: Tensor | None = None,
        groups: Tensor | None = None,
        *,
        with_info: bool = False,
        with_std: bool = False,
    ) -> tuple[Tensor, TransformInfo]:
        """Outputs of new people after one coordinate update each, by blocks of rows."""
        values, counts = [y_new[:0]], [torch.empty(0, dtype=torch.long)]
        precision = self.own_weight(y_std, len(x_new))
        none = precision[:0]
        certificates = [Certificate(none.cpu(), none.cpu(), counts[0], none.cpu())]
        spread = [(self.noise_root.value[:0], none)] if with_std else []
        ties = []
        for start in range(0, len(x_new), _BLOCK):
            rows = slice(start, start + _BLOCK)
            part = None if groups is None else groups[rows]
            lap, y = self.beside(x_new[rows], groups=part), y_new[rows]
            own = precision[rows]
            value = self.settings.smoother.update(
                y,
                lap.pull(self.f),
                lap.diagonal,
                lam_scale=lap.lam_scale,
                precision=own,
                isolated=lap.deg == 0,
            )
            values.append(value)
            counts.append(lap.num_neighbors.cpu())
            total = own + self.mu * lap.diagonal
            share = own / total
            if with_info:
                found = certificate_of(lap, share, values[-1], self.y_fair)
                certificates.append(found)
                ties.append(replace(lap.ties, row=lap.ties.row + start))
            if with_std:
                pull = lap.pull(self.noise_root.value) * (self.mu / total).unsqueeze(1)
                noise = 1.0 if y_std is None else y_std[rows].square()
                spread.append((pull, share.square() * noise))
        certificate = Certificate.join(certificates) if with_info else None
        uncertainty = None
        if with_std:
            pull, own = (torch.cat(part) for part in zip(*spread, strict=True))
            uncertainty = self.noise_root.uncertainty(pull, own)
        info = TransformInfo(
            torch.cat(counts),
            certificate=certificate,
            uncertainty=uncertainty,
            peers=self._peers(ties, len(x_new)) if with_info else None,
        )
        return torch.cat(values), info

    def _peers(self, ties: list[Ties], num_new: int) -> Peers:
        """Pairs with fitted people, from those of blocks of newcomers."""
        none = torch.empty(0, dtype=torch.long, device=self.x.device)
        blank = Ties(none, none, none.double(), self.x.new_empty(0))
        found = [blank, *ties]
        return Peers(
            row=torch.cat([part.row for part in found]),
            col=torch.cat([part.col for part in found]),
            weight=torch.cat([part.weight for part in found]),
            sq_dist=torch.cat([part.sq_dist for part in found]),
            num_new=num_new,
            outputs=self.y_fair,
        )

    def own_weight(self, y_std: Tensor | None, num: int) -> Tensor:  # [M] float64
        """What new people's own outputs weigh: one, or their precision."""
        if y_std is None:
            return torch.ones(num, dtype=torch.float64, device=self.x.device)
        return y_std.square().reciprocal()

    def solve_jointly(
        self,
        x_new: Tensor,
        y_new: Tensor,
        y_std: Tensor | None = None,
        groups: Tensor | None = None,
        *,
        with_info: bool = False,
    ) -> tuple[Tensor, TransformInfo]:
        """Outputs of new people, solved together while fitted outputs stay fixed."""
        if len(x_new) == 0:
            return self.update(x_new, y_new, y_std, with_info=with_info)
        lap = self.beside(x_new, joint=True, groups=groups)
        own = self.own_weight(y_std, len(x_new))
        smoother, precision = self.settings.smoother, None if y_std is None else own
        rhs = smoother.to_dual(y_new).double() * own.unsqueeze(1)
        rhs.addcmul_(self.mu, lap.pull(self.f))
        strength, solver = smoother.strength(rhs), self.settings.solver
        _, solution = smooth(lap, strength, rhs, solver, precision=precision)
        value = smoother.from_dual(solution.value, y_new, lap.deg == 0)
        peers = self._peers([lap.ties], len(x_new)) if with_info else None
        return value, TransformInfo(lap.num_neighbors.cpu(), solution, peers=peers)

    def extended(self, x: Tensor, y_hat: Tensor, people: SampleInfo) -> "Fit":
        """The fit with more people, solved from the present solution."""
        settings, everybody = self.settings, torch.cat([self.x, x])
        if settings.k is None:
            graph = self._extended_graph(x)
        else:  # who is among the nearest of fitted people changes, too
            graph = settings.search(everybody)
        # The inductive step is the natural first guess for those who came.
        guess = settings.smoother.to_dual(
            self.update(x, y_hat, people.y_std)[0]
        ).double()
        start, y_hat = torch.cat([self.f, guess]), torch.cat([self.y_hat, y_hat])
        people = self.people.joined(people)
        return _solved(settings, everybody, y_hat, graph, self.names, people, start)

    def without(self, gone: Tensor) -> "Fit":  # [N] bool
        """The fit without some people, solved from the present solution."""
        settings, stay = self.settings, ~gone
        keep = stay.nonzero().flatten()
        x = self.x.index_select(0, keep)
        # Of the nearest of those who stay, others take the places of those who left.
        graph = self._reduced_graph(stay) if settings.k is None else settings.search(x)
        people, y_hat = self.people.only(keep), self.y_hat[stay]
        lap = settings.laplacian(graph)
        if settings.k is None:
            lap.keep_components(self.lap, keep)
        start = self.f[keep]
        if self.shares is None and lap.is_psd and settings.lam > 0:
            start = self._mended(lap, people, y_hat, start, gone)
        return _solved(settings, x, y_hat, graph, self.names, people, start, lap)

    def _mended(
        self,
        lap: LaplacianOperator,
        people: SampleInfo,
        y_hat: Tensor,
        f: Tensor,
        gone: Tensor,
    ) -> Tensor:  # [N, C]
        """The present solution of those who stay, solved anew where somebody left.

        A first guess: people who are connected to nobody who left are not affected, so
        the components of those who left are solved by themselves, if they are small.
        """
        row, col = lap.pattern.row, lap.pattern.col
        label, sizes = self.lap.components
        left = torch.zeros_like(sizes, dtype=torch.bool)
        left[label[gone]] = True
        near = left[label[~gone]]
        size = int(near.sum())
        if not 0 < size <= len(f) // 2:
            return f
        own = people.precision
        own = torch.ones_like(lap.deg[near]) if own is None else own[near]
        edge = near.index_select(0, row).nonzero().flatten()
        i, j = row[edge], col[edge]
        t = self.settings.lam * lap.lam_scale * lap.off_diagonal[edge]
        eta = self.settings.smoother.to_dual(y_hat[near]).double()
        residual = own.unsqueeze(1) * (eta - f[near])
        place, inside = near.cumsum(0) - 1, near[j]
        pull = t.unsqueeze(1) * (f[i] - f[j])
        residual.index_add_(0, place[i], pull, alpha=-1.0)
        ends = torch.stack([place[i[inside]], place[j[inside]]])
        local = LaplacianOperator.from_sorted(ends, t[inside], size)
        # Whoever is held fixed acts as precision of those tied to them.
        held = own.index_add(0, place[i[~inside]], t[~inside])
        one = torch.ones_like(held[0])
        f[near] += smooth(local, one, residual, Auto(), precision=held)[0]
        return f

    def _reduced_graph(self, stay: Tensor) -> SimilarityGraph:  # [N] bool
        """The graph of those who stay, without a search."""
        ends, number = self.graph.edge_index, stay.cumsum(0) - 1
        row, col = (stay.index_select(0, end) for end in ends)
        keep = (row & col).nonzero().flatten()
        edges = ends.new_empty(2, len(keep))
        for end, out in zip(ends, edges, strict=True):
            torch.index_select(number, 0, end.index_select(0, keep), out=out)
        sq_dist, size = self.graph.sq_dist.index_select(0, keep), int(stay.sum())
        return SimilarityGraph.from_sorted(edges, sq_dist, size, self.settings.tau)

    def _extended_graph(self, x: Tensor) -> SimilarityGraph:
        """The graph with more people; only pairs with them are searched for."""
        settings, old, size = self.settings, len(self.x), len(self.x) + len(x)
        row, col, outer = self.index.query(x, settings.progress)[:3]
        inner = settings.search(x)
        forth = torch.stack([row + old, col])
        parts = [self.graph.edge_index, forth, forth.flip(0), inner.edge_index + old]
        edges = torch.cat(parts, 1)
        sq_dist = torch.cat([self.graph.sq_dist, outer, outer, inner.sq_dist])
        # By row, then by column, as a search returns edges.
        order = (edges[0] * size + edges[1]).argsort()
        edges, sq_dist = edges[:, order], sq_dist[order]
        return SimilarityGraph.from_sorted(edges, sq_dist, size, settings.tau)

    def row(self, i: int) -> Solution:
        """Row ``i`` of the inverse, solved as a column: the matrix is symmetric."""
        unit = torch.zeros(len(self.x), 1, dtype=torch.float64, device=self.x.device)
        unit[i] = 1.0
        return self._explained(unit)

    def row_of_new(
        self, x_new: Tensor, y_std: Tensor | None = None, groups: Tensor | None = None
    ) -> tuple[Solution, float]:
        """Weights of the fitted people in a new person's output, and of their own."""
        lap = self.beside(x_new, groups=groups)
        weight = self.own_weight(y_std, 1)[0]
        total = weight + self.mu * lap.diagonal[0]
        rhs = torch.zeros_like(self.f[:, :1])
        rhs[lap.tied, 0] = self.mu * lap.outer / total
        return self._explained(rhs), float(weight / total)

    def _explained(self, rhs: Tensor) -> Solution:
        """A solve to default accuracy, whatever the solver of the fit."""
        lam, precision = self.settings.smoother.strength(rhs), self.precision
        solution: Solution = smooth(self.lap, lam, rhs, Auto(), precision=precision)[1]
        if precision is None:
            return solution
        # Rows of the inverse times precisions are weights of outputs.
        return replace(
            solution,
            value=solution.value * precision.unsqueeze(1),
            error_bound=solution.error_bound * precision.max(),
        )

    @torch.no_grad()
    def dist_from(self, x_row: Tensor, others: Tensor) -> Tensor:  # [1, F], [K] -> [K]
        """Fair distances of one row to fitted people."""
        distance = self.settings.distance
        parts = [x_row.new_empty(0)]
        for part in others.split(_BLOCK):
            if distance is None:
                apart = self.x[part].double() - x_row.double()
                parts.append(apart.square_().sum(1).sqrt_().to(x_row.dtype))
            else:
                parts.append(distance(x_row, self.x[part])[0])
        return torch.cat(parts)


def check_solution(solution: Solution, num_columns: int) -> None:
    """Raises on what no solve of so many columns returns."""
    value = solution.value
    check_floating("value", value)
    check_rank("value", value, 2)
    check_width("value", value, num_columns)
    check_count("num_iter", solution.num_iter, minimum=0)
    check_kind("solver", solution.solver, str)
    sound = not solution.status.is_failure
    if sound:
        check_finite("value", value)
    for name in ("residual", "error_bound"):
        size = getattr(solution, name)
        if size.dtype != torch.float64 or size.shape != (num_columns,):
            msg = f"'{name}' must be float64 with one entry per column"
            got = f"{size.dtype}, shape {tuple(size.shape)} for {num_columns}"
            raise ValueError(f"{msg} (got {got})")
        low = float(size.min())
        if low < 0 or (sound and low != low):
            raise ValueError(f"'{name}' must be non-negative (got {low:g})")


def fit_people(
    settings: Settings,
    x: Tensor,
    y_hat: Tensor,
    names: tuple[Names, Names],
    people: SampleInfo,
    graph: SimilarityGraph | None = None,
) -> Fit:
    """Searches the neighbours of everybody, unless known, and smooths outputs."""
    settings.smoother.to_dual(y_hat)  # refuses bad outputs before the search
    if graph is None:
        graph = settings.search(x)
    elif settings.k is not None:
        msg = f"'graph' must be left out with 'k' (got {graph!r})"
        raise ValueError(f"{msg}. It does not tell whether nearest are mutual")
    elif (graph.num_nodes, graph.tau, graph.k) != (len(x), settings.tau, None):
        msg = f"'graph' must join the {len(x)} rows of 'x' within {settings.tau:g}"
        raise ValueError(f"{msg} (got {graph!r}). Leave it out to search")
    graph = replace(graph, _z=None, _dist=None)
    return _solved(settings, x, y_hat, graph, names, people)


def _solved(
    settings: Settings,
    x: Tensor,
    y_hat: Tensor,
    graph: SimilarityGraph,
    names: tuple[Names, Names],
    people: SampleInfo,
    x0: Tensor | None = None,
    lap: LaplacianOperator | None = None,
) -> Fit:
    """The fit of people whose graph, and maybe its Laplacian, is known."""
    lap = settings.laplacian(graph) if lap is None else lap
    smoother, eta = settings.smoother, settings.smoother.to_dual(y_hat)
    if people.groups is None:
        solution = smoother.solve_dual(lap, eta, precision=people.precision, x0=x0)
    else:
        solution = solve_balanced(smoother, lap, eta, people.groups.code, x0=x0)
    value = smoother.from_dual(solution.value, y_hat, lap.deg == 0)
    lap = balanced(lap, people, solution)
    return Fit(settings, x, y_hat, graph, lap, value, solution, names, people)


def balanced(
    lap: LaplacianOperator, people: SampleInfo, solution: Solution
) -> LaplacianOperator:
    """The Laplacian with the shares of groups in it, if a fit has balanced them."""
    if people.groups is None or solution.balance is None:
        return lap
    shares = people.groups.shares(solution.balance)
    return lap.reweighted(edge_shares(lap, shares[people.groups.code]))
