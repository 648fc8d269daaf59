r"""The mixture with the largest dual value, for problems of the form min max.

With energies :math:`E_a(f) \ge 0` that are convex in :math:`f`, the objective

.. math::
    \|f - y\|^2 + s \max_a E_a(f) = \max_b \|f - y\|^2 + s \sum_a b_a E_a(f)

over mixtures :math:`b` (:math:`b_a \ge 0`, :math:`\sum_a b_a = 1`) is convex in
:math:`f` and linear in :math:`b`: minimum and maximum change places (Sion's theorem).
Its minimum over :math:`f` is concave in :math:`b`, with gradient :math:`s E_a(f)` at
the solution :math:`f` for :math:`b` (the envelope theorem).
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MAX_STEPS = 100
# How well the search knows a mixture and its dual value.
_TOLERANCE = 1e-12
# Energies below this share of the outputs' squares are taken to be zero.
_NOTHING = 1e-24


class MinimaxSearch:
    """Search for the mixture with the largest dual value.

    Args:
        y (Tensor): Right-hand side ``[N, C]``, float64.
        strength (float): The factor ``s`` of the energies.
        solve (callable): Solution for a mixture, from a first guess.
        energies (callable): Energies ``[A]`` of a solution.
    """

    def __init__(
        self,
        y: Tensor,
        strength: float,
        solve: Callable[[Tensor, Tensor | None], Tensor],
        energies: Callable[[Tensor], Tensor],
    ) -> None:
        self._y, self._strength = y, strength
        self._solve, self._energies = solve, energies
        self.f: Tensor | None = None  # the last solution, from which the next starts
        self.num_solves = 0

    @torch.no_grad()
    def energies(self, b: Tensor) -> Tensor:  # [A] -> [A]
        """Energies at the solution for a mixture."""
        self.f = self._solve(b, self.f).double()
        self.num_solves += 1
        return self._energies(self.f)

    def maximize(self, start: Tensor, first: Tensor) -> Tensor:  # [A]
        """The best mixture, from a first one and its energies."""
        unit = self._strength * float(first.max())
        if start.numel() == 1 or unit <= _NOTHING * float(self._y.square().sum()):
            return start
        from scipy.optimize import minimize

        def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            b = torch.from_numpy(x).to(start)
            energy = self.energies(b)
            assert self.f is not None
            fit = float((self.f - self._y).square().sum())
            value = fit + self._strength * float(b @ energy)
            return -value / unit, -(self._strength * energy / unit).cpu().numpy()

        result = minimize(
            objective,
            start.cpu().numpy(),
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * start.numel(),
            constraints={
                "type": "eq",
                "fun": lambda x: x.sum() - 1.0,
                "jac": lambda x: np.ones_like(x),
            },
            options={"ftol": _TOLERANCE, "maxiter": _MAX_STEPS},
        )
        b = torch.from_numpy(result.x).to(start)
        b = torch.where(b > _TOLERANCE, b, 0.0)
        return b / b.sum()
