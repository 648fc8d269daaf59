"""Decision whether a pair is an edge, in one place for all searches.

A pair is an edge iff ``sqrt(sum((z_i - z_j)**2)) <= tau`` in float64, or, where a
function gives the distance, iff what it returns is ``<= tau`` in its own precision.
Float32 squared distances with a bound on their error settle almost every pair; the
few whose interval holds ``tau`` are evaluated from the definition.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from pyg_glif.graph._points import Points

_CHUNK_ENTRIES = 1 << 17  # float64 entries per gathered block: stays in cache
# Up to so many coordinates, evaluating every edge from the definition costs little.
_FEW_FEATURES = 64


def sq_dist_error(dtype: torch.dtype, num_features: int) -> float:
    """Bound on the relative error of the squared distances that edges carry.

    Float32 products are kept for pairs on which they have lost no more than five
    bits (a factor of 32) to cancellation; the others are evaluated in float64.
    """
    if dtype == torch.float64:
        return (num_features + 2) * torch.finfo(dtype).eps
    if num_features <= _FEW_FEATURES:
        return 1e-5
    return 32.0 * (num_features + 16) * torch.finfo(dtype).eps / 2


def decide(
    left: Points,
    right: Points,
    i: Tensor,
    j: Tensor,
    sq: Tensor,
    error: Tensor,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Edges among pairs of ``left`` and ``right``, with squared distances of ``z``.

    ``sq`` are squared distances of ``y``, off by at most ``error``; both sets of
    points have the same center and scale. ``tau`` is in the unit of ``z``.
    """
    bound = right.bound(tau)
    possible = (sq <= bound + error).nonzero().view(-1)
    i, j, sq, error = i[possible], j[possible], sq[possible], error[possible]
    dtype, scale = right.z.dtype, right.scale
    if dtype == torch.float64:
        # Float32 products cannot give distances in float64: all that may be edges are
        # evaluated from the coordinates.
        unsure = torch.ones_like(sq, dtype=torch.bool)
    else:
        inaccurate = error > sq * sq_dist_error(dtype, right.num_features)
        unsure = ((sq - bound).abs() <= error) | inaccurate
    keep = sq <= bound
    sq_dist = (sq / scale / scale).to(dtype)
    where = unsure.nonzero().view(-1)
    if where.numel():
        exact, inside = _evaluate(left.z, right.z, i[where], j[where], tau)
        keep[where] = inside
        sq_dist[where] = exact.to(dtype)
    return i[keep], j[keep], sq_dist[keep]


def called_within(dist: Tensor, tau: float) -> Tensor:
    """Mask of distances from a function that are within ``tau``."""
    return dist <= tau


def edges_within(
    z: Tensor,
    edge_index: Tensor,
    sq_dist: Tensor,
    tau: float,
    z_right: Tensor | None = None,
) -> Tensor:  # [N, D], [2, E], [E] -> [E]
    """Mask of the edges of a search that are edges at a smaller, finite ``tau`` too.

    The answer is that of a search at ``tau``: pairs that the error of ``sq_dist``
    leaves open are evaluated again. ``z_right`` are the points that the second row of
    ``edge_index`` refers to, if they are another set.
    """
    dist = sq_dist.double().sqrt()
    keep = dist <= tau
    # The root halves relative errors; twice what is needed covers its own rounding.
    slack = sq_dist_error(sq_dist.dtype, z.size(1)) * tau
    unsure = (dist - tau).abs_() <= slack
    # Squares that the dtype cannot hold to full precision settle nothing.
    limits = torch.finfo(sq_dist.dtype)
    unsure |= (sq_dist < 2.0**30 * limits.tiny) | (sq_dist > limits.max)
    where = unsure.nonzero().view(-1)
    if where.numel():
        i, j = edge_index[:, where]
        right = z if z_right is None else z_right
        keep[where] = _evaluate(z, right, i, j, tau)[1]
    return keep


def exact_distances(z: Tensor, i: Tensor, j: Tensor) -> Tensor:  # -> [K] float64
    """Smallest ``tau`` at which each pair is an edge."""
    parts = [least_distances(squares) for squares in _squares(z, z, i, j)]
    return torch.cat(parts) if parts else z.new_empty(0, dtype=torch.float64)


def exact_squares(left: Points, right: Points, i: Tensor, j: Tensor) -> Tensor:
    """Squared distances of pairs in float64, in the unit of ``y``: none overflows."""
    squares = _squares(left.z, right.z, i, j, right.scale)
    parts = [part.sum(1) for part in squares]
    return torch.cat(parts) if parts else left.z.new_empty(0, dtype=torch.float64)


def _evaluate(
    z: Tensor, z_right: Tensor, i: Tensor, j: Tensor, tau: float
) -> tuple[Tensor, Tensor]:
    """Squared distances in float64 from differences, and whether within ``tau``."""
    parts, flags = [], []
    for squares in _squares(z, z_right, i, j):
        total = squares.sum(1)
        dist = total.sqrt()
        inside = dist <= tau
        if math.isfinite(tau):
            # Only here can the order of summation matter.
            slack = 2.0 * (z.size(1) + 2) * torch.finfo(torch.float64).eps * tau
            edge = ((dist - tau).abs() <= slack).nonzero().view(-1)
            if edge.numel():
                inside[edge] = least_distances(squares[edge]) <= tau
        parts.append(total)
        flags.append(inside)
    return torch.cat(parts), torch.cat(flags)


def _squares(
    z: Tensor, z_right: Tensor, i: Tensor, j: Tensor, scale: float = 1.0
) -> Iterator[Tensor]:
    """Squared differences of the coordinates of pairs, a chunk at a time."""
    step = max(1, _CHUNK_ENTRIES // max(1, z.size(1)))
    for rows, cols in zip(i.split(step), j.split(step), strict=True):
        # Several times faster than by brackets.
        a, b = z.index_select(0, rows), z_right.index_select(0, cols)
        difference = a.double().sub_(b)
        if scale != 1.0:
            difference *= scale
        yield difference.square_()


def least_distances(squares: Tensor) -> Tensor:  # [K, D] -> [K]
    """Distances, the smallest of those that usual orders of summation give.

    Float64 sums differ in their last bits with the order of summation. A radius
    computed as the distance of a pair must include that pair, so the pair is kept if
    torch's order, NumPy's or one term after another puts it within.
    """
    host = squares.cpu()
    array = host.numpy()
    sums = [host.sum(1).numpy(), array.sum(1), np.cumsum(array, axis=1)[:, -1]]
    least = np.sqrt(np.minimum.reduce(sums))
    return torch.from_numpy(least).to(squares.device)
