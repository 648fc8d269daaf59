"""How far do outputs of comparable people spread?"""

import torch
from torch import Tensor

from pyg_glif._validate import (
    check_comparisons,
    check_labels,
    check_num_rows,
    check_outputs,
)
from pyg_glif.metrics._groups import group_means, number_groups


def group_std(y: Tensor, group: Tensor | None = None) -> Tensor:
    r"""Standard deviation of outputs over comparable people.

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
    check_comparisons("group", int(compared.sum()), count.numel())
    mean = group_means(y, index, count)
    # n / (n - 1) times the mean square: unbiased. Lone rows are dropped, not divided.
    variance = group_means((y.double() - mean[index]).square(), index, count)
    size = count[compared].view(-1, *[1] * (y.dim() - 1))
    variance = variance[compared] * (size / (size - 1).double())
    # Masked before the root: its slope at zero is infinite.
    positive = variance > 0
    std = torch.where(positive, variance, 1.0).sqrt()
    return torch.where(positive, std, 0.0).mean(dim=0).to(y.dtype)
