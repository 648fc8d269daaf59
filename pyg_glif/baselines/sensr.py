"""SenSR: robustness of the loss over comparable inputs."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pyg_glif._utils.validation import check_callable, check_features, check_same_rows
from pyg_glif.baselines.auditor import Auditor, WorstCase
from pyg_glif.baselines.sensei import RobustTerm
from pyg_glif.distances import FairDistance


class SenSRLoss(RobustTerm):
    r"""Sensitive subspace robustness (`SenSR <https://arxiv.org/abs/1907.00020>`_).

    .. math::
        \frac{1}{B} \sum_{b=1}^{B} \ell(h(\mathbf{x}^{\prime}_b), y_b), \qquad
        \mathbf{x}^{\prime}_b \approx \arg\max_{\mathbf{x}^{\prime}}
        \ell(h(\mathbf{x}^{\prime}), y_b)
        - \lambda \, d(\mathbf{x}_b, \mathbf{x}^{\prime})^2

    It takes the place of the ordinary loss. The auditor and the price
    :math:`\lambda` are those of :class:`~pyg_glif.baselines.SenSeIRegularizer`; the
    search maximises the loss, not the change of the output.

    Args:
        distance (FairDistance): Which inputs are comparable. It needs an embedding,
            and is not trained.
        loss (callable, optional): Maps outputs and labels to one loss per row.
            (default: cross-entropy of logits)
        **others: ``eps``, ``auditor``, ``dual`` and ``dual_lr`` of
            :class:`~pyg_glif.baselines.SenSeIRegularizer`.

    Shapes:
        - **input:** a model from :math:`(N, F)` to :math:`(N, C)`, features
          :math:`(N, F)`, labels :math:`(N)`
        - **output:** :math:`()`

    The search sees the model in evaluation mode, the loss sees it as it is.

    Example:
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> loss, x, y = SenSRLoss(distance), torch.zeros(4, 2), torch.zeros(4).long()
        >>> blind = loss(lambda x: torch.stack([x[:, 0], 0 * x[:, 0]], 1), x, y)
        >>> unfair = loss(lambda x: torch.stack([x[:, 1], 0 * x[:, 0]], 1), x, y)
        >>> blind.round(decimals=2), unfair.round(decimals=2)
        (tensor(0.7400), tensor(1.4100))
    """

    def __init__(
        self,
        distance: FairDistance,
        *,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        eps: float | None = 0.01,
        auditor: Auditor | None = None,
        dual: float = 1.0,
        dual_lr: float = 0.1,
    ) -> None:
        super().__init__(distance, eps=eps, auditor=auditor, dual=dual, dual_lr=dual_lr)
        if loss is not None:
            check_callable("loss", loss)
        self.loss = _cross_entropy if loss is None else loss

    def audit(
        self,
        model: Callable[[Tensor], Tensor],
        x: Tensor,
        y: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> WorstCase:
        r"""The comparable inputs on which the loss is largest.

        As in :meth:`SenSeIRegularizer.audit`, with labels ``y`` :math:`(N)`; gains are
        increases of the loss.
        """
        x = check_features("x", x).detach()
        check_same_rows("y", y, "x", x)

        def loss(x: Tensor) -> Tensor:
            return self.loss(model(x), y)

        return self._search(loss, x, model, generator)

    def forward(
        self, model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor
    ) -> Tensor:
        """The loss of ``model`` near ``x``; in training mode ``dual`` moves."""
        worst = self.audit(model, x, y)
        self._pay(worst.sq_dist)
        return self.loss(model(worst.x), y).mean()


def _cross_entropy(f: Tensor, y: Tensor) -> Tensor:  # [N, C], [N] -> [N]
    """The default loss, one value per row."""
    return cross_entropy(f, y, reduction="none")
