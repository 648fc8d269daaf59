"""Agreement of rankings by output with similarity."""

from typing import Any, Literal

import torch
from torch import Tensor

from pyg_glif._utils.adjacency import to_adjacency
from pyg_glif._utils.runtime import Progress, without_autocast
from pyg_glif._utils.sparse import Pattern
from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_features,
    check_outputs,
    check_same_rows,
)
from pyg_glif.graph.pairwise import slices

# Similarities of one block of rows with all rows: 32 MiB in float64.
_BLOCK_ENTRIES = 1 << 22

_Of = Literal["euclidean", "cosine"]


def ranking_ndcg(
    y: Tensor,
    x: Tensor | None = None,
    *,
    graph: tuple[Any, Tensor] | None = None,
    k: int = 10,
    outputs: _Of = "euclidean",
    progress: bool | None = None,
) -> Tensor:
    r"""Agreement of the samples nearest by output with the most similar (NDCG@k).

    For each sample, the others are ranked by how near their outputs are, and the first
    :math:`k` of them gain by their similarity :math:`s`,

    .. math::
        \mathrm{NDCG@}k = \frac{1}{N} \sum_i \frac{\sum_{r=1}^{k}
        (2^{s_{i \pi_i(r)}} - 1) / \log_2 (r + 1)}{\text{the same for the } k
        \text{ most similar}} ,

    the measure of REDRESS (Dong et al., KDD 2021). It depends on ranks only, so
    shrinking all outputs does not change it.

    Args:
        y (torch.Tensor): Outputs.
        x (torch.Tensor, optional): Features; similarity is then the cosine of rows,
            and negative cosines count as zero.
        graph (tuple, optional): In place of ``x``, a similarity graph: edges, as
            :class:`~pyg_glif.laplacian.LaplacianOperator` takes them, and weights;
            nodes without an edge have similarity zero.
        k (int): Places that count. (default: :obj:`10`)
        outputs (str): How outputs are compared, ``"euclidean"`` or ``"cosine"``.
            REDRESS takes the cosine of class probabilities; that of a single column
            would be one or minus one. (default: ``"euclidean"``)
        progress (bool, optional): Whether to show a progress bar; :obj:`None` shows
            it on a terminal if it takes seconds. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, features :math:`(N, F)`
        - **output:** a number from 0 to 1

    Where outputs are equal, the lower row number comes first. Samples without a
    similar one are left out; if none is left the value is NaN. Memory is that of one
    block of rows, time grows with the square of their number.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> ranking_ndcg(torch.tensor([0.9, 0.8, 0.1]), x, k=1)
        tensor(1.)
    """
    return _average(_discounted, y, x, graph, k, outputs, progress)


def ranking_err(
    y: Tensor,
    x: Tensor | None = None,
    *,
    graph: tuple[Any, Tensor] | None = None,
    k: int = 10,
    outputs: _Of = "euclidean",
    progress: bool | None = None,
) -> Tensor:
    r"""Expected reciprocal rank (ERR@k) of similar samples, ranked by output.

    A reader walks down the ranking of :func:`ranking_ndcg` and stops at a sample with
    probability :math:`R = (2^s - 1) / 2^{s_{\max}}`, :math:`s_{\max}` the largest
    similarity to the sample that is ranked for,

    .. math::
        \mathrm{ERR@}k = \frac{1}{N} \sum_i \sum_{r=1}^{k} \frac{1}{r} R_{i \pi_i(r)}
        \prod_{q < r} (1 - R_{i \pi_i(q)})

    (Chapelle et al., CIKM 2009; used by REDRESS).

    Args:
        y (torch.Tensor): Outputs.
        x (torch.Tensor, optional): Features, as in :func:`ranking_ndcg`.
        graph (tuple, optional): A similarity graph in place of ``x``.
        k (int): Places that count. (default: :obj:`10`)
        outputs (str): How outputs are compared. (default: ``"euclidean"``)
        progress (bool, optional): Whether to show a progress bar.
            (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, features :math:`(N, F)`
        - **output:** a number from 0 to 1

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
        >>> ranking_err(torch.tensor([0.9, 0.8, 0.1]), x, k=1)
        tensor(0.5000)
    """
    return _average(_reciprocal, y, x, graph, k, outputs, progress)


def _discounted(gain: Tensor, best: Tensor) -> Tensor:  # [B, k], [B, k] -> [B]
    """NDCG of every row, from similarities in ranked and in the best order."""
    rank = torch.arange(gain.size(1), device=gain.device, dtype=gain.dtype)
    discount = (rank + 2.0).log2().reciprocal()
    return ((gain.exp2() - 1.0) @ discount) / ((best.exp2() - 1.0) @ discount)


def _reciprocal(gain: Tensor, best: Tensor) -> Tensor:  # [B, k], [B, k] -> [B]
    """ERR of every row."""
    stop = (gain.exp2() - 1.0) / best[:, :1].exp2()
    reached = torch.cumprod(1.0 - stop, 1)
    reached = torch.cat([torch.ones_like(reached[:, :1]), reached[:, :-1]], 1)
    rank = torch.arange(1, gain.size(1) + 1, device=gain.device, dtype=gain.dtype)
    return (stop * reached / rank).sum(1)


@without_autocast()
def _average(
    measure: Any,
    y: Tensor,
    x: Tensor | None,
    graph: tuple[Any, Tensor] | None,
    k: int,
    outputs: _Of,
    progress: bool | None,
) -> Tensor:
    """Mean of a measure of rankings over samples with a similar one."""
    y = check_outputs("y", y).detach()
    check_choice("outputs", outputs, ("euclidean", "cosine"))
    if (x is None) == (graph is None):
        raise ValueError("'x' or 'graph' must be given, and not both")
    check_count("k", k, below=len(y))
    similarity = _Cosine(x, y) if graph is None else _Joined(*graph, len(y))
    value = y.reshape(len(y), -1).double()
    if outputs == "cosine":
        value = torch.nn.functional.normalize(value, dim=1)
    total, count = value.new_zeros(()), 0
    with Progress(len(y), "rankings", progress) as bar:
        for rows in slices(0, len(y), max(1, _BLOCK_ENTRIES // max(len(y), 1))):
            # For unit rows the order by distance is that by cosine.
            far = torch.cdist(
                value[rows], value, compute_mode="donot_use_mm_for_euclid_dist"
            )
            own = torch.arange(len(far), device=far.device)
            far[own, own + rows.start] = torch.inf
            order = _nearest(far, k)
            similar = similarity.rows(rows).to(far)
            similar[own, own + rows.start] = 0.0
            best = similar.topk(k, dim=1).values
            some = best[:, 0] > 0
            total += measure(similar.gather(1, order)[some], best[some]).sum()
            count += int(some.sum())
            bar.update(rows.stop - rows.start)
    return (total / count).to(y.dtype)


def _nearest(far: Tensor, k: int) -> Tensor:  # [B, N] -> [B, k]
    """The k nearest of every row; of equally far ones, the lower number first."""
    some = far.topk(min(k + 1, far.size(1)), dim=1, largest=False)
    column = some.indices[:, :k].sort(dim=1).values
    first = far.gather(1, column).sort(dim=1, stable=True).indices
    order = column.gather(1, first)
    if k < far.size(1):
        # Where the next one is as far as the last, their order is arbitrary.
        tied = some.values[:, k] == some.values[:, k - 1]
        order[tied] = far[tied].sort(dim=1, stable=True).indices[:, :k]
    return order


class _Cosine:
    """Similarity by features."""

    def __init__(self, x: Tensor | None, y: Tensor) -> None:
        x = check_features("x", x)
        check_same_rows("y", y, "x", x)
        self._unit = torch.nn.functional.normalize(x.detach().double(), dim=1)

    def rows(self, rows: slice) -> Tensor:  # [B, N]
        """Cosines with all rows, none of them negative."""
        return (self._unit[rows] @ self._unit.T).clamp_(min=0.0)


class _Joined:
    """Similarity by a graph."""

    def __init__(self, edge_index: Any, edge_weight: Tensor, num_nodes: int) -> None:
        pattern, weight, _ = to_adjacency(edge_index, edge_weight, num_nodes)
        self._pattern: Pattern = pattern
        self._weight = weight.detach()

    def rows(self, rows: slice) -> Tensor:  # [B, N]
        """Weights of the edges, zero where there is none."""
        pattern = self._pattern
        start, stop = (int(pattern.rowptr[row]) for row in (rows.start, rows.stop))
        part = slice(start, stop)
        out = self._weight.new_zeros(rows.stop - rows.start, pattern.num_nodes)
        index = (pattern.row[part] - rows.start, pattern.col[part])
        return out.index_put_(index, self._weight[part])
