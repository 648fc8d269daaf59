r"""Removes from coordinates what tells other columns, and as little else as possible.

Least-squares concept erasure (`Belrose et al., 2023
<https://arxiv.org/abs/2306.03819>`_). With :math:`\Sigma` the covariance of coordinates
:math:`z` and :math:`C` their covariance with the attributes :math:`a`, each taken as a
number or as one indicator per category,

.. math::
    z' = z - C (C^\top \Sigma^+ C)^+ C^\top \Sigma^+ (z - \bar z) .

Then :math:`\operatorname{cov}(z', a) = 0`: all groups have the same mean, and so no
linear, logistic or softmax regression on :math:`z'` fits better than a constant.
Of all linear maps with that property this one moves people least, in the mean square.

:class:`~pyg_glif.metric_learning.LogisticSubspace` removes the direction in which a
regression looks. The other directions are correlated with it, and another regression
finds the groups in them: the documentation of the scales has the figures.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_RTOL = 1e-10  # of eigenvalues that count as zero


@dataclass(frozen=True, eq=False)
class Erasure:
    """A linear map that removes what tells attributes.

    Args:
        mean (numpy.ndarray): Of the coordinates, :math:`(D)`.
        read (numpy.ndarray): What tells the attributes, :math:`(D, K)`.
        write (numpy.ndarray): What it tells is written along these, :math:`(K, D)`.
    """

    mean: Matrix
    read: Matrix
    write: Matrix

    @classmethod
    def of(cls, z: Matrix, attributes: Matrix) -> "Erasure":  # [N, D], [N, K]
        """Fits the map; raises if nothing would be left."""
        mean = z.mean(axis=0)
        centred = z - mean
        covariance = centred.T @ centred / len(z)
        cross = centred.T @ (attributes - attributes.mean(axis=0)) / len(z)
        read = np.linalg.pinv(covariance, rcond=_RTOL, hermitian=True) @ cross
        inner = np.linalg.pinv(cross.T @ read, rcond=_RTOL, hermitian=True)
        out = cls(mean, read, inner @ cross.T)
        left = np.trace(covariance) - np.trace(covariance @ read @ out.write)
        if left <= _RTOL * np.trace(covariance):
            msg = "'sensitive' must leave something with 'proxies=True'"
            got = f"as much to remove as there is in {z.shape[1]} coordinates"
            raise ValueError(f"{msg} (got {got})")
        return out

    def __call__(self, z: Matrix) -> Matrix:
        """The coordinates without it, :math:`(N, D)`."""
        return z - ((z - self.mean) @ self.read) @ self.write
