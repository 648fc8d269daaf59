r"""Differentiates through a solve without unrolling it.

With :math:`M = \mathrm{diag}(s) - \mathbf{T}` and :math:`M f = y`, a small change gives
:math:`M\,df = dy - ds \odot f + d\mathbf{T} f`, which is the forward derivative. For a
gradient :math:`\bar f` let :math:`g = M^{-1} \bar f` (:math:`M` is symmetric). Then

.. math::
    \bar y = g, \qquad \bar s_i = -\langle g_i, f_i \rangle, \qquad
    \bar t_{ij} = \langle g_i, f_j \rangle .

Either pass is therefore one more solve of the same system, and is itself made of
differentiable operations, which gives derivatives of any order. A batch of right-hand
sides, such as :func:`torch.func.vmap` and :func:`torch.func.jacrev` make, is a block of
more columns.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pyg_glif._utils.runtime import not_compiled
from pyg_glif._utils.sparse import edge_dot, spmm, unwrapped
from pyg_glif._utils.validation import check_choice, check_finite
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers.base import Solution, Solver
from pyg_glif.solvers.system import LARGEST_ENTRY, System


@dataclass(eq=False)
class _Job:
    """Needs of a solve beside tensors with a gradient, and its solutions."""

    op: LaplacianOperator
    lam: float
    solver: Solver
    dtype: torch.dtype | None = None  # of the caller's outputs; None in a derivative
    x0: Tensor | None = None
    surplus: Tensor | None = None
    solutions: list[Solution] = field(default_factory=list)


@not_compiled
def smooth(
    op: LaplacianOperator,
    lam: Tensor,
    rhs: Tensor,
    solver: Solver,
    x0: Tensor | None = None,
    precision: Tensor | None = None,
) -> tuple[Tensor, Solution]:
    r"""Solves ``(P + lam L) f = rhs`` for ``rhs`` ``[N, C]``, with gradients.

    Returns the solution in the type of ``rhs`` with its gradient, and the solver's
    report on it. ``lam`` is a 0-d tensor, multiplied here by the operator's scale. The
    diagonal matrix ``P`` is the identity, or has the positive float64 ``precision``;
    then all is divided by the smallest :math:`p_i` first, and residual and bound are
    those of that system. What :math:`p_i` has beyond the smallest acts as an edge to
    a node whose output is zero, so that the system is one of those solved anyway.
    """
    strength, y = lam.double() * op.lam_scale, rhs.double()
    own: float | Tensor = 1.0
    if precision is not None:
        # With negative eigenvalues no precision would make the system definite.
        check_choice("normalization", op.normalization, (None, "density"))
        least = float(precision.detach().min()) if precision.numel() else 1.0
        # The solution does not depend on what all is divided by.
        own, strength, y = precision / least, strength / least, y / least
    s = own + strength * op.diagonal
    per_edge = strength if strength.dim() == 0 else strength[op.pattern.row]
    t = per_edge * op.off_diagonal
    if s.numel():
        largest = max(float(s.detach().max()), float(strength.detach().max()))
        # Written so that NaN is refused as well.
        if not largest <= LARGEST_ENTRY:
            msg = "'lam' times the largest degree must be at most"
            msg = f"{msg} {LARGEST_ENTRY:g} (got {largest:g})"
            raise ValueError(f"{msg}. Use a smaller 'lam', or divide the weights")
    job = _Job(op, float(lam.detach()), solver, rhs.dtype, x0)
    if op.is_psd and op.surplus is not None:
        job.surplus = (strength * op.surplus).detach()
    if isinstance(own, Tensor):
        extra = (own - 1.0).detach()
        job.surplus = extra if job.surplus is None else extra + job.surplus
    value: Tensor = _Solve.apply(s, t, y, job)  # type: ignore[no-untyped-call]
    out, solution = value.to(rhs.dtype), job.solutions[0]
    if precision is not None:
        # The products of precisions and outputs, and their division, are rounded.
        rounding = 2.0**-51 * torch.linalg.vector_norm(y.detach(), dim=0)
        bound = solution.error_bound + rounding
        solution = replace(solution, error_bound=bound)
    return out, replace(solution, value=out)


class _Solve(Function):
    """``(diag(s) - T)^-1 y`` as a function of ``s``, ``t`` and ``y``."""

    @staticmethod
    def forward(s: Tensor, t: Tensor, y: Tensor, job: _Job) -> Tensor:
        system = System(job.op, s.detach(), t.detach(), job.lam, job.surplus)
        # Under autocast a product in float32 would run in half precision.
        with torch.autocast(y.device.type, enabled=False):
            solution = job.solver.solve(system, y.detach(), job.x0)
            if job.dtype is not None:
                job.solutions.append(solution.to(job.dtype))
        return solution.value

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        s, t, _, job = inputs
        ctx.save_for_backward(s, t, output)
        ctx.save_for_forward(s, t, output)
        ctx.job = job

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        s, t, f = ctx.saved_tensors
        job = replace(ctx.job, dtype=None, x0=None, solutions=[])
        # The matrix is symmetric, so the adjoint system is the system itself. Solved by
        # this same function, it can be differentiated again.
        g: Tensor = _Solve.apply(s, t, grad, job)  # type: ignore[no-untyped-call]
        by_s, by_t, by_y = ctx.needs_input_grad[:3]
        ds = -(g * f).sum(1) if by_s else None
        dt = edge_dot(ctx.job.op.pattern, g, f) if by_t else None
        return ds, dt, g if by_y else None, None

    @staticmethod
    def jvp(
        ctx: Any, ds: Tensor | None, dt: Tensor | None, dy: Tensor | None, _: None
    ) -> Tensor:
        s, t, f = ctx.saved_tensors
        change = torch.zeros_like(f) if dy is None else dy
        if ds is not None:
            change = change - ds.unsqueeze(1) * f
        if dt is not None:
            change = change + spmm(ctx.job.op.pattern, dt, f)
        job = replace(ctx.job, dtype=None, x0=None, solutions=[])
        out: Tensor = _Solve.apply(s, t, change, job)  # type: ignore[no-untyped-call]
        return out

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        s: Tensor,
        t: Tensor,
        y: Tensor,
        job: _Job,
    ) -> tuple[Tensor, int]:
        if in_dims[0] is None and in_dims[1] is None:
            # One system: the batch becomes more columns.
            assert in_dims[2] is not None
            y = y.movedim(in_dims[2], 1)  # [N, B, C]
            if job.dtype is not None:
                check_finite("y_hat", unwrapped(y))
            flat: Tensor = _Solve.apply(s, t, y.flatten(1), job)  # type: ignore[no-untyped-call]
            return flat.view(y.shape), 1
        s, t, y = (
            part.expand(info.batch_size, *part.shape)
            if dim is None
            else part.movedim(dim, 0)
            for part, dim in zip((s, t, y), in_dims[:3], strict=True)
        )
        each = [_Solve.apply(*parts, job) for parts in zip(s, t, y, strict=True)]  # type: ignore[no-untyped-call]
        return torch.stack(each), 0
