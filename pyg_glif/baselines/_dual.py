r"""The projection onto some of the constraints, by an augmented Lagrangian.

With nodes of weight :math:`w_i` and pairs :math:`c = (i, j)` of radius :math:`r_c`,

.. math::
    \min_f \tfrac12 \sum_i w_i \| f_i - y_i \|^2
    \quad \text{s.t.} \quad \| f_i - f_j \| \le r_c .

Multipliers :math:`u_c` pull the two ends together. For a penalty :math:`\sigma`, put
:math:`v_c = u_c / \sigma + f_i - f_j`; minimising over :math:`f` the strongly convex

.. math::
    \phi(f) = \tfrac12 \sum_i w_i \| f_i - y_i \|^2
    + \tfrac{\sigma}{2} \sum_c \max(0, \| v_c \| - r_c)^2

and setting :math:`u_c \leftarrow \sigma \max(0, 1 - r_c / \| v_c \|) v_c` converges for
any :math:`\sigma`, the faster the larger it is. The gradient of :math:`\phi` is
semismooth, so Newton's method ends in a few steps. Its matrix is the weights plus a
graph Laplacian of the pairs with :math:`\| v_c \| > r_c`, which are nearly a forest:
a sparse factorisation costs hardly more than reading it.

Any :math:`u` bounds the minimum from below. With :math:`q = w (f - y) + A^{\top} u`,
twice the objective of a feasible :math:`f` is above twice that bound by

.. math::
    \sum_i \| q_i \|^2 / w_i + 2 \sum_c ( r_c \| u_c \| - u_c^{\top} (f_i - f_j) ) ,

a sum of terms that are not negative, so that no digits cancel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_SPARSE_WIDTH = 2  # columns up to which there is little fill-in
_DENSE_SIZE = 1500  # unknowns up to which a dense factor is cheaper than iterations
_RTOL, _MAX_ITER = 1e-3, 300
_FIRST_PENALTY, _LAST_PENALTY = 10.0, 1e6
_MAX_NEWTON, _MAX_UPDATES, _MAX_HALVINGS = 100, 20, 40
_TINY = float(np.finfo(np.float64).tiny)


class _State(NamedTuple):
    """The augmented Lagrangian at one point."""

    value: float
    pull: Array  # [M, C], the next multipliers
    v: Array  # [M, C]
    norm: Array  # [M], of v
    gradient: Array  # [N, C]


class WorkingSet:
    """Outputs ``f`` and multipliers ``u`` of the pairs that matter."""

    def __init__(self, y: Array, weight: Array, offset: float) -> None:  # [N, C], [N]
        self._y, self._weight, self._offset = y, weight[:, None], offset
        self._sigma = _FIRST_PENALTY
        self.f = y.copy()
        self.ends: Index = np.empty((2, 0), np.int64)  # [2, M], nodes
        self.radius: Array = np.empty(0)  # [M]
        self.u: Array = np.empty((0, y.shape[1]))  # [M, C]
        # Squared rounding errors of all entries of y: nothing smaller is significant.
        self._floor = y.size * float(np.abs(y).max() * 1e-14) ** 2

    def objective(self, f: Array) -> float:
        """Sum of squared changes, that of merging included."""
        change = float((self._weight * (f - self._y) ** 2).sum())
        return change + self._offset

    def gap(self, f: Array) -> float:
        """Upper bound of the relative excess of the objective over the minimum."""
        i, j = self.ends
        q = self._weight * (f - self._y) + self._divergence(self.u)
        slack = self.radius * _norm(self.u) - (self.u * (f[i] - f[j])).sum(1)
        gap = float((q * q / self._weight).sum()) + 2.0 * float(slack.sum())
        if gap <= self._floor:
            return 0.0
        return gap / max(self.objective(f), _TINY)

    def shrunk(self, factor: float) -> Array:
        """``f`` with all differences multiplied by ``factor``; the mean stays."""
        mean = (self._weight * self.f).sum(0) / self._weight.sum()
        return np.asarray(mean + factor * (self.f - mean))

    def replace(self, keep: NDArray[np.bool_], ends: Index, radius: Array) -> None:
        """Drops pairs and adds others."""
        self.ends = np.concatenate([self.ends[:, keep], ends], axis=1)
        self.radius = np.concatenate([self.radius[keep], radius])
        new = np.zeros((ends.shape[1], self._y.shape[1]))
        self.u = np.concatenate([self.u[keep], new])

    def needed(self) -> NDArray[np.bool_]:
        """Pairs with a multiplier, or close to their limit."""
        i, j = self.ends
        gap = _norm(self.f[i] - self.f[j])
        needed: NDArray[np.bool_] = (self.u != 0).any(1) | (gap > 0.95 * self.radius)
        return needed

    def improve(self, target: float, forgiven: float) -> None:
        """Moves ``f`` and ``u`` until the gap over these pairs is below ``target``.

        Pairs may exceed their radius by ``forgiven``.
        """
        last, precision = np.inf, 0.05 * target
        for _ in range(_MAX_UPDATES):
            self.u = self._minimise(precision).pull
            gap = self.gap(self.shrunk(self._fitting(forgiven)))
            if gap <= target:
                return
            # Too slow: with a larger penalty the multipliers converge faster.
            if gap > 0.1 * last:
                self._sigma = min(10.0 * self._sigma, _LAST_PENALTY)
            last, precision = gap, 0.1 * precision

    def _fitting(self, forgiven: float) -> float:
        """The factor by which ``f`` must shrink to meet these constraints."""
        i, j = self.ends
        gap = np.maximum(_norm(self.f[i] - self.f[j]), _TINY)
        return float(((self.radius + forgiven) / gap).min(initial=1.0))

    def _minimise(self, precision: float) -> _State:
        """Minimises the augmented Lagrangian over ``f``."""
        state = self._at(self.f)
        for _ in range(_MAX_NEWTON):
            error = float((state.gradient**2 / self._weight).sum())
            if error <= max(precision * self.objective(self.f), self._floor):
                break
            after = self._line_search(state, self._newton_step(state))
            if (
                after is None
            ):  # rounding: no better point can be distinguished from this one
                break
            state = after
        return state

    def _at(self, f: Array) -> _State:
        """Value and derivatives at ``f``."""
        i, j = self.ends
        v = self.u / self._sigma + f[i] - f[j]
        norm = _norm(v)
        over = np.maximum(norm - self.radius, 0.0)
        pull = (self._sigma * over / np.maximum(norm, _TINY))[:, None] * v
        change = self._weight * (f - self._y)
        value = 0.5 * float((change * (f - self._y)).sum() + self._sigma * over @ over)
        return _State(value, pull, v, norm, change + self._divergence(pull))

    def _line_search(self, state: _State, step: Array) -> _State | None:
        """Goes along ``step`` as far as the value falls; moves ``f``."""
        slope, size = float((state.gradient * step).sum()), 1.0
        # Close to the minimum the decrease is below the rounding of the value.
        slack = 1e-15 * abs(state.value)
        for _ in range(_MAX_HALVINGS):
            after = self._at(self.f + size * step)
            if after.value <= state.value + 1e-4 * size * slope + slack:
                self.f = self.f + size * step
                return after
            # The slope is continuous and grows: where would it vanish if linear?
            rise = float((after.gradient * step).sum())
            size *= min(0.5, max(0.1, slope / (slope - max(rise, 0.0))))
        return None

    def _newton_step(self, state: _State) -> Array:
        """Solves with the generalised Hessian."""
        active = state.norm > self.radius
        norm = state.norm[active, None]
        system = _NewtonSystem(
            self._weight,
            self.ends[:, active],
            self._sigma,
            self.radius[active, None] / norm,
            state.v[active] / norm,
        )
        return system.solve(-state.gradient)

    def _divergence(self, u: Array) -> Array:  # [M, C] -> [N, C]
        """Sum of the multipliers at each node, with their sign."""
        i, j = self.ends
        num = len(self._y)
        columns = [
            np.bincount(i, column, num) - np.bincount(j, column, num) for column in u.T
        ]
        return np.stack(columns, axis=1)


def _norm(rows: Array) -> Array:
    """Euclidean length of each row."""
    return np.asarray(np.sqrt(np.einsum("mc,mc->m", rows, rows)))


def _sparse_linalg() -> tuple[Any, Any]:
    """SciPy's sparse matrices and their solvers."""
    from scipy import sparse
    from scipy.sparse import linalg

    return sparse, linalg


@dataclass(frozen=True)
class _NewtonSystem:
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
        sparse, _ = _sparse_linalg()
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
        _, linalg = _sparse_linalg()
        # The matrix is symmetric and positive definite: pivots may stay on the
        # diagonal, and the ordering may look at the symmetric pattern.
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
        sparse, linalg = _sparse_linalg()
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
            gap = incidence @ p
            along = np.einsum("mc,mc->m", self.unit, gap)[:, None]
            return np.asarray(self.weight * p + back @ (rest * gap + along * aligned))

        def flat(function: Callable[[Array], Array]) -> Any:
            return linalg.LinearOperator(
                (rhs.size, rhs.size),
                lambda p: function(p.reshape(rhs.shape)).ravel(),
                dtype=np.float64,
            )

        # Only 'atol': the name of the other tolerance depends on the version of SciPy.
        solution, _ = linalg.cg(
            flat(matmul),
            rhs.ravel(),
            maxiter=_MAX_ITER,
            M=flat(lambda r: r / diagonal),
            atol=_RTOL * float(np.linalg.norm(rhs)),
        )
        return np.asarray(solution).reshape(rhs.shape)
