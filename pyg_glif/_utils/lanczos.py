"""Smallest eigenvalue of a sparse symmetric matrix."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pyg_glif._utils.collectives import Collectives
from pyg_glif._utils.sparse import Pattern

_DENSE_NODES = 400
_MAX_STEPS = 500
_CHECK_EVERY = 10
_RTOL = 1e-6
_SEED = 0


def smallest_eigenvalue(
    pattern: Pattern, diagonal: Tensor, off_diagonal: Tensor
) -> tuple[float, float]:
    """Bounds on the smallest eigenvalue of ``diag(diagonal) - off_diagonal``.

    Small matrices are decomposed, and the bounds allow for rounding. Larger ones go
    through Lanczos' recurrence from a seeded random vector: the upper bound then holds
    up to rounding; the lower bound is the Ritz value less its residual, true unless
    the start is orthogonal to the eigenvector. No reorthogonalisation: spurious copies
    of extreme values do no harm.
    """
    if pattern.num_nodes <= _DENSE_NODES:
        dense = torch.diag(diagonal)
        dense[pattern.row, pattern.col] = -off_diagonal
        low = float(torch.linalg.eigvalsh(dense)[0])
        # A backward stable method errs by a modest multiple of this (Higham).
        size = float(dense.abs().sum(1).max())
        error = 4.0 * pattern.num_nodes * torch.finfo(torch.float64).eps * size
        return low - error, low + error
    matrix, column = pattern.csr(off_diagonal), diagonal.unsqueeze(1)
    generator = torch.Generator().manual_seed(_SEED)
    # Drawn on the CPU, so that all devices start from the same vector.
    start = torch.randn(column.shape, generator=generator, dtype=torch.float64)
    start = start.to(diagonal.device)
    return lanczos(lambda q: column * q - matrix @ q, start, Collectives())


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, collectives: Collectives
) -> tuple[float, float]:  # start: [N, 1]
    """Bounds from the three-term recurrence, when the smallest Ritz value settles."""
    q = start / collectives.norm(start)
    before = torch.zeros_like(q)
    alphas: list[float] = []
    betas: list[float] = []
    beta = 0.0
    bounds = (-math.inf, math.inf)
    while len(alphas) < _MAX_STEPS:
        step = product(q) - beta * before
        alphas.append(float(collectives.sum(torch.sum(step * q))))
        step -= alphas[-1] * q
        beta = float(collectives.norm(step))
        # Only rounding is left of the next vector: do not divide it by its length.
        done = beta <= 1e-14 * max(map(abs, alphas))
        if done or len(alphas) % _CHECK_EVERY == 0:
            bounds = _ritz_bounds(alphas, betas, beta)
            if done or bounds[1] - bounds[0] <= _RTOL * abs(bounds[1]):
                break
        betas.append(beta)
        before, q = q, step / beta
    return bounds


def _ritz_bounds(
    alphas: list[float], betas: list[float], beta: float
) -> tuple[float, float]:
    """The smallest Ritz value, and the same less its residual norm."""
    off = torch.tensor(betas, dtype=torch.float64)
    tridiagonal = torch.diag(torch.tensor(alphas, dtype=torch.float64))
    tridiagonal += torch.diag(off, 1) + torch.diag(off, -1)
    value, vector = torch.linalg.eigh(tridiagonal)
    ritz = float(value[0])
    return ritz - beta * abs(float(vector[-1, 0])), ritz
