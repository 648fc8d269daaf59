"""Do counterfactual versions of one person get the same class?"""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from pyg_glif._validate import (
    check_comparisons,
    check_finite,
    check_floating,
    check_labels,
    check_rank,
    check_scores,
    check_tensor,
)
from pyg_glif.metrics._groups import number_groups


def prediction_consistency(y: Tensor, group: Tensor) -> Tensor:
    r"""Share of groups of counterfactuals whose predicted classes all agree.

    .. math::
        \frac{1}{|\mathcal{G}|} \sum_{G \in \mathcal{G}}
        \mathbb{1}\{ c_i = c_j \;\; \forall i, j \in G \}, \qquad
        c_i = \arg\max_k y_{ik}

    over the groups :math:`\mathcal{G}` of at least two rows: a pair (a biography and
    the same one with other pronouns) or more (a comment and fifty rewordings).
    Groups of one compare nobody and do not count.

    Args:
        y (torch.Tensor): Logits or probabilities, one column per class, of which
            the largest (the first one on ties) is the prediction; or class labels.
        group (torch.Tensor): Non-negative label of each row's group.

    Shapes:
        - **input:** scores :math:`(N, C)` or labels :math:`(N)`, groups :math:`(N)`
        - **output:** a share from 0 to 1

    Raises :class:`ValueError` if no group has two rows.

    Example:
        >>> y = torch.tensor([[2.0, 1.0], [3.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> prediction_consistency(y, torch.tensor([0, 0, 1, 1]))
        tensor(0.5000)
    """
    label = _predicted_label(y)
    group = check_labels("group", group, label.numel()).to(label.device)
    return _consistency(label, group)


def _predicted_label(y: Tensor) -> Tensor:  # [N, C] or [N] -> [N]
    """The predicted class of each row."""
    y = check_tensor("y", y)
    check_rank("y", y, 1, 2)
    if y.dim() == 1:
        return check_labels("y", y, y.numel())
    check_floating("y", y)
    check_scores("y", y)
    check_finite("y", y)
    return y.argmax(dim=1)


def _consistency(label: Tensor, group: Tensor) -> Tensor:
    """Share of groups of at least two rows with one label only."""
    index, count = number_groups(group)
    least = label.new_zeros(count.numel())
    most = least.scatter_reduce(0, index, label, "amax", include_self=False)
    least = least.scatter_reduce(0, index, label, "amin", include_self=False)
    compared = count > 1
    check_comparisons("group", int(compared.sum()), count.numel())
    agree = (least == most)[compared]
    return agree.double().mean().to(torch.get_default_dtype())


class PredictionConsistency(Metric):
    r"""Share of groups of counterfactuals whose predicted classes all agree.

    :func:`prediction_consistency` over all batches: a group may be spread over
    several of them.

    Args:
        **kwargs: What every :class:`torchmetrics.Metric` takes.

    Shapes:
        - **update:** scores :math:`(N, C)` or labels :math:`(N)`, groups :math:`(N)`
        - **compute:** a share from 0 to 1

    Calling the metric returns the value of one batch and needs a whole group in it;
    use ``update`` if there may be none.

    Example:
        >>> metric = PredictionConsistency()
        >>> metric.update(torch.tensor([1, 0]), group=torch.tensor([7, 8]))
        >>> metric.update(torch.tensor([1, 1]), group=torch.tensor([7, 8]))
        >>> metric.compute()
        tensor(0.5000)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    label: list[Tensor]
    group: list[Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("label", [], dist_reduce_fx="cat")
        self.add_state("group", [], dist_reduce_fx="cat")

    def update(self, y: Tensor, group: Tensor) -> None:
        """Adds predictions and the groups they belong to."""
        label = _predicted_label(y)
        self.group.append(check_labels("group", group, label.numel()))
        self.label.append(label)

    def compute(self) -> Tensor:
        """The share over everything added."""
        return _consistency(dim_zero_cat(self.label), dim_zero_cat(self.group))
