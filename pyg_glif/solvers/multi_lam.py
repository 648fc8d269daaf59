"""Systems for several strengths at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from pyg_glif._utils.sparse import csr_tensor
from pyg_glif.solvers.base import SolveStatus
from pyg_glif.solvers.preconditioner import ComponentMeans
from pyg_glif.solvers.system import gamma

_MAX_CYCLES, _MAX_ITER = 8, 200
# A float32 cycle ends when its residual has fallen this far.
_CYCLE = 3e-4
_SAFETY = 0.3
_CHECK_EVERY = 3

#: Product of a fixed matrix with a block ``[N, K]``.
_Product = Callable[[Tensor], Tensor]


def solve_together(
    diagonal: Tensor,
    off_diagonal: Tensor,
    scale: Tensor,
    strengths: Tensor,
    rhs: Tensor,
    start: Tensor | None = None,
    *,
    label: Tensor | None = None,
    rtol: float = 1e-6,
) -> tuple[Tensor, list[SolveStatus]]:
    r"""Solves ``(I + lam * scale * L) f = rhs`` for all ``lam`` in ``strengths``.

    Conjugate gradients on all columns of all strengths side by side: one product per
    iteration serves them all. Iterations run in float32, the residual is recomputed in
    float64 in between. What does not converge is factorised if the matrix is dense.

    Args:
        diagonal: Diagonal of the Laplacian, ``[N]``.
        off_diagonal: Negated rest of the Laplacian, ``[N, N]``, dense or in CSR form.
        scale: What multiplies every strength, ``[]`` or ``[N]``.
        strengths: Ascending, ``[K]``.
        rhs: Right-hand sides, ``[N, C]`` in float64.
        start: First guess, ``[N, K, C]``.
        label: Component number of each node, ``[N]``, for Laplacians that are zero on
            what is constant on components, and so known to be positive
            semi-definite. Without it the systems are checked from the largest
            strength down, which takes a dense matrix.
        rtol: Relative residual that every column must meet.

    Returns:
        Solutions ``[N, K, C]`` and a status for each strength. Where there is no
        minimum, the value is the stationary point and the status says so. Where
        rounding may hide a residual above the tolerance, or a sparse system did not
        converge, the status is ``STAGNATED``.
    """
    mu = scale.reshape(-1, 1, 1) * strengths.view(1, -1, 1)
    mu = mu.expand(diagonal.numel(), -1, 1)
    block = _Block(diagonal.view(-1, 1, 1), off_diagonal, mu, label)
    x, done = block.solve(rhs.unsqueeze(1), rtol, start)
    status = [SolveStatus.CONVERGED] * strengths.numel()
    definite = label is not None
    for k in reversed(range(strengths.numel())):
        # A smaller strength moves every eigenvalue towards one: once positive
        # definite, always so. Iterations alone may miss a negative direction.
        if not (definite and done[k]):
            x[:, k], status[k] = block.factorise(k, rhs)
        definite = definite or status[k] is SolveStatus.CONVERGED
        if status[k] is SolveStatus.CONVERGED and block.is_delicate(k, rhs, rtol):
            status[k] = SolveStatus.STAGNATED
    return x, status


def solve_parts(
    weight: Tensor,
    part: Tensor,
    strengths: Tensor,
    rhs: Tensor,
    *,
    rtol: float = 1e-6,
) -> tuple[Tensor, Tensor, list[list[SolveStatus]]]:
    r"""Solves ``(I + lam L_p) f = rhs`` for parts of a graph and all ``lam``.

    :math:`\mathbf{L}_p = \mathbf{D}_p - \mathbf{W}_p` is the Laplacian of the graph
    that the nodes of a part span. None of these graphs is built: beyond a part columns
    are zero, so that one product with the weights of all nodes serves all parts.

    Args:
        weight: Weights of all nodes in CSR form, ``[N, N]`` in float64.
        part: One for the nodes of a part and zero for the others, ``[N, P]``.
        strengths: Any order, ``[K]``.
        rhs: Right-hand sides of every part, zero beyond it, ``[N, P, C]``.
        rtol: Relative residual that every column must meet.

    Returns:
        Solutions ``[N, P, K, C]``, zero beyond the part; the weight of each node's
        neighbours in each part, ``[N, P]``; a status for each part and strength, which
        is ``CONVERGED``, or ``STAGNATED`` where the system must be solved otherwise.
    """
    degree = weight @ part
    mu = (part.unsqueeze(2) * strengths).flatten(1).unsqueeze(2)  # [N, P * K, 1]
    diagonal = degree.repeat_interleave(len(strengths), 1).unsqueeze(2)
    block = _Block(diagonal, weight, mu, None)
    y = rhs.repeat_interleave(len(strengths), 1)
    x, done = block.solve(y, rtol, None)
    fine = [
        done[k] and not block.is_delicate(k, y[:, k], rtol) for k in range(len(done))
    ]
    status = [SolveStatus.CONVERGED if ok else SolveStatus.STAGNATED for ok in fine]
    num = len(strengths)
    return (
        x.view(len(part), -1, num, rhs.size(2)),
        degree,
        [status[first : first + num] for first in range(0, len(status), num)],
    )


class _Block:
    """Systems side by side, applied to a block ``[N, K, C]``."""

    def __init__(
        self, diagonal: Tensor, off_diagonal: Tensor, mu: Tensor, label: Tensor | None
    ) -> None:
        self._alone = mu * diagonal == 0  # [N, K, 1]
        self._diagonal = 1.0 + mu * diagonal
        self._off_diagonal = off_diagonal
        self._mu = mu
        self._is_sparse = off_diagonal.layout == torch.sparse_csr
        self._mean: _Product | None = None
        if label is not None and self._is_sparse:
            self._mean = ComponentMeans(label, torch.bincount(label)).mean
        elif label is not None:
            self._matrix = _mean_matrix(label)
            self._mean = self._matrix.matmul
        self._shift = float(diagonal.mean())

    def _rest(self) -> _Product:
        """Product with the off-diagonal part in float32.

        On what is constant on components every system is the identity, which is slow
        to converge after scaling. Corrections have no such part, so there the systems
        may be made as stiff as elsewhere.
        """
        off = self._off_diagonal
        if self._is_sparse:
            # Degrees differ too much for one stiffness, and means would double the
            # cost of a product.
            ptr, col, value = off.crow_indices(), off.col_indices(), off.values()
            return csr_tensor(ptr, col, value.float(), (len(off), len(off))).matmul
        single = off.float()
        if self._mean is not None:
            single -= self._shift * self._matrix
        return single.matmul

    def solve(
        self, y: Tensor, rtol: float, start: Tensor | None
    ) -> tuple[Tensor, list[bool]]:
        """Corrections in float32 until the residuals in float64 are small enough.

        ``y`` has right-hand sides for all systems, ``[N, 1, C]``, or for each,
        ``[N, K, C]``.
        """
        limit = rtol * torch.linalg.vector_norm(y, dim=0)  # [1, C] or [K, C]
        x = y / self._diagonal if start is None else start
        # Nobody to average with: unchanged exactly.
        x = torch.where(self._alone, y, x)
        limit = limit.expand(x.size(1), -1)
        rest = self._rest()
        left = torch.arange(x.size(1), device=x.device)  # strengths not done yet
        for _ in range(_MAX_CYCLES):
            mixed = (self._off_diagonal @ x[:, left].flatten(1)).view_as(x[:, left])
            given = y if y.size(1) == 1 else y[:, left]
            r = given - self._diagonal[:, left] * x[:, left] + self._mu[:, left] * mixed
            size = torch.linalg.vector_norm(r, dim=0)
            # Written so that NaN counts as not converged.
            far = ~(size <= limit[left]).all(1)
            left, r, size = left[far], r[:, far], size[far]
            if left.numel() == 0:
                break
            goal = (_SAFETY * limit[left] / size).clamp_(_CYCLE, 1.0)
            unit = (r / torch.where(size > 0, size, 1.0)).float()
            x[:, left] += self._correct(rest, unit, goal, left) * size
        missed = set(left.tolist())
        return x, [k not in missed for k in range(x.size(1))]

    def _correct(
        self, rest: _Product, r: Tensor, goal: Tensor, which: Tensor
    ) -> Tensor:
        """Conjugate gradients with diagonal scaling, all columns in step.

        What is constant on components is an eigenvector of every system, with
        eigenvalue one, and settled first. Strengths leave as they converge.
        """
        out = torch.zeros_like(r)
        if self._mean is not None:
            out = self._mean(r.flatten(1)).view_as(r)
            r = r - out
        diagonal, mu = self._diagonal[:, which].float(), self._mu[:, which].float()
        inverse = diagonal.reciprocal()
        goal = (goal * torch.linalg.vector_norm(r, dim=0)).square()
        place = torch.arange(which.numel(), device=r.device)
        z = inverse * r
        energy = (r * z).sum(0)
        x, p = torch.zeros_like(r), z
        for count in range(_MAX_ITER):
            mixed = rest(p.flatten(1)).view_as(p)
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

    def factorise(self, k: int, rhs: Tensor) -> tuple[Tensor, SolveStatus]:
        """Solves one system directly, and tells whether it has a minimum."""
        if self._is_sparse:
            return torch.full_like(rhs, torch.nan), SolveStatus.STAGNATED
        matrix = -self._mu[:, k] * self._off_diagonal
        matrix.diagonal().copy_(self._diagonal[:, k, 0])
        factor, info = torch.linalg.cholesky_ex(matrix)
        if int(info) == 0:
            return torch.cholesky_solve(rhs, factor), SolveStatus.CONVERGED
        x, singular = torch.linalg.solve_ex(matrix, rhs)
        if int(singular):
            x = torch.full_like(rhs, torch.nan)
        psd = self._mean is not None  # then rounding alone made it indefinite
        return x, SolveStatus.STAGNATED if psd else SolveStatus.INDEFINITE

    def is_delicate(self, k: int, rhs: Tensor, rtol: float) -> bool:
        """Whether rounding in the residual could exceed the tolerance."""
        off = self._off_diagonal
        count = off.crow_indices().diff() if self._is_sparse else (off > 0).sum(1)
        each = gamma(2 * count + 32) * self._diagonal[:, k, 0]
        noise = 2.0 * torch.linalg.vector_norm(each) * rhs.abs().amax(0)
        limit = rtol * torch.linalg.vector_norm(rhs, dim=0)
        return not bool((noise <= limit).all())


def _mean_matrix(label: Tensor) -> Tensor:  # [N] -> [N, N] float32
    """The matrix that replaces every entry by the mean of its component."""
    same = label.unsqueeze(1) == label
    return same.float() / torch.bincount(label)[label]


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """``a / b``, zero where a column has converged and both vanish."""
    return a / b.clamp(min=torch.finfo(b.dtype).tiny)
