"""Differences of outputs between and within groups."""

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils.arrays import to_floats
from pyg_glif._utils.decisions import decisions
from pyg_glif._utils.validation import (
    as_labels,
    check_finite,
    check_floating,
    check_labels,
    check_num_rows,
    check_outputs,
    check_rank,
    check_repeated,
    check_two_values,
)


def group_gap(y: Tensor, sensitive: Tensor) -> Tensor:
    r"""Difference of average outputs between groups.

    .. math::
        \bar{y}_b - \bar{y}_a \;\; (a < b) \quad \text{for two groups}, \qquad
        \max_g \bar{y}_g - \min_g \bar{y}_g \quad \text{for more}

    Two groups give a signed gap: positive if the group with the larger label gets
    the larger outputs. More give the widest gap, column by column.

    Args:
        y (torch.Tensor): Outputs, float32 or float64.
        sensitive (torch.Tensor): Non-negative label of each row's group, or a
            truth value.

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, labels :math:`(N)`
        - **output:** a number or :math:`(C)`, in the unit of the outputs

    Gradients reach ``y``. Raises :class:`ValueError` if there is one group only: a
    group that is not there has no average.

    Example:
        >>> import torch
        >>> y = torch.tensor([0.2, 0.4, 0.9])
        >>> group_gap(y, torch.tensor([0, 0, 1]))
        tensor(0.6000)
    """
    y = check_outputs("y", y)
    sensitive = check_labels("sensitive", sensitive, y.size(0)).to(y.device)
    index, count = number_groups(sensitive)
    check_two_values("sensitive", sensitive.unique())
    mean = group_means(y, index, count)
    gap = mean[1] - mean[0] if len(mean) == 2 else mean.amax(0) - mean.amin(0)
    return gap.to(y.dtype)


def group_std(y: Tensor, group: Tensor | None = None) -> Tensor:
    r"""Standard deviation of outputs within groups of comparable samples.

    .. math::
        \frac{1}{|\mathcal{G}|} \sum_{G \in \mathcal{G}} \sqrt{
        \frac{1}{|G| - 1} \sum_{i \in G} (y_i - \bar{y}_G)^2 }

    over the groups :math:`\mathcal{G}` of at least two rows, each of which counts the
    same whatever its size; groups of one do not count. Without ``group`` all rows
    are comparable, as the names of the paper's sentiment experiment, and the result
    is ``torch.std(y, dim=0)``.

    Args:
        y (torch.Tensor): Outputs, float32 or float64.
        group (torch.Tensor, optional): Non-negative label of each row's group.
            (default: one group)

    Shapes:
        - **input:** outputs :math:`(N)` or :math:`(N, C)`, groups :math:`(N)`
        - **output:** a number or :math:`(C)`, in the unit of the outputs

    Gradients reach ``y``; the gradient of a group of equal outputs is zero. Raises
    :class:`ValueError` if no group has two rows.

    Example:
        >>> y = torch.tensor([0.0, 2.0, 5.0, 5.0])
        >>> group_std(y, torch.tensor([0, 0, 1, 1]))
        tensor(0.7071)
    """
    y = check_outputs("y", y)
    if group is None:
        check_num_rows("y", y.size(0), 2)
        group = torch.zeros(y.size(0), dtype=torch.long)
    group = check_labels("group", group, y.size(0)).to(y.device)
    index, count = number_groups(group)
    compared = count > 1
    check_repeated("group", int(compared.sum()), count.numel())
    mean = group_means(y, index, count)
    # n / (n - 1) times the mean square: unbiased. Lone rows are dropped, not divided.
    variance = group_means((y.double() - mean[index]).square(), index, count)
    size = count[compared].view(-1, *[1] * (y.dim() - 1))
    variance = variance[compared] * (size / (size - 1).double())
    # Masked before the root: its slope at zero is infinite.
    positive = variance > 0
    std = torch.where(positive, variance, 1.0).sqrt()
    return torch.where(positive, std, 0.0).mean(dim=0).to(y.dtype)


def prediction_consistency(y: Tensor, group: Tensor) -> Tensor:
    r"""Share of groups of counterfactuals whose predicted classes all agree.

    .. math::
        \frac{1}{|\mathcal{G}|} \sum_{G \in \mathcal{G}}
        \mathbb{1}\{ c_i = c_j \;\; \forall i, j \in G \}, \qquad
        c_i = \arg\max_k y_{ik}

    over the groups :math:`\mathcal{G}` of at least two rows: a pair (a biography and
    the same one with other pronouns) or more (a comment and fifty rewordings).
    Groups of one row do not count.

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
    if not isinstance(y, Tensor):
        y = (as_labels if np.ndim(y) == 1 else to_floats)("y", y)
    check_rank("y", y, 1, 2)
    if y.dim() == 1:
        return check_labels("y", y, y.numel())
    check_floating("y", y)
    _check_scores("y", y)
    check_finite("y", y)
    return decisions(y)


def _consistency(label: Tensor, group: Tensor) -> Tensor:
    """Share of groups of at least two rows with one label only."""
    index, count = number_groups(group)
    least = label.new_zeros(count.numel())
    most = least.scatter_reduce(0, index, label, "amax", include_self=False)
    least = least.scatter_reduce(0, index, label, "amin", include_self=False)
    compared = count > 1
    check_repeated("group", int(compared.sum()), count.numel())
    agree = (least == most)[compared]
    return agree.double().mean().to(torch.get_default_dtype())


def _check_scores(name: str, value: Tensor) -> None:
    """Raises unless there are two columns or more, one per class."""
    if value.size(1) < 2:
        msg = f"'{name}' must have at least 2 columns, one per class"
        remedy = "Turn single scores into labels first"
        raise ValueError(f"{msg} (got shape {tuple(value.shape)}). {remedy}")


def number_groups(label: Tensor) -> tuple[Tensor, Tensor]:  # [N] -> [N], [G]
    """Numbers groups from 0 in the order of their labels, and counts their rows."""
    _, index, count = label.unique(return_inverse=True, return_counts=True)
    return index, count


def group_means(
    y: Tensor, index: Tensor, count: Tensor
) -> Tensor:  # [N, ...], [N], [G] -> [G, ...]
    """Mean of each group, float64."""
    shape = (count.numel(), *y.shape[1:])
    total = torch.zeros(shape, dtype=torch.float64, device=y.device)
    total = total.index_add(0, index, y.double())
    return total / count.view(-1, *[1] * (y.dim() - 1))
