"""Training with SenSR's loss."""

from typing import Any

from torch import Tensor, nn

from pyg_glif._validate import check_features_only
from pyg_glif.baselines import Auditor, SenSRLoss
from pyg_glif.distances import FairDistance
from pyg_glif.lightning._batch import to_rows
from pyg_glif.lightning.fair_classifier import FairClassifier


class SenSR(FairClassifier):
    r"""Trains a classifier with `SenSR <https://arxiv.org/abs/1907.00020>`_.

    .. math::
        \frac{1}{|B_\ell|} \sum_{i \in B_\ell}
        \mathrm{CE}(h(\mathbf{x}^{\prime}_i), y_i)

    over the labelled rows :math:`B_\ell` of a batch, at the comparable inputs
    :math:`\mathbf{x}^{\prime}_i` where the loss is largest:
    :class:`~pyg_glif.baselines.SenSRLoss` says more. Batches, metrics and log are those
    of :class:`FairClassifier`; ``train_cross_entropy`` is the loss at the people's own
    features, ``train_loss`` the one above, and ``train_dual`` the price
    :math:`\lambda` of squared fair distance.

    Args:
        model (torch.nn.Module): Maps features :math:`(N, F)` to logits :math:`(N, C)`.
        distance (FairDistance): Which inputs are comparable. It needs an embedding,
            is not trained, and is saved in checkpoints.
        eps (float, optional): Budget :math:`\epsilon`, a mean *squared* fair distance;
            :obj:`None` leaves ``dual`` as it is. (default: :obj:`0.01`)
        num_subspace_steps (int): Auditor's steps in the sensitive subspace.
            (default: :obj:`10`)
        subspace_lr (float): Learning rate of these steps. (default: :obj:`0.1`)
        num_full_steps (int): Auditor's steps in all directions. (default: :obj:`10`)
        full_lr (float): Learning rate of these steps. (default: :obj:`0.01`)
        dual (float): First value of SenSR's :math:`\lambda`. (default: :obj:`1.0`)
        dual_lr (float): Step size of :math:`\log \lambda`. (default: :obj:`0.1`)
        lr (float): Learning rate of Adam. (default: :obj:`1e-3`)
        weight_decay (float): Weight decay of Adam. (default: :obj:`0.0`)
        num_classes (int, optional): Number of classes. (default: as in
            :class:`FairClassifier`)

    Example:
        >>> import torch
        >>> from pyg_glif.distances import SensitiveSubspace
        >>> from pyg_glif.lightning import MLP
        >>> distance = SensitiveSubspace(torch.tensor([[0.0, 1.0]]))
        >>> SenSR(MLP(2, 8, 3), distance, eps=0.1).num_classes
        3
    """

    def __init__(
        self,
        model: nn.Module,
        distance: FairDistance,
        *,
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
        self.term = SenSRLoss(
            distance, eps=eps, auditor=auditor, dual=dual, dual_lr=dual_lr
        )

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch at the worst comparable inputs."""
        rows = to_rows(batch, "train")
        logits = self._logits(rows)
        loss, _, target = self._cross_entropy(rows, logits)
        size = max(1, len(target))
        self.log("train_cross_entropy", loss.detach(), batch_size=size)
        if rows.y is not None and len(target):
            labelled = rows.y >= 0
            loss = self.term(self.model, rows.x[labelled], rows.y[labelled])
        self.log("train_loss", loss, batch_size=size, prog_bar=True)
        self.log("train_dual", self.term.dual, batch_size=1)
        return loss
