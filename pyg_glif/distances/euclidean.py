"""The plain Euclidean distance."""

from torch import Tensor

from pyg_glif._utils.validation import check_rows
from pyg_glif.distances.base import FairDistance
from pyg_glif.registry import register


@register
class Euclidean(FairDistance):
    r"""Takes features as they are: :math:`\phi(\mathbf{x}) = \mathbf{x}`.

    The right choice if the features are already fair coordinates, and the default
    wherever a distance is optional. Columns are not rescaled.

    Example:
        >>> import torch
        >>> x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> Euclidean()(x, x)
        tensor([[0., 5.],
                [5., 0.]])
    """

    def embed(self, x: Tensor) -> Tensor:
        """Returns ``x`` itself, not a copy."""
        return check_rows("x", x)
