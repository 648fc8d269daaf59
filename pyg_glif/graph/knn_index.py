"""Index for exact k-nearest-neighbor queries against known samples."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import check_count, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import called_within, decide, exact_squares
from pyg_glif.graph._index import TILE, SearchIndex
from pyg_glif.graph._memory import sample_nearest
from pyg_glif.graph._points import coordinates
from pyg_glif.graph._strategy import choose_basis
from pyg_glif.graph.knn import nearest_pool, search_nearest, tie_slack


class NearestPairs(NamedTuple):
    """Pairs of a query and a known sample, sorted by query, then known row."""

    row: Tensor  # [P], queries
    col: Tensor  # [P], known rows
    sq_dist: Tensor  # [P], squared distances
    scale: Tensor  # [P], float64, the larger distance to the k-th nearest of the two


class KNNIndex(SearchIndex):
    r"""Exact k-nearest-neighbor queries of new samples against known ones.

    The rule is that of :func:`~pyg_glif.fair_knn_graph`, with the query beside the
    known samples: a pair counts if the known sample is among the ``k`` nearest of the
    query, or the query is no further from the known sample than its ``k``-th nearest
    known neighbor (``mutual``: both). Queries are not compared with each other, so a
    result does not depend on the rest of the batch.

    Args:
        x (torch.Tensor): Features of the known samples, float32 or float64.
        k (int): Number of nearest neighbors.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        mutual (bool, optional): Whether both must be among the nearest of the other.
            (default: :obj:`False`)
        tau (float, optional): Largest distance of a pair, inclusive.
            (default: no limit)
        scale (torch.Tensor, optional): Distances of the known samples to their ``k``-th
            nearest, as in :meth:`SimilarityGraph.nearest`; :obj:`None` searches for
            them. (default: :obj:`None`)
        copy (bool): Whether to keep copies of ``x`` and ``distance``. Without them
            neither may change as long as the index is used. (default: :obj:`True`)

    Shapes:
        - **x:** :math:`(N, F)`, **scale:** :math:`(N)`

    Example:
        >>> index = KNNIndex(torch.tensor([[0.0], [1.0], [3.0]]), k=1)
        >>> row, col, sq_dist, scale = index.query(torch.tensor([[1.5], [9.0]]))
        >>> row, col
        (tensor([0, 0, 1]), tensor([1, 2, 2]))
        >>> sq_dist, scale
        (tensor([ 0.2500,  2.2500, 36.0000]), tensor([1., 2., 6.], dtype=torch.float64))
    """

    @without_autocast()
    def __init__(
        self,
        x: Tensor,
        k: int,
        *,
        distance: FairDistance | None = None,
        mutual: bool = False,
        tau: float | None = None,
        scale: Tensor | None = None,
        copy: bool = True,
    ) -> None:
        super().__init__(x, distance, copy)
        check_count("k", k)
        self.k, self.mutual, self.tau = k, mutual, math.inf
        if tau is not None:
            self.tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        if scale is None:
            known = search_nearest(x, k, self.distance, tau=tau).scale
            assert known is not None
            scale = known
        if scale.shape != (self._num_nodes,):
            msg = f"'scale' must have one entry per row of 'x' (got {scale.numel()}"
            raise ValueError(f"{msg} for {self._num_nodes})")
        self.scale = scale.detach().to(self._like.device, torch.float64)
        if self.distance.is_embedding:
            sample = sample_nearest(self._points, k, self.tau)
            basis = choose_basis(self._points, self.tau, nearest=sample)
            self._set_screen(self.tau, basis)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_nodes={self._num_nodes}, k={self.k})"

    @without_autocast()
    def query(self, x_new: Tensor, progress: bool | None = None) -> NearestPairs:
        r"""Pairs of a query and a known sample of which one is near the other.

        Args:
            x_new (torch.Tensor): Features of the queries, any number of rows.
            progress (bool, optional): Whether to show a progress bar; :obj:`None`
                shows it on a terminal if it takes seconds. (default: :obj:`None`)

        Shapes:
            - **input:** features :math:`(M, F)`
            - **output:** queries :math:`(P)`, known rows :math:`(P)`, squared
              distances :math:`(P)`, and for each pair the larger distance to the
              ``k``-th nearest of the two :math:`(P)`, from which
              :func:`~pyg_glif.graph.local_weights` makes weights; sorted by query,
              then known row
        """
        return self._query(x_new, progress)[0]

    def _query(
        self, x_new: Tensor, progress: bool | None
    ) -> tuple[NearestPairs, Tensor]:
        """Pairs, and the scales of the queries."""
        x_new = self._check_queries(x_new)
        if x_new.size(0) == 0:
            no_scale = self.scale[:0]
            return NearestPairs(*self._no_pairs(), no_scale), no_scale
        if self.distance.is_embedding:
            z = coordinates(self.distance, x_new, "x_new")
            row, col, sq_dist, own_scale = self._search(z, progress)
        else:
            row, col, sq_dist, own_scale = self._call(x_new)
        order = self._order(row, col)
        row, col = row[order], col[order]
        scale = torch.maximum(own_scale[row], self.scale[col])
        return NearestPairs(row, col, sq_dist[order], scale), own_scale

    @without_autocast()
    def reach(self, x_new: Tensor, progress: bool | None = None) -> Tensor:  # -> [M]
        """Distances of queries to their ``k``-th nearest known sample, in float64.

        At most ``tau``; infinite if fewer than ``k`` are known and ``tau`` is infinite.
        """
        return self._query(x_new, progress)[1]

    def _search(
        self, z: Tensor, progress: bool | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pairs by coordinates, and the scales of the queries."""
        points, screen = self._points, self._screen
        others = points.like(z)
        if others is None:  # too far away for the scale of the known samples
            (points, others), screen = points.together_with(z), None
        sq_scale = (self.scale * points.scale).square()
        pool = nearest_pool(
            others, points, self.k, self.tau, screen, sq_scale, TILE, progress
        )
        slack = tie_slack(points.num_features)
        nearest = pool.resolve(slack)
        i, j, sq, error = nearest[:4]
        forward = torch.zeros_like(i, dtype=torch.bool)
        forward[nearest.pair] = True
        reverse = exact_squares(others, points, i, j) <= sq_scale[j] * (1.0 + slack)
        keep = forward & reverse if self.mutual else forward | reverse
        kept = i[keep], j[keep], sq[keep], error[keep]
        row, col, sq_dist = decide(others, points, *kept, self.tau)
        scale = nearest.sq_kth.sqrt().div_(points.scale).clamp_(max=self.tau)
        return row, col, sq_dist, scale

    def _call(self, x_new: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pairs by calling a black-box distance on rows, and the scales."""
        parts = []
        for first in range(0, len(x_new), TILE):
            blocks = self._x.split(2 * TILE)
            rows = x_new[first : first + TILE]
            dist = torch.cat([self.distance(rows, part) for part in blocks], dim=1)
            scale = dist.new_full((len(rows),), math.inf)
            if self.k <= self._num_nodes:
                scale = dist.kthvalue(self.k, dim=1).values
            # All in the precision of the function.
            forward = dist <= scale.unsqueeze(1)
            reverse = dist <= self.scale.to(dist.dtype)
            keep = forward & reverse if self.mutual else forward | reverse
            r, c = (keep & called_within(dist, self.tau)).nonzero(as_tuple=True)
            scale = scale.double().clamp_(max=self.tau)
            parts.append((r + first, c, dist[r, c].square(), scale))
        row, col, sq_dist, scale = (
            torch.cat(part) for part in zip(*parts, strict=True)
        )
        return row, col, sq_dist, scale
