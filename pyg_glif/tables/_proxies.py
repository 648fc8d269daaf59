r"""Removal of what predicts other columns from coordinates, and of little else.

Least-squares concept erasure (`Belrose et al., 2023
<https://arxiv.org/abs/2306.03819>`_). With :math:`\Sigma` the covariance of the
coordinates :math:`z`, :math:`\Sigma_a` that of the attributes :math:`a`, each taken as
a number or as one indicator per category, and :math:`C` the covariance of both,

.. math::
    z' = z - \Sigma^{1/2} \mathbf{U} \mathbf{U}^\top \Sigma^{-1/2} (z - \bar z), \qquad
    \Sigma^{-1/2} C \, \Sigma_a^{-1/2} = \mathbf{U} \mathbf{S} \mathbf{V}^\top ,

with the columns of :math:`\mathbf{U}` whose canonical correlation
:math:`\mathbf{S}_{kk}` has a square above 1%. No linear combination of the new
coordinates then explains more than 1% of the variance of any combination of attributes
among the samples it was fitted to. Of all linear maps that remove these directions this
one moves samples least, in the mean square. The result lies in the complement of
:math:`K` directions and has :math:`D - K` coordinates
(:mod:`pyg_glif._utils.complement`), in whole multiples of a unit far above rounding
errors and far below all differences. Their last digits thus hold no attribute, such
as the category of samples that all have the same coordinates.

:class:`~pyg_glif.metric_learning.LogisticSubspace` removes the direction in which a
regression looks. The other directions are correlated with it, and another regression
finds the groups in them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.complement import complement, orthonormalize
from pyg_glif._utils.validation import check_share
from pyg_glif.tables._columns import check_array

Matrix = NDArray[np.float64]

_LEAST_EXPLAINED = 0.01  # share of an attribute's variance that is worth a direction
_RTOL = 1e-10  # of eigenvalues that count as zero
_BITS = 40  # that coordinates keep, of the 53 of float64


@dataclass(frozen=True, eq=False)
class Erasure:
    """A linear map that removes what predicts attributes.

    Args:
        mean (numpy.ndarray): Of the coordinates, :math:`(D)`.
        read (numpy.ndarray): Combinations that predict them, :math:`(D, K)`.
        write (numpy.ndarray): Directions that are removed, :math:`(K, D)`.
        share (float): Share of the variance that is removed.
        unit (float): Unit of the new coordinates.

    The result has :math:`D - K` coordinates.
    """

    mean: Matrix
    read: Matrix
    write: Matrix
    share: float
    unit: float

    def __post_init__(self) -> None:
        width, rank = len(self.mean), len(self.write)
        check_array("mean", self.mean, (width,))
        check_array("read", self.read, (width, rank))
        check_array("write", self.write, (rank, width))
        check_share("share", self.share)

    @classmethod
    def of(cls, z: Matrix, attributes: Matrix) -> "Erasure":  # [N, D], [N, A]
        """Fits the map; raises if nothing would be left."""
        mean = z.mean(axis=0)
        z, attributes = z - mean, attributes - attributes.mean(axis=0)
        root, whiten = _roots(z.T @ z / len(z))
        _, whiten_attributes = _roots(attributes.T @ attributes / len(z))
        cross = whiten @ (z.T @ attributes / len(z)) @ whiten_attributes
        directions, correlations, _ = np.linalg.svd(cross, full_matrices=False)
        directions = directions[:, correlations**2 > _LEAST_EXPLAINED]
        read, write = whiten @ directions, directions.T @ root
        share = float(np.square(z @ read @ write).sum() / np.square(z).sum())
        if share >= 1 - _RTOL:
            msg = "'sensitive' must leave something with 'proxies=True'"
            got = f"as much to remove as there is in {z.shape[1]} coordinates"
            raise ValueError(f"{msg} (got {got})")
        unit = 2.0 ** (np.ceil(np.log2(np.abs(z).max())) - _BITS)
        return cls(mean, read, write, share, float(unit))

    def __call__(self, z: Matrix) -> Matrix:
        """Coordinates without the attributes, :math:`(N, D - K)`."""
        z = z - ((z - self.mean) @ self.read) @ self.write
        kept, read, write = (part.numpy() for part in self._complement)
        out: Matrix = z[:, kept] - (z @ read) @ write
        return np.round(out / self.unit) * self.unit

    @cached_property
    def _complement(self) -> tuple[Tensor, ...]:
        """Coordinates in the complement of the removed directions."""
        rows = torch.from_numpy(self.read.T.copy())
        return complement(orthonormalize(rows, _RTOL))

    def to_config(self) -> dict[str, Any]:
        """Plain data; :meth:`from_config` builds an equal object from it."""
        return {
            "mean": self.mean.tolist(),
            "read": self.read.tolist(),
            "write": self.write.tolist(),
            "share": self.share,
            "unit": self.unit,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Erasure":
        """The map that :meth:`to_config` described."""
        mean, read, write = (
            np.array(config[k], dtype=np.float64) for k in ("mean", "read", "write")
        )
        read, write = read.reshape(len(mean), -1), write.reshape(-1, len(mean))
        return cls(mean, read, write, config["share"], config["unit"])


def _roots(covariance: Matrix) -> tuple[Matrix, Matrix]:
    """Square root, and its pseudo-inverse, of a covariance matrix."""
    values, axes = np.linalg.eigh(covariance)
    kept = values > _RTOL * values[-1]
    size, axes = np.sqrt(values[kept]), axes[:, kept]
    return (axes * size) @ axes.T, (axes / size) @ axes.T
