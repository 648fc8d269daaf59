"""Newton's equations: weights plus a block Laplacian over the active pairs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._optional import require

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_FEATURE = "pyg_glif.baselines.lipschitz_projection"
_SPARSE_WIDTH = 2  # columns up to which there is little fill-in
_DENSE_SIZE = 1500  # unknowns up to which a dense factor is cheaper than iterations
_RTOL, _MAX_ITER = 1e-3, 300


def sparse_linalg() -> tuple[Any, Any]:
    """SciPy's sparse matrices and their solvers."""
    names = ("scipy.sparse", "scipy.sparse.linalg")
    sparse, linalg = (require(name, _FEATURE, "baselines") for name in names)
    return sparse, linalg


@dataclass(frozen=True)
class NewtonSystem:
    r"""The matrix :math:`w + A^{\top} B A`, with a block for each active pair.

    :math:`B_c = \sigma ((1 - t_c) I + t_c e_c e_c^{\top})` for unit vectors
    :math:`e_c` and :math:`0 \le t_c \le 1`; in one column, simply :math:`\sigma`.
    """

    weight: Array  # [N, 1]
    ends: Index  # [2, M]
    sigma: float
    ratio: Array  # [M, 1], t
    unit: Array  # [M, C], e

    def solve(self, rhs: Array) -> Array:  # [N, C] -> [N, C]
        """A solution, exact in few columns, good enough for a descent in many."""
        if rhs.shape[1] <= _SPARSE_WIDTH:
            return self._factorised(rhs)
        if rhs.size <= _DENSE_SIZE:
            solution = np.linalg.solve(self._matrix(*rhs.shape).toarray(), rhs.ravel())
            return solution.reshape(rhs.shape)
        return self._conjugate_gradients(rhs)

    def _matrix(self, num: int, width: int) -> Any:
        """The matrix in compressed columns; rows of a node stand together."""
        sparse, _ = sparse_linalg()
        i, j = self.ends
        every, inner, eye = np.arange(num), np.arange(width), np.eye(width)
        ratio = self.ratio[:, :, None]
        along = self.unit[:, :, None] * self.unit[:, None, :]
        block = self.sigma * ((1.0 - ratio) * eye + ratio * along)
        weight = self.weight[:, :, None] * eye
        values = np.concatenate([weight, block, block, -block, -block])
        rows = np.concatenate([every, i, j, i, j])[:, None, None] * width
        cols = np.concatenate([every, i, j, j, i])[:, None, None] * width
        rows = np.broadcast_to(rows + inner[:, None], values.shape).ravel()
        cols = np.broadcast_to(cols + inner, values.shape).ravel()
        shape = (num * width, num * width)
        return sparse.csc_matrix((values.ravel(), (rows, cols)), shape=shape)

    def _factorised(self, rhs: Array) -> Array:
        """Sparse LU; the active pairs are nearly a forest, so there is little fill."""
        _, linalg = sparse_linalg()
        factor = linalg.splu(
            self._matrix(*rhs.shape),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
        solution: Array = factor.solve(rhs.ravel()).reshape(rhs.shape)
        return solution

    def _conjugate_gradients(self, rhs: Array) -> Array:
        """Iterations with diagonal scaling."""
        sparse, _ = sparse_linalg()
        num_pairs, (i, j) = len(self.unit), self.ends
        pair = np.arange(num_pairs)
        sign = np.repeat([1.0, -1.0], num_pairs)
        where = (np.concatenate([pair, pair]), np.concatenate([i, j]))
        incidence = sparse.csr_matrix((sign, where), shape=(num_pairs, len(rhs)))
        back = incidence.T.tocsr()
        aligned = self.sigma * self.ratio * self.unit
        rest = self.sigma * (1.0 - self.ratio)
        diagonal = self.weight + abs(back) @ (rest + aligned * self.unit)

        def matmul(p: Array) -> Array:
            apart = incidence @ p
            along = np.einsum("mc,mc->m", self.unit, apart)[:, None]
            return np.asarray(self.weight * p + back @ (rest * apart + along * aligned))

        x, r = np.zeros_like(rhs), rhs
        z = r / diagonal
        p, rz = z, float((r * z).sum())
        limit = _RTOL**2 * rz
        for _ in range(_MAX_ITER):
            if rz <= limit:
                break
            q = matmul(p)
            step = rz / float((p * q).sum())
            x, r = x + step * p, r - step * q
            z = r / diagonal
            rz, last = float((r * z).sum()), rz
            p = z + (rz / last) * p
        return x
