"""Neighbours of newcomers among people already known."""

import math
from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor

from pyg_glif._utils.runtime import without_autocast
from pyg_glif._utils.validation import (
    check_comparable,
    check_features,
    check_num_rows,
    check_scalar,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph._batch_query import SWEPT, Sweep
from pyg_glif.graph._decide import called_within, edges_within, sq_dist_error
from pyg_glif.graph._points import Points, as_distance, coordinates, own
from pyg_glif.graph._pruning import Screen
from pyg_glif.graph._search import (
    Pairs,
    plain_cross_pairs,
    projected_cross_pairs,
    swept_cross_pairs,
)
from pyg_glif.graph._strategy import choose_basis

_TILE = 256


class RadiusIndex:
    r"""Answers exactly which known people are within ``tau`` of a new one.

    Built once for the known people, of whom it keeps a copy, and queried with any
    number of new rows at a time.
    The rule is that of :func:`~pyg_glif.fair_radius_graph`: a pair counts iff its
    distance is at most ``tau`` in float64, boundary included.

    Args:
        x (torch.Tensor): Features of the known people, float32 or float64.
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
        x = check_features("x", x, distance).detach()
        check_num_rows("x", x.size(0), 1)
        self.tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
        distance = as_distance(distance)
        self.distance = deepcopy(distance) if copy else distance
        self._num_nodes, self._like = x.size(0), x.new_empty(0, x.size(1))
        self._screen: Screen | None = None
        if not self.distance.is_embedding:
            self._x = x.clone() if copy else x
            return
        z = coordinates(self.distance, x)
        z = own(z, x) if copy else z
        self._points = Points.from_embedding(z, None)
        basis = choose_basis(self._points, self.tau)
        if basis is not None:
            self._screen = Screen(self._points, self.tau, basis, _TILE)
            self._sweep = Sweep(self._screen)

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
        r"""All pairs of a new row and a known row within the radius.

        Args:
            x_new (torch.Tensor): Features of the new people, any number of rows.
            progress (bool, optional): Whether to show a progress bar; :obj:`None`
                shows it on a terminal if it takes seconds. (default: :obj:`None`)

        Shapes:
            - **input:** features :math:`(M, F)`
            - **output:** new rows :math:`(P)`, known rows :math:`(P)`, squared
              distances :math:`(P)`, sorted by new row, then known row

        Time grows with the pairs that cannot be ruled out, memory with those found.
        """
        x_new = check_features("x_new", x_new, self.distance).detach()
        check_comparable("x_new", x_new, "x", self._like)
        empty = torch.empty(0, dtype=torch.long, device=x_new.device)
        nobody = empty, empty.clone(), x_new.new_empty(0)
        if x_new.size(0) == 0:
            return nobody
        found = self._called(x_new)
        if self.distance.is_embedding:
            found = self._searched(coordinates(self.distance, x_new, "x_new"), progress)
        # The search yields nothing for rows that are far from everybody.
        parts = zip(nobody, *found, strict=True)
        row, col, sq_dist = (torch.cat(part) for part in parts)
        order = (row * self._num_nodes + col).argsort()
        return row[order], col[order], sq_dist[order]

    @without_autocast()
    def within(
        self, x_new: Tensor, found: tuple[Tensor, Tensor, Tensor], tau: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The pairs of a query that have at most a smaller distance, without a search.

        Args:
            x_new (torch.Tensor): The new people that were asked about.
            found (tuple): What :meth:`query` returned for them.
            tau (float): The smaller radius.

        They are those that an index with this radius finds. Needs a distance that is
        an embedding.
        """
        if math.isinf(tau):
            return found
        z = coordinates(self.distance, x_new.detach(), "x_new")
        row, col, sq_dist = found
        ends = torch.stack([row, col])
        keep = edges_within(z, ends, sq_dist, tau, self._points.z)
        return row[keep], col[keep], sq_dist[keep]

    def _searched(self, z: Tensor, progress: bool | None) -> Iterator[Pairs]:
        """Neighbours by coordinates."""
        points = self._points
        others = points.like(z)
        if others is None:  # too far away for the scale of the known people
            points, others = points.together_with(z)
        elif self._screen is not None:
            if len(z) in SWEPT:
                return swept_cross_pairs(others, self._sweep, self.tau)
            return projected_cross_pairs(others, self._screen, self.tau, progress)
        return plain_cross_pairs(others, points, self.tau, _TILE, progress)

    def _called(self, x_new: Tensor) -> Iterator[Pairs]:
        """Neighbours by calling a black-box distance on tiles."""
        for first in range(0, len(x_new), _TILE):
            rows = x_new[first : first + _TILE]
            for left in range(0, self._num_nodes, 2 * _TILE):
                dist = self.distance(rows, self._x[left : left + 2 * _TILE])
                r, c = called_within(dist, self.tau).nonzero(as_tuple=True)
                yield r + first, c + left, dist[r, c].square()
