"""GDIF against dense matrices."""

import numpy as np
import pytest
import torch

from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import group_disparity


def _samples(seed=0, n=30, num_groups=3):
    rng = np.random.default_rng(seed)
    weight = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.2), 1)
    weight += weight.T
    return weight, rng.integers(0, num_groups, n), rng.normal(size=(n, 2))


def _tensors(weight, group, y):
    edges = np.stack(np.nonzero(weight))
    value = torch.tensor(weight[tuple(edges)])
    return torch.tensor(y), torch.tensor(edges), torch.tensor(group), value


def _published(weight, group, y, label):
    """What GUIDE's code computes: doubled inside, whole across, entries counted."""
    similar = weight + np.eye(len(weight))
    inside = group == label
    both = np.outer(inside, inside)
    part = np.where(both, 2 * similar, np.where(inside[:, None] | inside, similar, 0))
    lap = np.diag(part.sum(1)) - part
    return np.trace(y.T @ lap @ y) / (similar[inside] > 0).sum()


def test_group_disparity_is_the_ratio_of_energies_per_member():
    weight, group, y = _samples()
    energy = []
    for label in range(3):
        total = 0.0
        for i in range(30):
            for j in range(i):
                share = (int(group[i] == label) + int(group[j] == label)) / 2
                total += share * weight[i, j] * ((y[i] - y[j]) ** 2).sum()
        energy.append(total / (group == label).sum())
    value = group_disparity(*_tensors(weight, group, y))
    assert float(value) == pytest.approx(max(energy) / min(energy), rel=1e-12)


def test_published_definition_of_guide():
    weight, group, y = _samples(num_groups=2)
    parts = [_published(weight, group, y, label) for label in (0, 1)]
    value = group_disparity(*_tensors(weight, group, y), definition="guide")
    assert float(value) == pytest.approx(max(parts) / min(parts), rel=1e-12)


def test_group_disparity_does_not_depend_on_scale_or_labels():
    weight, group, y = _samples()
    plain = group_disparity(*_tensors(weight, group, y))
    other = group_disparity(*_tensors(3 * weight, 100 - 7 * group, 0.1 * y + 4))
    torch.testing.assert_close(plain, other)
    y, edges, group, value = _tensors(weight, group, y)
    lap = LaplacianOperator(edges, value, 30)
    torch.testing.assert_close(group_disparity(y, lap, group), plain)


def test_group_disparity_where_nothing_differs():
    edge_index, group = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 0, 1])
    assert group_disparity(torch.ones(3), edge_index, group) == 1.0
    one = group_disparity(torch.tensor([0.0, 1.0, 5.0]), edge_index, group)
    assert one == 1.0  # group 1 has no edge
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    y = torch.tensor([0.0, 1.0, 5.0, 5.0])
    assert group_disparity(y, edges, torch.tensor([0, 0, 1, 1])) == torch.inf
