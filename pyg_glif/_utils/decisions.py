"""Decisions from outputs: the one rule of audits, metrics, tuning and services."""

from torch import Tensor


def decisions(y: Tensor, threshold: float = 0.5) -> Tensor:
    """Class that each output decides for, as a whole number.

    Args:
        y (Tensor): Outputs, the last of two or more dimensions having one per class.
        threshold (float): Score above which a single output means class 1.
            (default: :obj:`0.5`)

    Shapes:
        - **input:** :math:`(N)` or :math:`(*, N, C)`
        - **output:** :math:`(N)` or :math:`(*, N)`

    Several outputs decide for the largest, the first one on ties.

    Example:
        >>> import torch
        >>> decisions(torch.tensor([0.5, 0.7])), decisions(torch.tensor([[0.2, 0.8]]))
        (tensor([0, 1]), tensor([1]))
    """
    if y.dim() == 1:
        return (y > threshold).long()
    return y.argmax(-1) if y.size(-1) > 1 else (y.squeeze(-1) > threshold).long()
