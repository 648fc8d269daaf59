r"""Differentiates through a solve without unrolling it.

With :math:`M = \mathrm{diag}(s) - \mathbf{T}` and :math:`M f = y`, a small change gives
:math:`M\,df = dy - ds \odot f + d\mathbf{T} f`. For a gradient :math:`\bar f` let
:math:`g = M^{-1} \bar f` (:math:`M` is symmetric). Then

.. math::
    \bar y = g, \qquad \bar s_i = -\langle g_i, f_i \rangle, \qquad
    \bar t_{ij} = \langle g_i, f_j \rangle .

The backward pass is therefore one more solve of the same system, and is itself made of
differentiable operations, which gives derivatives of any order.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pyg_glif._pattern import edge_dot
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers.base import Solution, Solver, System


@dataclass(eq=False)
class _Job:
    """What a solve needs beside tensors with a gradient, and what it found."""

    op: LaplacianOperator
    lam: float
    solver: Solver
    x0: Tensor | None = None
    found: list[Solution] = field(default_factory=list)


@torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
def smooth(
    op: LaplacianOperator,
    lam: Tensor,
    rhs: Tensor,
    solver: Solver,
    x0: Tensor | None = None,
) -> tuple[Tensor, Solution]:
    """Solves ``(I + lam L) f = rhs`` for ``rhs`` ``[N, C]``, with gradients.

    Returns the solution in the type of ``rhs`` with its gradient, and the solver's
    report on it. ``lam`` is a 0-d tensor, multiplied here by the operator's scale.
    """
    strength = lam.double() * op.lam_scale
    s = 1.0 + strength * op.diagonal
    per_edge = strength if strength.dim() == 0 else strength[op.pattern.row]
    t = per_edge * op.off_diagonal
    job = _Job(op, float(lam.detach()), solver, x0)
    value: Tensor = _Solve.apply(s, t, rhs.double(), job)  # type: ignore[no-untyped-call]
    return _rounded(value, rhs.dtype, job.found[0])


def _rounded(
    value: Tensor, dtype: torch.dtype, found: Solution
) -> tuple[Tensor, Solution]:
    """The solution in the caller's type, the error of the conversion in its bound."""
    if dtype == value.dtype:
        return value, replace(found, value=value)
    out = value.to(dtype)
    error: Tensor = torch.linalg.vector_norm((value - out.double()).detach(), dim=0)
    bound = found.error_bound + error
    return out, replace(found, value=out, error_bound=bound)


class _Solve(Function):
    """``(diag(s) - T)^-1 y`` as a function of ``s``, ``t`` and ``y``."""

    @staticmethod
    def forward(ctx: Any, s: Tensor, t: Tensor, y: Tensor, job: _Job) -> Tensor:
        system = System(job.op, s.detach(), t.detach(), job.lam)
        solution = job.solver.solve(system, y.detach(), job.x0)
        job.found.append(solution)
        ctx.save_for_backward(s, t, solution.value)
        ctx.job = job
        return solution.value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        s, t, f = ctx.saved_tensors
        job = _Job(ctx.job.op, ctx.job.lam, ctx.job.solver)
        g: Tensor = _Solve.apply(s, t, grad, job)  # type: ignore[no-untyped-call]
        by_s, by_t, by_y = ctx.needs_input_grad[:3]
        ds = -(g * f).sum(1) if by_s else None
        dt = edge_dot(ctx.job.op.pattern, g, f) if by_t else None
        return ds, dt, g if by_y else None, None
