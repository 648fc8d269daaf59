"""Base class of the neighbor indices."""

from copy import deepcopy

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_comparable,
    check_features,
    check_num_rows,
)
from pyg_glif.distances import FairDistance
from pyg_glif.graph._points import Points, as_distance, coordinates, detached_copy
from pyg_glif.graph._pruning import Screen

TILE = 256


class SearchIndex:
    """Known samples prepared for queries: points, or features of a callable distance.

    Args:
        x: Features ``[N, F]`` of the known samples.
        distance: Fair distance; Euclidean for :obj:`None`.
        copy: Whether to keep copies of ``x`` and ``distance``.
    """

    def __init__(self, x: Tensor, distance: FairDistance | None, copy: bool) -> None:
        x = check_features("x", x, distance).detach()
        check_num_rows("x", x.size(0), 1)
        distance = as_distance(distance)
        self.distance = deepcopy(distance) if copy else distance
        self._num_nodes, self._like = x.size(0), x.new_empty(0, x.size(1))
        self._screen: Screen | None = None
        if self.distance.is_embedding:
            z = coordinates(self.distance, x)
            z = detached_copy(z, x) if copy else z
            self._points = Points.from_embedding(z, None)
        else:
            self._x = x.clone() if copy else x

    def _set_screen(self, tau: float, basis: Tensor | None) -> None:
        """Prepares the projected search; without a basis the search is plain."""
        if basis is not None:
            self._screen = Screen(self._points, tau, basis, TILE)

    def _check_queries(self, x_new: Tensor) -> Tensor:
        """Rows that can be compared with the known samples."""
        x_new = check_features("x_new", x_new, self.distance).detach()
        check_comparable("x_new", x_new, "x", self._like)
        return x_new

    def _order(self, row: Tensor, col: Tensor) -> Tensor:
        """Permutation that sorts pairs by query, then known sample."""
        return (row * self._num_nodes + col).argsort()

    def _no_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and squared distances of no pairs."""
        empty = torch.empty(0, dtype=torch.long, device=self._like.device)
        return empty, empty.clone(), self._like.new_empty(0)
