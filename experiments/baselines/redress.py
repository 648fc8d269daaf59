r"""A loss that makes similar people rank alike (REDRESS).

For person :math:`i`, let :math:`s_{ij}` be the similarity of others as people and
:math:`\hat s_{ij}` that of their outputs. REDRESS wants both to give the same ranking.
For two others :math:`j, m` with :math:`s_{ij} > s_{im}`, the model puts them in that
order with probability :math:`\sigma(\hat s_{ij} - \hat s_{im})`, and the loss is minus
its logarithm, weighted by what swapping the two would change of NDCG@k, as in
LambdaRank:

.. math::
    \frac{1}{N} \sum_i \sum_{j, m} |\Delta\mathrm{NDCG@}k_i(j, m)| \,
    \log \bigl(1 + e^{-(\hat s_{ij} - \hat s_{im})}\bigr) .

Pairs count if one of the two is among the first :math:`k` of either ranking: elsewhere
the weight is zero, and so memory is :math:`O(k^2)` per person.
"""

import torch
from torch import Tensor, nn

from pyg_glif._utils.validation import (
    check_count,
    check_features,
    check_same_rows,
    check_signal,
)


class RankingLoss(nn.Module):
    r"""REDRESS: similar people should rank alike (Dong et al., KDD 2021).

    See :mod:`experiments.baselines.redress` for the formula. Written from the paper;
    where that leaves the choice open, similarities are cosines of features and of
    outputs.

    Args:
        k (int): Places of the ranking that count. (default: :obj:`10`)
        sharpness (float): Factor of the similarities of outputs before the sigmoid.
            (default: :obj:`1.0`)

    Shapes:
        - **input:** outputs :math:`(N, C)`, features :math:`(N, F)`
        - **output:** :math:`()`

    Everybody is ranked among the rows that are given, in blocks: pass some people, not
    all, where there are many. Gradients reach the outputs.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> good = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]])
        >>> loss = RankingLoss(k=1)
        >>> loss(good, x) < loss(good.flip(0), x)
        tensor(True)
    """

    def __init__(self, k: int = 10, sharpness: float = 1.0) -> None:
        super().__init__()
        self.k = check_count("k", k)
        self.sharpness = sharpness

    def forward(self, outputs: Tensor, x: Tensor) -> Tensor:
        """The loss of some people's outputs."""
        check_signal("outputs", outputs)
        x = check_features("x", x)
        check_same_rows("outputs", outputs, "x", x)
        if outputs.dim() != 2 or outputs.size(1) < 2:
            msg = "'outputs' must have at least two columns"
            raise ValueError(
                f"{msg} (got shape {tuple(outputs.shape)}). The cosine of one is a sign"
            )
        k = min(self.k, len(x) - 1)
        if k < 1:
            return outputs.sum() * 0.0
        with torch.no_grad():
            near = _cosines(x.to(outputs.dtype))
        found = _cosines(outputs)
        return _lambda_loss(near, found, k, self.sharpness)

    def extra_repr(self) -> str:
        """What the printed loss shows."""
        return f"k={self.k}, sharpness={self.sharpness:g}"


def _cosines(x: Tensor) -> Tensor:  # [N, F] -> [N, N]
    """Cosines of all pairs, nobody with themselves."""
    unit = nn.functional.normalize(x, dim=1)
    own = torch.eye(len(x), dtype=torch.bool, device=x.device)
    return (unit @ unit.T).masked_fill(own, -torch.inf)


def _lambda_loss(near: Tensor, found: Tensor, k: int, sharpness: float) -> Tensor:
    """The mean over rows of pairs' log-losses times what a swap changes of NDCG@k."""
    with torch.no_grad():
        # The first k of either ranking, side by side; who is in both counts once.
        best, first = near.topk(k, dim=1)
        rank = found.argsort(dim=1, descending=True)
        place = torch.empty_like(rank)
        at = torch.arange(rank.size(1), device=rank.device).expand_as(rank)
        place.scatter_(1, rank, at)
        shown = torch.cat([rank[:, :k], first], dim=1)  # [N, 2k]
        twice = place.gather(1, first) < k
        use = torch.cat([torch.ones_like(twice), ~twice], dim=1)
        gain = (near.gather(1, shown).clamp(min=0.0)).exp2() - 1.0
        spot = place.gather(1, shown).to(gain.dtype)
        discount = torch.where(spot < k, (spot + 2.0).log2().reciprocal(), 0.0)
        ideal = torch.arange(2, k + 2, device=gain.device, dtype=gain.dtype).log2()
        total = ((best.clamp(min=0.0).exp2() - 1.0) / ideal).sum(1).clamp(min=1e-12)
        gains = gain.unsqueeze(2) - gain.unsqueeze(1)  # [N, 2k, 2k]
        swap = gains * (discount.unsqueeze(2) - discount.unsqueeze(1))
        weight = swap.abs() / total[:, None, None]
        both = use.unsqueeze(2) & use.unsqueeze(1)
        weight = torch.where(both & (gains > 0), weight, 0.0)
    score = sharpness * found.gather(1, shown)
    loss = nn.functional.softplus(-(score.unsqueeze(2) - score.unsqueeze(1)))
    return (weight * loss).sum() / len(near)
