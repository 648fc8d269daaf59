"""A similarity graph as one value: edges, distances, and the rule behind them."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

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
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import called_within, edges_within
from pyg_glif.graph._points import Strategy, as_distance, coordinates, own
from pyg_glif.graph.knn import Within, search_nearest
from pyg_glif.graph.radius import search_edges
from pyg_glif.graph.weights import decay_of, edge_weights, local_weights
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.typing import Normalization

if TYPE_CHECKING:
    from torch_geometric.data import Data


# Relative error of distances, beyond all that a search allows itself.
_SLACK = 0.01
_SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


class DegreeSummary(NamedTuple):
    """How many people others are joined to."""

    mean: float
    quantiles: dict[float, int]  # from the least (0.0) to the most (1.0)
    isolated: Tensor  # who is joined to nobody


@dataclass(frozen=True, eq=False, repr=False)
class SimilarityGraph:
    r"""Who is within ``tau`` of whom, ready for weights, smaller radii and Laplacians.

    :meth:`search` makes one. The edges are those of
    :func:`~pyg_glif.fair_radius_graph`; they are in order and known to be sound, so
    nothing that is made from them is checked or sorted again. The constructor checks
    edges from elsewhere, once.

    Args:
        edge_index (torch.Tensor): Both directions of every edge, sorted by row and
            column, without self-loops.
        sq_dist (torch.Tensor): Squared distance of every edge, the same number in both
            directions.
        num_nodes (int): Number of people.
        tau (float): Radius in units of the distance.
        batch (torch.Tensor, optional): Graph number of each node, from 0 without
            gaps. (default: :obj:`None`)
        k (int, optional): Number of nearest people, if that is the rule.
            (default: :obj:`None`)
        scale (torch.Tensor, optional): Distance from each person to their ``k``-th
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
    # What a search decided by: coordinates, or the distances that a function gave.
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
        """Raises on anything that no search finds."""
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
            self._check_scale(self.scale)
        if self.batch is not None:
            batch = check_batch(self.batch, size)
            if not torch.equal(batch, self.batch):
                raise ValueError("'batch' must number graphs from 0 without gaps")
            if not torch.equal(batch[pattern.row], batch[pattern.col]):
                raise ValueError("'edge_index' must join no nodes of different graphs")

    def _check_scale(self, scale: Tensor) -> None:
        """Raises unless every node has a distance to its ``k``-th nearest."""
        if scale.dtype != torch.float64 or scale.shape != (self.num_nodes,):
            msg = "'scale' must be float64 with one entry per node"
            got = f"{scale.dtype}, shape {tuple(scale.shape)} for {self.num_nodes}"
            raise ValueError(f"{msg} (got {got})")
        within = (scale >= 0) & (scale <= (1.0 + _SLACK) * self.tau)  # false for NaN
        if not bool(within.all()):
            msg = f"'scale' must be between 0 and the radius {self.tau:g}"
            raise ValueError(f"{msg} (got {float(scale[~within][0]):g})")

    @classmethod
    def _found(
        cls, edge_index: Tensor, sq_dist: Tensor, *rest: Any, **options: Any
    ) -> "SimilarityGraph":
        """The graph of edges that a search has put in order, without a check."""
        return cls(edge_index, sq_dist, *rest, **options, _sound=(edge_index, sq_dist))

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
        x = check_features("x", x, distance)
        found = search_edges(
            x, tau, distance, batch, strategy, tile_size, memory_budget, progress
        )
        return cls._found(
            found.edge_index,
            found.sq_dist,
            x.size(0),
            found.tau,
            found.batch,
            _z=None if found.z is None else own(found.z, x),
            _dist=found.dist,
        )

    @classmethod
    @without_autocast()
    def nearest(
        cls,
        x: Tensor,
        k: int,
        *,
        distance: FairDistance | None = None,
        batch: Tensor | None = None,
        mutual: bool = False,
        tau: float | None = None,
        strategy: Strategy = "auto",
        tile_size: int = 256,
        memory_budget: int | None = None,
        progress: bool | None = None,
    ) -> "SimilarityGraph":
        r"""Joins everybody to the ``k`` people nearest to them, exactly.

        Takes the arguments of :func:`~pyg_glif.fair_knn_graph`. The radius of the
        graph is ``tau``, infinite if there is none; ``scale`` has the distance from
        each person to their ``k``-th nearest. The coordinates are kept, as a copy if
        they are ``x`` itself.

        Example:
            >>> x = torch.tensor([[0.0], [1.0], [3.0]])
            >>> graph = SimilarityGraph.nearest(x, k=1)
            >>> graph
            SimilarityGraph(num_nodes=3, num_edges=4, k=1)
            >>> graph.scale
            tensor([1., 1., 2.], dtype=torch.float64)
        """
        x = check_features("x", x, distance)
        found = search_nearest(
            x,
            k,
            distance,
            batch,
            mutual,
            tau,
            strategy,
            tile_size,
            memory_budget,
            progress,
        )
        return cls._found(
            found.edge_index,
            found.sq_dist,
            x.size(0),
            found.tau,
            found.batch,
            k,
            found.scale,
            _z=None if found.z is None else own(found.z, x),
            _dist=found.dist,
        )

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
        """Number of people that each is joined to."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    def degree_summary(self) -> DegreeSummary:
        """Mean and quantiles of :meth:`degrees`, and who is joined to nobody.

        Example:
            >>> graph = SimilarityGraph.search(torch.tensor([[0.0], [1.0], [9.0]]), 2.0)
            >>> graph.degree_summary().quantiles[0.5]
            1
            >>> graph.degree_summary().isolated
            tensor([2])
        """
        degrees = self.degrees()
        ranks = [math.ceil(share * (self.num_nodes - 1)) for share in _SHARES]
        found = degrees.sort().values[ranks].tolist() if self.num_nodes else []
        return DegreeSummary(
            self.num_edges / max(1, self.num_nodes),
            dict(zip(_SHARES, found, strict=False)),
            (degrees == 0).nonzero().view(-1),
        )

    def weights(self, theta: float | Tensor | None = None) -> Tensor:  # [E]
        r"""Similarities ``exp(-theta * sq_dist)``, see :func:`~pyg_glif.edge_weights`.

        :obj:`None` stands for :math:`c / \tau^2`, see
        :func:`~pyg_glif.graph.decay_of`: weights fall from 1 for duplicates to
        :math:`e^{-c}` at the radius, whatever the unit. In a graph of nearest people
        it stands for :func:`~pyg_glif.graph.local_weights`: the radius is then the
        larger distance to the ``k``-th nearest of the two. Gradients reach ``theta``.
        """
        if theta is None and self.scale is not None:
            row, col = self.edge_index
            scale = torch.maximum(self.scale[row], self.scale[col])
            return local_weights(self.sq_dist, scale)
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

    def placed(self, x: Tensor, distance: FairDistance | None) -> "SimilarityGraph":
        """The same graph, which knows the coordinates that its people have."""
        distance = as_distance(distance)
        if not distance.is_embedding:
            return self
        return replace(self, _z=coordinates(distance, x))

    def known_pairs(self, z: Tensor) -> Within | None:  # [N, D]
        """All pairs of coordinates within the radius, if it is known to have them."""
        mine, whole = self._z, self.k is None and self.batch is None
        if (
            not whole
            or mine is None
            or (mine.dtype, mine.device) != (z.dtype, z.device)
        ):
            return None
        same = torch.equal(mine, z)
        return Within(self.edge_index, self.sq_dist, self.tau) if same else None

    def among(self, people: Tensor) -> "SimilarityGraph":  # [N] bool
        """The graph of some people, in the order they have here.

        Within a radius only: who is among the nearest depends on who is there.

        Example:
            >>> graph = SimilarityGraph.search(torch.tensor([[0.0], [1.0], [2.0]]), 1.0)
            >>> graph.among(torch.tensor([False, True, True])).edge_index
            tensor([[0, 1],
                    [1, 0]])
        """
        if self.k is not None:
            msg = "'among' must be called on a graph of a radius"
            raise ValueError(f"{msg} (got one of the {self.k} nearest). Search anew")
        people = check_mask("people", people, self.num_nodes).to(self.edge_index.device)
        row, col = self.edge_index
        kept = (people[row] & people[col]).nonzero()[:, 0]
        place = people.cumsum(0) - 1
        return SimilarityGraph._found(
            torch.stack([place[row[kept]], place[col[kept]]]),
            self.sq_dist[kept],
            int(people.sum()),
            self.tau,
            None if self.batch is None else self.batch[people],
            _z=None if self._z is None else self._z[people],
            _dist=None if self._dist is None else self._dist[kept],
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
