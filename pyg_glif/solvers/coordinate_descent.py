"""The paper's coordinate descent, on sparse rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.sparse import csr_tensor
from pyg_glif._utils.validation import check_choice, check_count, check_kind
from pyg_glif.registry import register
from pyg_glif.solvers._extended_precision import residual_of
from pyg_glif.solvers.base import Attempt, Solver, SolveStatus
from pyg_glif.solvers.system import System


@register
@dataclass(frozen=True, kw_only=True)
class CoordinateDescent(Solver):
    r"""Coordinate descent over random batches of nodes (eq. 3.7 of the paper).

    .. math::
        f_i \leftarrow \frac{\hat y_i - \lambda \sum_{j \ne i} \mathbf{L}_{ij} f_j}
        {1 + \lambda \mathbf{L}_{ii}}

    Each epoch visits every node once, in random order; the nodes of a batch move at the
    same time. An epoch costs about one sparse product.

    Args:
        epochs (int): Number of epochs; a limit if ``rtol`` is given.
            (default: :obj:`10`)
        batch_size (int): Nodes updated together. (default: :obj:`512`)
        rtol (float, optional): Stops once every column's relative residual, recomputed
            after each epoch, is this small, and fails if it never is. Without it, a run
            that finishes its epochs is no failure: its status is ``EPOCHS_DONE`` and
            ``residual`` says how far it came. (default: :obj:`None`)
        generator (torch.Generator, optional): Source of the random order, on the CPU.
            (default: :obj:`None`, one seeded with zero)
        progress (bool, optional): Whether to show a bar.
            (default: :obj:`None`, on a terminal)
        throw (bool): Whether failure raises. With :obj:`False`, an indefinite system
            gives what the epochs lead to, which is what the paper reports for
            GLIF-NRW: the status is ``INDEFINITE`` and the bound infinite, because there
            is no minimum to be near to. (default: :obj:`True`)

    Example:
        >>> CoordinateDescent(epochs=3).epochs
        3
    """

    epochs: int = 10
    batch_size: int = 512
    generator: torch.Generator | None = field(default=None, repr=False)
    progress: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("epochs", self.epochs)
        check_count("batch_size", self.batch_size)
        if self.generator is not None:
            check_kind("generator", self.generator, torch.Generator)
        check_choice("progress", self.progress, (None, True, False))

    def attempt(self, system: System, rhs: Tensor, x0: Tensor | None) -> Attempt:
        """Runs the epochs, starting from the right-hand side as the authors do."""
        generator = self.generator or torch.Generator().manual_seed(0)
        value = (rhs if x0 is None else x0).clone()
        limit = self.limits(system.norm(rhs))
        with Progress(self.epochs, "coordinate descent", self.progress) as bar:
            for epoch in range(1, self.epochs + 1):
                self._epoch(system, rhs, value, generator)
                bar.update()
                if limit is not None:
                    norm = residual_of(system, rhs, value, limit=limit).norm
                    if bool((norm <= limit).all()):
                        return Attempt(value, SolveStatus.CONVERGED, epoch)
        done = SolveStatus.EPOCHS_DONE if limit is None else SolveStatus.MAX_ITER
        return Attempt(value, done, self.epochs)

    def saddle(self, system: System, rhs: Tensor) -> Attempt:
        """The outcome of the epochs, where no minimum is there to converge to."""
        return self.attempt(system, rhs, None)._replace(status=SolveStatus.INDEFINITE)

    def _epoch(
        self, system: System, rhs: Tensor, value: Tensor, generator: torch.Generator
    ) -> None:
        """Updates every node once, in place."""
        order = torch.randperm(system.num_nodes, generator=generator).to(rhs.device)
        for nodes, rows in _batches(system, order, self.batch_size):
            step = rhs[nodes]
            if rows is not None:
                step = step.addmm(rows, value)
            value[nodes] = step / system.diagonal[nodes].unsqueeze(1)


def _batches(
    system: System, order: Tensor, batch_size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Nodes of each batch and their rows of the matrix, None if these are empty."""
    ptr = system.pattern.rowptr.long()
    begin, count = ptr[order], ptr.diff()[order]
    ends = torch.cat([count.new_zeros(1), count.cumsum(0)])
    # Positions of all edges, row by row in the order of this epoch.
    shift = (begin - ends[:-1]).repeat_interleave(count)
    edge = shift.add_(torch.arange(shift.numel(), device=shift.device))
    col, value = system.pattern.colidx[edge], system.off_diagonal[edge]
    for start in range(0, order.numel(), batch_size):
        nodes = order[start : start + batch_size]
        part = ends[start : start + nodes.numel() + 1]
        first, last = int(part[0]), int(part[-1])
        rows = None
        if last > first:
            size = (nodes.numel(), system.num_nodes)
            local = (part - first).to(col.dtype)
            rows = csr_tensor(local, col[first:last], value[first:last], size)
        yield nodes, rows
