r"""Block conjugate gradients in mixed precision.

All columns share one Krylov space: with 28 columns that halves the number of iterations
and more, and the dense work becomes products of tall blocks, which cost less than the
column-wise sums of ordinary CG. The recurrence is Dubrulle's BCGrQ (ETNA 12, 2001),
which keeps the residual block as ``Q C`` with orthonormal ``Q``. It differs from the
original in three ways. ``Q`` is orthonormalised through the eigenvectors of its Gram
matrix, which lets dependent columns (duplicates, probabilities that sum to one) be
dropped. Iterations run in float32 where that is faster, in cycles between which the
residual is recomputed from its definition in float64. A new cycle starts conjugate to
the last directions of the cycle before, without which a restart costs half as many
iterations again.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_kind,
    check_scalar,
)
from pyg_glif.registry import Registered, register
from pyg_glif.solvers._extended_precision import add_exactly, is_delicate, residual_of
from pyg_glif.solvers.base import Attempt, Solver, SolveStatus
from pyg_glif.solvers.system import ComponentMeans, System

# Columns solved together: wider blocks spend more on dense products than they save.
_WIDTH = 32
# Float32 pays from about this many entries of a block on, and while it can be refined.
_MIN_ENTRIES = 1 << 16
_MIN_RTOL = 1e-9
# Beyond this, float32 rounds off so much of the one in 1 + lam d that cycles get short.
_MAX_STIFFNESS = 5e3
# A float32 cycle ends when its residual has fallen this far.
_CYCLE = 1e-3
# Gram eigenvalues below this are noise; what they stand for waits for the next cycle.
_DROP = {torch.float32: 1e-5, torch.float64: 1e-13}
# Aim below the tolerance: the scaled norm only estimates the true one.
_SAFETY = 0.7
_FINISHED = 0.1
# Edges whose entries are scaled at once.
_PART = 1 << 22


@register
@dataclass(frozen=True)
class Jacobi(Registered):
    """Scaling of a system to unit diagonal, which evens out unequal degrees."""

    family: ClassVar[str] = "preconditioner"


@register
@dataclass(frozen=True, kw_only=True)
class CG(Solver):
    r"""Preconditioned block conjugate gradients.

    Succeeds when *every* column meets
    :math:`\|r\| \le \max(\mathrm{atol}, \mathrm{rtol} \cdot \|\hat y\|)`, the residual
    being recomputed in float64.

    Args:
        rtol (float): Relative tolerance. (default: :obj:`1e-6`)
        atol (float): Absolute tolerance. (default: :obj:`0.0`)
        max_iter (int, optional): Limit on iterations. (default: what the theory of
            conjugate gradients asks for, at most 20,000)
        preconditioner (Jacobi, optional): Scaling to unit diagonal; :obj:`None` for
            none. (default: :obj:`Jacobi()`)
        deflate (bool, optional): Whether to take out the component means, known in
            advance for PSD Laplacians. (default: where it is expected to pay)
        throw (bool): Whether failure raises. (default: :obj:`True`)

    Example:
        >>> CG(rtol=1e-4).rtol
        0.0001
    """

    rtol: float = 1e-6
    atol: float = 0.0
    max_iter: int | None = None
    preconditioner: Jacobi | None = Jacobi()
    deflate: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scalar("atol", self.atol, minimum=0.0)
        if self.max_iter is not None:
            check_count("max_iter", self.max_iter)
        if self.preconditioner is not None:
            check_kind("preconditioner", self.preconditioner, Jacobi)
        check_choice("deflate", self.deflate, (None, True, False))

    def limits(self, norm: Tensor) -> Tensor:  # [C] -> [C]
        """Residual norm that each column must meet, by the norm of its outputs."""
        return (self.rtol * norm).clamp_(min=self.atol)

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Solves block by block of columns."""
        if rhs.numel() == 0:
            return Attempt(rhs, SolveStatus.CONVERGED, 0)
        delicate = is_delicate(system, rhs, self.limits(system.norm(rhs)))
        means = self._means(system, rhs.size(1), delicate)
        work = _Scaled(system, self.preconditioner is not None, means)
        blocks = []
        for start in range(0, rhs.size(1), _WIDTH):
            part = slice(start, start + _WIDTH)
            x = None if x0 is None else x0[:, part]
            blocks.append(self._block(work, rhs[:, part].contiguous(), x, delicate))
        if len(blocks) == 1:
            return blocks[0]
        values, statuses, num_iters, lows = zip(*blocks, strict=True)
        failed = [s for s in statuses if s is not SolveStatus.CONVERGED]
        status = failed[-1] if failed else SolveStatus.CONVERGED
        low = torch.cat(lows, 1) if delicate else None
        return Attempt(torch.cat(values, 1), status, max(num_iters), low)

    def _means(
        self, system: System, num_columns: int, delicate: bool
    ) -> ComponentMeans | None:
        """Component means, if they are to be taken out."""
        stiff = system.mean_diagonal
        wanted = delicate or stiff > 64.0
        wanted = wanted if self.deflate is None else self.deflate
        if not (wanted and system.keeps_constants and system.lam > 0):
            return None
        label, size = system.op.components
        few = system.op.num_joined <= num_columns and stiff < 1000.0
        if self.deflate is None and few and not delicate:
            return None
        return ComponentMeans(label, size, system.op.joined)

    def _precision(self, system: System, y: Tensor) -> torch.dtype:
        """The precision in which iterations start."""
        entries = system.num_nodes * y.size(1)
        large = entries >= _MIN_ENTRIES and self.rtol >= _MIN_RTOL
        mixed = large and system.mean_diagonal <= _MAX_STIFFNESS
        return torch.float32 if mixed else torch.float64

    def _iteration_limit(self, system: System) -> int:
        """Iterations after which CG must have converged, up to rounding."""
        if self.max_iter is not None:
            return self.max_iter
        # With unit diagonal, eigenvalues of a PSD system lie between 1 / max(s) and 2,
        # and CG takes iterations in proportion to the root of their ratio.
        condition = 2.0 * system.largest_diagonal
        root = math.sqrt(condition)
        digits = math.log(2.0 * condition / max(self.rtol, 1e-16))
        return min(100 + int(root * digits), 20_000)

    def _block(
        self, work: "_Scaled", y: Tensor, x0: Tensor | None, delicate: bool
    ) -> Attempt:
        """Cycles of the recurrence, the true residual in between.

        In a delicate system the rounding of ``x`` to float64 alone, times ``lam`` and
        the degrees, can exceed the tolerance: ``low`` then holds further digits.
        """
        system = work.system
        limit = self.limits(system.norm(y))
        max_iter = self._iteration_limit(system)
        dtype = self._precision(system, y)
        x = work.start(y, x0)
        low = torch.zeros_like(x) if delicate else None
        excess, num_iter, fresh = math.inf, 0, True
        carried: _Directions | None = None
        while True:
            r = work.residual(y, x, low)
            shift = work.mean(r)
            if shift is not None:
                # Component means of a residual are the means of the error. The
                # singular matrix without means needs them taken out.
                x, low = _moved(x, low, shift)
                r -= shift
            norm = system.norm(r)
            last, excess = excess, _excess(norm, limit)
            if excess <= 1.0:
                return Attempt(x, SolveStatus.CONVERGED, num_iter, low)
            if num_iter >= max_iter:
                return Attempt(x, SolveStatus.MAX_ITER, num_iter, low)
            # A cycle that does not halve the worst residual has met rounding. There is
            # a way on from float32, and from directions that were carried over, which
            # may have lost what made them conjugate; else there is none.
            if excess > 0.5 * last:
                if dtype == torch.float64 and fresh:
                    return Attempt(x, SolveStatus.STAGNATED, num_iter, low)
                dtype, carried = torch.float64, None
            fresh = carried is None
            # What is left of a finished column may be rounding noise alone.
            r[:, norm <= _FINISHED * limit] = 0.0
            goal = (_SAFETY * limit / norm).nan_to_num_(1.0)
            cycle = _Cycle(work, r, dtype, carried)
            num_iter = cycle.run(goal, num_iter, max_iter, x)
            step = work.unscale(cycle.value)
            carried = cycle.directions
            if bool(torch.isfinite(step).all()):
                x, low = _moved(x, low, step)
            elif dtype == torch.float64:  # rounding made the matrix singular
                return Attempt(x, SolveStatus.STAGNATED, num_iter, low)


def _moved(x: Tensor, low: Tensor | None, step: Tensor) -> tuple[Tensor, Tensor | None]:
    """The point after a step, in place where it has no further digits."""
    return (x.add_(step), None) if low is None else add_exactly(x, low, step)


def _excess(norm: Tensor, limit: Tensor) -> float:
    """Worst residual in units of its limit; a residual of zero is never in excess."""
    return float(torch.where(norm > 0, norm / limit, 0.0).max())


class _Scaled:
    """The system after scaling, with component means removed, in either precision."""

    def __init__(
        self, system: System, scale: bool, means: ComponentMeans | None
    ) -> None:
        self.system = system
        diagonal = system.diagonal
        # With unit diagonal, eigenvalues of PSD systems are from 1 / max(s) to 2.
        self.scaling = diagonal.rsqrt() if scale else torch.ones_like(diagonal)
        self._diagonal = None if scale else diagonal.unsqueeze(1)
        self._means = means
        self._csr: dict[torch.dtype, Tensor] = {}
        self._factor: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    def start(self, y: Tensor, x0: Tensor | None) -> Tensor:
        """First guess: one Jacobi step, exact for isolated nodes and zero columns."""
        known = torch.zeros_like(y) if self._means is None else self._means.mean(y)
        if x0 is None:
            x = (y - known) / self.system.diagonal.unsqueeze(1)
        else:
            x = x0.clone()
        if self._means is not None:
            x = known + (x - self._means.mean(x))
        if x0 is not None:
            used = self.system.max(y.any(0).to(torch.int32)) > 0
            x[:, ~used] = 0.0
            isolated = self.system.isolated()
            x[isolated] = y[isolated]
        return x

    def residual(self, y: Tensor, x: Tensor, low: Tensor | None) -> Tensor:
        """The residual of the original system, in float64."""
        if low is None:
            return y - self.system.matmul(x)
        return residual_of(self.system, y, x, low).value

    def mean(self, r: Tensor) -> Tensor | None:
        """Component means, if they are taken out."""
        return None if self._means is None else self._means.mean(r)

    def unscale(self, value: Tensor) -> Tensor:
        """Turns a correction of the scaled system into one of the original."""
        x = self.scaling.unsqueeze(1) * value
        return x if self._means is None else x.sub_(self._means.mean(x))

    def product(self, x: Tensor, out: Tensor) -> Tensor:
        """Product with the scaled matrix, in the precision of ``x``."""
        matrix, all_x = self._matrix(x.dtype), self.system.with_halo(x)
        if self._diagonal is None:
            torch.addmm(x, matrix, all_x, alpha=-1.0, out=out)
        else:
            torch.mul(x, self._diagonal.to(x.dtype), out=out)
            out.addmm_(matrix, all_x, alpha=-1.0)
        if self._means is not None:
            by_part, by_node = self._factor[x.dtype]
            out.addmm_(by_node, self._means.joined(by_part @ x), alpha=-1.0)
        return out

    def _matrix(self, dtype: torch.dtype) -> Tensor:
        """Off-diagonal part in CSR form, made when first needed."""
        if dtype not in self._csr:
            pattern = self.system.pattern
            left, right = self.scaling, self.system.with_halo(self.scaling)
            value = torch.empty_like(self.system.off_diagonal, dtype=dtype)
            # In parts, so that no other vector is as long as there are edges.
            for start in range(0, pattern.num_edges, _PART):
                part = slice(start, start + _PART)
                entry = self.system.off_diagonal[part] * left[pattern.row[part]]
                value[part] = entry.mul_(right[pattern.col[part]])
            self._csr[dtype] = pattern.csr(value)
            if self._means is not None:
                self._factor[dtype] = self._means.factor(self.scaling, dtype)
        return self._csr[dtype]


@dataclass(frozen=True, eq=False)
class _Directions:
    """The last search directions, their images and the inverse of their energy."""

    s: Tensor  # [N, K]
    image: Tensor  # [N, K]
    inverse: Tensor  # [K, K] float64


class _Cycle:
    """BCGrQ from a given residual: ``R = Q C``, ``X = sum of S alpha C``."""

    def __init__(
        self, work: _Scaled, r: Tensor, dtype: torch.dtype, carried: _Directions | None
    ) -> None:
        self._work, self._system = work, work.system
        scaled = work.scaling.unsqueeze(1) * r
        self._norm = self._system.norm(scaled)
        # Unit length first, or small columns would be dropped as dependent.
        unit = scaled.div_(torch.where(self._norm > 0, self._norm, 1.0)).to(dtype)
        self._q, xi = self._orthonormal(unit, torch.empty_like(unit))
        self._c = xi * self._norm  # [K, C] float64
        self.value = torch.zeros_like(unit)
        self.directions: _Directions | None = None
        self._s, self._fresh = self._q.clone(), carried is None
        if carried is not None:
            beta = carried.inverse @ self._gram(carried.image, self._q)
            self._s.addmm_(carried.s, beta.to(dtype), alpha=-1.0)

    def run(self, goal: Tensor, num_iter: int, max_iter: int, x: Tensor) -> int:
        """Iterates until every column has fallen by ``goal``, or float32 must stop.

        ``x`` is the point the cycle starts from.
        """
        dtype = self.value.dtype
        if dtype == torch.float32:
            goal = goal.clamp(min=_CYCLE)
        target = goal * self._norm
        image, spare = torch.empty_like(self._s), torch.empty_like(self._q)
        while num_iter < max_iter:
            num_iter += 1
            image = self._work.product(self._s, _sized(image, self._s))
            factor, info = torch.linalg.cholesky_ex(self._gram(self._s, image))
            if int(info):  # curvature lost to rounding: the caller sees no progress
                self.directions = None
                break
            inverse = torch.cholesky_inverse(factor)
            self.directions = _Directions(self._s, image, inverse)
            # S' Q is the identity, except where S has just been made conjugate to
            # directions of the cycle before.
            step = inverse if self._fresh else inverse @ self._gram(self._s, self._q)
            self._fresh = True
            self.value.addmm_(self._s, (step @ self._c).to(dtype))
            self._q.addmm_(image, step.to(dtype), alpha=-1.0)
            self._system.op.collectives.report(
                num_iter, lambda: x + self._work.unscale(self.value)
            )
            q, xi = self._orthonormal(self._q, spare)
            self._q, spare = q, self._q
            self._c = xi @ self._c
            if bool((torch.linalg.vector_norm(self._c, dim=0) <= target).all()):
                break
            # The image is needed no more: its memory takes the new directions.
            s = torch.addmm(q, self._s, xi.t().to(dtype), out=_sized(image, q))
            image, self._s = self._s, s
        return num_iter

    def _gram(self, a: Tensor, b: Tensor) -> Tensor:  # [N, K] twice -> [K, K] float64
        """Inner products of all columns."""
        return self._system.sum(torch.mm(a.t(), b).double())

    def _orthonormal(self, block: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        """Orthonormal ``Q``, ``xi`` with ``block = Q xi``; dependent columns go."""
        value, vector = torch.linalg.eigh(self._gram(block, block))
        keep = value > _DROP[block.dtype] * value[-1]
        if not bool(keep.all()):
            value, vector = value[keep], vector[:, keep]
            out = block.new_empty(block.size(0), value.numel())
        root = value.sqrt()
        out = _sized(out, block[:, : value.numel()])
        torch.mm(block, (vector / root).to(block.dtype), out=out)
        return out, root.unsqueeze(1) * vector.t()


def _sized(buffer: Tensor, like: Tensor) -> Tensor:
    """A buffer of the right shape, the given one if it fits."""
    return buffer if buffer.shape == like.shape else torch.empty_like(like)
