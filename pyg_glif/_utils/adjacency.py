"""Similarity graphs of every accepted form in one checked, sorted form."""

from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.sparse import Pattern
from pyg_glif._utils.validation import (
    check_edge_values,
    check_edges,
    check_finite,
    check_floating,
    check_indices,
    check_non_negative,
    check_tensor,
    check_unbatched,
    full_precision,
)

# Two directions of one edge may be computed in a different order: exp(-theta d^2)
# then differs by theta d^2 units of float32 rounding.
_SYMMETRY_RTOL = 1e-4


def to_adjacency(
    edge_index: Any, edge_weight: Tensor | None, num_nodes: int | None
) -> tuple[Pattern, Tensor, int]:
    """Checks a graph and returns its pattern, and float64 weights in its order.

    Self-loops are dropped and the weights of repeated edges add up. The weights keep
    their gradient; both directions of an edge get the mean of the two weights, so
    that gradients are symmetric as well. The last value says how often an edge was
    repeated at most, beyond its first time.
    """
    row, col, weight, num_nodes = _to_coo(edge_index, edge_weight, num_nodes)
    if weight is None:
        weight = torch.ones(row.numel(), dtype=torch.float64, device=row.device)
    else:
        check_unbatched("edge_weight", weight, "Call once for each graph")
        check_finite("edge_weight", weight.detach())
        check_non_negative("edge_weight", weight.detach())
    row, col, weight, repeats = _canonical(row, col, weight.double(), num_nodes)
    pattern = _symmetric_pattern(row, col, num_nodes)
    return pattern, _symmetric_weight(pattern, weight), repeats


def check_sorted(edge_index: Tensor, num_nodes: int) -> Pattern:
    """The pattern of edges that are in the one form this library makes them in.

    Both directions of every edge, each once, sorted by row and column, no self-loops.
    """
    edges = check_edges(check_tensor("edge_index", edge_index), num_nodes)
    if edge_index.dtype != torch.int64:
        msg = f"'edge_index' must be int64 (got {edge_index.dtype})"
        raise TypeError(f"{msg}. Use 'edge_index.long()'")
    row, col = edges[0], edges[1]
    loops = (row == col).nonzero()
    if loops.numel():
        node = int(row[loops[0]])
        raise ValueError(f"'edge_index' must hold no self-loops (got one at {node})")
    key = row * num_nodes + col
    unsorted = (key[1:] <= key[:-1]).nonzero()
    if unsorted.numel():
        index = int(unsorted[0]) + 1
        first, second = (tuple(edges[:, i].tolist()) for i in (index - 1, index))
        msg = "'edge_index' must be sorted by row and column, every edge once"
        msg = f"{msg} (got {second} after {first})"
        raise ValueError(f"{msg}. Use 'torch_geometric.utils.coalesce'")
    return _symmetric_pattern(row, col, num_nodes)


def _to_coo(
    graph: Any, weight: Tensor | None, num_nodes: int | None
) -> tuple[Tensor, Tensor, Tensor | None, int]:
    """Rows, columns, weights and size of any accepted form."""
    matrix = _matrix_to_coo(graph)
    if matrix is None:
        if hasattr(graph, "as_tensor"):  # torch_geometric.EdgeIndex
            graph = graph.as_tensor()
        edges = check_edges(graph)
        if num_nodes is None:
            num_nodes = int(edges.max()) + 1 if edges.numel() else 0
        check_indices("edge_index", edges, num_nodes)
        row, col = edges[0], edges[1]
        if weight is not None:
            weight = check_edge_values("edge_weight", weight, row.numel())
        return row, col, weight, num_nodes
    if weight is not None:
        msg = "'edge_weight' must be None when 'edge_index' is a sparse matrix"
        raise ValueError(f"{msg}. Its values are the weights")
    row, col, weight, size = matrix
    if size[0] != size[1] or num_nodes not in (None, size[0]):
        wanted = "square" if num_nodes is None else f"{num_nodes} x {num_nodes}"
        msg = f"'edge_index' must be {wanted} as a sparse matrix"
        raise ValueError(f"{msg} (got {size[0]} x {size[1]})")
    return row, col, weight, size[0]


def _matrix_to_coo(
    graph: Any,
) -> tuple[Tensor, Tensor, Tensor | None, tuple[int, int]] | None:
    """Entries of a sparse matrix, or None if ``graph`` is not one."""
    if hasattr(graph, "sparse_sizes") and hasattr(graph, "coo"):  # SparseTensor
        row, col, value = graph.coo()
        if value is not None:
            value = full_precision(value)
            check_floating("edge_index", value)
        return row, col, value, (graph.sparse_size(0), graph.sparse_size(1))
    if not isinstance(graph, Tensor) or graph.layout == torch.strided:
        return None
    if graph.layout not in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        raise TypeError(f"'edge_index' must be COO, CSR or CSC (got {graph.layout})")
    check_floating("edge_index", graph)
    size = (graph.size(0), graph.size(1))
    if graph.layout == torch.sparse_coo:
        graph = graph.coalesce()
        row, col = graph.indices()
        return row, col, graph.values(), size
    compressed, plain = (
        (graph.crow_indices(), graph.col_indices())
        if graph.layout == torch.sparse_csr
        else (graph.ccol_indices(), graph.row_indices())
    )
    # A symmetric matrix has the same rows as columns, so CSC needs no transpose.
    major = torch.arange(compressed.numel() - 1, device=plain.device)
    row = major.repeat_interleave(compressed.long().diff())
    return row, plain.long(), graph.values(), size


def _canonical(
    row: Tensor, col: Tensor, weight: Tensor, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor, int]:
    """Edges sorted by (row, column), repeated ones added up, without self-loops.

    Also returns how often the most repeated edge was added to.
    """
    keep = row != col
    if not bool(keep.all()):
        row, col, weight = row[keep], col[keep], weight[keep]
    key = row * num_nodes + col
    if bool((key[1:] > key[:-1]).all()):
        # Not views: the caller may write to the edges later.
        return row.clone(), col.clone(), weight, 0
    key, inverse, count = torch.unique(key, return_inverse=True, return_counts=True)
    weight = weight.new_zeros(key.numel()).index_add(0, inverse, weight)
    row = key.div(num_nodes, rounding_mode="floor")
    repeats = int(count.max()) - 1
    return row, key - row * num_nodes, weight, repeats


def _symmetric_pattern(row: Tensor, col: Tensor, num_nodes: int) -> Pattern:
    """The pattern, once every edge is known to have its reverse."""
    pattern = Pattern.of(row, col, num_nodes)
    reverse = pattern.reverse
    if not (torch.equal(col[reverse], row) and torch.equal(row[reverse], col)):
        _raise_one_directional(row, col, num_nodes)
    return pattern


def _raise_one_directional(row: Tensor, col: Tensor, num_nodes: int) -> None:
    """Raises, naming the first edge without its reverse."""
    has_reverse = torch.isin(row * num_nodes + col, col * num_nodes + row)
    first = int((~has_reverse).nonzero()[0])
    edge = (int(row[first]), int(col[first]))
    msg = "'edge_index' must hold both directions of every edge"
    msg = f"{msg} (got {edge} without {edge[::-1]})"
    raise ValueError(f"{msg}. Use 'torch_geometric.utils.to_undirected'")


def _symmetric_weight(pattern: Pattern, weight: Tensor) -> Tensor:
    """Mean of the two directions, which must agree up to rounding."""
    other = weight[pattern.reverse]
    difference = (weight - other).detach().abs()
    limit = _SYMMETRY_RTOL * torch.maximum(weight, other).detach()
    if bool((difference > limit).any()):
        index = int((difference - limit).argmax())
        edge = (int(pattern.row[index]), int(pattern.col[index]))
        values = f"{float(weight[index]):g} for {edge}, {float(other[index]):g} for"
        msg = "'edge_weight' must be equal in both directions of every edge"
        raise ValueError(f"{msg} (got {values} {edge[::-1]})")
    return 0.5 * (weight + other)
