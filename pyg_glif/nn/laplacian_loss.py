"""The Laplacian penalty as a loss."""

from typing import Any, Literal

from torch import Tensor, nn

from pyg_glif._utils.validation import check_choice, check_count, check_scalar
from pyg_glif.functional import laplacian_penalty
from pyg_glif.typing import Normalization


class LaplacianLoss(nn.Module):
    r"""Differences between outputs of similar nodes, as a term of a training loss.

    .. math::
        c \cdot \mathrm{tr}(\mathbf{F}^{\top} \mathbf{L} \mathbf{F}), \qquad
        \mathrm{tr}(\mathbf{F}^{\top} (\mathbf{D} - \mathbf{W}) \mathbf{F}) =
        \frac{1}{2} \sum_{i, j} w_{ij} \| f_i - f_j \|_2^2

    The module of :func:`~pyg_glif.functional.laplacian_penalty`, which says what
    :math:`c` is for each reduction.

    Args:
        normalization (str, optional): Form of :math:`\mathbf{L}`: :obj:`None`,
            :obj:`"nrw"` or :obj:`"density"`. (default: :obj:`None`)
        reduction (str, optional): ``"sum"``, ``"mean"`` (per node) or
            ``"consistent"``, which estimates the expected squared gradient of the
            model. (default: ``"sum"``)
        theta (float, optional): Decay of the kernel the weights were made with; for
            ``"consistent"`` only. (default: :obj:`None`)
        num_dims (int, optional): Dimension of the fair space; for ``"consistent"``
            with ``normalization=None`` only. (default: :obj:`None`)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, edges :math:`(2, E)`,
          weights :math:`(E)`, batch :math:`(N)`
        - **output:** :math:`()`

    With ``"nrw"`` the loss can be negative and has no lower bound; prefer
    ``"density"``.

    Example:
        >>> import torch
        >>> loss = LaplacianLoss(reduction="mean")
        >>> loss(torch.tensor([0.0, 3.0]), torch.tensor([[0, 1], [1, 0]]))
        tensor(4.5000)
    """

    def __init__(
        self,
        normalization: Normalization = None,
        reduction: Literal["sum", "mean", "consistent"] = "sum",
        theta: float | None = None,
        num_dims: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("normalization", normalization, (None, "nrw", "density"))
        check_choice("reduction", reduction, ("sum", "mean", "consistent"))
        if theta is not None:
            check_scalar("theta", theta, above=0.0)
        if num_dims is not None:
            check_count("num_dims", num_dims)
        self.normalization = normalization
        self.reduction = reduction
        self.theta = theta
        self.num_dims = num_dims

    def forward(
        self,
        f: Tensor,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        """The penalty of ``f`` on a graph, or on several in a batch."""
        return laplacian_penalty(
            f,
            edge_index,
            edge_weight,
            normalization=self.normalization,
            reduction=self.reduction,
            theta=self.theta,
            num_dims=self.num_dims,
            batch=batch,
        )

    def extra_repr(self) -> str:
        """What the printed loss shows."""
        shown = f"normalization={self.normalization!r}, reduction={self.reduction!r}"
        if self.theta is not None:
            shown += f", theta={self.theta:g}"
        return shown if self.num_dims is None else f"{shown}, num_dims={self.num_dims}"
