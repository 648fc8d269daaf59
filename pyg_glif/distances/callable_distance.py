"""Fair distance from a Python function."""

from typing import ClassVar

from torch import Tensor, nn

from pyg_glif._utils.validation import (
    check_callable,
    check_finite,
    check_floating,
    check_non_negative,
    check_tensor,
)
from pyg_glif.distances.base import FairDistance
from pyg_glif.typing import PairwiseFunction


class CallableDistance(FairDistance):
    r"""Wraps a black-box metric on two blocks of rows.

    Nothing is known about the function but its values, so a search calls it once
    per tile of rows and every pair is evaluated: no pair can be ruled out in
    advance. If the metric has an embedding, subclass
    :class:`~pyg_glif.distances.FairDistance` instead.

    Args:
        function (callable): Maps rows :math:`(A, F)` and :math:`(B, F)` to
            distances :math:`(A, B)`, not squared. It must be symmetric,
            :math:`d(\mathbf{x}, \mathbf{x}^{\prime}) =
            d(\mathbf{x}^{\prime}, \mathbf{x})`, and the value of a pair must not
            depend on the other rows of its block: which blocks it sees is not
            defined. A module is registered, and moves with the distance.

    Shapes:
        - **input:** features :math:`(A, F)` and :math:`(B, F)`
        - **output:** distances :math:`(A, B)`

    The result of the function is checked for shape, sign and NaN at every call.

    Example:
        >>> import torch
        >>> def manhattan(x1, x2):
        ...     return torch.cdist(x1, x2, p=1.0)
        >>> distance = CallableDistance(manhattan)
        >>> distance(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 2.0]]))
        tensor([[3.]])
        >>> distance
        CallableDistance(manhattan)
    """

    is_embedding: ClassVar[bool] = False

    def __init__(self, function: PairwiseFunction) -> None:
        super().__init__()
        check_callable("function", function)
        self.function = function

    def embed(self, x: Tensor) -> Tensor:
        """Raises: a black-box metric has no coordinates."""
        msg = "'CallableDistance' has no embedding. Call it on two blocks of rows"
        raise TypeError(msg)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        r"""All distances between rows of ``x1`` and rows of ``x2``."""
        x1, x2 = self._check_inputs(x1, x2)
        return _check_dist("function(x1, x2)", self.function(x1, x2), len(x1), len(x2))

    def extra_repr(self) -> str:
        """Arguments of the printed distance."""
        if isinstance(self.function, nn.Module):
            return ""  # printed as a child
        return getattr(self.function, "__name__", type(self.function).__name__)


def _check_dist(name: str, value: object, num_rows: int, num_cols: int) -> Tensor:
    """Finite, non-negative distances ``[A, B]``."""
    value = check_tensor(name, value)
    if tuple(value.shape) != (num_rows, num_cols):
        msg = f"'{name}' must have shape {(num_rows, num_cols)}"
        raise ValueError(f"{msg} (got {tuple(value.shape)})")
    check_floating(name, value)
    check_finite(name, value)
    check_non_negative(name, value)
    return value
