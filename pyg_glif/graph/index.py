"""Indices for exact queries of new samples against known ones."""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_comparable,
    check_count,
    check_features,
    check_num_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph._decide import decide, edges_within, exact_squares, sq_dist_error
from pyg_glif.graph._estimates import choose_basis, sample_nearest
from pyg_glif.graph._points import (
    Points,
    as_distance,
    coordinates,
    detached_copy,
    product_rounding,
)
from pyg_glif.graph._pruning import (
    Screen,
    Tile,
    box_coordinates,
    flat_within,
    sq_box_gap,
    widened,
)
from pyg_glif.graph._search import (
    Pairs,
    PointSearch,
    callable_nearest,
    callable_pairs,
    finish,
)
from pyg_glif.graph.knn import search_nearest

# Numbers of queries for which a batch query is faster than the boxes of a screen.
_BATCH_SIZES = range(2, 257)
# Leaves of the screen in a run: products that are worth a call.
_LEAVES = 64
_BLOCK_ENTRIES = 1 << 22  # float32 entries of one block of squared distances


class _Index:
    """Known samples prepared for queries: points, or features of a callable distance.

    Queries are not compared with each other, so a result does not depend on the rest
    of the batch.
    """

    _search: PointSearch

    def __init__(
        self, x: Tensor, tau: float | None, distance: FairDistance | None, copy: bool
    ) -> None:
        x = check_features("x", x, distance).detach()
        check_num_rows("x", x.size(0), 1)
        distance = as_distance(distance)
        self.distance = deepcopy(distance) if copy else distance
        self.tau = math.inf
        if tau is not None:
            self.tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        self._num_nodes, self._like = x.size(0), x.new_empty(0, x.size(1))
        if self.distance.is_embedding:
            z = coordinates(self.distance, x)
            z = detached_copy(z, x) if copy else z
            self._points = Points.from_embedding(z, None)
        else:
            self._x = x.clone() if copy else x

    def _check_queries(self, x_new: Tensor) -> Tensor:
        """Rows that can be compared with the known samples."""
        x_new = check_features("x_new", x_new, self.distance).detach()
        check_comparable("x_new", x_new, "x", self._like)
        return x_new

    def _place(self, x_new: Tensor) -> tuple[PointSearch, Points]:
        """Search among the known points, and the points of the queries."""
        return self._search.place(coordinates(self.distance, x_new, "x_new"))

    def _sorted(self, row: Tensor, col: Tensor, value: Tensor) -> Pairs:
        """Pairs by query, then known sample; the distances of a function squared."""
        order = (row * self._num_nodes + col).argsort()
        value = value[order]
        if not self.distance.is_embedding:
            value = value.square()
        return row[order], col[order], value

    def _no_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and squared distances of no pairs."""
        empty = torch.empty(0, dtype=torch.long, device=self._like.device)
        return empty, empty.clone(), self._like.new_empty(0)


class RadiusIndex(_Index):
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
        super().__init__(x, tau, distance, copy)
        self._batch_query: _BatchQuery | None = None
        if self.distance.is_embedding:
            basis = choose_basis(self._points, self.tau)
            self._search = PointSearch(self._points, self.tau, basis)
            if self._search.screen is not None:
                self._batch_query = _BatchQuery(self._search.screen)

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
        if not self.distance.is_embedding:
            args = self._x, self.distance, None, self.tau
            pairs = callable_pairs(*args, left=x_new, progress=progress)
        else:
            search, left = self._place(x_new)
            few = search is self._search and len(x_new) in _BATCH_SIZES
            if few and self._batch_query is not None:
                pairs = self._batch_query.pairs(left, self.tau)
            else:
                pairs = search.pairs(left, progress)
        # The search yields no tile for queries without neighbors.
        parts = zip(no_pairs, *pairs, strict=True)
        row, col, value = (torch.cat(part) for part in parts)
        return self._sorted(row, col, value)

    @without_autocast()
    def within(
        self, x_new: Tensor, pairs: tuple[Tensor, Tensor, Tensor], tau: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs of a query within a smaller radius, without another search.

        They are those that an index with this radius finds. Needs a distance that is
        an embedding.

        Args:
            x_new (torch.Tensor): The queries.
            pairs (tuple): The result of :meth:`query` for them.
            tau (float): The smaller radius.
        """
        if math.isinf(tau):
            return pairs
        z = coordinates(self.distance, x_new.detach(), "x_new")
        row, col, sq_dist = pairs
        ends = torch.stack([row, col])
        keep = edges_within(z, ends, sq_dist, tau, self._points.z)
        return row[keep], col[keep], sq_dist[keep]


class NearestPairs(NamedTuple):
    """Pairs of a query and a known sample, sorted by query, then known row."""

    row: Tensor  # [P], queries
    col: Tensor  # [P], known rows
    sq_dist: Tensor  # [P], squared distances
    scale: Tensor  # [P], float64, the larger distance to the k-th nearest of the two


class KNNIndex(_Index):
    r"""Exact k-nearest-neighbor queries of new samples against known ones.

    The rule is that of :func:`~pyg_glif.fair_knn_graph`, with the query beside the
    known samples: a pair counts if the known sample is among the ``k`` nearest of the
    query, or the query is no further from the known sample than its ``k``-th nearest
    known neighbor (``mutual``: both).

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
        copy (bool): As in :class:`RadiusIndex`. (default: :obj:`True`)

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
        super().__init__(x, tau, distance, copy)
        self.k, self.mutual = check_count("k", k), mutual
        if scale is None:
            scale = search_nearest(x, k, self.distance, tau=tau).scale
            assert scale is not None
        if scale.shape != (self._num_nodes,):
            msg = f"'scale' must have one entry per row of 'x' (got {scale.numel()}"
            raise ValueError(f"{msg} for {self._num_nodes})")
        self.scale = scale.detach().to(self._like.device, torch.float64)
        if self.distance.is_embedding:
            sample = sample_nearest(self._points, k, self.tau)
            basis = choose_basis(self._points, self.tau, nearest=sample)
            self._search = PointSearch(self._points, self.tau, basis)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_nodes={self._num_nodes}, k={self.k})"

    @without_autocast()
    def query(self, x_new: Tensor, progress: bool | None = None) -> NearestPairs:
        r"""Pairs of a query and a known sample of which one is near the other.

        Takes the arguments of :meth:`RadiusIndex.query`. Each pair comes with the
        larger distance to the ``k``-th nearest of the two, from which
        :func:`~pyg_glif.graph.local_weights` makes weights.
        """
        return self._query(x_new, progress)[0]

    @without_autocast()
    def reach(self, x_new: Tensor, progress: bool | None = None) -> Tensor:  # -> [M]
        """Distances of queries to their ``k``-th nearest known sample, in float64.

        At most ``tau``; infinite if fewer than ``k`` are known and ``tau`` is infinite.
        """
        return self._query(x_new, progress)[1]

    def _query(
        self, x_new: Tensor, progress: bool | None
    ) -> tuple[NearestPairs, Tensor]:
        """Pairs, and the scales of the queries."""
        x_new = self._check_queries(x_new)
        if x_new.size(0) == 0:
            no_scale = self.scale[:0]
            return NearestPairs(*self._no_pairs(), no_scale), no_scale
        if self.distance.is_embedding:
            search, left = self._place(x_new)
            unit, slack = search.points.scale, search.slack
            reach = (self.scale * unit).square()
            nearest = search.nearest(self.k, left, reach, progress=progress)
            value = exact_squares(left, search.points, nearest.i, nearest.j)
        else:
            # What the radius cuts off is compared in the precision of the function.
            reach = self.scale.masked_fill(self.scale >= self.tau, math.inf)
            nearest = callable_nearest(
                self._x, self.k, self.distance, None, self.tau, x_new, reach, progress
            )
            value, slack = nearest.sq, 0.0
        keep = torch.zeros_like(nearest.i, dtype=torch.bool)
        keep[nearest.pair] = True
        reverse = value <= reach[nearest.j] * (1.0 + slack)
        keep = keep & reverse if self.mutual else keep | reverse
        i, j, sq, error = (part[keep] for part in nearest[:4])
        if self.distance.is_embedding:
            pairs = decide(left, search.points, i, j, sq, error, self.tau)
            own_scale = nearest.sq_kth.sqrt().div_(unit).clamp_(max=self.tau)
        else:
            pairs = i, j, sq.to(self._like.dtype)
            own_scale = nearest.sq_kth.clamp(max=self.tau)
        row, col, sq_dist = self._sorted(*pairs)
        scale = torch.maximum(own_scale[row], self.scale[col])
        return NearestPairs(row, col, sq_dist, scale), own_scale


class _BatchQuery:
    """Candidate search for a few queries, by one pass over runs of a screen's points.

    A box around unrelated queries covers almost all points, so ordering and boxing
    the queries rules nothing out. Taken one by one they are far from most runs: each
    run is multiplied only with the queries that may be close to it. As with a screen,
    no pair within the radius is left out.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        w, self._perm, self._length, self._lo, self._hi = screen.runs(_LEAVES)
        self._center = w.mean(0)
        w = w - self._center
        sq = w.square().sum(1, keepdim=True)
        self._most = float(sq.max())
        # One product gives |b|^2 - 2 a.b, without another pass over the block.
        b = torch.cat([w, sq], dim=1)
        # Fillers of the last run are infinitely far from every query.
        filler = b.new_zeros(len(self._lo) * self._length - len(b), b.size(1))
        filler[:, -1] = torch.inf
        self._runs = torch.cat([b, filler]).view(len(self._lo), self._length, -1)

    def pairs(self, others: Points, tau: float) -> Iterator[Pairs]:
        """Pairs of one of a few points of ``others`` and one of the screen's points."""
        points = self._screen.points
        tile, row, col = self._candidates(others)
        for measured in finish(others, points, tile, [(row, col)]):
            yield decide(others, points, *measured, tau)

    def _candidates(self, others: Points) -> tuple[Tile, Tensor, Tensor]:
        """Pairs that may be within the radius: rows in order, and nodes."""
        tile = self._screen.tile_of(others)
        position = box_coordinates(tile.w)
        gap = sq_box_gap(
            self._lo.unsqueeze(1), self._hi.unsqueeze(1), position, position
        )
        in_reach = gap <= widened(gap.new_tensor(tile.reach**2))  # [R, A]
        a = tile.w - self._center
        sq_a = a.square().sum(1)
        rounding = 2.0 * product_rounding(a.size(1) + 1) * (sq_a + self._most)
        limit = (rounding - sq_a + tile.reach**2).unsqueeze(1)
        a = torch.cat([a * -2.0, torch.ones_like(a[:, :1])], dim=1)
        step = max(1, _BLOCK_ENTRIES // (len(a) * self._length))
        pairs = [
            self._within(a, limit, part, k * step)
            for k, part in enumerate(in_reach.split(step))
        ]
        row, col = (torch.cat(part) for part in zip(*pairs, strict=True))
        order = row.argsort(stable=True)
        return tile, row[order], col[order]

    def _within(
        self, a: Tensor, limit: Tensor, in_reach: Tensor, first: int
    ) -> tuple[Tensor, Tensor]:  # in_reach: [R', A]
        """Candidate pairs of queries and the nodes of some runs, from run ``first``."""
        run, row = in_reach.nonzero(as_tuple=True)
        sizes = in_reach.sum(1).tolist()
        value = a.new_empty(len(row), self._length)
        parts = zip(
            a[row].split(sizes),
            self._runs[first : first + len(in_reach)],
            value.split(sizes),
            strict=True,
        )
        for part, b, out in parts:
            if len(part):
                torch.mm(part, b.mT, out=out)
        flat = flat_within(value, limit[row])
        pair = torch.div(flat, self._length, rounding_mode="floor")
        position = (run[pair] + first - pair) * self._length + flat
        return row[pair], self._perm[position]
