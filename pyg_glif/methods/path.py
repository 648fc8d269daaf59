"""Solutions for many strengths and radii from one graph."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import (
    check_choice,
    check_edge_values,
    check_edges,
    check_node_rows,
    check_outputs,
    check_scalar,
)
from pyg_glif.graph import SimilarityGraph, edge_weights
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Link
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import Solver, SolveStatus
from pyg_glif.solvers.multi_lam import solve_lams
from pyg_glif.typing import Normalization


@dataclass(frozen=True, eq=False)
class PathPoint:
    """One solution on a path.

    Args:
        tau (float): Radius, infinite where none was asked for.
        lam (float): Strength.
        value (Tensor): Smoothed outputs, shaped as the outputs given.
        status (SolveStatus): How the solve ended. ``INDEFINITE`` means that there is
            no minimum: the value is the stationary point, or NaN beyond 2,048 nodes
            or with a ``solver`` that only iterates.
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
    theta: float | None = None,
    normalization: Normalization = None,
    solver: Solver | None = None,
    link: Link | None = None,
    progress: bool | None = None,
) -> Iterator[PathPoint]:
    r"""Solutions for a grid of radii and strengths, from the graph of the largest.

    .. math::
        f_{\tau, \lambda} = (\mathbf{I} + \lambda \mathbf{L}_\tau)^{-1} \hat y, \qquad
        W_{ij} = e^{-\theta d_{ij}^2} \; \text{if} \; d_{ij} \le \tau

    The search runs once, at the largest radius; smaller ones keep the edges up to
    their own. All strengths of a radius share their matrix products.

    Args:
        y_hat (Tensor): Outputs of a model, float32 or float64.
        edge_index (Tensor or SimilarityGraph): Both directions of every edge, or the
            graph of a search, which brings distances along, and batch numbers if
            there are several graphs.
        sq_dist (Tensor, optional): Squared distance of every edge; none with a
            :class:`~pyg_glif.graph.SimilarityGraph`.
        lams (sequence of float): Strengths :math:`\lambda \ge 0`.
        taus (sequence of float, optional): Radii, none beyond that of the graph.
            (default: :obj:`None`, all edges, reported as the radius of the graph, or
            as an infinite one where that is not known)
        theta (float, optional): Decay of the weights.
            (default: it follows each radius, see :func:`~pyg_glif.graph.decay_of`)
        normalization (str, optional): Form of the Laplacian. (default: :obj:`None`)
        solver (Solver, optional): Used for every point. (default: the fastest that
            meets ``rtol`` 1e-6)
        link (Link, optional): Output space. (default: :obj:`None`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows it
            on a terminal if the sweep takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          squared distances :math:`(E)`
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
    graph = _as_graph(edge_index, sq_dist, y_hat)
    if radii is None:
        radii = [graph.tau]
    elif radii[-1] > graph.tau:
        msg = f"'taus' must be at most the radius of the graph, {graph.tau:g}"
        raise ValueError(f"{msg} (got {radii[-1]:g})")
    rhs = Smoother(link=link).to_dual(y_hat).detach().double()

    def points() -> Iterator[PathPoint]:
        with Progress(len(radii) * len(strengths), "path", progress) as bar:
            for tau in radii:
                lap = graph.within(tau).laplacian(theta, normalization)
                isolated = lap.deg == 0
                for lam, eta, status in solve_lams(lap, rhs, strengths, solver):
                    smoother = Smoother(lam, link=link)
                    value = smoother.from_dual(eta, y_hat.detach(), isolated)
                    yield PathPoint(tau, lam, value, status)
                    bar.update()

    return points()


def _as_graph(
    edge_index: Tensor | SimilarityGraph,
    sq_dist: Tensor | None,
    y_hat: Tensor,
) -> SimilarityGraph:
    """The graph of the largest radius, of which the others are parts."""
    size = y_hat.size(0)
    if isinstance(edge_index, SimilarityGraph):
        if sq_dist is not None:
            msg = "'sq_dist' must be None when 'edge_index' is a SimilarityGraph"
            raise ValueError(f"{msg}. The graph has its own")
        check_node_rows("y_hat", y_hat, edge_index.num_nodes)
        return edge_index
    edge_index = check_edges(edge_index, size)
    sq_dist = check_edge_values("sq_dist", sq_dist, edge_index.size(1)).detach()
    # Building an operator raises on whatever is wrong with a graph.
    ones = edge_weights(sq_dist, 0.0)
    lap = LaplacianOperator(edge_index, ones, size)
    pattern = lap.pattern
    if pattern.num_edges != edge_index.size(1):
        raise ValueError("'edge_index' must hold every edge once, without self-loops")
    # Into the order of the pattern: by row, then by column.
    sq_dist = sq_dist[(edge_index[0] * size + edge_index[1]).argsort()]
    # Both directions of an edge must come and go together.
    sq_dist = 0.5 * (sq_dist + sq_dist[pattern.reverse])
    edge_index = torch.stack([pattern.row, pattern.col])
    return SimilarityGraph(edge_index, sq_dist, size, math.inf)


def _grid(name: str, values: Sequence[float]) -> list[float]:
    """Checks numbers, and returns them once each in ascending order."""
    infinite = name == "taus"
    out = {check_scalar(name, v, minimum=0.0, allow_inf=infinite) for v in values}
    if not out:
        raise ValueError(f"'{name}' must hold at least one number (got none)")
    return sorted(out)
