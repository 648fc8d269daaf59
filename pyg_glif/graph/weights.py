"""Edge weights from distances, with gradients of any order."""

import math
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from pyg_glif._utils.validation import (
    check_coefficient,
    check_edges,
    check_finite,
    check_floating,
    check_non_negative,
    check_rows,
    check_tensor,
)

# Coordinates gathered at a time: big enough to hide the overhead of a call, small
# enough that a chunk and its temporaries stay in the cache of one core.
_CHUNK_ELEMENTS = 2**18

#: Decay of the default weights across the radius: at distance ``tau`` a weight is
#: ``exp(-DECAY)``.
DECAY = 2.0


def decay_of(theta: float | Tensor | None, tau: float) -> float | Tensor:
    r"""Decay of the weights in a graph of radius ``tau``.

    .. math::
        \theta = c / \tau^2, \qquad c = \mathrm{DECAY},

    if ``theta`` is :obj:`None`: weights then depend on :math:`d / \tau` only, so a
    change of units does not change them. Any other value is returned unchanged.

    Args:
        theta (float or torch.Tensor, optional): A decay, or :obj:`None`.
        tau (float): The radius. Where it is zero or infinite there is no scale, and
            the decay is zero: all edges weigh the same.

    Example:
        >>> decay_of(None, tau=2.0), decay_of(1e-4, tau=2.0)
        (0.5, 0.0001)
    """
    if theta is not None:
        return theta
    if tau == 0 or math.isinf(tau):
        return 0.0
    return min(DECAY / tau / tau, sys.float_info.max)


def edge_weights(
    sq_dist: Tensor,
    theta: float | Tensor | None = None,
    *,
    tau: float | None = None,
) -> Tensor:
    r"""Turns squared distances into similarity weights.

    .. math::
        W_{ij} = \exp(-\theta \, d_{ij}^2)

    Args:
        sq_dist (torch.Tensor): *Squared* distances, of any shape.
        theta (float or torch.Tensor, optional): Decay :math:`\theta \ge 0`, in units
            of one over squared distance; zero gives weight 1 to every edge. A
            0-dimensional tensor may be learned. (default: :math:`2 / \tau^2`, see
            :func:`~pyg_glif.graph.decay_of`)
        tau (float, optional): Radius of the graph; needed if ``theta`` is
            :obj:`None`. (default: :obj:`None`)

    Shapes:
        - **input:** squared distances :math:`(E)`
        - **output:** weights :math:`(E)`

    Gradients reach ``sq_dist`` and ``theta``. In float32 a weight underflows to zero
    once :math:`\theta d^2` exceeds 104.

    Example:
        >>> edge_weights(torch.tensor([0.0, 1.0, 4.0]), theta=0.5)
        tensor([1.0000, 0.6065, 0.1353])
    """
    sq_dist = check_tensor("sq_dist", sq_dist)
    check_floating("sq_dist", sq_dist)
    check_finite("sq_dist", sq_dist)
    check_non_negative("sq_dist", sq_dist)
    if theta is None:
        if tau is None:
            msg = "'theta' or 'tau' must be given (got neither)"
            raise ValueError(f"{msg}. Pass the radius of the graph")
        theta = decay_of(None, tau)
    check_coefficient("theta", theta, minimum=0)
    if isinstance(theta, float) and theta > torch.finfo(sq_dist.dtype).max:
        return torch.exp(-theta * sq_dist.double()).to(sq_dist.dtype)
    return torch.exp(-theta * sq_dist)


def local_weights(sq_dist: Tensor, scale: Tensor, decay: float = DECAY) -> Tensor:
    r"""Similarity weights with a local scale for each pair.

    .. math::
        W_{ij} = \exp(-c \, d_{ij}^2 / s_{ij}^2), \qquad
        s_{ij} = \max(s_i, s_j)

    for :math:`s_i` the distance from :math:`i` to its :math:`k`-th nearest: local
    scaling after `Zelnik-Manor and Perona
    <https://papers.nips.cc/paper/2619-self-tuning-spectral-clustering>`_ (2004). Their
    product :math:`s_i s_j`, in place of the square of the larger, would give weight
    zero to edges of duplicates (:math:`s_j = 0`). No weight is below :math:`e^{-c}`,
    since at least one end of an edge has the other among its nearest.

    Args:
        sq_dist (torch.Tensor): *Squared* distances of pairs.
        scale (torch.Tensor): The larger scale :math:`s_{ij}` of each pair. Where it
            is zero or infinite, the weight is 1: the pair are duplicates, or there
            are fewer than :math:`k` other samples.
        decay (float, optional): The decay :math:`c` across the scale.
            (default: that of :func:`~pyg_glif.graph.decay_of`)

    Shapes:
        - **input:** squared distances :math:`(E)`, scales :math:`(E)`
        - **output:** weights :math:`(E)`, in the precision of ``sq_dist``

    Example:
        >>> local_weights(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([2.0, 2.0, 2.0]))
        tensor([1.0000, 0.6065, 0.1353])
    """
    square = scale.double().square()
    known = (square > 0) & square.isfinite()
    share = sq_dist.double() / torch.where(known, square, torch.inf)
    return torch.exp(-decay * share).to(sq_dist.dtype)


def edge_sq_dist(z: Tensor, edge_index: Tensor) -> Tensor:
    r"""Squared distance of the two ends of each edge.

    .. math::
        d_{ij}^2 = \| \mathbf{z}_i - \mathbf{z}_j \|_2^2

    Unlike the distances that come with a graph search, these carry a gradient to
    ``z``, and through it to a learnable distance.

    Args:
        z (torch.Tensor): Embedded coordinates, as
            :meth:`~pyg_glif.distances.FairDistance.embed` returns them.
        edge_index (torch.Tensor): Edges, in any order.

    Shapes:
        - **input:** coordinates :math:`(N, D)`, edges :math:`(2, E)`
        - **output:** squared distances :math:`(E)`

    Edges are worked on in chunks, forwards and backwards: nothing of size
    :math:`E \times D` is ever stored. Derivatives of every order are available.

    Example:
        >>> z = torch.tensor([[0.0], [3.0]], requires_grad=True)
        >>> sq_dist = edge_sq_dist(z, torch.tensor([[0], [1]]))
        >>> sq_dist.sum().backward()
        >>> sq_dist, z.grad
        (tensor([9.], grad_fn=<_EdgeSqDistBackward>), tensor([[-6.],
                [ 6.]]))
    """
    z = check_rows("z", z)
    edge_index = check_edges(edge_index, z.size(0))
    return _apply(_EdgeSqDist, z, edge_index)


# Let B be the E x N incidence matrix, (B u)_e = u_i - u_j for edge e = (i, j), and
#     P(u, v)_e = <(B u)_e, (B v)_e>      one number per edge,
#     M(g, u)   = B' diag(g) B u          one row per node.
# Both are linear in each argument, and with <.,.> over all entries
#     <g, P(u, v)> = <M(g, u), v> = <M(g, v), u>,
# so the adjoint of P is made of M, and that of M of M and P:
#     P, cotangent g:  du = M(g, v),  dv = M(g, u)
#     M, cotangent w:  dg = P(u, w),  du = M(g, w)
# The pair is closed under differentiation. Squared distances are P(z, z).


class _EdgeSqDist(Function):
    """P(z, z); its two equal gradients are one product M."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(z, edge_index)
        return _edge_dot(z, z, edge_index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        z, edge_index = ctx.saved_tensors
        return 2 * _apply(_NodeSum, grad, z, edge_index), None


class _DifferenceDot(Function):
    """P(u, v)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(u, v, edge_index)
        return _edge_dot(u, v, edge_index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        u, v, edge_index = ctx.saved_tensors
        need_u, need_v, _ = ctx.needs_input_grad
        grad_u = _apply(_NodeSum, grad, v, edge_index) if need_u else None
        grad_v = _apply(_NodeSum, grad, u, edge_index) if need_v else None
        return grad_u, grad_v, None


class _NodeSum(Function):
    """M(g, u)."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, u: Tensor, edge_index: Tensor) -> Tensor:
        ctx.save_for_backward(g, u, edge_index)
        return _node_sum(g, u, edge_index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        g, u, edge_index = ctx.saved_tensors
        need_g, need_u, _ = ctx.needs_input_grad
        grad_g = _apply(_DifferenceDot, u, grad, edge_index) if need_g else None
        grad_u = _apply(_NodeSum, g, grad, edge_index) if need_u else None
        return grad_g, grad_u, None


def _apply(function: Any, *tensors: Tensor) -> Tensor:
    """Calls an autograd function; torch leaves ``apply`` without types."""
    out: Tensor = function.apply(*tensors)
    return out


def _chunks(u: Tensor, edge_index: Tensor) -> Iterator[slice]:
    """Ranges of edges whose coordinates fit in one chunk."""
    step = max(1, _CHUNK_ELEMENTS // max(1, u.size(1)))
    for start in range(0, edge_index.size(1), step):
        yield slice(start, start + step)


def _differences(u: Tensor, edge_index: Tensor) -> Tensor:  # [N, D], [2, C] -> [C, D]
    """B u for a chunk of edges."""
    return u.index_select(0, edge_index[0]).sub_(u.index_select(0, edge_index[1]))


def _edge_dot(u: Tensor, v: Tensor, edge_index: Tensor) -> Tensor:  # -> [E]
    """P(u, v), in chunks of edges."""
    out = u.new_empty(edge_index.size(1))
    for chunk in _chunks(u, edge_index):
        edges = edge_index[:, chunk]
        left = _differences(u, edges)
        right = left if v is u else _differences(v, edges)
        torch.sum(left.mul_(right), dim=1, out=out[chunk])
    return out


def _node_sum(g: Tensor, u: Tensor, edge_index: Tensor) -> Tensor:  # -> [N, D]
    """M(g, u), in chunks of edges."""
    out = torch.zeros_like(u)
    for chunk in _chunks(u, edge_index):
        edges = edge_index[:, chunk]
        flow = _differences(u, edges).mul_(g[chunk].unsqueeze(1))
        # An expanded index takes torch's parallel path, which 'index_add_' lacks.
        out.scatter_add_(0, edges[0].unsqueeze(1).expand_as(flow), flow)
        out.scatter_add_(0, edges[1].unsqueeze(1).expand_as(flow), flow.neg_())
    return out
