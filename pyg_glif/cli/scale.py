"""Standard deviations of features."""

import torch
from torch import Tensor

from pyg_glif.distances import FairDistance, Mahalanobis, SensitiveSubspace


class Scale:
    """Standard deviations, as a part of the distance.

    Differences do not see the mean, so a distance on standardised features is one on
    raw features with a scaled factor. Files of fitted post-processors thus need
    nothing beside the distance, and newcomers come in raw units too.
    """

    def __init__(self, x: Tensor) -> None:
        x = x.double()
        self._mean = x.mean(0)
        # A constant column has no scale; rounding must not invent one.
        constant = x.amax(0) == x.amin(0)
        self._std = torch.where(constant, 1.0, x.std(0, correction=0))

    def apply(self, rows: Tensor) -> Tensor:
        """Features in standard deviations from the mean."""
        return (rows.double() - self._mean) / self._std

    def turn(self, directions: Tensor) -> Tensor:
        """Directions, which have no place, in standard deviations."""
        return directions.double() / self._std

    def euclidean(self) -> FairDistance:
        """Euclidean on standardised features."""
        return Mahalanobis.from_factor(torch.diag(1.0 / self._std))

    def absorb(self, distance: SensitiveSubspace) -> FairDistance:
        """A distance on standardised features as one on raw features."""
        directions = distance.directions.double()
        basis = torch.linalg.qr(directions, mode="complete")[0]
        kept = basis[:, directions.size(1) :]  # orthogonal to what is ignored
        return Mahalanobis.from_factor(kept / self._std.unsqueeze(1))
