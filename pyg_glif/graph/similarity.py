"""A similarity graph as one value: edges, distances, and the rule behind them."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pyg_glif._runtime import without_autocast
from pyg_glif._validate import as_floats, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import called_within, edges_within
from pyg_glif.graph._points import Strategy, own
from pyg_glif.graph.radius import search_edges
from pyg_glif.graph.weights import decay_of, edge_weights
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityGraph:
    r"""Who is within ``tau`` of whom, ready for weights, smaller radii and Laplacians.

    :meth:`search` makes one. The edges are those of
    :func:`~pyg_glif.fair_radius_graph`; they are in order and known to be sound, so
    nothing that is made from them is checked or sorted again.

    Args:
        edge_index (torch.Tensor): Both directions of every edge, sorted by row and
            column, without self-loops.
        sq_dist (torch.Tensor): Squared distance of every edge.
        num_nodes (int): Number of people.
        tau (float): Radius in units of the distance.
        batch (torch.Tensor, optional): Graph number of each node, from 0 without
            gaps. (default: :obj:`None`)

    Shapes:
        - **edge_index:** :math:`(2, E)`, **sq_dist:** :math:`(E)`,
          **batch:** :math:`(N)`

    The constructor trusts its arguments. A graph built by it, not by :meth:`search`,
    knows no coordinates: :meth:`within` then goes by ``sq_dist``, with its rounding.

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
    # What a search decided by: coordinates, or the distances that a function gave.
    _z: Tensor | None = field(default=None, kw_only=True)
    _dist: Tensor | None = field(default=None, kw_only=True)

    @classmethod
    @without_autocast()
    def search(
        cls,
        x: Tensor,
        tau: float,
        *,
        distance: FairDistance | None = None,
        batch: Tensor | None = None,
        strategy: Strategy = "auto",
        tile_size: int = 256,
        memory_budget: int | None = None,
        progress: bool | None = None,
    ) -> "SimilarityGraph":
        r"""Finds all pairs of people within fair distance ``tau``, exactly.

        Takes the arguments of :func:`~pyg_glif.fair_radius_graph`. The coordinates
        are kept, as a copy if they are ``x`` itself.
        """
        x = as_floats("x", x)
        found = search_edges(
            x, tau, distance, batch, strategy, tile_size, memory_budget, progress
        )
        return cls(
            found.edge_index,
            found.sq_dist,
            x.size(0),
            found.tau,
            found.batch,
            _z=None if found.z is None else own(found.z, x),
            _dist=found.dist,
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_nodes={self.num_nodes}, "
            f"num_edges={self.num_edges}, tau={self.tau:g})"
        )

    @property
    def num_edges(self) -> int:
        """Number of edges, both directions counted."""
        return self.edge_index.size(1)

    def weights(self, theta: float | Tensor | None = None) -> Tensor:  # [E]
        r"""Similarities ``exp(-theta * sq_dist)``, see :func:`~pyg_glif.edge_weights`.

        :obj:`None` stands for :math:`c / \tau^2`, see
        :func:`~pyg_glif.graph.decay_of`: weights fall from 1 for duplicates to
        :math:`e^{-c}` at the radius, whatever the unit. Gradients reach ``theta``.
        """
        return edge_weights(self.sq_dist, decay_of(theta, self.tau))

    def is_within(self, tau: float) -> Tensor:  # [E]
        """Which edges a radius up to that of the graph keeps."""
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
        keep = self.is_within(tau)
        if bool(keep.all()):
            return replace(self, tau=float(tau))
        return replace(
            self,
            edge_index=self.edge_index[:, keep],
            sq_dist=self.sq_dist[keep],
            tau=float(tau),
            _dist=None if self._dist is None else self._dist[keep],
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
