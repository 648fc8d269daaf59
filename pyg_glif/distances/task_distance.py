"""Fair distance with additional coordinates of the task."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.validation import (
    check_callable,
    check_embedding,
    check_finite,
    check_floating,
    check_rank,
    check_same_rows,
    check_scalar,
    check_width,
)
from pyg_glif.distances.base import FairDistance, row_product
from pyg_glif.distances.euclidean import Euclidean
from pyg_glif.registry import build, describe, register

_BASE, _HEAD = "distance.", "head."


@register
class TaskDistance(FairDistance):
    r"""Adds scores of the task to the coordinates of another fair distance.

    .. math::
        \phi(\mathbf{x}) = \big[\, \phi_0(\mathbf{x}), \;
        w \, g(\phi_0(\mathbf{x})) \,\big], \qquad
        d(\mathbf{x}, \mathbf{x}^{\prime})^2 =
        d_0(\mathbf{x}, \mathbf{x}^{\prime})^2 + w^2 \,
        \| g(\phi_0(\mathbf{x})) - g(\phi_0(\mathbf{x}^{\prime})) \|^2

    with the fair coordinates :math:`\phi_0` of another distance :math:`d_0` and a
    head :math:`g` that sees nothing else, such as the log-odds of a model trained on
    them. :class:`~pyg_glif.metric_learning.TaskEffect` fits one.

    Two things follow from the formula. Samples at distance zero stay there, because the
    head gets the same coordinates: **what the other distance ignores does not come
    back**. And :math:`d \ge d_0`: pairs are separated, no pair becomes closer.

    Args:
        distance (FairDistance): Gives the fair coordinates; it must have an embedding.
        head (callable): Maps fair coordinates :math:`(N, D)` to scores :math:`(N)` or
            :math:`(N, S)`. The scores of a row must not depend on other rows. A
            :class:`torch.nn.Linear` can be saved, and learned if its parameters
            require a gradient. What returns arrays in place of tensors has no gradient.
        weight (float, optional): Weight :math:`w \ge 0`: scores that differ by one
            count as ``weight`` units of ``distance``. (default: :obj:`1.0`)

    Shapes:
        - **input:** features :math:`(A, F)` and :math:`(B, F)`
        - **output:** distances :math:`(A, B)`

    Example:
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> blind = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> distance = TaskDistance(blind, lambda z: z[:, 0].square(), weight=0.5)
        >>> x = torch.tensor([[1.0, 5.0], [1.0, -5.0], [3.0, 5.0]])
        >>> distance.embed(x)[:, 1]
        tensor([0.5000, 0.5000, 4.5000])
        >>> distance(x, x)[0]  # the second column still does not matter
        tensor([0.0000, 0.0000, 4.4721])
    """

    def __init__(
        self,
        distance: FairDistance,
        head: Callable[[Tensor], Any],
        *,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        check_embedding("distance", distance)
        check_callable("head", head)
        self.distance = distance
        self.head = head
        self.weight = check_scalar("weight", weight, minimum=0)

    @property
    def num_features(self) -> int | None:
        """Number of columns the distance expects, ``None`` if any will do."""
        width = self.distance.num_features
        # Features are the fair coordinates there, and the head knows their number.
        if isinstance(self.distance, Euclidean) and isinstance(self.head, nn.Linear):
            width = self.head.in_features
        return width

    def with_weight(self, weight: float) -> "TaskDistance":
        """The same distance and head, which are shared, with another weight."""
        out = TaskDistance(self.distance, self.head, weight=weight)
        out.fit_result, out.feature_names = self.fit_result, self.feature_names
        return out

    def embed(self, x: Tensor) -> Tensor:
        """Returns the fair coordinates, and behind them the weighted scores."""
        z = self.distance.embed(self._rows("x", x))
        return torch.cat([z, self.weight * self.scores(z)], dim=1)

    def scores(self, z: Tensor) -> Tensor:
        r"""Scores of the head for fair coordinates, before they are weighted.

        Args:
            z (torch.Tensor): Fair coordinates, ``distance.embed(x)``.

        Shapes:
            - **input:** :math:`(N, D)`
            - **output:** :math:`(N, S)`
        """
        if isinstance(self.head, nn.Linear):
            check_width("distance.embed(x)", z, self.head.in_features)
            out = row_product(z, self.head.weight.T)
            return out if self.head.bias is None else out + self.head.bias.to(z.dtype)
        out = self.head(z)
        out = out if isinstance(out, Tensor) else to_tensor("head(z)", out)
        check_rank("head(z)", out, 1, 2)
        check_same_rows("head(z)", out, "x", z)
        check_floating("head(z)", out)
        return out.reshape(len(z), -1).to(z)

    def null_space(self, num_features: int) -> Tensor:
        """That of the other distance: the scores are a function of its coordinates."""
        return self.distance.null_space(num_features)

    def to_config(self) -> dict[str, Any]:
        """The other distance and the weight; a linear head is in the state dict."""
        if not isinstance(self.head, nn.Linear):
            name = getattr(self.head, "__name__", type(self.head).__name__)
            msg = f"'head' must be a 'torch.nn.Linear' to be saved (got {name})"
            raise TypeError(f"{msg}. Fit 'TaskEffect' without 'predict'")
        return {
            "distance": describe(self.distance),
            "weight": self.weight,
            "learnable": self.head.weight.requires_grad,
        }

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], state: Mapping[str, Tensor] | None = None
    ) -> "TaskDistance":
        """The distance with the tensors in ``state``, which are kept as they are."""
        linear, base = (_below(prefix, state or {}) for prefix in (_HEAD, _BASE))
        num_scores, width = linear["weight"].shape
        head = nn.Linear(width, num_scores, bias="bias" in linear, device="meta")
        head.load_state_dict(linear, assign=True)
        for name, value in linear.items():
            check_floating(f"head.{name}", value)
            check_finite(f"head.{name}", value)
        head.requires_grad_(config["learnable"])
        distance = build("distance", config["distance"], state=base)
        return cls(distance, head, weight=config["weight"])

    def extra_repr(self) -> str:
        """Arguments of the printed distance beside its parts."""
        shown = f"weight={self.weight:g}"
        if isinstance(self.head, nn.Module):
            return shown  # printed as a child
        name = getattr(self.head, "__name__", type(self.head).__name__)
        return f"{shown}, head={name}"


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors below a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in state.items()
        if name.startswith(prefix)
    }
