"""How far are the average outputs of two groups apart?"""

from torch import Tensor

from pyg_glif._validate import check_labels, check_num_groups, check_outputs
from pyg_glif.metrics._groups import group_means, number_groups


def group_gap(y: Tensor, attribute: Tensor) -> Tensor:
    r"""Difference of average outputs between groups of people.

    .. math::
        \bar{y}_b - \bar{y}_a \;\; (a < b) \quad \text{for two groups}, \qquad
        \max_g \bar{y}_g - \min_g \bar{y}_g \quad \text{for more}

    Two groups give a signed gap: positive if the group with the larger label gets
    the larger outputs. More give the widest gap, column by column.

    Args:
        y (torch.Tensor): Outputs, float32 or float64.
        attribute (torch.Tensor): Non-negative label of each row's group, or a
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
    attribute = check_labels("attribute", attribute, y.size(0)).to(y.device)
    index, count = number_groups(attribute)
    check_num_groups("attribute", count.numel())
    mean = group_means(y, index, count)
    gap = mean[1] - mean[0] if len(mean) == 2 else mean.amax(0) - mean.amin(0)
    return gap.to(y.dtype)
