"""What SenSeI and SenSR share: an auditor, a budget and the price that keeps it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pyg_glif._runtime import Unwritten
from pyg_glif._validate import check_embedding, check_kind, check_scalar
from pyg_glif.baselines.auditor import (
    Auditor,
    WorstCase,
    evaluating,
    free_directions,
    frozen,
)
from pyg_glif.distances import FairDistance

# The authors' code keeps the price above this, and so do we: from zero, a rule that
# multiplies could not come back.
_MIN_DUAL = 1e-5


class RobustTerm(nn.Module):
    r"""Base of training terms that look at the worst comparable input.

    Holds the price :math:`\lambda` of squared fair distance and moves it towards the
    budget, by the rule that :class:`~pyg_glif.baselines.SenSeIRegularizer` states.

    Args:
        distance (FairDistance): Which inputs are comparable. It needs an embedding,
            and is not trained.
        eps (float, optional): Budget :math:`\epsilon`, a mean *squared* fair distance;
            :obj:`None` leaves ``dual`` as it is.
        auditor (Auditor, optional): How the worst inputs are searched.
        dual (float): First value of :math:`\lambda`.
        dual_lr (float): Step size :math:`\eta` of :math:`\log \lambda`.
    """

    dual: Tensor

    def __init__(
        self,
        distance: FairDistance,
        *,
        eps: float | None,
        auditor: Auditor | None,
        dual: float,
        dual_lr: float,
    ) -> None:
        super().__init__()
        check_kind("distance", distance, FairDistance)
        check_embedding("distance", distance)
        if auditor is not None:
            check_kind("auditor", auditor, Auditor)
        self.eps = None if eps is None else check_scalar("eps", eps, above=0.0)
        self.dual_lr = check_scalar("dual_lr", dual_lr, minimum=0.0)
        self.auditor = Auditor() if auditor is None else auditor
        self.distance = distance
        start = max(check_scalar("dual", dual, minimum=0.0), _MIN_DUAL)
        self.register_buffer("dual", torch.tensor(start, dtype=torch.float32))
        self._last: tuple[Unwritten, Tensor] | None = None

    def _search(
        self,
        gain: Callable[[Tensor], Tensor],
        x: Tensor,
        model: Callable[[Tensor], Tensor],
        generator: torch.Generator | None,
    ) -> WorstCase:
        """Audits ``model`` in evaluation mode, its gradients left alone."""
        with frozen(model, self.distance), evaluating(model):
            return self.auditor.search(
                gain,
                x,
                self.distance,
                self.dual,
                directions=self._free_directions(x.size(1)),
                generator=generator,
            )

    @torch.no_grad()
    def _pay(self, sq_dist: Tensor) -> None:
        """Moves the price towards the budget; in evaluation it stays."""
        if not self.training or self.eps is None or sq_dist.numel() == 0:
            return
        spent = float(sq_dist.mean())
        gap = (spent - self.eps) / max(spent, self.eps)
        self.dual.mul_(math.exp(self.dual_lr * gap)).clamp_(min=_MIN_DUAL)

    def _free_directions(self, num_features: int) -> Tensor:
        """Those of the distance, found anew whenever its tensors have changed."""
        tensors = [*self.distance.parameters(), *self.distance.buffers()]
        if self._last is None or not self._last[0].are(tensors):
            directions = free_directions(self.distance, num_features)
            self._last = Unwritten(tensors), directions
        return self._last[1]

    def extra_repr(self) -> str:
        """What the printed term shows."""
        return f"eps={self.eps}, auditor={self.auditor}"
