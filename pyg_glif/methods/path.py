"""All strengths and radii from one graph."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.runtime import Progress, without_autocast
from pyg_glif._utils.validation import (
    check_choice,
    check_edge_values,
    check_edges,
    check_node_rows,
    check_outputs,
    check_scalar,
)
from pyg_glif.errors import ConvergenceWarning
from pyg_glif.graph import SimilarityGraph, edge_weights
from pyg_glif.laplacian import LaplacianOperator, dense_entries
from pyg_glif.links import Link
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Auto, Solver, SolveStatus
from pyg_glif.solvers.implicit import smooth
from pyg_glif.solvers.multi_lam import solve_together
from pyg_glif.typing import Normalization

#: Columns up to which strengths are solved for together.
FEW_COLUMNS = 4
# Up to here dense products are cheaper than sorting the edges of every radius.
_DENSE_NODES = 2048


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One solution on a path.

    Args:
        tau (float): Radius, infinite where none was asked for.
        lam (float): Strength.
        value (Tensor): Smoothed outputs, shaped as the outputs given.
        status (SolveStatus): How the solve ended. ``INDEFINITE`` means that there is
            no minimum: the value is the stationary point, or NaN where only an
            iterative solver was at hand (beyond 2,048 nodes by default).
    """

    tau: float
    lam: float
    value: Tensor
    status: SolveStatus

    def __repr__(self) -> str:
        shape = list(self.value.shape)
        return (
            f"PathPoint(tau={self.tau:g}, lam={self.lam:g}, value={shape}, "
            f"status={self.status.name})"
        )


def glif_path(
    y_hat: Tensor,
    edge_index: Tensor | SimilarityGraph,
    sq_dist: Tensor | None = None,
    *,
    lams: Sequence[float],
    taus: Sequence[float] | None = None,
    theta: float | None = 1e-4,
    normalization: Normalization = None,
    solver: Solver | None = None,
    link: Link | None = None,
    batch: Tensor | None = None,
    progress: bool | None = None,
) -> Iterator[PathPoint]:
    r"""Solutions for a grid of radii and strengths, from the graph of the largest.

    .. math::
        f_{\tau, \lambda} = (\mathbf{I} + \lambda \mathbf{L}_\tau)^{-1} \hat y, \qquad
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau

    The search runs once, at the largest radius; smaller ones keep the edges up to
    their own. All strengths of a radius share their matrix products, up to 2,048 nodes
    on dense matrices that start from the solutions of the radius before.

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        edge_index (Tensor or SimilarityGraph): Both directions of every edge, or the
            graph of a search, which brings distances and batch along.
        sq_dist (Tensor, optional): Squared distance of every edge; none with a
            :class:`~pyg_glif.graph.SimilarityGraph`.
        lams (sequence of float): Strengths :math:`\lambda \ge 0`.
        taus (sequence of float, optional): Radii, none beyond that of the graph.
            (default: :obj:`None`, all edges, reported as the radius of the graph, or
            as an infinite one where that is not known)
        theta (float, optional): Decay of the weights; :obj:`None` has it follow each
            radius, see :func:`~pyg_glif.graph.decay_of`. (default: :obj:`1e-4`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): Used for every point. (default: the fastest that
            meets ``rtol`` 1e-6)
        link (Link, optional): Output space. (default: :obj:`None`)
        batch (Tensor, optional): Graph number of each node. (default: :obj:`None`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows it
            on a terminal if the sweep takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          squared distances :math:`(E)`, batch :math:`(N)`
        - **output:** an iterator of :class:`PathPoint`

    Points come by ascending radius, then ascending strength, each pair once; arguments
    are checked before the first is asked for. With a ``SimilarityGraph`` every radius
    has exactly the edges that a search at that radius finds. With plain tensors an
    edge belongs to a radius if ``sqrt(sq_dist) <= tau`` in float64: ``sq_dist`` is
    then taken at its word, and a pair that is at ``tau`` up to the rounding of float32
    squares may fall on the other side of it than in a search. Points that do not
    converge carry their status instead of raising. Only the solutions of one radius
    are held at a time. There are no gradients; see :func:`~pyg_glif.glif_smooth` for
    those.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> sq_dist = torch.tensor([1.0, 1.0, 4.0, 4.0])
        >>> y_hat = torch.tensor([0.0, 3.0, 9.0])
        >>> for point in glif_path(
        ...     y_hat, edge_index, sq_dist, lams=[1.0], taus=[1.0, 2.0], theta=0.0
        ... ):
        ...     print(point.tau, point.value)
        1.0 tensor([1., 2., 9.])
        2.0 tensor([1.8750, 3.7500, 6.3750])
    """
    y_hat = check_outputs("y_hat", y_hat)
    strengths = _grid("lams", lams)
    radii = None if taus is None else _grid("taus", taus)
    if theta is not None:
        theta = check_scalar("theta", theta, minimum=0.0)
    check_choice("normalization", normalization, (None, "nrw", "density"))
    graph = _as_graph(edge_index, sq_dist, y_hat, batch)
    if radii is None:
        radii = [graph.tau]
    elif radii[-1] > graph.tau:
        msg = f"'taus' must be at most the radius of the graph, {graph.tau:g}"
        raise ValueError(f"{msg} (got {radii[-1]:g})")
    rhs = Smoother(link=link).to_dual(y_hat).detach().double()
    if solver is None and len(rhs) <= _DENSE_NODES:
        sweep = _dense_sweep(graph, radii, theta, normalization, rhs, strengths)
    else:
        sweep = _sparse_sweep(graph, theta, normalization, rhs, strengths, solver)

    def outputs(value: Tensor, tau: float, lam: float) -> Tensor:
        isolated = None
        if link is not None:
            linked = graph.is_within(tau) & (_weights(graph, tau, theta) > 0)
            isolated = torch.ones(len(rhs), dtype=torch.bool, device=rhs.device)
            isolated[graph.edge_index[0, linked]] = False
        return Smoother(lam, link=link).from_dual(value, y_hat.detach(), isolated)

    def points() -> Iterator[PathPoint]:
        with Progress(len(radii) * len(strengths), "path", progress) as bar:
            for tau in radii:
                for lam, value, status in sweep(tau):
                    yield PathPoint(tau, lam, outputs(value, tau, lam), status)
                    bar.update()

    return points()


#: Strength, solution and status, for all strengths of one radius.
_Sweep = Callable[[float], Iterator[tuple[float, Tensor, SolveStatus]]]


def _as_graph(
    edge_index: Tensor | SimilarityGraph,
    sq_dist: Tensor | None,
    y_hat: Tensor,
    batch: Tensor | None,
) -> SimilarityGraph:
    """The graph of the largest radius, of which the others are parts."""
    size = y_hat.size(0)
    if isinstance(edge_index, SimilarityGraph):
        for name, value in (("sq_dist", sq_dist), ("batch", batch)):
            if value is not None:
                msg = f"'{name}' must be None when 'edge_index' is a SimilarityGraph"
                raise ValueError(f"{msg}. The graph has its own")
        check_node_rows("y_hat", y_hat, edge_index.num_nodes)
        return edge_index
    edge_index = check_edges(edge_index, size)
    sq_dist = check_edge_values("sq_dist", sq_dist, edge_index.size(1)).detach()
    # Building an operator raises on whatever is wrong with a graph.
    ones = edge_weights(sq_dist, 0.0)
    lap = LaplacianOperator(edge_index, ones, size, batch=batch)
    pattern = lap.pattern
    if pattern.num_edges != edge_index.size(1):
        raise ValueError("'edge_index' must hold every edge once, without self-loops")
    # Into the order of the pattern: by row, then by column.
    sq_dist = sq_dist[(edge_index[0] * size + edge_index[1]).argsort()]
    # Both directions of an edge must come and go together.
    sq_dist = 0.5 * (sq_dist + sq_dist[pattern.reverse])
    edge_index = torch.stack([pattern.row, pattern.col])
    return SimilarityGraph(edge_index, sq_dist, size, math.inf, lap.batch)


def _grid(name: str, values: Sequence[float]) -> list[float]:
    """Checks numbers, and returns them once each in ascending order."""
    infinite = name == "taus"
    out = {check_scalar(name, v, minimum=0.0, allow_inf=infinite) for v in values}
    if not out:
        raise ValueError(f"'{name}' must hold at least one number (got none)")
    return sorted(out)


def _dense_sweep(
    graph: SimilarityGraph,
    radii: list[float],
    theta: float | None,
    normalization: Normalization,
    rhs: Tensor,
    lams: list[float],
) -> _Sweep:
    """All strengths of a radius together, on dense matrices.

    They share every matrix product, and start from the solutions of the radius
    before.
    """
    # How many of the radii are too small for each edge: radius k keeps those up to k.
    missed = torch.zeros_like(graph.sq_dist, dtype=torch.float64)
    for tau in radii:
        missed += ~graph.is_within(tau)
    missed = _dense(graph, missed, math.inf)
    fixed = None if theta is None else _dense(graph, graph.weights(theta), 0.0)
    components = _Components(missed)
    strengths = rhs.new_tensor(lams)
    before: list[Tensor] = []

    def exactly(tau: float, lam: float) -> tuple[Tensor, SolveStatus]:
        sparse = _sparse_sweep(graph, theta, normalization, rhs, [lam], Auto())
        ((_, value, status),) = sparse(tau)
        return value, status

    def sweep(tau: float) -> Iterator[tuple[float, Tensor, SolveStatus]]:
        place = radii.index(tau)
        weight = fixed
        if weight is None:
            weight = _dense(graph, _weights(graph, tau, theta), 0.0)
        inside = weight.masked_fill(missed > place, 0.0)
        entries = dense_entries(inside, normalization, graph.batch)
        start = before.pop() if before else None
        psd = normalization != "nrw"
        label = components.up_to(place).to(rhs.device) if psd else None
        with without_autocast():
            values, status = solve_together(
                *entries, strengths, rhs, start, label=label
            )
        before.append(values)
        for k, lam in enumerate(lams):
            if status[k] is SolveStatus.STAGNATED:
                # Rounding of products hides how good these are.
                values[:, k], status[k] = exactly(tau, lam)
            yield lam, values[:, k], status[k]

    return sweep


def _weights(graph: SimilarityGraph, tau: float, theta: float | None) -> Tensor:
    """Weights of all edges, those beyond the radius included, if it were ``tau``."""
    scale = None if graph.scale is None else graph.scale.clamp(max=tau)
    return replace(graph, tau=tau, scale=scale).weights(theta)


def _dense(graph: SimilarityGraph, values: Tensor, fill: float) -> Tensor:
    """Values of edges as a matrix, float64."""
    size = (graph.num_nodes, graph.num_nodes)
    matrix = values.new_full(size, fill, dtype=torch.float64)
    matrix[graph.edge_index[0], graph.edge_index[1]] = values.double()
    return matrix


class _Components:
    """Connected components of ever larger radii, from a minimum spanning forest."""

    def __init__(self, length: Tensor) -> None:  # [N, N], infinite without an edge
        self._label = np.arange(length.size(0))
        self._edges = sorted(_spanning_forest(length.cpu().numpy()), reverse=True)

    def up_to(self, reach: float) -> Tensor:
        """Component of each node; ``reach`` must not fall from call to call."""
        while self._edges and self._edges[-1][0] <= reach:
            _, i, j = self._edges.pop()
            self._label[self._label == self._label[j]] = self._label[i]
        return torch.from_numpy(self._label)


def _spanning_forest(length: NDArray[np.float64]) -> list[tuple[float, int, int]]:
    """Edges ``(length, i, j)`` of a minimum spanning forest (Prim's algorithm)."""
    size = len(length)
    best, parent = np.full(size, np.inf), np.full(size, -1)
    outside = np.ones(size, dtype=bool)
    edges = []
    for _ in range(size):
        node = int(best.argmin())
        if not np.isfinite(best[node]):
            node = int(outside.argmax())  # the first of another tree
        if parent[node] >= 0:
            edges.append((float(best[node]), int(parent[node]), node))
        outside[node] = False
        closer = outside & (length[node] < best)
        best[closer], parent[closer] = length[node][closer], node
        # A node of the tree must not be chosen a second time.
        best[node] = np.inf
    return edges


def _sparse_sweep(
    graph: SimilarityGraph,
    theta: float | None,
    normalization: Normalization,
    rhs: Tensor,
    lams: list[float],
    solver: Solver | None,
) -> _Sweep:
    """All strengths of a radius, on sparse matrices."""

    def sweep(tau: float) -> Iterator[tuple[float, Tensor, SolveStatus]]:
        op = graph.within(tau).laplacian(theta, normalization)
        return solve_strengths(op, rhs, lams, solver)

    return sweep


def solve_strengths(
    op: LaplacianOperator, rhs: Tensor, lams: Sequence[float], solver: Solver | None
) -> Iterator[tuple[float, Tensor, SolveStatus]]:
    """Solutions of ``(I + lam L) f = rhs`` for several strengths, with their status.

    Without a solver, if the Laplacian is positive semi-definite and columns are few,
    all strengths share their products; what does not converge that way, and everything
    else, is solved alone. Starting from a neighbour does not pay: all columns share a
    Krylov space, which converges slowly at first and fast at the end, whatever the
    start.

    Args:
        op (LaplacianOperator): The Laplacian of one graph.
        rhs (Tensor): Outputs in dual coordinates, ``[N, C]`` in float64.
        lams (sequence of float): Strengths, ascending.
        solver (Solver, optional): Used for every strength.
    """
    status = [SolveStatus.STAGNATED] * len(lams)
    # Many columns have a Krylov space of their own to share, which gains more.
    if solver is None and op.is_psd and 0 < rhs.size(1) <= FEW_COLUMNS and len(rhs):
        with without_autocast():
            values, status = solve_together(
                op.diagonal,
                op.pattern.csr(op.off_diagonal),
                op.lam_scale,
                rhs.new_tensor(lams),
                rhs,
                label=op.components[0],
            )
    alone = replace(Auto() if solver is None else solver, throw=False)
    for k, lam in enumerate(lams):
        if status[k] is SolveStatus.CONVERGED:
            yield lam, values[:, k], status[k]
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            _, found = smooth(op, rhs.new_tensor(lam), rhs, alone)
        yield lam, found.value, found.status
