"""A fit: settings, samples, their similarity graph, their smoothed outputs."""

from collections.abc import Sequence
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
    check_width,
)
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.fit.sample_info import SampleInfo, check_ids
from pyg_glif.fit.settings import FitSettings
from pyg_glif.graph import KNNIndex, RadiusIndex, SimilarityGraph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import dual_of
from pyg_glif.methods import Noise
from pyg_glif.methods.group_balance import edge_shares, solve_balanced
from pyg_glif.methods.smoothing_std import NoiseRoot, noise_root
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Solution

# Names of columns, None if they were not in a frame.
Names = tuple[Any, ...] | None

# Rows of distances that are held at once.
_BLOCK = 1 << 14
# Relative error of distances, beyond all that a search allows itself.
_SLACK = 0.01


@dataclass(frozen=True, eq=False)
class Fit:
    """Settings, samples, their graph and their smoothed outputs; immutable.

    Tensors are not copies: do not write to them.

    Args:
        settings (FitSettings): Parameters, with the radius and the decay in use.
        x (Tensor): Features, :math:`(N, F)`.
        y_hat (Tensor): Outputs of the model, :math:`(N)` or :math:`(N, C)`.
        graph (SimilarityGraph): Similarity graph of the samples.
        lap (LaplacianOperator): Its Laplacian, times shares if groups are balanced.
        y_fair (Tensor): Smoothed outputs, like ``y_hat``.
        solution (Solution): The solve behind them, in dual coordinates,
            :math:`(N, C)`.
        names (tuple): Names of the columns of features and of outputs, each
            :obj:`None` if not known.
        sample_info (SampleInfo): Ids, precisions, groups and readable features.
    """

    settings: FitSettings
    x: Tensor
    y_hat: Tensor
    graph: SimilarityGraph
    lap: LaplacianOperator
    y_fair: Tensor
    solution: Solution
    names: tuple[Names, Names] = (None, None)
    sample_info: SampleInfo = field(default_factory=SampleInfo)

    @classmethod
    def solve(
        cls,
        settings: FitSettings,
        x: Tensor,
        y_hat: Tensor,
        graph: SimilarityGraph,
        names: tuple[Names, Names],
        sample_info: SampleInfo,
        x0: Tensor | None = None,
        lap: LaplacianOperator | None = None,
    ) -> "Fit":
        """Fit of samples whose graph is known, from the first guess ``x0``."""
        lap = settings.laplacian(graph) if lap is None else lap
        smoother, groups = settings.smoother, sample_info.groups
        eta, precision = smoother.to_dual(y_hat), sample_info.precision
        if groups is None:
            solution = smoother.solve_dual(lap, eta, precision=precision, x0=x0)
        else:
            solution = solve_balanced(smoother, lap, eta, groups.code, x0=x0)
        value = smoother.from_dual(solution.value, y_hat, lap.deg == 0)
        lap = balanced(lap, sample_info, solution)
        return cls(settings, x, y_hat, graph, lap, value, solution, names, sample_info)

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
        self._check_sample_info()

    def _check_sample_info(self) -> None:
        """Raises unless facts about samples agree with the rest of the fit."""
        info, balance = self.sample_info, self.solution.balance
        info.check(len(self.x))
        if (info.groups is None) != (balance is None):
            raise ValueError("'groups' must be given if and only if 'balance' is")
        if info.groups is not None and balance is not None:
            check_choice(
                "normalization", self.settings.normalization, (None, "density")
            )
            known = range(len(info.groups.labels))
            if balance.group.tolist() != list(known):
                msg = f"'balance' must be about all {len(known)} groups in order"
                raise ValueError(f"{msg} (got {balance.group.tolist()})")
        if info.features is not None and info.features.places is not None:
            places = torch.tensor(info.features.places)
            check_same_rows("places", places, "names", info.features.values.T)
            check_indices("places", check_integer("places", places), self.x.size(1))

    def described(
        self,
        features: Any,
        *,
        ids: Any = None,
        table: Any = None,
        output_names: Sequence[Any] | None = None,
    ) -> "Fit":
        """The same fit with readable features; see the post-processor."""
        if table is None:
            known = DisplayFeatures.of(features)
        else:
            known = DisplayFeatures.of_table(features, table)
        if len(known) != len(self.x):
            msg = "'features' must have a row for each fitted sample"
            raise ValueError(f"{msg} (got {len(known)} for {len(self.x)})")
        if output_names is not None:
            width = self.y_hat[:1].numel()
            if len(output_names) != width:
                msg = f"'output_names' must have {width} entries, one per output"
                raise ValueError(f"{msg} (got {len(output_names)})")
            known = replace(known, outputs=tuple(map(str, output_names)))
        info = replace(self.sample_info, features=known)
        if ids is not None:
            info = replace(info, ids=check_ids(ids, len(self.x)))
        return replace(self, sample_info=info)

    @property
    def precision(self) -> Tensor | None:  # [N] float64
        """Precisions of outputs in dual coordinates, where they are not all one."""
        return self.sample_info.precision

    @cached_property
    def shares(self) -> Tensor | None:  # [G] float64
        """Factor of ``lam`` for every group, where groups are balanced."""
        groups, balance = self.sample_info.groups, self.solution.balance
        return None if groups is None or balance is None else groups.shares(balance)

    @property
    def graph_lap(self) -> LaplacianOperator:
        """Laplacian of the graph; ``lap`` has shares of groups in it."""
        return self.lap if self.shares is None else self.settings.laplacian(self.graph)

    @property
    def mu(self) -> Tensor:
        """``lam`` times the factor by which the Laplacian scales it."""
        return self.settings.lam * self.lap.lam_scale

    @cached_property
    def f(self) -> Tensor:
        """Smoothed outputs in dual coordinates, float64."""
        return self.solution.value.double()

    @property
    def isolated(self) -> Tensor:
        """Rows without a neighbor."""
        return (self.lap.pattern.rowptr.diff() == 0).nonzero().flatten()

    @property
    def share_joined(self) -> float:
        """Share of all pairs of samples that are neighbors."""
        size = len(self.x)
        return self.graph.num_edges / max(1, size * (size - 1))

    @cached_property
    def noise_root(self) -> NoiseRoot:
        """Root of the covariance of smoothed outputs under noise of all outputs."""
        std = self.sample_info.y_std
        if std is None:
            std = torch.ones(len(self.x), dtype=torch.float64, device=self.x.device)
        smoother = Smoother(self.settings.lam)
        return noise_root(smoother, self.lap, Noise(), std, self.precision)

    @cached_property
    def index(self) -> RadiusIndex | KNNIndex:
        """Search among the fitted samples."""
        if self.settings.k is None:
            return self._radius_index(self.settings.tau)
        return self._nearest_index(self.graph.scale, self.settings.mutual)

    @cached_property
    def forward_index(self) -> KNNIndex:
        """Search for the nearest fitted samples, whatever is nearest to them."""
        return self._nearest_index(torch.zeros(len(self.x), dtype=torch.float64), False)

    def wider_index(self, delta: float) -> RadiusIndex:
        """Search for all possible neighbors of samples within ``delta`` of a query."""
        held: tuple[float, RadiusIndex] | None = self.__dict__.get("_wider")
        if held is None or held[0] != delta:
            # More than rounding in distances can hide.
            index = self._radius_index((self.settings.tau + delta) * (1.0 + _SLACK))
            held = self.__dict__["_wider"] = delta, index
        return held[1]

    def _radius_index(self, tau: float) -> RadiusIndex:
        """Search for fitted samples within a radius."""
        return RadiusIndex(self.x, tau, distance=self.settings.distance, copy=False)

    def _nearest_index(self, scale: Tensor | None, mutual: bool) -> KNNIndex:
        """Search for the nearest fitted samples."""
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

    def error(self, y_fair: Tensor) -> Tensor:  # [M] or [M, C] -> the same
        """Bound on the numerical error of every output of fitted or of new samples.

        A new sample's is an average of those of its neighbors. Rounding in storage is
        included. A link without an ``interval`` of its own is taken to grow.
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
        # Links may turn infinite bounds, of a solver that gave up, into no number.
        widest = torch.where(widest.isnan(), torch.inf, widest)
        return widest + 2.0 * eps * value.abs()

    @torch.no_grad()
    def dist_from(self, x_row: Tensor, others: Tensor) -> Tensor:  # [1, F], [K] -> [K]
        """Fair distances of one row to fitted samples."""
        distance = self.settings.distance
        parts = [x_row.new_empty(0)]
        for part in others.split(_BLOCK):
            if distance is None:
                difference = self.x[part].double() - x_row.double()
                parts.append(difference.square_().sum(1).sqrt_().to(x_row.dtype))
            else:
                parts.append(distance(x_row, self.x[part])[0])
        return torch.cat(parts)


def balanced(
    lap: LaplacianOperator, sample_info: SampleInfo, solution: Solution
) -> LaplacianOperator:
    """Laplacian with the shares of groups in it, if a fit has balanced them."""
    groups = sample_info.groups
    if groups is None or solution.balance is None:
        return lap
    shares = groups.shares(solution.balance)
    return lap.reweighted(edge_shares(lap, shares[groups.code]))


def check_solution(solution: Solution, num_columns: int) -> None:
    """Raises on values that no solve of so many columns returns."""
    value = solution.value
    check_floating("value", value)
    check_rank("value", value, 2)
    check_width("value", value, num_columns)
    check_count("num_iter", solution.num_iter, minimum=0)
    check_kind("solver", solution.solver, str)
    succeeded = not solution.status.is_failure
    if succeeded:
        check_finite("value", value)
    for name in ("residual", "error_bound"):
        size = getattr(solution, name)
        if size.dtype != torch.float64 or size.shape != (num_columns,):
            msg = f"'{name}' must be float64 with one entry per column"
            got = f"{size.dtype}, shape {tuple(size.shape)} for {num_columns}"
            raise ValueError(f"{msg} (got {got})")
        low = float(size.min())
        if low < 0 or (succeeded and low != low):
            raise ValueError(f"'{name}' must be non-negative (got {low:g})")
