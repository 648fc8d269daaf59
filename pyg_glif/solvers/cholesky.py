"""Dense factorisation, component by component."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pyg_glif._utils.runtime import available_memory
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.registry import register
from pyg_glif.solvers._extended_precision import add_exactly, is_delicate, residual_of
from pyg_glif.solvers.base import Attempt, Solver, SolveStatus
from pyg_glif.solvers.system import ComponentMeans, System

# Entries of the matrices that are factorised together.
_BATCH_ENTRIES = 1 << 22
# Steps of refinement, without and with more digits than float64 has.
_REFINEMENTS, _MAX_REFINEMENTS = 2, 20


@register
@dataclass(frozen=True, kw_only=True)
class Cholesky(Solver):
    r"""Dense Cholesky factorisation in float64 of every connected component.

    Components of similar size are padded with the identity and factorised in batches.
    Memory and time grow with the square and the cube of the largest component.

    Args:
        rtol (float): Relative residual that every column must meet, after at most two
            steps of iterative refinement. (default: :obj:`1e-6`)
        throw (bool): Whether failure raises. With :obj:`False`, an indefinite system
            gives the stationary point, a saddle, and a warning.
            (default: :obj:`True`)

    Example:
        >>> Cholesky()
        Cholesky(throw=True, rtol=1e-06)
    """

    rtol: float = 1e-6

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Factorises, solves and refines; a starting point is of no use here."""
        limit = self.rtol * system.norm(rhs)
        if is_delicate(system, rhs, limit):
            return self._refined(system, rhs, limit)
        value, ok = _solve(system, rhs, _cholesky)
        if not ok and system.op.is_psd:  # rounding alone can do that
            return self._refined(system, rhs, limit)
        if not ok:
            return self.saddle(system, rhs)
        num_iter = 1
        for _ in range(_REFINEMENTS):
            residual = rhs - system.matmul(value)
            if bool((torch.linalg.vector_norm(residual, dim=0) <= limit).all()):
                break
            value = value + _solve(system, residual, _cholesky)[0]
            num_iter += 1
        return Attempt(value, SolveStatus.CONVERGED, num_iter)

    def saddle(self, system: System, rhs: Tensor) -> Attempt:
        """The stationary point of an objective without a minimum."""
        return Attempt(_solve(system, rhs, _general)[0], SolveStatus.INDEFINITE, 1)

    def _refined(self, system: System, rhs: Tensor, limit: Tensor) -> Attempt:
        """Solves with more digits than float64 has, for large ``lam`` times degree.

        Corrections come from the factors of a matrix without the small eigenvalue of
        component means; if they do not help, from an elimination without subtractions.
        """
        means = None
        if system.keeps_constants:
            means = ComponentMeans(*system.op.components)
        factor: _Factoriser = partial(_cholesky, shift=means is not None)
        value = torch.zeros_like(rhs) if means is None else means.mean(rhs)
        low = torch.zeros_like(rhs)
        last, num_iter = float("inf"), 0
        while True:
            residual = residual_of(system, rhs, value, low).value
            norm = torch.linalg.vector_norm(residual, dim=0)
            if bool((norm <= limit).all()):
                return Attempt(value, SolveStatus.CONVERGED, num_iter, low)
            excess = float((norm / limit).nan_to_num_(0.0).max())
            if not excess <= 0.5 * last or num_iter >= _MAX_REFINEMENTS:
                if factor is _eliminated or not system.op.is_psd:
                    return Attempt(value, SolveStatus.STAGNATED, num_iter, low)
                factor, last, num_iter = _eliminated, float("inf"), 0
            last = excess
            if means is None:
                step, ok = _solve(system, residual, factor)
            else:  # the component means of a correction are known in advance
                shift = means.mean(residual)
                step, ok = _solve(system, residual - shift, factor)
                step = shift + (step - means.mean(step))
            num_iter += 1
            if not (ok and bool(torch.isfinite(step).all())):
                last = 0.0  # no use to repeat it
                continue
            value, low = add_exactly(value, low, step)


@dataclass(frozen=True, eq=False)
class _Group:
    """Components of similar size: a block of padded dense matrices."""

    nodes: Tensor  # [K] all their nodes
    block: Tensor  # [K] number of the matrix
    place: Tensor  # [K] row within it
    num_blocks: int
    size: int


#: Solves a batch of dense systems, or tells that it cannot.
_Factoriser = Callable[[System, _Group, Tensor], tuple[Tensor, bool]]


def _solve(
    system: System, rhs: Tensor, factoriser: _Factoriser
) -> tuple[Tensor, bool]:  # [N, C]
    """Solves group by group; false if one of them cannot be."""
    value = torch.empty_like(rhs)
    for group in _groups(system):
        y = rhs.new_zeros(group.num_blocks, group.size, rhs.size(1))
        y[group.block, group.place] = rhs[group.nodes]
        x, ok = factoriser(system, group, y)
        if not ok:
            return value, False
        value[group.nodes] = x[group.block, group.place]
    return value, True


def _cholesky(
    system: System, group: _Group, y: Tensor, shift: bool = False
) -> tuple[Tensor, bool]:
    """False if a matrix is not positive definite.

    With ``shift``, the eigenvalue of component means is made as large as the diagonal.
    """
    M = _matrices(system, group)
    if shift:
        # Zero in the padding, which is no part of the component.
        member = y.new_zeros(group.num_blocks, group.size, 1)
        member[group.block, group.place] = 1.0
        count = member.sum((1, 2), keepdim=True)
        stiff = M.diagonal(dim1=1, dim2=2).amax(1).view(-1, 1, 1)
        M += (stiff / count) * member * member.transpose(1, 2)
    factor, info = torch.linalg.cholesky_ex(M)
    if bool(info.any()):
        return y, False
    return torch.cholesky_solve(y, factor), True


def _general(system: System, group: _Group, y: Tensor) -> tuple[Tensor, bool]:
    """Solves with pivoting where a matrix is indefinite; NaN if it is singular."""
    x, info = torch.linalg.solve_ex(_matrices(system, group), y)
    return x.masked_fill_((info != 0).view(-1, 1, 1), torch.nan), True


def _eliminated(system: System, group: _Group, y: Tensor) -> tuple[Tensor, bool]:
    r"""Gaussian elimination that adds, multiplies and divides, but never subtracts.

    Grassmann, Taksar and Heyman's idea: the diagonal is not stored but is the excess
    of its row (one, and the surplus) plus the rest of it. Elimination turns rows with
    non-negative excess and non-negative :math:`t_{ij}` into rows of the same kind.
    No digit cancels, so the solution is exact to a few units whatever the condition.
    """
    T = _matrices(system, group).neg_()
    T.diagonal(dim1=1, dim2=2).zero_()
    excess = torch.ones_like(T[:, :, 0])
    if system.surplus is not None:
        excess[group.block, group.place] += system.surplus[group.nodes]
    lower, upper = torch.zeros_like(T), torch.zeros_like(T)
    for k in range(group.size):
        rest = T[:, k, k + 1 :]
        pivot = excess[:, k] + rest.sum(1)
        share = T[:, k + 1 :, k] / pivot.unsqueeze(1)
        lower[:, k + 1 :, k], upper[:, k, k + 1 :] = -share, -rest
        upper[:, k, k] = pivot
        excess[:, k + 1 :] += share * excess[:, k : k + 1]
        T[:, k + 1 :, k + 1 :] += share.unsqueeze(2) * rest.unsqueeze(1)
        T.diagonal(dim1=1, dim2=2).zero_()
    y = torch.linalg.solve_triangular(lower, y, upper=False, unitriangular=True)
    return torch.linalg.solve_triangular(upper, y, upper=True), True


def _groups(system: System) -> Iterator[_Group]:
    """Cuts the components, sorted by size, into groups that fit into memory."""
    label, size = system.op.components
    if size.numel() == 0:
        return
    largest, have = int(size.max()), available_memory(label.device)
    need = 3 * 8 * largest**2  # the matrix and its factor
    if need > have:
        msg = f"Cholesky would need {need / 2**30:.1f} GiB for a component of {largest}"
        raise MemoryBudgetError(
            f"{msg} nodes ({have / 2**30:.1f} GiB available). Use 'CG()'"
        )
    order = torch.argsort(size, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(order.numel(), device=order.device)
    nodes = torch.argsort(rank[label], stable=True)  # component by component
    sizes = size[order]
    ends = sizes.cumsum(0)
    place = torch.arange(nodes.numel(), device=nodes.device)
    place = place - (ends - sizes)[rank[label[nodes]]]
    start = 0
    for stop in _cuts(sizes.tolist()):
        first = int(ends[start]) - int(sizes[start])
        here = slice(first, int(ends[stop - 1]))
        block = rank[label[nodes[here]]] - start
        width = int(sizes[stop - 1])
        yield _Group(nodes[here], block, place[here], stop - start, width)
        start = stop


def _cuts(sizes: list[int]) -> Iterator[int]:
    """Ends of groups: at most twice the smallest size, a bounded number of entries."""
    start = 0
    for stop, size in enumerate(sizes):
        too_large = (stop - start + 1) * size * size > _BATCH_ENTRIES
        if stop > start and (size > 2 * sizes[start] or too_large):
            yield stop
            start = stop
    yield len(sizes)


def _matrices(system: System, group: _Group) -> Tensor:  # [B, S, S]
    """The dense matrices of a group, the identity in the padding."""
    shape = (group.num_blocks, group.size, group.size)
    M = torch.eye(group.size, dtype=torch.float64, device=group.nodes.device)
    M = M.expand(shape).clone()
    M[group.block, group.place, group.place] = system.diagonal[group.nodes]
    index = torch.full((system.num_nodes, 2), -1, device=group.nodes.device)
    index[group.nodes, 0] = group.block
    index[group.nodes, 1] = group.place
    row, col = system.pattern.row, system.pattern.col
    # Groups are whole components: one end in the group means both.
    inside = index[row, 0] >= 0
    i, j = index[row[inside]], index[col[inside], 1]
    M[i[:, 0], i[:, 1], j] = -system.off_diagonal[inside]
    return M
