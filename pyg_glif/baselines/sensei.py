"""SenSeI: comparable inputs should get the same output."""

from collections.abc import Callable

import torch
from torch import Tensor

from pyg_glif._validate import check_features, check_scalar
from pyg_glif.baselines.auditor import Auditor, WorstCase, evaluating
from pyg_glif.baselines.robust import RobustTerm
from pyg_glif.distances import FairDistance


class SenSeIRegularizer(RobustTerm):
    r"""Sensitive set invariance (`SenSeI <https://arxiv.org/abs/2006.14168>`_).

    .. math::
        \rho \cdot \frac{1}{B} \sum_{b=1}^{B}
        \| h(\mathbf{x}_b) - h(\mathbf{x}^{\prime}_b) \|_2^2, \qquad
        \mathbf{x}^{\prime}_b \approx \arg\max_{\mathbf{x}^{\prime}}
        \| h(\mathbf{x}_b) - h(\mathbf{x}^{\prime}) \|_2^2
        - \lambda \, d(\mathbf{x}_b, \mathbf{x}^{\prime})^2 ,

    whose gradient is that of SenSeI's transport-based regulariser: the largest mean
    change of output if people may be moved by a mean squared fair distance of
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
    unfairness, and running statistics are left alone. Gradients reach the model's
    parameters, through both outputs, and nothing else.

    Example:
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> term, x = SenSeIRegularizer(distance), torch.zeros(4, 2)
        >>> term(lambda x: x[:, 0], x).item() < 1e-3  # blind to the second feature
        True
        >>> term(lambda x: x[:, 1], x).item() > 1.0
        True
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
            x (torch.Tensor): Features of the people.
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
        """What the printed term shows."""
        return f"rho={self.rho:g}, {super().extra_repr()}"


def _sq_change(f: Tensor, other: Tensor) -> Tensor:  # [N] or [N, C] -> [N]
    """Squared Euclidean distance of outputs, row by row, in single precision or more.

    In half precision a change of 256 would already be infinite when squared.
    """
    dtype = torch.promote_types(f.dtype, torch.float32)
    return (f.to(dtype) - other.to(dtype)).square().reshape(len(f), -1).sum(dim=1)
