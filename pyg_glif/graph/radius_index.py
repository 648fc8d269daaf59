"""Index for exact radius queries against known samples."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph._batch_query import BATCH_SIZES, BatchQuery
from pyg_glif.graph._decide import called_within, edges_within, sq_dist_error
from pyg_glif.graph._index import TILE, SearchIndex
from pyg_glif.graph._points import coordinates
from pyg_glif.graph._search import Pairs, plain_pairs, projected_pairs
from pyg_glif.graph._strategy import choose_basis


class RadiusIndex(SearchIndex):
    r"""Exact radius queries of new samples against known ones.

    Built once for the known samples, and queried with any number of rows at a time.
    The rule is that of :func:`~pyg_glif.fair_radius_graph`: a pair counts iff its
    distance is at most ``tau`` in float64, boundary included.

    Args:
        x (torch.Tensor): Features of the known samples, float32 or float64.
        tau (float): Radius in units of the distance.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        copy (bool): Whether to keep copies of ``x`` and ``distance``. Without them
            neither may change as long as the index is used. (default: :obj:`True`)

    Shapes:
        - **x:** :math:`(N, F)`

    Example:
        >>> index = RadiusIndex(torch.tensor([[0.0], [1.0], [3.0]]), tau=1.0)
        >>> index.query(torch.tensor([[2.0], [9.0]]))
        (tensor([0, 0]), tensor([1, 2]), tensor([1., 1.]))
    """

    @without_autocast()
    def __init__(
        self,
        x: Tensor,
        tau: float,
        *,
        distance: FairDistance | None = None,
        copy: bool = True,
    ) -> None:
        super().__init__(x, distance, copy)
        self.tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        if self.distance.is_embedding:
            self._set_screen(self.tau, choose_basis(self._points, self.tau))
            if self._screen is not None:
                self._batch_query = BatchQuery(self._screen)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_nodes={self._num_nodes}, tau={self.tau:g})"

    @property
    def sq_dist_error(self) -> float:
        """Bound on the relative error of squared distances from coordinates."""
        return sq_dist_error(self._like.dtype, self._points.num_features)

    @without_autocast()
    def query(
        self, x_new: Tensor, progress: bool | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        r"""Pairs of a query and a known sample within the radius.

        Args:
            x_new (torch.Tensor): Features of the queries, any number of rows.
            progress (bool, optional): Whether to show a progress bar; :obj:`None`
                shows it on a terminal if it takes seconds. (default: :obj:`None`)

        Shapes:
            - **input:** features :math:`(M, F)`
            - **output:** queries :math:`(P)`, known rows :math:`(P)`, squared
              distances :math:`(P)`, sorted by query, then known row

        Time grows with the pairs that cannot be ruled out, memory with the result.
        """
        x_new = self._check_queries(x_new)
        no_pairs = self._no_pairs()
        if x_new.size(0) == 0:
            return no_pairs
        if self.distance.is_embedding:
            z = coordinates(self.distance, x_new, "x_new")
            pairs = self._search(z, progress)
        else:
            pairs = self._call(x_new)
        # The search yields no tile for queries without neighbors.
        parts = zip(no_pairs, *pairs, strict=True)
        row, col, sq_dist = (torch.cat(part) for part in parts)
        order = self._order(row, col)
        return row[order], col[order], sq_dist[order]

    @without_autocast()
    def within(
        self, x_new: Tensor, pairs: tuple[Tensor, Tensor, Tensor], tau: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs of a query within a smaller radius, without another search.

        Args:
            x_new (torch.Tensor): The queries.
            pairs (tuple): The result of :meth:`query` for them.
            tau (float): The smaller radius.

        They are those that an index with this radius finds. Needs a distance that is
        an embedding.
        """
        if math.isinf(tau):
            return pairs
        z = coordinates(self.distance, x_new.detach(), "x_new")
        row, col, sq_dist = pairs
        ends = torch.stack([row, col])
        keep = edges_within(z, ends, sq_dist, tau, self._points.z)
        return row[keep], col[keep], sq_dist[keep]

    def _search(self, z: Tensor, progress: bool | None) -> Iterator[Pairs]:
        """Pairs by coordinates."""
        points = self._points
        others = points.like(z)
        if others is None:  # too far away for the scale of the known samples
            points, others = points.together_with(z)
        elif self._screen is not None:
            if len(z) in BATCH_SIZES:
                return self._batch_query.pairs(others, self.tau)
            return projected_pairs(others, self._screen, self.tau, progress)
        return plain_pairs(others, points, self.tau, TILE, progress)

    def _call(self, x_new: Tensor) -> Iterator[Pairs]:
        """Pairs by calling a black-box distance on tiles."""
        for first in range(0, len(x_new), TILE):
            rows = x_new[first : first + TILE]
            for left in range(0, self._num_nodes, 2 * TILE):
                dist = self.distance(rows, self._x[left : left + 2 * TILE])
                r, c = called_within(dist, self.tau).nonzero(as_tuple=True)
                yield r + first, c + left, dist[r, c].square()
