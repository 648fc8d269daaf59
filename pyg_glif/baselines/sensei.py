"""SenSeI: invariance of outputs over comparable inputs."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pyg_glif._utils.runtime import Snapshot
from pyg_glif._utils.validation import (
    check_embedding,
    check_features,
    check_kind,
    check_scalar,
    full_precision,
)
from pyg_glif.baselines.auditor import (
    Auditor,
    WorstCase,
    evaluating,
    frozen,
)
from pyg_glif.distances import FairDistance

# The authors' code keeps the price above this, and so do we: from zero, a rule that
# multiplies could not come back.
_MIN_DUAL = 1e-5


class RobustTerm(nn.Module):
    r"""Base of training terms with a search for the worst comparable input.

    Holds the price :math:`\lambda` of squared fair distance and moves it towards the
    budget; :class:`~pyg_glif.baselines.SenSeIRegularizer` states the rule and the
    arguments.
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
        self._last: tuple[Snapshot, Tensor] | None = None

    def _search(
        self,
        gain: Callable[[Tensor], Tensor],
        x: Tensor,
        model: Callable[[Tensor], Tensor],
        generator: torch.Generator | None,
    ) -> WorstCase:
        """Audits ``model`` in evaluation mode, without a change of its gradients."""
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
        # A factor, not a difference: the price stays positive.
        self.dual.mul_(math.exp(self.dual_lr * gap)).clamp_(min=_MIN_DUAL)

    def _free_directions(self, num_features: int) -> Tensor:
        """Free directions of the distance, kept until one of its tensors changes."""
        tensors = [*self.distance.parameters(), *self.distance.buffers()]
        if self._last is None or not self._last[0].matches(tensors):
            directions = self.distance.null_space(num_features)
            self._last = Snapshot(tensors), directions
        return self._last[1]

    def extra_repr(self) -> str:
        """Arguments for ``repr``."""
        return f"eps={self.eps}, auditor={self.auditor}"


class SenSeIRegularizer(RobustTerm):
    r"""Sensitive set invariance (`SenSeI <https://arxiv.org/abs/2006.14168>`_).

    .. math::
        \rho \cdot \frac{1}{B} \sum_{b=1}^{B}
        \| h(\mathbf{x}_b) - h(\mathbf{x}^{\prime}_b) \|_2^2, \qquad
        \mathbf{x}^{\prime}_b \approx \arg\max_{\mathbf{x}^{\prime}}
        \| h(\mathbf{x}_b) - h(\mathbf{x}^{\prime}) \|_2^2
        - \lambda \, d(\mathbf{x}_b, \mathbf{x}^{\prime})^2 ,

    whose gradient is that of SenSeI's transport-based regulariser: the largest mean
    change of output if samples may be moved by a mean squared fair distance of
    :math:`\epsilon`. It is added to an ordinary loss. An
    :class:`~pyg_glif.baselines.Auditor` finds :math:`\mathbf{x}^{\prime}`. The price
    :math:`\lambda` of squared fair distance is the buffer ``dual``; after each audit
    in training mode,

    .. math::
        \lambda \leftarrow \max\Big\{ \lambda \exp\Big( \eta \,
        \frac{\bar d^2 - \epsilon}{\max(\bar d^2, \epsilon)} \Big), 10^{-5} \Big\},
        \qquad
        \bar d^2 = \frac{1}{B} \sum_b d(\mathbf{x}_b, \mathbf{x}^{\prime}_b)^2 ,

    so that it rises while the audited inputs are farther away than the budget allows
    on average, and falls while they are nearer.

    Args:
        distance (FairDistance): Which inputs are comparable. It needs an embedding,
            and is not trained.
        rho (float): Strength :math:`\rho \ge 0`. (default: :obj:`1.0`)
        eps (float, optional): Budget :math:`\epsilon`, a mean *squared* fair distance;
            :obj:`None` leaves ``dual`` as it is. (default: :obj:`0.01`)
        auditor (Auditor, optional): How the worst inputs are searched.
            (default: :obj:`Auditor()`)
        dual (float): First value of SenSeI's :math:`\lambda`, which is not the
            smoothing strength ``lam`` of GLIF. (default: :obj:`1.0`)
        dual_lr (float): Step size :math:`\eta` of :math:`\log \lambda`.
            (default: :obj:`0.1`)

    Shapes:
        - **input:** a model from :math:`(N, F)` to :math:`(N)` or :math:`(N, C)`,
          features :math:`(N, F)`
        - **output:** :math:`()`

    Outputs are compared as the model returns them; for a classifier let it return
    logits. They are compared in evaluation mode, so that dropout does not pass for
    unfairness, and running statistics do not change. Gradients reach the model's
    parameters, through both outputs, and nothing else.

    Example:
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> term, x = SenSeIRegularizer(distance), torch.zeros(4, 2)
        >>> term(lambda x: x[:, 0], x).round(decimals=3)  # blind to the second feature
        tensor(0.)
        >>> term(lambda x: x[:, 1], x).round(decimals=2)
        tensor(1.2500)
    """

    def __init__(
        self,
        distance: FairDistance,
        *,
        rho: float = 1.0,
        eps: float | None = 0.01,
        auditor: Auditor | None = None,
        dual: float = 1.0,
        dual_lr: float = 0.1,
    ) -> None:
        super().__init__(distance, eps=eps, auditor=auditor, dual=dual, dual_lr=dual_lr)
        self.rho = check_scalar("rho", rho, minimum=0.0)

    def audit(
        self,
        model: Callable[[Tensor], Tensor],
        x: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> WorstCase:
        r"""The comparable inputs whose outputs differ most from those of ``x``.

        Args:
            model (callable): A module, or any differentiable function of rows. A
                module is audited in evaluation mode; parameters, their gradients and
                modes are left as they were.
            x (torch.Tensor): Features of the samples.
            generator (torch.Generator, optional): Source of the first, random shifts.
                (default: one seeded with zero)

        Shapes:
            - **input:** features :math:`(N, F)`
            - **output:** features :math:`(N, F)`, squared changes of output and squared
              fair distances :math:`(N)`
        """
        x = check_features("x", x).detach()
        with torch.no_grad(), evaluating(model):
            before = model(x)

        def change(x: Tensor) -> Tensor:
            return _sq_change(model(x), before)

        return self._search(change, x, model, generator)

    def forward(self, model: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """The regulariser of ``model`` at ``x``; in training mode ``dual`` moves."""
        if self.rho == 0:
            return x.new_zeros(())  # without an audit, which costs most of a step
        worst = self.audit(model, x)
        self._pay(worst.sq_dist)
        with evaluating(model):
            before, after = model(torch.cat([x.detach(), worst.x])).chunk(2)
        return self.rho * _sq_change(after, before).mean()

    def extra_repr(self) -> str:
        """Arguments for ``repr``."""
        return f"rho={self.rho:g}, {super().extra_repr()}"


def _sq_change(f: Tensor, other: Tensor) -> Tensor:  # [N] or [N, C] -> [N]
    """Squared Euclidean distance of outputs, row by row, in single precision or more.

    In half precision a change of 256 would already be infinite when squared.
    """
    change = full_precision(f) - full_precision(other)
    return change.square().reshape(len(f), -1).sum(dim=1)
