"""Choice of the search strategy, by an estimate of the work from a sample."""

import torch
from torch import Tensor

from pyg_glif.graph._kd_order import bound_coordinates, principal_basis
from pyg_glif.graph._memory import NearestSample, sample_nodes
from pyg_glif.graph._points import Points, Strategy

# Work per pair in units of one multiply-add of a matrix product, as measured:
# comparing and scanning one entry of a block, one term of a candidate's inner
# product, and everything else that is done for a candidate.
_SCAN, _FINISH_TERM, _FINISH = 25.0, 10.0, 7000.0
_TILES_LEFT = 0.5  # share of the tile pairs that boxes leave, a cautious guess
_HOPELESS = 0.25  # share of candidates that no finer basis makes worthwhile
_SMALL = 1024  # up to here any choice is quick and everything fits
_WIDTHS = (16, 32, 64, 128)


def choose_basis(
    points: Points,
    tau: float,
    strategy: Strategy = "auto",
    nearest: NearestSample | None = None,
) -> Tensor | None:
    """Basis of the cheaper search, for all pairs within ``tau`` or for the nearest.

    Returns:
        The basis ``[D, M]`` of the projected search, or ``None`` for the plain one.
    """
    width = points.num_features
    small = points.num_nodes <= _SMALL
    if nearest is not None and points.batch is not None:
        small = int(points.batch.bincount().max()) <= _SMALL
    if strategy == "plain" or (strategy == "auto" and small):
        return None
    reach: float | Tensor = tau * points.scale
    if nearest is not None:
        reach = nearest.reach
    if strategy == "auto" and width > 2 * _WIDTHS[-1]:
        # Where nothing decays, a coarse basis shows it at a tenth of the cost.
        coarse = principal_basis(points, _WIDTHS[1], num_rows=512, num_rounds=1)
        if _candidate_shares(points, reach, coarse, [_WIDTHS[1]])[0] > _HOPELESS:
            return None
    basis = principal_basis(points, min(_WIDTHS[-1], width))
    num_directions = choose_width(points, reach, basis, strategy)
    return None if num_directions is None else basis[:, :num_directions].contiguous()


def choose_width(
    points: Points,
    reach: float | Tensor,
    basis: Tensor,
    strategy: Strategy = "auto",
) -> int | None:
    """Number of directions of the cheapest search; :obj:`None` for the plain one.

    ``reach`` is the radius in the unit of ``y``, or, for the nearest, that of some
    points.
    """
    width = points.num_features
    widths = [m for m in _WIDTHS if m < basis.size(1)] + [basis.size(1)]
    edges, *shares = _candidate_shares(points, reach, basis, [width + 1, *widths])
    tiles_left = _TILES_LEFT
    if not isinstance(reach, float) and shares[0] > _HOPELESS:
        tiles_left = 1.0  # boxes of a few coordinates will rule nothing out
    costs = [
        _projected_cost(points, m, share, tiles_left)
        for m, share in zip(widths, shares, strict=True)
    ]
    plain = width + _SCAN + edges * _FINISH
    if strategy == "auto" and plain <= min(costs):
        return None
    return widths[costs.index(min(costs))]


def _candidate_shares(
    points: Points, reach: float | Tensor, basis: Tensor, widths: list[int]
) -> list[float]:
    """Share of a sample of pairs that each number of coordinates would leave.

    A width beyond the basis stands for all coordinates, so for the edges themselves.
    """
    nodes = sample_nodes(points)
    y = points.y[nodes]
    sampled = Points(y, y, points.sq_norm[nodes], None, 1.0, None)
    w, _, _ = bound_coordinates(sampled, basis)
    cut = min(256 if isinstance(reach, float) else len(reach), nodes.numel() // 2)
    shares = []
    for m in widths:
        rest = w[:, m:].square().sum(1, keepdim=True).sqrt()
        c = y if m > basis.size(1) else torch.cat([w[:, :m], rest], dim=1)
        # By a matrix product: good enough to count with.
        dist = torch.cdist(c[:cut], c[cut:], compute_mode="use_mm_for_euclid_dist")
        within = dist <= (reach if isinstance(reach, float) else reach[:cut])
        shares.append(float(within.float().mean()))
    return shares


def _projected_cost(
    points: Points, num_directions: int, share: float, tiles_left: float
) -> float:
    """Work per pair of the projected search."""
    width = points.num_features
    setup = 4.0 * width * num_directions / points.num_nodes
    scan = tiles_left * (num_directions + _SCAN)
    return setup + scan + share * (_FINISH_TERM * width + _FINISH)
