"""Systems for several strengths at once."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.sparse import csr_tensor
from pyg_glif.errors import ConvergenceWarning
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers._extended_precision import gamma
from pyg_glif.solvers.auto import Auto
from pyg_glif.solvers.base import Solver, SolveStatus
from pyg_glif.solvers.cholesky import Cholesky
from pyg_glif.solvers.implicit import smooth
from pyg_glif.solvers.system import ComponentMeans

#: Columns up to which strengths are solved for together. More columns share a Krylov
#: space at one strength, which gains more.
FEW_COLUMNS = 4
# Up to here the stationary point of an objective without a minimum is factorised for.
_FACTORIZED_NODES = 2048
_MAX_CYCLES, _MAX_ITER = 8, 200
# A float32 cycle ends when its residual has fallen this far.
_CYCLE = 3e-4
_SAFETY = 0.3
_CHECK_EVERY = 3


def solve_lams(
    op: LaplacianOperator,
    rhs: Tensor,  # [N, C] float64
    lams: Sequence[float],
    solver: Solver | None = None,
    *,
    rtol: float = 1e-6,
) -> Iterator[tuple[float, Tensor, SolveStatus]]:
    """Solutions of ``(I + lam L) f = rhs`` for several strengths, with their status.

    Without a solver, if the Laplacian is positive semidefinite and columns are few,
    all strengths share their products. What does not converge that way, and everything
    else, is solved one strength at a time. Starting from the solution for another
    strength does not pay: all columns share a Krylov space, which converges slowly at
    first and fast at the end, whatever the start.
    """
    status = [SolveStatus.STAGNATED] * len(lams)
    if solver is None and op.is_psd and 0 < rhs.size(1) <= FEW_COLUMNS and len(rhs):
        label, size = op.components
        mu = op.lam_scale.reshape(-1, 1, 1) * rhs.new_tensor(lams).view(1, -1, 1)
        mu = mu.expand(len(rhs), -1, 1)
        matrix = op.pattern.csr(op.off_diagonal)
        block = _Block(op.diagonal.view(-1, 1, 1), matrix, mu)
        with without_autocast():
            means = ComponentMeans(label, size)
            values, status = block.solve(rhs.unsqueeze(1), rtol, means)
    for k, lam in enumerate(lams):
        if status[k] is SolveStatus.CONVERGED:
            yield lam, values[:, k], status[k]
        else:
            yield lam, *_solve_one(op, rhs, lam, solver, rtol)


def _solve_one(
    op: LaplacianOperator, rhs: Tensor, lam: float, solver: Solver | None, rtol: float
) -> tuple[Tensor, SolveStatus]:
    """Solution for one strength; failure is reported by the status only."""
    quiet = replace(Auto(rtol=rtol) if solver is None else solver, throw=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, solution = smooth(op, rhs.new_tensor(lam), rhs, quiet)
        indefinite = solution.status is SolveStatus.INDEFINITE
        if solver is None and indefinite and len(rhs) <= _FACTORIZED_NODES:
            factorized = Cholesky(rtol=rtol, throw=False)
            _, solution = smooth(op, rhs.new_tensor(lam), rhs, factorized)
    return solution.value, solution.status


def solve_parts(
    weight: Tensor,
    part: Tensor,
    lams: Tensor,
    rhs: Tensor,
    *,
    rtol: float = 1e-6,
) -> tuple[Tensor, Tensor, list[list[SolveStatus]]]:
    r"""Solutions of ``(I + lam L_p) f = rhs`` for parts of a graph and all ``lam``.

    :math:`\mathbf{L}_p = \mathbf{D}_p - \mathbf{W}_p` is the Laplacian of the graph
    that the nodes of a part span. None of these graphs is built: beyond a part columns
    are zero, so that one product with the weights of all nodes serves all parts.

    Args:
        weight: Weights of all nodes in CSR form, ``[N, N]`` in float64.
        part: One for the nodes of a part and zero for the others, ``[N, P]``.
        lams: Any order, ``[K]``.
        rhs: Right-hand sides of every part, zero beyond it, ``[N, P, C]``.
        rtol: Relative residual that every column must meet.

    Returns:
        Solutions ``[N, P, K, C]``, zero beyond the part; the weight of each node's
        neighbors in each part, ``[N, P]``; a status for each part and strength, which
        is ``CONVERGED``, or ``STAGNATED`` where the system must be solved otherwise.
    """
    degree, num = weight @ part, len(lams)
    mu = (part.unsqueeze(2) * lams).flatten(1).unsqueeze(2)  # [N, P * K, 1]
    diagonal = degree.repeat_interleave(num, 1).unsqueeze(2)
    block = _Block(diagonal, weight, mu)
    value, status = block.solve(rhs.repeat_interleave(num, 1), rtol)
    by_part = [status[first : first + num] for first in range(0, len(status), num)]
    return value.view(len(part), -1, num, rhs.size(2)), degree, by_part


class _Block:
    """Systems side by side, applied to a block ``[N, K, C]``.

    Conjugate gradients on all columns of all systems: one product per iteration serves
    them all. Iterations run in float32, the residual is recomputed in float64 in
    between.
    """

    def __init__(self, diagonal: Tensor, off_diagonal: Tensor, mu: Tensor) -> None:
        self._isolated = mu * diagonal == 0  # [N, K, 1]
        self._diagonal = 1.0 + mu * diagonal
        self._off_diagonal = off_diagonal  # [N, N] in CSR form
        self._mu = mu

    def solve(
        self, y: Tensor, rtol: float, means: ComponentMeans | None = None
    ) -> tuple[Tensor, list[SolveStatus]]:
        """Corrections in float32 until the residuals in float64 are small enough.

        ``y`` has right-hand sides for all systems, ``[N, 1, C]``, or for each,
        ``[N, K, C]``. The status is ``STAGNATED`` where a system did not converge, or
        where rounding may hide a residual above the tolerance.
        """
        limit = rtol * torch.linalg.vector_norm(y, dim=0)  # [1, C] or [K, C]
        # An isolated node keeps its output exactly.
        x = torch.where(self._isolated, y, y / self._diagonal)
        limit = limit.expand(x.size(1), -1)
        off = self._off_diagonal
        ptr, col, value = off.crow_indices(), off.col_indices(), off.values()
        single = csr_tensor(ptr, col, value.float(), (len(off), len(off)))
        left = torch.arange(x.size(1), device=x.device)  # systems not done yet
        for _ in range(_MAX_CYCLES):
            mixed = (off @ x[:, left].flatten(1)).view_as(x[:, left])
            rhs = y if y.size(1) == 1 else y[:, left]
            r = rhs - self._diagonal[:, left] * x[:, left] + self._mu[:, left] * mixed
            size = torch.linalg.vector_norm(r, dim=0)
            # Written so that NaN counts as not converged.
            far = ~(size <= limit[left]).all(1)
            left, r, size = left[far], r[:, far], size[far]
            if left.numel() == 0:
                break
            goal = (_SAFETY * limit[left] / size).clamp_(_CYCLE, 1.0)
            unit = (r / torch.where(size > 0, size, 1.0)).float()
            x[:, left] += self._correct(single, unit, goal, left, means) * size
        hidden = self._noise(y) > limit
        hidden[left] = True
        status = [SolveStatus.CONVERGED, SolveStatus.STAGNATED]
        return x, [status[bad] for bad in hidden.any(1).tolist()]

    def _correct(
        self,
        matrix: Tensor,
        r: Tensor,
        goal: Tensor,
        which: Tensor,
        means: ComponentMeans | None,
    ) -> Tensor:
        """Conjugate gradients with diagonal scaling, all columns in step.

        With ``means``, what is constant on components is an eigenvector of every
        system, with eigenvalue one, and settled first. Systems leave as they converge.
        """
        out = torch.zeros_like(r)
        if means is not None:
            out = means.mean(r.flatten(1)).view_as(r)
            r = r - out
        diagonal, mu = self._diagonal[:, which].float(), self._mu[:, which].float()
        inverse = diagonal.reciprocal()
        goal = (goal * torch.linalg.vector_norm(r, dim=0)).square()
        place = torch.arange(which.numel(), device=r.device)
        z = inverse * r
        energy = (r * z).sum(0)
        x, p = torch.zeros_like(r), z
        for count in range(_MAX_ITER):
            mixed = (matrix @ p.flatten(1)).view_as(p)
            image = torch.addcmul(diagonal * p, mu, mixed, value=-1.0)
            step = _ratio(energy, (p * image).sum(0))
            x.addcmul_(step, p)
            r.addcmul_(step, image, value=-1.0)
            if count % _CHECK_EVERY == _CHECK_EVERY - 1:
                far = ~(r.square().sum(0) <= goal).all(1)
                if not bool(far.all()):
                    out[:, place[~far]] += x[:, ~far]
                    place, goal, energy = place[far], goal[far], energy[far]
                    if place.numel() == 0:
                        return out
                    x, r, p = x[:, far], r[:, far], p[:, far]
                    diagonal, inverse = diagonal[:, far], inverse[:, far]
                    mu = mu[:, far]
            z = inverse * r
            last, energy = energy, (r * z).sum(0)
            p = torch.addcmul(z, _ratio(energy, last), p)
        out[:, place] += x
        return out

    def _noise(self, y: Tensor) -> Tensor:  # [K, C]
        """Bound on the rounding in the norm of each residual."""
        count = self._off_diagonal.crow_indices().diff()
        each = gamma(2 * count + 32).view(-1, 1, 1) * self._diagonal
        peak = y.abs().amax(0) if len(y) else y.new_zeros(y.shape[1:])
        norm: Tensor = torch.linalg.vector_norm(each, dim=0)
        return 2.0 * norm * peak


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """``a / b``, zero where a column has converged and both vanish."""
    return a / b.clamp(min=torch.finfo(b.dtype).tiny)
