"""GUIDE's layer and loss against dense matrices."""

import numpy as np
import pytest
import torch

from experiments.baselines import GroupEqualityLoss, SimilarityAttention, guide_head
from pyg_glif.laplacian import LaplacianOperator


def _people(seed=0, n=15, share=0.3):
    rng = np.random.default_rng(seed)
    weight = np.triu(rng.random((n, n)) * (rng.random((n, n)) < share), 1)
    weight += weight.T
    edges = np.stack(np.nonzero(weight))
    return weight, torch.tensor(edges), torch.tensor(weight[tuple(edges)]), rng


@pytest.mark.parametrize("share", [0.0, 0.1, 0.8])  # few and many similar pairs
def test_similarity_attention_matches_dense_matrices(share):
    weight, edges, value, rng = _people(share=share)
    torch.manual_seed(0)
    layer = SimilarityAttention(4, 3).double()
    torch.nn.init.normal_(layer.bias)
    x = rng.normal(size=(15, 4))
    h = x @ layer.linear.weight.detach().numpy().T
    source, target = (p.detach().numpy() for p in (layer.source, layer.target))
    score = (h @ target)[:, None] + (h @ source)[None, :]  # [to, from]
    score = np.where(score > 0, score, 0.2 * score)
    similar = weight + np.eye(15)
    power = np.where(similar > 0, np.exp(score * similar), 0.0)
    expected = power / power.sum(1, keepdims=True) @ h + layer.bias.detach().numpy()
    found = layer(torch.tensor(x), edges, value)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-12)
    signal = torch.tensor(x, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(x, edges, value), signal)


@pytest.mark.parametrize("definition", ["members", "guide"])
def test_group_equality_loss_matches_its_formula(definition):
    weight, edges, value, rng = _people(1)
    group, f = rng.integers(0, 2, 15), rng.normal(size=15)
    energy, size = [], []
    for label in (0, 1):
        inside = (group == label).astype(float)
        part = weight * (inside[:, None] + inside) / 2
        energy.append(f @ (np.diag(part.sum(1)) - part) @ f)
        entries = (weight[group == label] > 0).sum()
        members = (group == label).sum()
        size.append(members if definition == "members" else 0.5 * (entries + members))
    one, two = energy[0] / size[0], energy[1] / size[1]
    expected = 0.3 * sum(energy) + 2.0 * ((one / two - 1) ** 2 + (two / one - 1) ** 2)
    loss = GroupEqualityLoss(0.3, 2.0, definition)
    outputs = torch.tensor(f, requires_grad=True)
    lap = LaplacianOperator(edges, value, 15)
    found = loss(outputs, lap, torch.tensor(group))
    assert float(found.detach()) == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(
        lambda y: loss(y, lap, torch.tensor(group)), outputs
    )
    assert str(loss) == "GroupEqualityLoss(alpha=0.3, beta=2)"


def test_guide_head_learns():
    _, edges, value, rng = _people(2)
    torch.manual_seed(0)
    head = guide_head(4, 8)
    x, y = torch.tensor(rng.normal(size=(15, 4))).float(), torch.arange(15.0) % 2
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        out = head(x, edges, value.float())[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(out, y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
