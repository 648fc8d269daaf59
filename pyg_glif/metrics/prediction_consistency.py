"""Do counterfactual versions of one person get the same class?"""

import torch
from torch import Tensor

from pyg_glif._validate import (
    check_comparisons,
    check_finite,
    check_floating,
    check_labels,
    check_rank,
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
    label = predicted_label(y)
    group = check_labels("group", group, label.numel()).to(label.device)
    return _consistency(label, group)


def predicted_label(y: Tensor) -> Tensor:  # [N, C] or [N] -> [N]
    """The predicted class of each row."""
    y = check_tensor("y", y)
    check_rank("y", y, 1, 2)
    if y.dim() == 1:
        return check_labels("y", y, y.numel())
    check_floating("y", y)
    _check_scores("y", y)
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


def _check_scores(name: str, value: Tensor) -> None:
    """Raises unless there are two columns or more, one per class."""
    if value.size(1) < 2:
        msg = f"'{name}' must have at least 2 columns, one per class"
        remedy = "Turn single scores into labels first"
        raise ValueError(f"{msg} (got shape {tuple(value.shape)}). {remedy}")
