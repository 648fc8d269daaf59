"""Similarity of nodes by the neighbors they share in a given graph."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.adjacency import to_adjacency
from pyg_glif._utils.runtime import Progress, without_autocast
from pyg_glif._utils.validation import check_choice, check_count
from pyg_glif.graph.pairwise import slices

# Rows of the product that are held at once before the most similar are picked.
_ROWS = 4096


@without_autocast()
def structural_similarity(
    edge_index: Any,
    num_nodes: int | None = None,
    *,
    kind: Literal["cosine", "jaccard"] = "cosine",
    k: int | None = None,
    self_loops: bool = True,
    progress: bool | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Similarity of nodes by the neighbors that they share in a given graph.

    With :math:`N_i` the neighbors of :math:`i`, :math:`i` among them if
    ``self_loops``,

    .. math::
        \mathrm{cosine}_{ij} = \frac{|N_i \cap N_j|}{\sqrt{|N_i| \, |N_j|}}, \qquad
        \mathrm{jaccard}_{ij} = \frac{|N_i \cap N_j|}{|N_i \cup N_j|} .

    The cosine is that of the rows of the adjacency matrix, as InFoRM, GUIDE and
    PyGDebias use it. The result is a similarity graph for
    :func:`~pyg_glif.glif_smooth`: exact, and sparse from the first step on.

    Args:
        edge_index (Tensor or SparseTensor): The graph, both directions of every edge;
            weights do not count.
        num_nodes (int, optional): Number of nodes; read off the edges if not given.
        kind (str): ``"cosine"`` or ``"jaccard"``. (default: ``"cosine"``)
        k (int, optional): Keeps the ``k`` most similar of each node, ties included; a
            pair stays if either keeps the other. (default: :obj:`None`, all that share
            a neighbor)
        self_loops (bool): Whether a node counts as its own neighbor, so that
            adjacent nodes share something. (default: :obj:`True`)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if it takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** edges :math:`(2, E)`
        - **output:** edges :math:`(2, P)` in both directions, sorted, without
          self-loops, and their similarities :math:`(P)` in float64

    SciPy's sparse product does the work, on the CPU. Memory is that of the result and
    of one block of rows.

    Example:
        >>> path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> structural_similarity(path, self_loops=False)
        (tensor([[0, 2],
                [2, 0]]), tensor([1., 1.], dtype=torch.float64))
    """
    check_choice("kind", kind, ("cosine", "jaccard"))
    if k is not None:
        check_count("k", k)
    if num_nodes is not None:
        check_count("num_nodes", num_nodes, minimum=0)
    from scipy.sparse import csr_matrix, eye, vstack

    pattern, _, _ = to_adjacency(edge_index, None, num_nodes)
    size, device = pattern.num_nodes, pattern.row.device
    ptr, index = pattern.rowptr.cpu().numpy(), pattern.colidx.cpu().numpy()
    graph = csr_matrix((np.ones(len(index)), index, ptr), shape=(size, size))
    if self_loops:
        graph = graph + eye(size, format="csr")
    degree = np.diff(graph.indptr).astype(np.float64)
    blocks = []
    with Progress(size, "shared neighbors", progress) as bar:
        for rows in slices(0, size, _ROWS):
            # Entry (i, j) counts the neighbors that i and j share.
            block = (graph[rows] @ graph).tocoo()
            row, col, shared = block.row + rows.start, block.col, block.data
            if kind == "cosine":
                value = shared / np.sqrt(degree[row] * degree[col])
            else:
                value = shared / (degree[row] + degree[col] - shared)
            keep = row != col
            if k is not None:
                keep &= value >= _kth_largest(row, np.where(keep, value, -1.0), k, size)
            entries = (value[keep], (block.row[keep], col[keep]))
            blocks.append(csr_matrix(entries, shape=(block.shape[0], size)))
            bar.update(rows.stop - rows.start)
    similar = vstack(blocks, format="csr") if blocks else graph
    if k is not None:
        similar = similar.maximum(similar.T).tocsr()
    similar.sort_indices()
    row = np.repeat(np.arange(size), np.diff(similar.indptr))
    pairs = torch.from_numpy(np.stack([row, similar.indices]).astype(np.int64))
    return pairs.to(device), torch.from_numpy(similar.data).to(device)


def _kth_largest(
    row: NDArray[np.int32], value: NDArray[np.float64], k: int, size: int
) -> NDArray[np.float64]:
    """K-th largest value in the row of every entry, or the smallest of fewer."""
    order = np.lexsort((-value, row))
    count = np.bincount(row, minlength=size)
    first = np.cumsum(count) - count
    kth = order[np.minimum(first + k, first + count)[row] - 1]
    out: NDArray[np.float64] = value[kth]
    return out
