"""Low-dimensional lower bounds on distances, and a k-d order of the points.

For an orthonormal basis Q and the rest ``r = y - Q Q'y``, the triangle inequality
gives ``|y_i - y_j|^2 >= |Q'y_i - Q'y_j|^2 + (|r_i| - |r_j|)^2``: the point
``w = (Q'y, |r|)`` stands in for y, and ``|w_i - w_j|`` never exceeds the distance.
"""

import math

import torch
from torch import Tensor

from pyg_glif.graph._points import Points

_SPLIT_AXES = 16


def principal_basis(
    points: Points, num_directions: int, num_rows: int = 1024, num_rounds: int = 2
) -> Tensor:  # -> [D, M]
    """Leading directions of a sample, most spread first (a randomised range finder).

    Any orthonormal basis is valid; a good one only prunes more.
    """
    rows = points.y[:: max(1, points.num_nodes // num_rows)][:num_rows]
    rows = rows - rows.mean(0)
    # Products of the sample with itself must neither vanish nor overflow; where they
    # still do for some directions, float64 keeps the factorisations finite.
    rows /= rows.abs().max().clamp_(min=torch.finfo(rows.dtype).tiny)
    generator = torch.Generator().manual_seed(0)
    size = (points.num_features, num_directions)
    basis = torch.randn(size, generator=generator, dtype=rows.dtype).to(rows.device)
    for _ in range(num_rounds):
        product = rows.mT @ (rows @ basis)
        basis = torch.linalg.qr(product.double()).Q.to(rows.dtype)
    spread = (rows @ basis).double()
    ascending: Tensor = torch.linalg.eigh(spread.mT @ spread).eigenvectors
    return basis @ ascending.flip(1).to(rows.dtype)


def bound_coordinates(points: Points, basis: Tensor) -> tuple[Tensor, float, float]:
    """Stand-ins ``w [N, M + 1]`` and how far they may overstate a distance.

    The rest is formed before its norm is taken: ``|y|^2 - |Q'y|^2`` would be off by
    the root of the rounding error where the rest is small.

    Returns:
        The coordinates; a factor, since Q is orthonormal only up to rounding (with
        ``e = |Q'Q - I|`` the bound is at most ``sqrt(1 + 2e)`` times the distance);
        and how far rounding may have moved a point.
    """
    blocks = []
    for y in points.y.split(1024):
        p = y @ basis
        rest = torch.addmm(y, p, basis.mT, alpha=-1.0).square_().sum(1, keepdim=True)
        blocks.append(torch.cat([p, rest.sqrt_()], dim=1))
    largest = math.sqrt(float(points.sq_norm.max()))
    return torch.cat(blocks), *bound_errors(basis, largest, points.rounding)


def bound_errors(basis: Tensor, largest: float, rounding: float) -> tuple[float, float]:
    """Factor and offset by which bound coordinates may overstate a distance."""
    gram = basis.mT.double() @ basis.double()
    gram.diagonal().sub_(1.0)
    factor = math.sqrt(1.0 + 2.0 * float(gram.square().sum().sqrt()))
    return factor, 2.0 * (math.sqrt(basis.size(1)) + 2.0) * rounding * largest


def compact_order(w: Tensor, leaf_size: int) -> tuple[Tensor, int]:
    """Permutation that puts nearby points into runs of equal length.

    A balanced k-d tree built level by level: every run is cut at the median of its
    most spread coordinate. Returns the permutation and the length of a run.
    """
    num_points = w.size(0)
    levels = max(0, math.ceil(math.log2(max(1, num_points) / leaf_size)))
    leaf = math.ceil(num_points / 2**levels)
    coords = torch.cat([w[:, :_SPLIT_AXES], w[:, -1:]], dim=1)
    # One more row, which the fillers below look up.
    coords = torch.cat([coords, coords.mean(0, keepdim=True)])
    # Fillers (index num_points) make all runs equally long; they sort last.
    order = torch.arange(leaf * 2**levels, device=w.device).clamp_(max=num_points)
    for level in range(levels):
        runs = order.view(2**level, -1)
        members = coords[runs]
        axis = members.var(1).argmax(1)
        key = members.gather(2, axis.view(-1, 1, 1).expand(*runs.shape, 1)).squeeze(2)
        key = key.masked_fill_(runs == num_points, math.inf)
        order = runs.gather(1, key.argsort(1)).view(-1)
    return order[:num_points], leaf
