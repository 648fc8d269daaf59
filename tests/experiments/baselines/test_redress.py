"""The ranking loss against loops, and what it does to rankings."""

import math

import numpy as np
import pytest
import torch

from experiments.baselines import RankingLoss
from pyg_glif.metrics import ranking_ndcg


def _loss(outputs, x, k, sharpness):
    """All pairs, each weighted by the change of NDCG@k if the two swap places."""

    def cosines(rows):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit @ unit.T

    near, found, total = cosines(x), cosines(outputs), 0.0
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        ranked = sorted(others, key=lambda j: -found[i, j])
        gain = {j: 2 ** max(near[i, j], 0.0) - 1 for j in others}
        ideal = sorted(gain.values(), reverse=True)[:k]
        best = sum(g / math.log2(r + 2) for r, g in enumerate(ideal))

        def discount(j, ranked=ranked):
            place = ranked.index(j)
            return 1 / math.log2(place + 2) if place < k else 0.0

        top = set(ranked[:k]) | set(sorted(others, key=lambda j: -near[i, j])[:k])
        for j in top:
            for m in top:
                if gain[j] > gain[m]:
                    swap = abs((gain[j] - gain[m]) * (discount(j) - discount(m)))
                    margin = sharpness * (found[i, j] - found[i, m])
                    total += swap / best * math.log1p(math.exp(-margin))
    return total / len(x)


@pytest.mark.parametrize("k", [1, 3, 9])
def test_ranking_loss_matches_loops(k):
    rng = np.random.default_rng(k)
    outputs, x = rng.dirichlet([1, 1, 1], 12), rng.normal(size=(12, 4))
    value = RankingLoss(k, 2.0)(torch.tensor(outputs), torch.tensor(x))
    assert float(value) == pytest.approx(_loss(outputs, x, k, 2.0), rel=1e-9)


def test_descending_the_loss_improves_the_ranking():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    logits = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    logits.requires_grad_()
    before = ranking_ndcg(logits.detach().softmax(1), x, k=5, outputs="cosine")
    optimizer = torch.optim.Adam([logits], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        RankingLoss(5, 5.0)(logits.softmax(1), x).backward()
        optimizer.step()
    after = ranking_ndcg(logits.detach().softmax(1), x, k=5, outputs="cosine")
    assert after > before + 0.1


def test_ranking_loss_of_few_people_and_bad_input():
    one = torch.ones(1, 2, requires_grad=True)
    assert RankingLoss()(one, torch.ones(1, 3)) == 0.0
    with pytest.raises(ValueError, match="'outputs' must have at least two columns"):
        RankingLoss()(torch.ones(4, 1), torch.ones(4, 3))
    assert str(RankingLoss(5)) == "RankingLoss(k=5, sharpness=1)"
