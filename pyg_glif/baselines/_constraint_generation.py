"""Constraint generation over a working set of pairs."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.runtime import Progress
from pyg_glif.baselines._dual import Array, Index, WorkingSet
from pyg_glif.baselines._violations import Violated, ViolationScan, coinciding_groups
from pyg_glif.errors import ConvergenceError
from pyg_glif.graph.pairwise import PairDistances

# Excess that a pair may have, relative to the size of the outputs: a share of rtol,
# and the limit of float64.
_FORGIVEN, _REACHABLE = 1e-3, 1e-10
_AIM = 1e-4  # times rtol: gap of the working set at last
_EARLY, _LATE = 0.3, 1e-3  # gap of the working set, as a share of that over all pairs


class ConstraintGeneration:
    """One projection; nodes are groups of rows at distance zero."""

    def __init__(
        self, dists: PairDistances, y_hat: Tensor, lipschitz: float, tile_size: int
    ) -> None:
        self._y_hat, num_rows = y_hat, len(y_hat)
        y = y_hat.double().reshape(num_rows, -1).cpu().numpy()
        self._centre = y.mean(0)
        self._y = y = y - self._centre
        # No difference is allowed, so all rows are one node.
        if lipschitz == 0.0:
            self._node: Index = np.zeros(num_rows, np.int64)
        else:
            self._node = coinciding_groups(dists, num_rows, tile_size)
        weight = np.bincount(self._node).astype(np.float64)
        sums = [np.bincount(self._node, column) for column in y.T]
        merged = np.stack(sums, axis=1) / weight[:, None]
        offset = float(((y - merged[self._node]) ** 2).sum())
        self._size = float(np.abs(y).max())
        self._set = WorkingSet(merged, weight, offset)
        self._pairs: Index = np.empty((2, 0), np.int64)  # [2, M], rows
        self._scan = ViolationScan(dists, num_rows, lipschitz, tile_size)
        self._feasible, self._gap = merged, math.inf

    def solve(self, rtol: float, max_iter: int, progress: bool | None) -> int:
        """Finds a feasible point of small gap; returns the number of rounds."""
        forgiven = max(_FORGIVEN * rtol, _REACHABLE) * self._size
        decades = math.ceil(max(1.0, -math.log10(rtol)))
        with Progress(decades, "Lipschitz projection", progress) as bar:
            done = 0
            for num_iter in range(max_iter + 1):
                violated, gap = self._look(rtol, forgiven)
                if gap <= rtol:
                    return num_iter
                if num_iter < max_iter:
                    share = self._exchange(violated)
                    target = max(_AIM * rtol, share * gap)
                    self._set.improve(target, 0.3 * share * violated.excess)
                reached = min(decades, int(-math.log10(gap)) if gap > 0 else decades)
                bar.update(max(0, reached - done))
                done = max(done, reached)
        msg = f"lipschitz_projection stopped after {max_iter} iterations: relative "
        msg = f"{msg}duality gap {gap:.1e}, largest violation {violated.excess:.1e}"
        raise ConvergenceError(f"{msg}, 'rtol' is {rtol:g}. Raise 'max_iter' or 'rtol'")

    def rounded(self) -> tuple[Array, Tensor]:
        """Outputs of nodes and of rows, as the caller's dtype holds them."""
        rows = self._feasible[self._node]
        value = torch.from_numpy(rows + self._centre)
        value = value.reshape(self._y_hat.shape).to(self._y_hat)
        # Centring there and back rounds; an output that did not change must not.
        same = torch.from_numpy(rows == self._y).reshape(self._y_hat.shape)
        value = torch.where(same.to(value.device), self._y_hat, value)
        nodes = np.empty_like(self._feasible)
        nodes[self._node] = _rows(value).cpu().numpy() - self._centre
        return nodes, value

    def max_violation(self, value: Tensor) -> float:
        """The largest excess over all pairs."""
        return self._scan(_rows(value), everything=True).excess

    def gap(self, nodes: Array) -> float:
        """Relative duality gap; rounding may leave it a trifle below zero."""
        return max(0.0, self._set.gap(nodes))

    def objective(self, nodes: Array) -> float:
        """Sum of squared changes."""
        return self._set.objective(nodes)

    def active(self) -> tuple[Tensor, Tensor]:
        """Pairs of rows with a multiplier, and the multipliers."""
        active = (self._set.u != 0).any(1)
        order = np.lexsort(self._pairs[::-1, active])
        pairs = torch.from_numpy(self._pairs[:, active][:, order])
        return pairs, torch.from_numpy(self._set.u[active][order])

    def _look(self, rtol: float, forgiven: float) -> tuple[Violated, float]:
        """Pairs that the present outputs break; the gap once all are mended."""
        f = torch.from_numpy(self._set.f[self._node]).to(self._y_hat.device)
        violated = self._scan(f, forgiven)
        gap = self._mend(violated, rtol)
        # The worst pairs may do to go on, but only all of them prove the end.
        if gap <= rtol and not violated.complete:
            violated = self._scan(f, forgiven, everything=True)
            gap = self._mend(violated, rtol)
        return violated, gap

    def _mend(self, violated: Violated, rtol: float) -> float:
        """Shrinks the outputs until they are feasible; the gap that is left."""
        self._feasible = self._set.shrunk(violated.shrink)
        gap, last = self._set.gap(self._feasible), self._gap
        self._gap = gap
        if rtol < gap and 0.5 * last < gap:  # no progress: very close neighbors?
            nearly = self._set.shrunk(violated.forgiving)
            if self._set.gap(nearly) <= rtol:
                self._feasible, gap = nearly, self._set.gap(nearly)
        return gap

    def _exchange(self, violated: Violated) -> float:
        """Updates the working set; returns the accuracy to solve it with."""
        keep, num = self._set.needed(), len(self._node)
        known = self._pairs[0] * num + self._pairs[1]
        new: NDArray[np.bool_] = ~np.isin(
            violated.pairs[0] * num + violated.pairs[1], known
        )
        pairs = violated.pairs[:, new]
        self._set.replace(keep, self._node[pairs], violated.radius[new])
        self._pairs = np.concatenate([self._pairs[:, keep], pairs], axis=1)
        if not new.any():
            return 0.0
        return _EARLY if pairs.size > 0.05 * self._pairs.size else _LATE


def _rows(value: Tensor) -> Tensor:  # [N] or [N, C] -> [N, C]
    """Outputs with two dimensions, in float64."""
    return value.double().reshape(len(value), -1)
