"""Why a person got the output they got."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._markup import markdown_table
from pyg_glif.solvers import Solution


@dataclass(frozen=True, eq=False)
class Explanation:
    r"""Who contributed how much to one person's smoothed output.

    .. math::
        f_i = \sum_j R_{ij} \hat y_j, \qquad
        \mathbf{R} = (\mathbf{I} + \lambda \mathbf{L})^{-1}

    Args:
        index (Tensor): Fitted people by falling weight; ``-1`` is the new person
            being explained.
        weight (Tensor): Their share :math:`R_{ij}` in the output, float64. For all
            but ``"nrw"``, weights are not negative and those of everybody sum to one.
        dist (Tensor): Their fair distance from the person explained.
        error_bound (float): Bound on the Euclidean norm of the error of all weights
            together, also those that were left out.

    Shapes:
        - **index**, **weight**, **dist:** :math:`(K)`

    With a link the sum holds in dual coordinates.

    Example:
        >>> Explanation(torch.tensor([3]), torch.ones(1), torch.zeros(1))
        Explanation(num_people=1, total=1.0000, error_bound=0.0e+00)
    """

    index: Tensor
    weight: Tensor
    dist: Tensor
    error_bound: float = 0.0

    def __repr__(self) -> str:
        return (
            f"Explanation(num_people={self.index.numel()}, "
            f"total={float(self.weight.sum()):.4f}, "
            f"error_bound={self.error_bound:.1e})"
        )

    def to_markdown(self) -> str:
        """A table with one line per person."""
        columns = (self.index.tolist(), self.weight.tolist(), self.dist.tolist())
        rows = [
            ["own output" if index < 0 else index, f"{weight:.4f}", f"{dist:.4g}"]
            for index, weight, dist in zip(*columns, strict=True)
        ]
        return markdown_table(["person", "weight", "distance"], rows, align="rrr")


def stochastic(found: Solution, own: float, exact: bool) -> tuple[Tensor, float]:
    """Weights from a solve, and the bound on their error.

    The true weights are not negative and sum, with the person's ``own``, to one;
    solutions meet that up to their tolerance and are moved there.
    """
    weight, bound = found.value[:, 0], float(found.error_bound.max())
    if not exact:
        return weight, bound
    weight = weight.clamp(min=0.0)  # no further from the truth than before
    total = float(weight.sum())
    scale = (1.0 - own) / total if total > 0 else 1.0
    bound += abs(1.0 - scale) * float(torch.linalg.vector_norm(weight))
    return weight * scale, bound


def strongest(weight: Tensor, top: int | None) -> Tensor:
    """People by falling absolute weight, on ties the first; nobody with weight 0."""
    size, order = weight.abs().sort(descending=True, stable=True)
    order = order[size > 0]
    return order if top is None else order[:top]
