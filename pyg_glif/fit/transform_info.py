"""Smoothed outputs of new samples: the inductive update and the joint solve."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pyg_glif.fit._inductive import GroundedOperator, Ties
from pyg_glif.fit._knn_update import Pairs, scales
from pyg_glif.fit.certificate import Certificate, certificate_of
from pyg_glif.fit.fit import Fit
from pyg_glif.fit.fitted_neighbors import FittedNeighbors
from pyg_glif.methods import Uncertainty
from pyg_glif.solvers import Auto, Solution
from pyg_glif.solvers.implicit import smooth

# New samples whose pairs are held at once.
_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class TransformInfo:
    r"""Outputs of a transform, with facts about each.

    Args:
        value (array-like): Smoothed outputs, of the type of those before.
        num_neighbors (Tensor): Number of fitted neighbors of each new sample; with
            ``joint=True`` other new samples count as well.
        solution (Solution, optional): Error bound of the solve of ``joint=True``, in
            dual coordinates.
        certificate (Certificate, optional): Own share and largest gap of each new
            sample; :obj:`None` with ``joint=True``, where they depend on the batch.
        uncertainty (Uncertainty, optional): Standard deviations with their intervals,
            with ``with_std=True``.
        neighbors (FittedNeighbors, optional): Pairs of new samples and their fitted
            neighbors.
    """

    value: Any = field(repr=False)
    num_neighbors: Tensor = field(repr=False)  # [M]
    solution: Solution | None = None
    certificate: Certificate | None = None
    uncertainty: Uncertainty | None = None
    neighbors: FittedNeighbors | None = None

    @property
    def num_isolated(self) -> int:
        """New samples without a neighbor, whose outputs were returned unchanged."""
        return int((self.num_neighbors == 0).sum())


def update(
    fit: Fit,
    x_new: Tensor,
    y_new: Tensor,
    y_std: Tensor | None = None,
    groups: Tensor | None = None,
    *,
    with_info: bool = False,
    with_std: bool = False,
) -> TransformInfo:
    """Outputs of new samples after one coordinate update each, by blocks of rows."""
    values, counts = [y_new[:0]], [torch.empty(0, dtype=torch.long)]
    precision = own_weight(fit, y_std, len(x_new))
    empty = precision[:0]
    certificates = [Certificate(empty.cpu(), empty.cpu(), counts[0], empty.cpu())]
    spread = [(fit.noise_root.value[:0], empty)] if with_std else []
    ties = []
    for start in range(0, len(x_new), _BLOCK):
        rows = slice(start, start + _BLOCK)
        lap = beside(fit, x_new[rows], None if groups is None else groups[rows])
        own = precision[rows]
        value, total = inductive_step(fit, lap, y_new[rows], own)
        values.append(value)
        counts.append(lap.num_neighbors.cpu())
        share = own / total
        if with_info:
            certificates.append(certificate_of(lap, share, value, fit.y_fair))
            ties.append(replace(lap.ties, row=lap.ties.row + start))
        if with_std:
            pull = lap.pull(fit.noise_root.value) * (fit.mu / total).unsqueeze(1)
            noise = 1.0 if y_std is None else y_std[rows].square()
            spread.append((pull, share.square() * noise))
    uncertainty = None
    if with_std:
        pull, own = (torch.cat(part) for part in zip(*spread, strict=True))
        uncertainty = fit.noise_root.uncertainty(pull, own)
    return TransformInfo(
        torch.cat(values),
        torch.cat(counts),
        certificate=Certificate.join(certificates) if with_info else None,
        uncertainty=uncertainty,
        neighbors=_neighbors(fit, ties, len(x_new)) if with_info else None,
    )


def inductive_step(
    fit: Fit, lap: GroundedOperator, y: Tensor, own: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs after one coordinate update, and the sums of weights behind them."""
    value = fit.settings.smoother.update(
        y,
        lap.pull(fit.f),
        lap.diagonal,
        lam_scale=lap.lam_scale,
        precision=own,
        isolated=lap.deg == 0,
    )
    return value, own + fit.mu * lap.diagonal


def solve_jointly(
    fit: Fit,
    x_new: Tensor,
    y_new: Tensor,
    y_std: Tensor | None = None,
    groups: Tensor | None = None,
    *,
    with_info: bool = False,
) -> TransformInfo:
    """Outputs of new samples, solved together while fitted outputs stay fixed."""
    if len(x_new) == 0:
        return update(fit, x_new, y_new, y_std, with_info=with_info)
    lap = beside(fit, x_new, groups, joint=True)
    own, smoother = own_weight(fit, y_std, len(x_new)), fit.settings.smoother
    rhs = smoother.to_dual(y_new).double() * own.unsqueeze(1)
    rhs.addcmul_(fit.mu, lap.pull(fit.f))
    strength, solver = smoother.strength(rhs), fit.settings.solver
    precision = None if y_std is None else own
    _, solution = smooth(lap, strength, rhs, solver, precision=precision)
    value = smoother.from_dual(solution.value, y_new, lap.deg == 0)
    neighbors = _neighbors(fit, [lap.ties], len(x_new)) if with_info else None
    count = lap.num_neighbors.cpu()
    return TransformInfo(value, count, solution, neighbors=neighbors)


def beside(
    fit: Fit,
    x_new: Tensor,
    groups: Tensor | None = None,
    *,
    joint: bool = False,
    pairs: tuple[Tensor, ...] | None = None,
) -> GroundedOperator:
    """System of new samples, each for itself or all together.

    ``groups`` are numbers of their groups, ``[M]``, if the fit is balanced and they are
    known; ``pairs`` the result of a query of the index, if it is known.
    """
    settings = fit.settings
    outer: tuple[Any, ...]
    outer = fit.index.query(x_new, settings.progress) if pairs is None else pairs
    inner: tuple[Any, ...] = tuple(part[:0] for part in outer)
    if joint and settings.k is None:
        graph = settings.search(x_new)
        inner = (*graph.edge_index, graph.sq_dist)
    elif joint:
        outer, inner = _nearest_together(fit, x_new, Pairs(*outer))
    ties = settings.ties(*outer), settings.ties(*inner)
    shares = _tie_shares(fit, *ties, groups)
    return GroundedOperator(fit.lap, *ties, len(x_new), shares)


def own_weight(fit: Fit, y_std: Tensor | None, num: int) -> Tensor:  # [M] float64
    """Weights of new samples' own outputs: one, or their precision."""
    if y_std is None:
        return torch.ones(num, dtype=torch.float64, device=fit.x.device)
    return y_std.square().reciprocal()


def inverse_row(fit: Fit, i: int) -> Solution:
    """Row ``i`` of the inverse, solved as a column: the matrix is symmetric."""
    unit = torch.zeros(len(fit.x), 1, dtype=torch.float64, device=fit.x.device)
    unit[i] = 1.0
    return _weights_of_outputs(fit, unit)


def inverse_row_of_new(fit: Fit, lap: GroundedOperator, total: Tensor) -> Solution:
    """Weights of fitted samples in the output of one new sample."""
    rhs = torch.zeros_like(fit.f[:, :1])
    rhs[lap.tied, 0] = fit.mu * lap.outer / total
    return _weights_of_outputs(fit, rhs)


def _weights_of_outputs(fit: Fit, rhs: Tensor) -> Solution:
    """A solve to default accuracy, whatever the solver of the fit."""
    lam, precision = fit.settings.smoother.strength(rhs), fit.precision
    solution: Solution = smooth(fit.lap, lam, rhs, Auto(), precision=precision)[1]
    if precision is None:
        return solution
    # Rows of the inverse times precisions are weights of outputs.
    return replace(
        solution,
        value=solution.value * precision.unsqueeze(1),
        error_bound=solution.error_bound * precision.max(),
    )


def _tie_shares(
    fit: Fit, outer: Ties, inner: Ties, groups: Tensor | None
) -> tuple[Tensor, Tensor] | None:
    """Factors of the ties of new samples where groups are balanced."""
    if fit.shares is None or fit.sample_info.groups is None:
        return None
    fitted = fit.shares[fit.sample_info.groups.code[outer.col]]
    if groups is None:
        return fitted, torch.ones_like(inner.weight)
    own = fit.shares[groups]
    within = 0.5 * (own[inner.row] + own[inner.col])
    return 0.5 * (own[outer.row] + fitted), within


def _nearest_together(fit: Fit, x_new: Tensor, outer: Pairs) -> tuple[Pairs, Pairs]:
    """Neighbors among the fitted and among the new samples, with ``k``."""
    settings, scale = fit.settings, fit.graph.scale
    assert settings.k is not None
    assert scale is not None
    nearest = Pairs(*fit.forward_index.query(x_new, settings.progress))
    # Not only mutual neighbors: scales need the nearest of all.
    graph = replace(settings, mutual=False).search(x_new)
    row, col = graph.edge_index
    inner = Pairs(row, col, graph.sq_dist)
    own = scales(nearest, inner, len(x_new), settings.k, settings.tau)
    mutual = settings.mutual
    return outer.neighbors(own, scale, mutual), inner.neighbors(own, own, mutual)


def _neighbors(fit: Fit, ties: list[Ties], num_new: int) -> FittedNeighbors:
    """Pairs with fitted samples, from those of blocks of new samples."""
    none = torch.empty(0, dtype=torch.long, device=fit.x.device)
    parts = [Ties(none, none, none.double(), fit.x.new_empty(0)), *ties]
    return FittedNeighbors(
        row=torch.cat([part.row for part in parts]),
        col=torch.cat([part.col for part in parts]),
        weight=torch.cat([part.weight for part in parts]),
        sq_dist=torch.cat([part.sq_dist for part in parts]),
        num_new=num_new,
        outputs=fit.y_fair,
    )
