"""Which of some candidate pairs are edges: the one place that decides.

A pair is an edge iff ``sqrt(sum((z_i - z_j)**2)) <= tau`` in float64. Float32
squared distances with a bound on their error settle almost every pair; the few
whose interval holds ``tau**2`` are evaluated from the definition.
"""

import numpy as np
import torch
from torch import Tensor

from pyg_glif.graph.points import Points

# Float32 results below this share of the squared norms have lost digits.
_CANCELLED = 1.0 / 32.0
_CHUNK_ENTRIES = 1 << 17  # float64 entries per gathered block: stays in cache


def decide(
    left: Points,
    right: Points,
    i: Tensor,
    j: Tensor,
    sq: Tensor,
    norms: Tensor,
    tau: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Keeps the edges among pairs ``(i, j)``.

    Args:
        left: The points that ``i`` counts.
        right: The points that ``j`` counts, with the same centre and scale.
        i: First nodes of the pairs.
        j: Second nodes.
        sq: Squared distances of ``y``, off by ``right.error(norms)`` at most.
        norms: Sums of the two squared norms of ``y``.
        tau: The radius, in the unit of ``z``.

    Returns:
        The kept ``i`` and ``j`` and their squared distances in the dtype of ``z``.
    """
    bound = (tau * right.scale) ** 2
    error = right.error(norms)
    if right.z.dtype == torch.float64:
        unsure = sq <= bound + error
    else:
        unsure = ((sq - bound).abs() <= error) | (sq <= norms * _CANCELLED)
    keep = sq <= bound
    sq_dist = (sq / right.scale**2).to(right.z.dtype)
    where = unsure.nonzero().view(-1)
    if where.numel():
        exact, inside = _evaluate(left.z, right.z, i[where], j[where], tau)
        keep[where] = inside
        sq_dist[where] = exact.to(sq_dist.dtype)
    return i[keep], j[keep], sq_dist[keep]


def _evaluate(
    z: Tensor, z_right: Tensor, i: Tensor, j: Tensor, tau: float
) -> tuple[Tensor, Tensor]:
    """Squared distances in float64 from differences, and whether within ``tau``."""
    step = max(1, _CHUNK_ENTRIES // max(1, z.size(1)))
    parts, flags = [], []
    for rows, cols in zip(i.split(step), j.split(step), strict=True):
        squares = (z[rows].double() - z_right[cols].double()).square_()
        total = squares.sum(1)
        dist = total.sqrt()
        inside = dist <= tau
        # Only here can the order of summation matter.
        slack = 2.0 * (z.size(1) + 2) * torch.finfo(torch.float64).eps * tau
        edge = ((dist - tau).abs() <= slack).nonzero().view(-1)
        if edge.numel():
            inside[edge] = _on_boundary(squares[edge], tau)
        parts.append(total)
        flags.append(inside)
    return torch.cat(parts), torch.cat(flags)


def _on_boundary(squares: Tensor, tau: float) -> Tensor:  # [K, D] -> [K]
    """Settles pairs that lie at ``tau`` up to the last bits.

    Float64 sums differ in their last bits with the order of summation. A radius
    that somebody computed as the distance of a pair must include that pair, so it
    is kept if torch's order, NumPy's or one term after another puts it within.
    """
    host = squares.cpu()
    array = host.numpy()
    sums = [host.sum(1).numpy(), array.sum(1), np.cumsum(array, axis=1)[:, -1]]
    inside = np.sqrt(np.minimum.reduce(sums)) <= tau
    return torch.from_numpy(inside).to(squares.device)
