"""Similarity graph as a value: edges, squared distances, neighbor rule."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.adjacency import check_sorted
from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_batch,
    check_count,
    check_edge_values,
    check_features,
    check_finite,
    check_floating,
    check_mask,
    check_non_negative,
    check_scalar,
    check_tensor,
)
from pyg_glif.graph._decide import called_within, edges_within
from pyg_glif.graph._points import SearchOptions, detached_copy
from pyg_glif.graph.knn import search_nearest
from pyg_glif.graph.radius import SearchResult, search_edges
from pyg_glif.graph.weights import edge_weights, local_weights
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization

if TYPE_CHECKING:
    from torch_geometric.data import Data
    from typing_extensions import Unpack


# Relative error of distances, beyond all that a search allows itself.
_SLACK = 0.01
_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class DegreeSummary(NamedTuple):
    """Summary of the degrees of a graph."""

    mean: float
    quantiles: dict[float, int]  # from the least (0.0) to the most (1.0)
    isolated: Tensor  # nodes without neighbors


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityGraph:
    r"""Similarity graph with squared distances, for weights, radii and Laplacians.

    :meth:`search` builds one. The edges are those of
    :func:`~pyg_glif.fair_radius_graph`; they are sorted and valid, so nothing
    made from them is checked or sorted again. The constructor checks edges from
    elsewhere, once.

    Args:
        edge_index (torch.Tensor): Both directions of every edge, sorted by row and
            column, without self-loops.
        sq_dist (torch.Tensor): Squared distance of every edge, the same number in both
            directions.
        num_nodes (int): Number of nodes.
        tau (float): Radius in units of the distance.
        batch (torch.Tensor, optional): Graph number of each node, from 0 without
            gaps. (default: :obj:`None`)
        k (int, optional): Number of nearest neighbors, if that is the rule.
            (default: :obj:`None`)
        scale (torch.Tensor, optional): Distance from each node to its ``k``-th
            nearest, at most ``tau``; infinite where there are fewer than ``k`` and
            ``tau`` is. Given if and only if ``k`` is. (default: :obj:`None`)

    Shapes:
        - **edge_index:** :math:`(2, E)`, **sq_dist:** :math:`(E)`,
          **batch:** :math:`(N)`, **scale:** :math:`(N)`

    A graph built by the constructor, not by :meth:`search`, knows no coordinates:
    :meth:`within` then goes by ``sq_dist``, with its rounding.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> graph = SimilarityGraph.search(x, tau=2.0)
        >>> graph
        SimilarityGraph(num_nodes=3, num_edges=4, tau=2)
        >>> graph.within(1.0).edge_index
        tensor([[0, 1],
                [1, 0]])
        >>> graph.weights(theta=0.5)
        tensor([0.6065, 0.6065, 0.1353, 0.1353])
    """

    edge_index: Tensor
    sq_dist: Tensor
    num_nodes: int
    tau: float
    batch: Tensor | None = None
    k: int | None = None
    scale: Tensor | None = None
    # The values that decided the search: coordinates, or distances of a function.
    _z: Tensor | None = field(default=None, kw_only=True)
    _dist: Tensor | None = field(default=None, kw_only=True)
    # Edges and distances that need no check, if they are those of this graph.
    _sound: tuple[Tensor, Tensor] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        sound = (None, None) if self._sound is None else self._sound
        if self.edge_index is not sound[0] or self.sq_dist is not sound[1]:
            self._check()
            object.__setattr__(self, "_sound", (self.edge_index, self.sq_dist))

    def _check(self) -> None:
        """Raises on anything that no search returns."""
        size = check_count("num_nodes", self.num_nodes, minimum=0)
        tau = check_scalar("tau", self.tau, minimum=0.0, allow_inf=True)
        pattern = check_sorted(self.edge_index, size)
        sq_dist = check_tensor("sq_dist", self.sq_dist)
        check_floating("sq_dist", sq_dist)
        check_edge_values("sq_dist", sq_dist, pattern.num_edges)
        check_finite("sq_dist", sq_dist)
        check_non_negative("sq_dist", sq_dist)
        if not torch.equal(sq_dist, sq_dist[pattern.reverse]):
            msg = "'sq_dist' must be equal in both directions of every edge"
            raise ValueError(f"{msg}. Use their mean")
        furthest = math.sqrt(float(sq_dist.max())) if len(sq_dist) else 0.0
        if furthest > (1.0 + _SLACK) * tau:
            msg = f"'sq_dist' must be at most the square of the radius {tau:g}"
            raise ValueError(f"{msg} (got {furthest:g} squared)")
        if (self.k is None) != (self.scale is None):
            raise ValueError("'scale' must be given if and only if 'k' is")
        if self.k is not None and self.scale is not None:
            check_count("k", self.k)
            shape, dtype = tuple(self.scale.shape), self.scale.dtype
            if dtype != torch.float64 or shape != (size,):
                msg = "'scale' must be float64 with one entry per node"
                raise ValueError(f"{msg} (got {dtype}, shape {shape} for {size})")
            limit = (1.0 + _SLACK) * tau
            within = (self.scale >= 0) & (self.scale <= limit)  # false for NaN
            if not bool(within.all()):
                msg = f"'scale' must be between 0 and the radius {tau:g}"
                got = float(self.scale[~within][0])
                raise ValueError(f"{msg} (got {got:g})")
        if self.batch is not None:
            batch = check_batch(self.batch, size)
            if not torch.equal(batch, self.batch):
                raise ValueError("'batch' must number graphs from 0 without gaps")
            if not torch.equal(batch[pattern.row], batch[pattern.col]):
                raise ValueError("'edge_index' must join no nodes of different graphs")

    @classmethod
    def from_sorted(
        cls, edge_index: Tensor, sq_dist: Tensor, num_nodes: int, tau: float
    ) -> "SimilarityGraph":
        """The radius graph of edges known to be valid and sorted, without a check."""
        return cls(edge_index, sq_dist, num_nodes, tau, _sound=(edge_index, sq_dist))

    @classmethod
    def _from_search(
        cls, result: SearchResult, x: Tensor, k: int | None = None
    ) -> "SimilarityGraph":
        """The graph of a search, whose edges need no check."""
        return cls(
            result.edge_index,
            result.sq_dist,
            x.size(0),
            result.tau,
            result.batch,
            k,
            result.scale,
            _z=None if result.z is None else detached_copy(result.z, x),
            _dist=result.dist,
            _sound=(result.edge_index, result.sq_dist),
        )

    @classmethod
    @without_autocast()
    def search(
        cls, x: Tensor, tau: float, **options: "Unpack[SearchOptions]"
    ) -> "SimilarityGraph":
        r"""Finds all pairs of samples within fair distance ``tau``, exactly.

        Takes the arguments of :func:`~pyg_glif.fair_radius_graph`. The coordinates
        are kept, as a copy if they are ``x`` itself.
        """
        x = check_features("x", x, options.get("distance"))
        return cls._from_search(search_edges(x, tau, **options), x)

    @classmethod
    @without_autocast()
    def nearest(
        cls,
        x: Tensor,
        k: int,
        *,
        mutual: bool = False,
        tau: float | None = None,
        **options: "Unpack[SearchOptions]",
    ) -> "SimilarityGraph":
        r"""Joins each sample to its ``k`` nearest neighbors, exactly.

        Takes the arguments of :func:`~pyg_glif.fair_knn_graph`. The radius of the
        graph is ``tau``, infinite if there is none; ``scale`` has the distance from
        each sample to its ``k``-th nearest. The coordinates are kept, as a copy if
        they are ``x`` itself.

        Example:
            >>> x = torch.tensor([[0.0], [1.0], [3.0]])
            >>> graph = SimilarityGraph.nearest(x, k=1)
            >>> graph
            SimilarityGraph(num_nodes=3, num_edges=4, k=1)
            >>> graph.scale
            tensor([1., 1., 2.], dtype=torch.float64)
        """
        x = check_features("x", x, options.get("distance"))
        result = search_nearest(x, k, mutual=mutual, tau=tau, **options)
        return cls._from_search(result, x, k)

    def __repr__(self) -> str:
        rule = [] if self.k is None else [f"k={self.k}"]
        if self.k is None or math.isfinite(self.tau):
            rule.append(f"tau={self.tau:g}")
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, {', '.join(rule)})"
        )

    @property
    def num_edges(self) -> int:
        """Number of edges, both directions counted."""
        return self.edge_index.size(1)

    def degrees(self) -> Tensor:  # [N], int64
        """Number of neighbors of each node."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    def degree_summary(self) -> DegreeSummary:
        """Mean and quantiles of :meth:`degrees`, and the isolated nodes.

        Example:
            >>> graph = SimilarityGraph.search(torch.tensor([[0.0], [1.0], [9.0]]), 2.0)
            >>> graph.degree_summary().quantiles[0.5]
            1
            >>> graph.degree_summary().isolated
            tensor([2])
        """
        degrees = self.degrees()
        ranks = [math.ceil(share * (self.num_nodes - 1)) for share in _SHARES]
        quantiles = degrees.sort().values[ranks].tolist() if self.num_nodes else []
        return DegreeSummary(
            self.num_edges / max(1, self.num_nodes),
            dict(zip(_SHARES, quantiles, strict=False)),
            (degrees == 0).nonzero().view(-1),
        )

    def weights(self, theta: float | Tensor | None = None) -> Tensor:  # [E]
        r"""Similarities ``exp(-theta * sq_dist)``, see :func:`~pyg_glif.edge_weights`.

        :obj:`None` stands for :math:`c / \tau^2`, see
        :func:`~pyg_glif.graph.decay_of`: weights fall from 1 for duplicates to
        :math:`e^{-c}` at the radius, whatever the unit. In a graph of nearest neighbors
        it stands for :func:`~pyg_glif.graph.local_weights`: the radius is then the
        larger distance to the ``k``-th nearest of the two. Gradients reach ``theta``.
        """
        if theta is None and self.scale is not None:
            row, col = self.edge_index
            scale = torch.maximum(self.scale[row], self.scale[col])
            return local_weights(self.sq_dist, scale)
        return edge_weights(self.sq_dist, theta, tau=self.tau)

    def _edges_within(self, tau: float) -> Tensor:  # [E]
        """Mask of the edges that a radius up to that of the graph keeps."""
        tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        if tau > self.tau:
            msg = f"'tau' must be at most the radius of the graph, {self.tau:g}"
            raise ValueError(f"{msg} (got {tau:g}). Search at the largest radius")
        if tau == self.tau or math.isinf(tau):
            return torch.ones_like(self.sq_dist, dtype=torch.bool)
        if self._dist is not None:
            return called_within(self._dist, tau)
        if self._z is not None:
            return edges_within(self._z, self.edge_index, self.sq_dist, tau)
        return self.sq_dist.double().sqrt() <= tau

    def within(self, tau: float) -> "SimilarityGraph":
        """The graph of a smaller radius: the edges that a search at ``tau`` finds."""
        keep = self._edges_within(tau)
        scale = None if self.scale is None else self.scale.clamp(max=tau)
        if bool(keep.all()):
            return replace(self, tau=float(tau), scale=scale)
        edge_index, sq_dist = self.edge_index[:, keep], self.sq_dist[keep]
        return replace(
            self,
            scale=scale,
            edge_index=edge_index,
            sq_dist=sq_dist,
            tau=float(tau),
            _dist=None if self._dist is None else self._dist[keep],
            _sound=(edge_index, sq_dist),
        )

    def subgraph(self, mask: Tensor) -> "SimilarityGraph":  # [N] bool
        """Subgraph induced by the nodes of a mask, in their order.

        Of a radius graph only: the nearest neighbors depend on which nodes are there.

        Example:
            >>> graph = SimilarityGraph.search(torch.tensor([[0.0], [1.0], [2.0]]), 1.0)
            >>> graph.subgraph(torch.tensor([False, True, True])).edge_index
            tensor([[0, 1],
                    [1, 0]])
        """
        if self.k is not None:
            msg = "'subgraph' must be called on a radius graph"
            raise ValueError(f"{msg} (got {self.k} nearest neighbors). Search anew")
        mask = check_mask("mask", mask, self.num_nodes).to(self.edge_index.device)
        row, col = self.edge_index
        kept = (mask[row] & mask[col]).nonzero()[:, 0]
        position = mask.cumsum(0) - 1
        edge_index = torch.stack([position[row[kept]], position[col[kept]]])
        sq_dist = self.sq_dist[kept]
        return replace(
            self,
            edge_index=edge_index,
            sq_dist=sq_dist,
            num_nodes=int(mask.sum()),
            batch=None if self.batch is None else self.batch[mask],
            _z=None if self._z is None else self._z[mask],
            _dist=None if self._dist is None else self._dist[kept],
            _sound=(edge_index, sq_dist),
        )

    def laplacian(
        self,
        theta: float | Tensor | None = None,
        normalization: Normalization = None,
    ) -> LaplacianOperator:
        """The Laplacian of the weights, see :class:`~pyg_glif.laplacian`."""
        return LaplacianOperator.from_sorted(
            self.edge_index,
            self.weights(theta),
            self.num_nodes,
            normalization=normalization,
            batch=self.batch,
        )

    def to_data(self, theta: float | Tensor | None = None) -> "Data":
        """A PyG ``Data`` with ``edge_index``, ``edge_weight`` and the batch, if any."""
        from torch_geometric.data import Data

        data = Data(edge_index=self.edge_index, edge_weight=self.weights(theta))
        data.num_nodes = self.num_nodes
        if self.batch is not None:
            data.batch = self.batch
        return data
