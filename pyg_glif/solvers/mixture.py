r"""The mixture with the largest dual value, for problems of the form min max.

A sum of convex functions and the largest of several others is, by Sion's theorem, the
largest over mixtures :math:`b` (:math:`b_a \ge 0`, :math:`\sum_a b_a = 1`) of a concave
function whose gradient is what the others are worth at the solution for :math:`b`.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MAX_STEPS = 100
#: How well the search knows a mixture and its dual value.
TOLERANCE = 1e-12


def best_mixture(
    dual: Callable[[Tensor], tuple[float, Tensor]], start: Tensor, unit: float
) -> Tensor:  # [A]
    """Maximizes by sequential quadratic steps.

    Args:
        dual (callable): Value and gradient of the concave function at a mixture.
        start (Tensor): The first mixture.
        unit (float): The size of values, which the search divides by.
    """
    from scipy.optimize import minimize

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = dual(torch.from_numpy(x).to(start))
        return -value / unit, -(gradient / unit).cpu().numpy()

    found = minimize(
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
        options={"ftol": TOLERANCE, "maxiter": _MAX_STEPS},
    )
    out = torch.from_numpy(found.x).to(start)
    out = torch.where(out > TOLERANCE, out, 0.0)
    return out / out.sum()
