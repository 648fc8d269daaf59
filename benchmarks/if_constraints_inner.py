"""Constraint generation with Clarabel as inner solver, or with our own?

Run ``python benchmarks/if_constraints_inner.py`` (some minutes on one core); it writes
``results/if_constraints_inner.md``. Rounds, search and certificate are those of
``lipschitz_projection`` in both cases; only the problem over the working set is solved
by another method: an interior point method, which starts anew in every round, or the
augmented Lagrangian of ``baselines/_dual.py``, which goes on from the last one. Needs
the package ``clarabel``.
"""

import time
from pathlib import Path
from unittest.mock import patch

import clarabel
import numpy as np
import torch
from scipy import sparse

from pyg_glif.baselines import Projection, lipschitz_projection
from pyg_glif.baselines._dual import WorkingSet
from pyg_glif.errors import ConvergenceError

PROBLEMS = ((500, 1), (1_000, 1), (2_000, 1), (500, 5), (1_000, 5))
LIPSCHITZ, NUM_FEATURES = 0.3, 8


class ClarabelSet(WorkingSet):
    """The same working set, solved by an interior point method."""

    def improve(self, target: float, forgiven: float) -> None:
        """Solves for ``f`` and ``u``, whatever the target."""
        num, width = self.f.shape
        num_pairs, pair = len(self.radius), np.arange(len(self.radius))
        where = (np.tile(pair, 2), self.ends.ravel())
        sign = np.repeat([1.0, -1.0], num_pairs)
        apart = sparse.csc_matrix((sign, where), shape=(num_pairs, num))
        weight = np.repeat(self._weight.ravel(), width)
        if width == 1:
            rows = sparse.vstack([apart, -apart], format="csc")
            limits = np.tile(self.radius, 2)
            cones = [clarabel.NonnegativeConeT(2 * num_pairs)]
        else:
            # One cone of radius and differences for each pair, in this order.
            blocks = sparse.kron(apart, np.eye(width), format="csr")
            order = np.arange(num_pairs * width).reshape(num_pairs, width) + num_pairs
            order = np.concatenate([pair[:, None], order], axis=1).ravel()
            empty = sparse.csr_matrix((num_pairs, num * width))
            rows = sparse.vstack([empty, -blocks], format="csr")[order].tocsc()
            limits = np.concatenate([self.radius, np.zeros(num_pairs * width)])[order]
            cones = [clarabel.SecondOrderConeT(width + 1)] * num_pairs
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-10
        solver = clarabel.DefaultSolver(
            sparse.diags(weight, format="csc"),
            -weight * self._y.ravel(),
            rows,
            limits,
            cones,
            settings,
        )
        found = solver.solve()
        self.f = np.asarray(found.x).reshape(num, width)
        dual = np.asarray(found.z)
        if width == 1:
            u = (dual[:num_pairs] - dual[num_pairs:])[:, None]
        else:
            u = -dual.reshape(num_pairs, width + 1)[:, 1:]
        # Interior points are never exactly zero; pairs that idle are to be dropped.
        small = np.abs(u).max(initial=0.0) * 1e-9
        self.u = np.where(np.abs(u) <= small, 0.0, u)


def timed(x: torch.Tensor, y: torch.Tensor) -> tuple[float, Projection | None]:
    """Seconds and result, or ``None`` if the rounds did not end."""
    start = time.perf_counter()
    try:
        found = lipschitz_projection(x, y, LIPSCHITZ, progress=False)
    except ConvergenceError:
        found = None
    return time.perf_counter() - start, found


def main() -> None:
    """Writes and prints one line per problem and solver."""
    torch.set_num_threads(1)
    lines = [
        "| rows | columns | inner solver | seconds | rounds | gap | violation |",
        "|---|---|---|---|---|---|---|",
    ]
    module = "pyg_glif.baselines._constraint_generation.WorkingSet"
    for num, width in PROBLEMS:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(num, NUM_FEATURES, generator=generator, dtype=torch.float64)
        y = torch.randn(num, width, generator=generator, dtype=torch.float64)
        for name, kind in (("ours", WorkingSet), ("Clarabel", ClarabelSet)):
            with patch(module, kind):
                seconds, found = timed(x, y)
            result = "did not converge | |"
            if found is not None:
                result = f"{found.num_iter} | {found.duality_gap:.0e}"
                result = f"{result} | {found.max_violation:.0e}"
            lines.append(f"| {num} | {width} | {name} | {seconds:.2f} | {result} |")
            print(lines[-1], flush=True)
    results = Path(__file__).parent / "results" / "if_constraints_inner.md"
    results.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
