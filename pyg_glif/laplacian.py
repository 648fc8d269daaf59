r"""Graph Laplacians, sole owner of normalisation, self-weight and isolated nodes.

Every Laplacian here is :math:`\mathbf{L} = \mathrm{diag}(a) - \mathbf{V}` with a
symmetric, non-negative :math:`\mathbf{V}` that has no diagonal. With weights
:math:`w_{ij}`, degrees :math:`d_i = \sum_j w_{ij}` and the self-weight
:math:`w_{ii} = 1` of the authors, :math:`\tilde w_{ij} = w_{ij} /
\sqrt{(d_i + 1)(d_j + 1)}` and :math:`\tilde d_i = \sum_j \tilde w_{ij}` (the diagonal
included):

=============  =======================================  ==============================
normalization  :math:`v_{ij}`                           :math:`a_i`
=============  =======================================  ==============================
``None``       :math:`w_{ij}`                           :math:`\sum_j v_{ij}`
``"density"``  :math:`\tilde w_{ij}`                    :math:`\sum_j v_{ij}`
``"nrw"``      :math:`\tilde w_{ij}                     :math:`\sum_{j \ne i}
               (1/\tilde d_i + 1/\tilde d_j)/2`         \tilde w_{ij} / \tilde d_i`
=============  =======================================  ==============================

A node without neighbors has a zero row in each of them: it is returned unchanged.
"""

import math
from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.adjacency import to_adjacency
from pyg_glif._utils.collectives import Collectives, once
from pyg_glif._utils.lanczos import smallest_eigenvalue
from pyg_glif._utils.sparse import Pattern, column_energy, connected_components, spmm
from pyg_glif._utils.validation import (
    check_batch,
    check_choice,
    check_count,
    check_node_rows,
    check_rank,
)
from pyg_glif.typing import Normalization

#: Weight of every node with itself, as the authors have it (``W_ii = 1``).
SELF_WEIGHT = 1.0


class LaplacianOperator:
    r"""The Laplacian of one similarity graph, or of several in a batch.

    The graph is checked and sorted once; the operator can then be passed to
    :func:`~pyg_glif.glif_smooth` any number of times in place of ``edge_index``.

    Args:
        edge_index (Tensor or SparseTensor): Both directions of every edge, as
            :obj:`[2, num_edges]`, ``EdgeIndex``, a ``torch.sparse`` matrix or a
            ``torch_sparse.SparseTensor``. Self-loops are dropped, the weights of
            repeated edges add up.
        edge_weight (Tensor, optional): Non-negative weights, equal in both directions.
            (default: :obj:`None`, all ones)
        num_nodes (int, optional): Number of nodes; read off the edges if not given.
        normalization (str, optional): :obj:`None`, :obj:`"nrw"` or :obj:`"density"`.
            (default: :obj:`None`)
        batch (Tensor, optional): Graph number of each node. Edges stay within a graph.

    Shapes:
        - **edge_index:** :math:`(2, E)`, **edge_weight:** :math:`(E)`
        - **batch:** :math:`(N)`

    Products are computed in float64 and returned in the type of their argument.
    Gradients reach ``edge_weight``.

    Example:
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> lap = LaplacianOperator(edge_index)
        >>> lap
        LaplacianOperator(num_nodes=3, num_edges=4, normalization=None)
        >>> lap @ torch.tensor([0.0, 3.0, 3.0])
        tensor([-3.,  3.,  0.])
    """

    #: Reductions over all nodes, also over those that other processes hold.
    collectives: Collectives = Collectives()

    def __init__(
        self,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        num_nodes: int | None = None,
        *,
        normalization: Normalization = None,
        batch: Tensor | None = None,
    ) -> None:
        check_choice("normalization", normalization, (None, "nrw", "density"))
        if num_nodes is not None:
            check_count("num_nodes", num_nodes, minimum=0)
        elif batch is not None:
            num_nodes = batch.numel()
        pattern, weight, repeats = to_adjacency(edge_index, edge_weight, num_nodes)
        if batch is not None:
            batch = _checked_batch(batch, pattern)
        self._set(pattern, weight, normalization, batch, repeats)

    @classmethod
    def from_sorted(
        cls,
        edge_index: Tensor,
        edge_weight: Tensor,
        num_nodes: int,
        *,
        normalization: Normalization = None,
        batch: Tensor | None = None,
    ) -> "LaplacianOperator":
        """The operator of a graph that is known to be in order, without a check.

        Args:
            edge_index (Tensor): Both directions of every edge, each once, sorted by
                row and column, without self-loops.
            edge_weight (Tensor): Finite, non-negative weights, the same number in
                both directions.
            num_nodes (int): Number of nodes.
            normalization (str, optional): As above. (default: :obj:`None`)
            batch (Tensor, optional): Graph numbers from 0 without gaps; no edge joins
                two graphs. (default: :obj:`None`)
        """
        check_choice("normalization", normalization, (None, "nrw", "density"))
        out = cls.__new__(cls)
        pattern = Pattern.of(edge_index[0], edge_index[1], num_nodes)
        out._set(pattern, edge_weight.double(), normalization, batch)
        return out

    def reweighted(self, factor: Tensor) -> "LaplacianOperator":  # [E] -> operator
        r"""The operator whose entry :math:`v_{ij}` is multiplied by a factor.

        Degrees, normalisation and the scale of ``lam`` stay those of this operator:
        what is weighted is its Laplacian, not the graph. Gradients reach ``factor``.

        Args:
            factor (Tensor): A non-negative number for every edge of ``pattern``, the
                same in both directions. ``"nrw"`` is refused: its diagonal is not
                the sum of a row.
        """
        check_choice("normalization", self.normalization, (None, "density"))
        out = copy(self)
        out.__dict__.pop("surplus", None)
        out.off_diagonal = self.off_diagonal * factor
        out.diagonal = self.pattern.row_sum(out.off_diagonal)
        out._repeats = self._repeats + 4  # the factor, and the product with it
        return out

    def _set(
        self,
        pattern: Pattern,
        weight: Tensor,
        normalization: Normalization,
        batch: Tensor | None,
        repeats: int = 0,
    ) -> None:
        """Stores a checked graph, and computes degrees and entries."""
        self.pattern, self.weight = pattern, weight
        self.normalization, self.batch = normalization, batch
        self._repeats = repeats  # additions behind the weight of a repeated edge
        self.deg = pattern.row_sum(weight)  # [N], without the self-weight
        # a: [N], v: [E]
        self.diagonal, self.off_diagonal = self._entries(normalization)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, normalization={self.normalization!r})"
        )

    @property
    def num_nodes(self) -> int:
        """Number of rows."""
        return self.pattern.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges, both directions counted."""
        return self.pattern.num_edges

    @property
    def is_psd(self) -> bool:
        """Whether no eigenvalue is negative, which holds for all but ``"nrw"``."""
        return self.normalization != "nrw"

    @property
    def keeps_constants(self) -> bool:
        """Whether signals constant on every component have a product of zero."""
        return self.is_psd

    @cached_property
    def surplus(self) -> Tensor | None:  # [N]
        """Excess of the diagonal over the rest of its row; None where that is zero."""
        if self.keeps_constants:
            return None
        return self.diagonal - self.pattern.row_sum(self.off_diagonal)

    @property
    def longest_row(self) -> int:
        """The largest number of neighbors that a node has."""
        return int(self.pattern.rowptr.diff().max()) if self.num_nodes else 0

    @property
    def roundings(self) -> int:
        r"""Number of float64 operations in a row behind an entry times ``lam``.

        The entry :math:`\lambda v_{ij}` that a solver works with, scale included, is
        the exact one up to a factor of at most :math:`(1 + 2^{-53})^n`, or one over it.
        """
        weight = self._repeats + 2  # repeated edges added, the mean of both directions
        if self.normalization is None:
            return weight
        longest = self.longest_row
        deg = weight + longest
        scale = deg + self._mean_roundings
        half = weight + deg + 12  # the weight, and a root of the degree at both ends
        if self.normalization == "density":
            return half + scale
        return half + 2 * (half + longest + 4) + scale

    @cached_property
    def lam_scale(self) -> Tensor:  # 0-d, or [N] for a batch
        """Factor of ``lam``, one or the average degree."""
        return _lam_scale(self.deg, self.normalization, self.batch)

    @once
    def scaled_deg(self) -> Tensor:  # [N]
        r"""Degrees of :math:`\tilde{\mathbf{W}}`, without the self-weight."""
        return self._entries("density")[0]

    @cached_property
    def components(self) -> tuple[Tensor, Tensor]:
        """Component number of each node, and the size of each component."""
        label = connected_components(self.pattern)
        _, label, size = torch.unique(label, return_inverse=True, return_counts=True)
        return label, size

    @cached_property
    def num_joined(self) -> int:
        """Number of components with more than one node."""
        return int((self.components[1] > 1).sum())

    @property
    def joined(self) -> Callable[[Tensor], Tensor] | None:
        """Sum over components that other processes share, if there are any."""
        return None

    def keep_components(self, known: "LaplacianOperator", rows: Tensor) -> None:
        """Takes over the components of an operator that has more nodes than this one.

        Without some nodes a component may fall apart. A signal constant on all of its
        parts has a product of zero as before, so that solvers may take them for one.
        """
        label = known.components[0][rows]
        _, label, size = torch.unique(label, return_inverse=True, return_counts=True)
        self.__dict__["components"] = label, size

    @cached_property
    def scaled_eigenvalue(self) -> tuple[float, float]:
        """Bounds on the smallest eigenvalue of the Laplacian times ``lam_scale``."""
        if self.is_psd or self.num_edges == 0:
            return 0.0, 0.0
        with torch.no_grad():
            scale = self.lam_scale.expand(self.num_nodes)
            # Both ends of an edge are in one graph and so have one scale.
            value = scale[self.pattern.row] * self.off_diagonal
            return smallest_eigenvalue(self.pattern, scale * self.diagonal, value)

    @property
    def _mean_roundings(self) -> int:
        """Additions in the longest chain of an average degree, and its division."""
        if self.batch is None:
            return max(self.num_nodes, 2).bit_length() + 2
        return int(torch.bincount(self.batch).max()) + 2

    def matmul(self, f: Tensor) -> Tensor:  # [N] or [N, C]
        """Product with a vector or a block of columns, in float64 inside."""
        check_rank("f", f, 1, 2)
        x = f.double().reshape(f.size(0), math.prod(f.shape[1:]))
        out = self.diagonal.unsqueeze(1) * x - spmm(self.pattern, self.off_diagonal, x)
        return out.reshape(f.shape).to(f.dtype)

    __matmul__ = matmul

    def to_dense(self) -> Tensor:  # [N, N] float64
        """The Laplacian as a dense matrix, differentiable."""
        dense = torch.diag(self.diagonal)
        ends = (self.pattern.row, self.pattern.col)
        return dense.index_put(ends, -self.off_diagonal)

    def quadratic(self, f: Tensor) -> Tensor:  # [N] -> 0-d, [N, C] -> [C]
        r"""Energy :math:`f^\top \mathbf{L} f` of each column, by differences.

        Summing squared differences, not entries of a product, keeps the energy of an
        almost constant signal accurate and, for a PSD Laplacian, non-negative.
        """
        check_rank("f", f, 1, 2)
        x = f.double().reshape(f.size(0), math.prod(f.shape[1:]))
        energy = 0.5 * column_energy(self.pattern, self.off_diagonal, x)
        if self.surplus is not None:
            energy = energy + self.surplus @ x.square()
        return (energy[0] if f.dim() == 1 else energy).to(f.dtype)

    def _entries(
        self, normalization: Normalization
    ) -> tuple[Tensor, Tensor]:  # a: [N], v: [E]
        """Diagonal and negated off-diagonal entries of a Laplacian."""
        row, col = self.pattern.row, self.pattern.col
        return _entries(
            self.weight,
            self.deg,
            normalization,
            row_sum=self.pattern.row_sum,
            ends=lambda node: (node[row], self.collectives.with_halo(node)[col]),
        )


def _checked_batch(batch: Tensor, pattern: Pattern) -> Tensor:
    """Graph numbers, once no edge is known to cross graphs."""
    batch = check_batch(batch, pattern.num_nodes).to(pattern.row.device)
    crosses = batch[pattern.row] != batch[pattern.col]
    if bool(crosses.any()):
        first = int(crosses.nonzero()[0])
        edge = (int(pattern.row[first]), int(pattern.col[first]))
        msg = "'batch' must put both ends of every edge into one graph"
        raise ValueError(f"{msg} (got edge {edge} between two)")
    return batch


def as_laplacian(
    edge_index: Any,
    edge_weight: Tensor | None,
    normalization: Normalization,
    batch: Tensor | None,
    **signal: Tensor,
) -> LaplacianOperator:
    """The graph of a signal: built from edges, or checked if it is an operator.

    ``signal`` is one tensor with a row for each node, under the name of its argument.
    """
    ((name, value),) = signal.items()
    if not isinstance(edge_index, LaplacianOperator):
        return LaplacianOperator(
            edge_index,
            edge_weight,
            normalization=normalization,
            num_nodes=value.size(0),
            batch=batch,
        )
    for other, argument in (("edge_weight", edge_weight), ("batch", batch)):
        if argument is not None:
            msg = f"'{other}' must be None when 'edge_index' is a LaplacianOperator"
            raise ValueError(f"{msg}. Pass it to the operator")
    if normalization is not None:
        check_choice("normalization", normalization, (edge_index.normalization,))
    check_node_rows(name, value, edge_index.num_nodes)
    return edge_index


def entries_beside(
    known: LaplacianOperator,
    outer: tuple[Tensor, Tensor, Tensor],
    inner: tuple[Tensor, Tensor, Tensor],
    num_new: int,
) -> tuple[Tensor, Tensor, Tensor]:  # a: [M], v: [P] and [Q]
    """Rows of the Laplacian for new nodes beside known ones, whose degrees stay.

    Args:
        known (LaplacianOperator): The known nodes.
        outer (tuple): New node, known node and weight of every edge between them.
        inner (tuple): New node, new node and weight of every edge, both directions.
        num_new (int): Number of new nodes.

    Returns the diagonal, and the negated entries for outer and for inner edges.
    """
    row, col, weight = outer
    # Every outer edge ends at a node of its own, with the degrees of the known one:
    # the cost is that of the edges, whatever the number of known nodes.
    left = torch.cat([row, inner[0]])
    ends = torch.arange(num_new, num_new + row.numel(), device=row.device)
    right = torch.cat([ends, inner[1]])
    total = known.scaled_deg[col] if known.normalization == "nrw" else known.deg[col]

    def row_sum(value: Tensor, fixed: Tensor = total) -> Tensor:
        new = value.new_zeros(num_new).index_add(0, left, value)
        return torch.cat([new, fixed])

    value = torch.cat([weight, inner[2]])
    diagonal, value = _entries(
        value,
        row_sum(value, known.deg[col]),
        known.normalization,
        row_sum=row_sum,
        ends=lambda node: (node[left], node[right]),
    )
    return diagonal[:num_new], value[: row.numel()], value[row.numel() :]


def message_entries(
    target: Tensor,
    source: Tensor,
    weight: Tensor,
    num_nodes: int,
    normalization: Normalization,
    batch: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # a: [N], v: [E], lam_scale: 0-d or [N]
    """Entries and ``lam_scale`` of the Laplacian of messages, without any check.

    Rows belong to targets, degrees are sums of incoming weights. Shapes do not depend
    on values, so that the function can be traced; graph numbers in ``batch`` must
    therefore be below ``num_nodes``.
    """

    def row_sum(value: Tensor, index: Tensor = target) -> Tensor:
        return value.new_zeros(num_nodes).index_add(0, index, value)

    deg = row_sum(weight)
    diagonal, value = _entries(
        weight,
        deg,
        normalization,
        row_sum=row_sum,
        ends=lambda node: (node[target], node[source]),
    )
    if normalization is None or num_nodes == 0:
        return diagonal, value, deg.new_ones(())
    deg = deg + SELF_WEIGHT
    if batch is None:
        return diagonal, value, deg.mean()
    count = row_sum(torch.ones_like(deg), batch)
    return diagonal, value, (row_sum(deg, batch) / count.clamp(min=1.0))[batch]


def _entries(
    weight: Tensor,
    deg: Tensor,
    normalization: Normalization,
    row_sum: Callable[[Tensor], Tensor],
    ends: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """The formulas of the module, for weights on edges or in a matrix.

    ``row_sum`` adds up weights by node, ``ends`` gives the values of a node vector at
    both ends of every weight.
    """
    if normalization is None:
        return deg, weight
    # The self-weight keeps every power below away from zero, so that isolated
    # nodes and underflowed weights have finite gradients.
    deg = deg + SELF_WEIGHT
    left, right = ends(deg.rsqrt())
    # In this order both directions of an edge are rounded alike: the bound on the
    # error of a solve relies on entries that are symmetric to the last digit.
    value = weight * (left * right)
    total = row_sum(value)
    if normalization == "density":
        return total, value
    inverse = (total + SELF_WEIGHT / deg).reciprocal()
    left, right = ends(inverse)
    return total * inverse, 0.5 * value * (left + right)


def _lam_scale(
    deg: Tensor, normalization: Normalization, batch: Tensor | None
) -> Tensor:  # 0-d, or [N] for a batch
    """One, or the average degree of each graph with the self-weight counted.

    ``batch`` must be numbered from 0 without gaps, as ``check_batch`` returns it.
    """
    if normalization is None or deg.numel() == 0:
        return torch.ones((), dtype=torch.float64, device=deg.device)
    deg = deg + SELF_WEIGHT
    if batch is None:
        return _pairwise_sum(deg) / deg.numel()
    count = torch.bincount(batch)
    total = deg.new_zeros(count.numel()).index_add(0, batch, deg)
    return (total / count)[batch]


def _pairwise_sum(x: Tensor) -> Tensor:  # [N] -> 0-d
    """The sum in as many roundings as ``N`` has binary digits, in a fixed order."""
    while x.numel() > 1:
        half = x.numel() // 2
        x = torch.cat([x[:half] + x[half : 2 * half], x[2 * half :]])
    return x.sum()
