"""People for the tests of the post-processor."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG

EXACT = CG(rtol=1e-12)


@dataclass(frozen=True, eq=False)
class People:
    """Fitted people, new people, and outputs of both."""

    x: Tensor
    y: Tensor
    x_new: Tensor
    y_new: Tensor

    def fit(self, **params: object) -> GLIFPostProcessor:
        """A post-processor on the fitted ones, solved to twelve digits."""
        options = {"tau": 0.9, "theta": 0.5, "lam": 0.7, "solver": EXACT, **params}
        return GLIFPostProcessor(**options).fit(self.x, self.y)


def people(
    num: int = 60,
    num_new: int = 25,
    columns: int = 3,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> People:
    """Uneven degrees, lone people in both sets, and duplicates of fitted people."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num + num_new, 2, generator=generator, dtype=torch.float64)
    x[: num // 3] *= 0.3
    x[num - 1], x[-1] = 20.0, -20.0  # nobody near
    x[num], x[num + 1] = x[0], x[num]  # a fitted person twice
    y = torch.rand(num + num_new, columns, generator=generator, dtype=torch.float64)
    x, y = x.to(dtype), y.to(dtype)
    return People(x[:num], y[:num], x[num:], y[num:])
