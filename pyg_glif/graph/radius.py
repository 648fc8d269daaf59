"""Exact radius graph in the fair metric."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph._estimates import (
    check_memory,
    check_search,
    choose_basis,
    free_memory,
    sample_pairs,
)
from pyg_glif.graph._points import (
    Points,
    Strategy,
    check_search_input,
    coordinates,
)
from pyg_glif.graph._search import (
    CALLABLE_TILE,
    Pairs,
    PointSearch,
    callable_pairs,
)


@without_autocast()
def fair_radius_graph(
    x: Tensor,
    tau: float,
    *,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    strategy: Strategy = "auto",
    tile_size: int = 256,
    memory_budget: int | None = None,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Finds all pairs of samples within fair distance ``tau``, exactly.

    .. math::
        E = \{ (i, j) : i \ne j, \; d_{ij} \le \tau \}, \qquad
        d_{ij} = \| \mathbf{z}_i - \mathbf{z}_j \|_2, \quad
        \mathbf{z} = \mathrm{embed}(\mathbf{x})

    There is no cap on neighbors and nothing is approximated: whether a pair is an
    edge is decided in float64 on the embedded coordinates as they are, boundary
    included. Pairs that float64 rounding cannot tell from ``tau`` are kept if any of
    the usual orders of summation puts them within, so a ``tau`` taken from the data
    always includes the pair it came from.

    Args:
        x (torch.Tensor): Features, float32 or float64.
        tau (float): Radius in units of the distance (not squared). Zero keeps
            duplicates only, infinity all pairs.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        batch (torch.Tensor, optional): Graph number of each node, any non-negative
            whole numbers in any order; no edge joins two graphs.
            (default: :obj:`None`)
        strategy (str, optional): ``"projected"`` rules pairs out on a few
            coordinates first, ``"plain"`` multiplies everything out, ``"auto"``
            picks from a sample. All find the same edges. (default: ``"auto"``)
        tile_size (int, optional): Rows handled at once. (default: 256)
        memory_budget (int, optional): Bytes that edges and workspace may take.
            (default: four fifths of what is free)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if the search takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** features :math:`(N, F)`, batch :math:`(N)`
        - **output:** edges :math:`(2, E)` as int64, squared distances :math:`(E)`

    Both directions of every edge are returned, sorted by (row, column), without
    self-loops. Squared distances have the precision of ``x``. Their relative error is
    at most :math:`(D + 2) \, 2^{-52}` in float64 for :math:`D` coordinates; in float32
    1e-5 up to 64 coordinates, and :math:`2 \cdot 10^{-6} (D + 16)` beyond, a bound on
    the worst case that real data stays far below. Gradients do not pass through the
    search; :func:`~pyg_glif.graph.edge_sq_dist` recomputes distances with gradients.
    Raises :class:`~pyg_glif.errors.MemoryBudgetError` before any long work if the
    graph would not fit, and names a radius that would.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> fair_radius_graph(x, tau=1.0)
        (tensor([[0, 1],
                [1, 0]]), tensor([1., 1.]))
    """
    result = search_edges(
        x, tau, distance, batch, strategy, tile_size, memory_budget, progress
    )
    return result.edge_index, result.sq_dist


class SearchResult(NamedTuple):
    """Edges in canonical order, and the values that decided them."""

    edge_index: Tensor  # [2, E]
    sq_dist: Tensor  # [E]
    tau: float
    batch: Tensor | None  # [N], numbered from 0
    z: Tensor | None  # [N, D], coordinates; None for a callable distance
    dist: Tensor | None  # [E], the values of a callable distance
    scale: Tensor | None = None  # [N], float64: distance to the k-th nearest, <= tau


def search_edges(
    x: Tensor,
    tau: float,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    strategy: Strategy = "auto",
    tile_size: int = 256,
    memory_budget: int | None = None,
    progress: bool | None = None,
) -> SearchResult:
    """Checks the arguments of :func:`fair_radius_graph` and searches."""
    x, distance, batch = check_search_input(x, distance, batch, strategy, tile_size)
    tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
    pairs: Iterator[Pairs] = iter(())
    if not distance.is_embedding:
        if x.size(0) > 1:
            _check_callable(x, tau, distance, batch, memory_budget)
            pairs = callable_pairs(x, distance, batch, tau, progress=progress)
        edge_index, dist = both_directions(pairs, x.size(0), x.new_empty(0))
        return SearchResult(edge_index, dist.square(), tau, batch, None, dist)
    z = coordinates(distance, x)
    if x.size(0) > 1:
        points = Points.from_embedding(z, batch)
        check_search(points, tau, memory_budget)
        basis = choose_basis(points, tau, strategy)
        pairs = PointSearch(points, tau, basis, tile_size).pairs(progress=progress)
    edges = both_directions(pairs, x.size(0), x.new_empty(0))
    return SearchResult(*edges, tau, batch, z, None)


def _check_callable(
    x: Tensor,
    tau: float,
    distance: FairDistance,
    batch: Tensor | None,
    budget: int | None,
) -> None:
    """Raises if the edges by a function that a sample makes likely would not fit."""

    def block(rows: Tensor, cols: Tensor) -> Tensor:
        dist: Tensor = distance(x[rows], x[cols])
        return dist

    sample = sample_pairs(x.size(0), block, batch, (64, 1024), device=x.device)
    budget = free_memory(x.device) if budget is None else budget
    check_memory(sample, tau, 16 * CALLABLE_TILE**2, budget)


def both_directions(
    pairs: Iterable[Pairs], size: int, empty: Tensor
) -> tuple[Tensor, Tensor]:  # [2, E], [E]
    """Edges in both directions, sorted by (row, column), and the values of the pairs.

    ``empty`` has the dtype and device of the values, for a graph without edges.
    """
    device = empty.device
    # Pairs are held until the search ends: in int32 they take half the memory.
    narrow = torch.int32 if size < 2**31 else torch.int64
    parts = [(i.to(narrow), j.to(narrow), v) for i, j, v in pairs if i.numel()]
    if not parts:
        return torch.empty(2, 0, dtype=torch.long, device=device), empty
    first, second, value = (torch.cat(part) for part in zip(*parts, strict=True))
    # The pieces are joined: free them before the keys are allocated.
    del parts
    count = first.numel()
    key = torch.empty(2, count, dtype=torch.long, device=device)
    torch.add(second, first.long(), alpha=size, out=key[0])
    torch.add(first, second.long(), alpha=size, out=key[1])
    bits = max(1, (count - 1).bit_length())
    if size * size < 2 ** (63 - bits):
        # Sorting (row, column, pair) as one number needs no permutation afterwards.
        key.bitwise_left_shift_(bits).bitwise_or_(torch.arange(count, device=device))
        key = key.view(-1)
        if key.device.type == "cpu":
            # NumPy sorts whole numbers in place with vector instructions: ten times
            # faster.
            key.numpy().sort()
        else:
            key = key.sort().values
        pair = key & (2**bits - 1)
        key.bitwise_right_shift_(bits)
    else:
        key, order = key.view(-1).sort()
        pair = order.remainder_(count)
    edge_index = torch.empty(2, 2 * count, dtype=torch.long, device=device)
    torch.div(key, size, rounding_mode="floor", out=edge_index[0])
    torch.sub(key, edge_index[0], alpha=size, out=edge_index[1])
    return edge_index, value[pair]
