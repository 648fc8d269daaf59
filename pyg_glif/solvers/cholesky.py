"""Dense factorisation, component by component."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._runtime import available_memory
from pyg_glif._validate import check_scalar
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.solvers.base import Attempt, Solver, SolveStatus, System

# Entries of the matrices that are factorised together.
_BATCH_ENTRIES = 1 << 22
_REFINEMENTS = 2


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

    def __post_init__(self) -> None:
        check_scalar("rtol", self.rtol, minimum=0.0)

    def limits(self, rhs: Tensor) -> Tensor:  # [N, C] -> [C]
        """Residual norm that each column must meet."""
        norm: Tensor = torch.linalg.vector_norm(rhs, dim=0)
        return self.rtol * norm

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Factorises and solves; a starting point is of no use here."""
        value, ok = _solve(system, rhs)
        if not ok:
            return Attempt(self.saddle(system, rhs), SolveStatus.INDEFINITE, 1)
        limit = self.limits(rhs)
        num_iter = 1
        for _ in range(_REFINEMENTS):
            residual = rhs - system.matmul(value)
            if bool((torch.linalg.vector_norm(residual, dim=0) <= limit).all()):
                break
            value = value + _solve(system, residual)[0]
            num_iter += 1
        return Attempt(value, SolveStatus.CONVERGED, num_iter)

    def saddle(self, system: System, rhs: Tensor) -> Tensor:
        """The stationary point of an objective without a minimum."""
        return _solve(system, rhs, definite=False)[0]


@dataclass(frozen=True, eq=False)
class _Group:
    """Components of similar size: a block of padded dense matrices."""

    nodes: Tensor  # [K] all their nodes
    block: Tensor  # [K] number of the matrix
    place: Tensor  # [K] row within it
    num_blocks: int
    size: int


def _solve(
    system: System, rhs: Tensor, definite: bool = True
) -> tuple[Tensor, bool]:  # [N, C]
    """Solves group by group; false if a matrix is not positive definite."""
    value = torch.empty_like(rhs)
    for group in _groups(system):
        M = _matrices(system, group)
        y = rhs.new_zeros(group.num_blocks, group.size, rhs.size(1))
        y[group.block, group.place] = rhs[group.nodes]
        if definite:
            factor, info = torch.linalg.cholesky_ex(M)
            if bool(info.any()):
                return value, False
            x = torch.cholesky_solve(y, factor)
        else:
            x = torch.linalg.solve(M, y)
        value[group.nodes] = x[group.block, group.place]
    return value, True


def _groups(system: System) -> Iterator[_Group]:
    """Cuts the components, sorted by size, into groups that fit into memory."""
    label, size = system.op.components
    if size.numel() == 0:
        return
    _check_memory(int(size.max()), label.device)
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
    inside = index[row, 0] >= 0
    i, j = index[row[inside]], index[col[inside], 1]
    M[i[:, 0], i[:, 1], j] = -system.off_diagonal[inside]
    return M


def _check_memory(largest: int, device: torch.device) -> None:
    """Refuses a component whose matrix and factor would not fit."""
    need, have = 3 * 8 * largest**2, available_memory(device)
    if need > have:
        msg = f"Cholesky would need {need / 2**30:.1f} GiB for a component of {largest}"
        raise MemoryBudgetError(
            f"{msg} nodes ({have / 2**30:.1f} GiB available). Use 'CG()'"
        )
