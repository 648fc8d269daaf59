"""Nearest people of newcomers among people already known."""

import math
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
from pyg_glif.graph._decide import called_within, decide, exact_squares
from pyg_glif.graph._knn_candidates import Pool, loosened
from pyg_glif.graph._memory import sample_nearest
from pyg_glif.graph._points import Points, as_distance, coordinates, own
from pyg_glif.graph._pruning import Screen
from pyg_glif.graph._search import plain_nearest, projected_nearest
from pyg_glif.graph._strategy import choose_basis
from pyg_glif.graph.knn import search_nearest, tie_slack

_TILE = 256


class Neighbors(NamedTuple):
    """Pairs of a new row and a known row, sorted by new row, then known row."""

    row: Tensor  # [P], new rows
    col: Tensor  # [P], known rows
    sq_dist: Tensor  # [P], squared distances
    scale: Tensor  # [P], float64, the larger distance to the k-th nearest of the two


class KNNIndex:
    r"""Answers exactly which known people are nearest to a new one.

    The rule is that of :func:`~pyg_glif.fair_knn_graph`, with the new person beside
    the known ones: a pair counts if the known person is among the ``k`` nearest known
    people of the new one, or the new person is no further from the known one than
    the ``k``-th nearest known other is (``mutual``: both). New people do not see each
    other, so an answer does not depend on who else arrives.

    Args:
        x (torch.Tensor): Features of the known people, float32 or float64.
        k (int): Number of nearest people.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        mutual (bool, optional): Whether both must be among the nearest of the other.
            (default: :obj:`False`)
        tau (float, optional): Largest distance of a pair, inclusive.
            (default: no limit)
        scale (torch.Tensor, optional): Distances of the known people to their ``k``-th
            nearest, as :meth:`SimilarityGraph.nearest` has them; they are searched
            for if they are not given. (default: :obj:`None`)
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
        x = check_features("x", x, distance).detach()
        check_num_rows("x", x.size(0), 1)
        check_count("k", k)
        self.k, self.mutual, self.tau = k, mutual, math.inf
        if tau is not None:
            self.tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        distance = as_distance(distance)
        self.distance = deepcopy(distance) if copy else distance
        if scale is None:
            scale = search_nearest(x, k, self.distance, None, tau=tau).scale
        if scale.shape != x.shape[:1]:
            msg = f"'scale' must have one entry per row of 'x' (got {scale.numel()}"
            raise ValueError(f"{msg} for {x.size(0)})")
        self.scale = scale.detach().to(x.device, torch.float64)
        self._num_nodes, self._like = x.size(0), x.new_empty(0, x.size(1))
        self._screen: Screen | None = None
        if not self.distance.is_embedding:
            self._x = x.clone() if copy else x
            return
        z = coordinates(self.distance, x)
        z = own(z, x) if copy else z
        self._points = Points.from_embedding(z, None)
        sample = sample_nearest(self._points, k, self.tau)
        basis = choose_basis(self._points, self.tau, nearest=sample)
        if basis is not None:
            self._screen = Screen(self._points, self.tau, basis, _TILE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_nodes={self._num_nodes}, k={self.k})"

    @without_autocast()
    def query(self, x_new: Tensor, progress: bool | None = None) -> Neighbors:
        r"""All pairs of a new row and a known row of which one is near the other.

        Args:
            x_new (torch.Tensor): Features of the new people, any number of rows.
            progress (bool, optional): Whether to show a progress bar; :obj:`None`
                shows it on a terminal if it takes seconds. (default: :obj:`None`)

        Shapes:
            - **input:** features :math:`(M, F)`
            - **output:** new rows :math:`(P)`, known rows :math:`(P)`, squared
              distances :math:`(P)`, and for each pair the larger distance to the
              ``k``-th nearest of the two :math:`(P)`, from which
              :func:`~pyg_glif.graph.local_weights` makes weights; sorted by new row,
              then known row
        """
        return self._query(x_new, progress)[0]

    def _query(self, x_new: Tensor, progress: bool | None) -> tuple[Neighbors, Tensor]:
        """Pairs, and the scales of newcomers."""
        x_new = check_features("x_new", x_new, self.distance).detach()
        check_comparable("x_new", x_new, "x", self._like)
        if x_new.size(0) == 0:
            none, empty = self.scale[:0], torch.empty_like(self.scale[:0]).long()
            return Neighbors(empty, empty.clone(), x_new.new_empty(0), none), none
        if self.distance.is_embedding:
            z = coordinates(self.distance, x_new, "x_new")
            row, col, sq_dist, own_scale = self._searched(z, progress)
        else:
            row, col, sq_dist, own_scale = self._called(x_new)
        order = (row * self._num_nodes + col).argsort()
        row, col = row[order], col[order]
        scale = torch.maximum(own_scale[row], self.scale[col])
        return Neighbors(row, col, sq_dist[order], scale), own_scale

    @without_autocast()
    def reach(self, x_new: Tensor, progress: bool | None = None) -> Tensor:  # -> [M]
        """Distances of new people to their ``k``-th nearest known one, in float64.

        At most ``tau``; infinite where fewer than ``k`` are known and ``tau`` is.
        """
        return self._query(x_new, progress)[1]

    def _searched(
        self, z: Tensor, progress: bool | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Neighbours by coordinates, and the scales of newcomers."""
        points, screen = self._points, self._screen
        others = points.like(z)
        if others is None:  # too far away for the scale of the known people
            (points, others), screen = points.together_with(z), None
        sq_scale = (self.scale * points.scale).square()
        most = torch.finfo(torch.float32).max
        limit = min(points.bound(self.tau) * (1.0 + 1e-6), most)
        pool = Pool(
            self.k,
            torch.full_like(others.sq_norm, limit),
            lambda i, j: exact_squares(others, points, i, j),
            loosened(sq_scale.float()).clamp_(max=limit),
        )
        if screen is None:
            plain_nearest(others, points, pool, _TILE, progress)
        else:
            projected_nearest(others, screen, pool, progress)
        slack = tie_slack(points.num_features)
        near = pool.resolve(slack)
        i, j, sq, error = near[:4]
        mine = torch.zeros_like(i, dtype=torch.bool)
        mine[near.pair] = True
        theirs = exact_squares(others, points, i, j) <= sq_scale[j] * (1.0 + slack)
        keep = mine & theirs if self.mutual else mine | theirs
        some = i[keep], j[keep], sq[keep], error[keep]
        row, col, sq_dist = decide(others, points, *some, self.tau)
        scale = near.sq_kth.sqrt().div_(points.scale).clamp_(max=self.tau)
        return row, col, sq_dist, scale

    def _called(self, x_new: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Neighbours by calling a black-box distance on rows."""
        parts = []
        for first in range(0, len(x_new), _TILE):
            blocks = self._x.split(2 * _TILE)
            rows = x_new[first : first + _TILE]
            dist = torch.cat([self.distance(rows, part) for part in blocks], dim=1)
            scale = dist.new_full((len(rows),), math.inf)
            if self.k <= self._num_nodes:
                scale = dist.kthvalue(self.k, dim=1).values
            # All in the precision of the function.
            mine = dist <= scale.unsqueeze(1)
            theirs = dist <= self.scale.to(dist.dtype)
            near = mine & theirs if self.mutual else mine | theirs
            r, c = (near & called_within(dist, self.tau)).nonzero(as_tuple=True)
            scale = scale.double().clamp_(max=self.tau)
            parts.append((r + first, c, dist[r, c].square(), scale))
        row, col, sq_dist, scale = (
            torch.cat(part) for part in zip(*parts, strict=True)
        )
        return row, col, sq_dist, scale
