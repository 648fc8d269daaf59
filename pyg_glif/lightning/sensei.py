"""Training with SenSeI's regulariser."""

from typing import Any

from torch import Tensor, nn

from pyg_glif._validate import check_features_only
from pyg_glif.baselines import Auditor, SenSeIRegularizer
from pyg_glif.distances import FairDistance
from pyg_glif.lightning.fair_classifier import FairClassifier


class SenSeI(FairClassifier):
    r"""Trains a classifier with `SenSeI <https://arxiv.org/abs/2006.14168>`_.

    .. math::
        \frac{1}{|B_\ell|} \sum_{i \in B_\ell} \mathrm{CE}(h(\mathbf{x}_i), y_i) +
        \frac{\rho}{|B|} \sum_{i \in B}
        \| h(\mathbf{x}_i) - h(\mathbf{x}^{\prime}_i) \|_2^2

    with the worst comparable inputs :math:`\mathbf{x}^{\prime}_i` of
    :class:`~pyg_glif.baselines.SenSeIRegularizer`, which says more. Batches, metrics
    and log are those of :class:`FairClassifier`, and ``train_dual``, the price
    :math:`\lambda` of squared fair distance. Rows without a label are audited too.

    Args:
        model (torch.nn.Module): Maps features :math:`(N, F)` to logits :math:`(N, C)`.
        distance (FairDistance): Which inputs are comparable. It needs an embedding,
            is not trained, and is saved in checkpoints.
        rho (float): Strength :math:`\rho \ge 0` of the regulariser.
            (default: :obj:`1.0`)
        eps (float, optional): Budget :math:`\epsilon`, a mean *squared* fair distance;
            :obj:`None` leaves ``dual`` as it is. (default: :obj:`0.01`)
        num_subspace_steps (int): Auditor's steps in the sensitive subspace.
            (default: :obj:`10`)
        subspace_lr (float): Learning rate of these steps. (default: :obj:`0.1`)
        num_full_steps (int): Auditor's steps in all directions. (default: :obj:`10`)
        full_lr (float): Learning rate of these steps. (default: :obj:`0.01`)
        dual (float): First value of SenSeI's :math:`\lambda`. (default: :obj:`1.0`)
        dual_lr (float): Step size of :math:`\log \lambda`. (default: :obj:`0.1`)
        lr (float): Learning rate of Adam. (default: :obj:`1e-3`)
        weight_decay (float): Weight decay of Adam. (default: :obj:`0.0`)
        num_classes (int, optional): Number of classes. (default: as in
            :class:`FairClassifier`)

    A training step costs about ``num_subspace_steps + num_full_steps`` times as much as
    without.

    Example:
        >>> import torch
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> from pyg_glif.lightning import MLP
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> classifier = SenSeI(MLP(2, 8, 3), distance, rho=5.0)
        >>> x = torch.zeros(4, 2)
        >>> classifier.regularizer(x, classifier(x), None).shape
        torch.Size([])
    """

    def __init__(
        self,
        model: nn.Module,
        distance: FairDistance,
        *,
        rho: float = 1.0,
        eps: float | None = 0.01,
        num_subspace_steps: int = 10,
        subspace_lr: float = 0.1,
        num_full_steps: int = 10,
        full_lr: float = 0.01,
        dual: float = 1.0,
        dual_lr: float = 0.1,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        num_classes: int | None = None,
    ) -> None:
        super().__init__(
            model,
            lr=lr,
            weight_decay=weight_decay,
            distance=distance,
            num_classes=num_classes,
        )
        check_features_only("model", self._takes)
        auditor = Auditor(
            num_subspace_steps=num_subspace_steps,
            subspace_lr=subspace_lr,
            num_full_steps=num_full_steps,
            full_lr=full_lr,
        )
        self.term = SenSeIRegularizer(
            distance, rho=rho, eps=eps, auditor=auditor, dual=dual, dual_lr=dual_lr
        )

    def regularizer(
        self, x: Tensor, logits: Tensor, index: Tensor | None
    ) -> Tensor | None:
        """The change of output at the worst comparable inputs."""
        return None if self.term.rho == 0 else self.term(self.model, x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Cross-entropy and regulariser of a batch."""
        loss = super().training_step(batch, batch_idx)
        self.log("train_dual", self.term.dual, batch_size=1)
        return loss
