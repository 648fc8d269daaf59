"""Small dense systems for several strengths at once."""

import torch
from torch import Tensor

from pyg_glif.solvers.base import SolveStatus

_MAX_ITER = 300
_SAFETY = 0.5


def solve_together(
    diagonal: Tensor,
    off_diagonal: Tensor,
    scale: Tensor,
    strengths: Tensor,
    rhs: Tensor,
    start: Tensor | None = None,
    *,
    is_psd: bool = True,
    rtol: float = 1e-6,
) -> tuple[Tensor, list[SolveStatus]]:
    r"""Solves ``(I + lam * scale * L) f = rhs`` for all ``lam`` in ``strengths``.

    Conjugate gradients on all columns of all strengths side by side: one dense
    product per iteration serves them all. What has not converged is factorised.

    Args:
        diagonal: Diagonal of the Laplacian, ``[N]``.
        off_diagonal: Negated rest of the Laplacian, ``[N, N]``.
        scale: What multiplies every strength, ``[]`` or ``[N]``.
        strengths: Ascending, ``[K]``.
        rhs: Right-hand sides, ``[N, C]`` in float64.
        start: First guess, ``[N, K, C]``.
        is_psd: Whether the Laplacian is known to be positive semi-definite; if not,
            the systems are checked from the largest strength down.
        rtol: Relative residual that every column must meet.

    Returns:
        Solutions ``[N, K, C]`` and a status for each strength. Where there is no
        minimum, the value is the stationary point and the status says so.
    """
    mu = scale.reshape(-1, 1, 1) * strengths.view(1, -1, 1)
    mu = mu.expand(diagonal.numel(), -1, 1)
    block = _Block(diagonal.view(-1, 1, 1), off_diagonal, mu)
    y = rhs.unsqueeze(1).expand(-1, strengths.numel(), -1)
    norm: Tensor = torch.linalg.vector_norm(rhs, dim=0)
    x = block.iterate(y, rtol * norm, start)
    residual = torch.linalg.vector_norm(y - block.product(x), dim=0)
    # Written so that NaN counts as not converged.
    done = (residual <= rtol * norm).all(1).tolist()
    status = [SolveStatus.CONVERGED] * strengths.numel()
    definite = is_psd
    for k in reversed(range(strengths.numel())):
        # A smaller strength moves every eigenvalue towards one: once positive
        # definite, always so. Iterations alone may miss a negative direction.
        if not (definite and done[k]):
            x[:, k], status[k] = block.factorise(k, rhs)
        definite = definite or status[k] is SolveStatus.CONVERGED
    return x, status


class _Block:
    """The systems of all strengths, applied to a block ``[N, K, C]``."""

    def __init__(self, diagonal: Tensor, off_diagonal: Tensor, mu: Tensor) -> None:
        self._alone = diagonal.view(-1) == 0
        self._diagonal = 1.0 + mu * diagonal
        self._off_diagonal = off_diagonal
        self._mu = mu

    def product(self, x: Tensor) -> Tensor:
        """Every system times its own columns."""
        mixed = (self._off_diagonal @ x.flatten(1)).view_as(x)
        return torch.addcmul(self._diagonal * x, self._mu, mixed, value=-1.0)

    def iterate(self, y: Tensor, limit: Tensor, start: Tensor | None) -> Tensor:
        """Conjugate gradients with diagonal scaling, all columns in step."""
        inverse = self._diagonal.reciprocal()
        x = inverse * y if start is None else start.clone()
        x[self._alone] = y[self._alone]  # nobody to average with: unchanged exactly
        r = y - self.product(x)
        z = inverse * r
        p, energy = z.clone(), (r * z).sum(0)
        goal = (_SAFETY * limit).square()
        for _ in range(_MAX_ITER):
            if bool((r.square().sum(0) <= goal).all()):
                break
            image = self.product(p)
            step = _ratio(energy, (p * image).sum(0))
            x.addcmul_(step, p)
            r.addcmul_(step, image, value=-1.0)
            torch.mul(inverse, r, out=z)
            last, energy = energy, (r * z).sum(0)
            p.mul_(_ratio(energy, last)).add_(z)
        return x

    def factorise(self, k: int, rhs: Tensor) -> tuple[Tensor, SolveStatus]:
        """Solves one system directly, and tells whether it has a minimum."""
        matrix = -self._mu[:, k] * self._off_diagonal
        matrix.diagonal().copy_(self._diagonal[:, k, 0])
        factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info) == 0:
            return torch.cholesky_solve(rhs, factor), SolveStatus.CONVERGED
        return torch.linalg.solve(matrix, rhs), SolveStatus.INDEFINITE


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """``a / b``, zero where a column has converged and both vanish."""
    return torch.where(b == 0, 0.0, a / b)
