import numpy as np
import pytest
import torch

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import fair_radius_graph, suggest_tau


def test_suggest_tau_gives_at_least_the_degree(generator):
    x = torch.randn(200, 5, generator=generator)
    for degree in (0.5, 3, 40, 199):
        tau = suggest_tau(x, degree)
        edge_index, _ = fair_radius_graph(x, tau)
        assert edge_index.size(1) >= degree * 200
        smaller, _ = fair_radius_graph(x, tau * (1 - 1e-9))
        assert smaller.size(1) < degree * 200


@pytest.mark.parametrize("batched", [False, True])
def test_suggest_tau_from_a_sample(batched, generator):
    x = torch.randn(6000, 8, generator=generator)
    batch = torch.randint(3, (6000,), generator=generator) if batched else None
    tau = suggest_tau(x, 20, batch=batch)
    edge_index, _ = fair_radius_graph(x, tau, batch=batch)
    # Degrees vary by about their mean from node to node: 3% noise from 1,024 nodes.
    assert edge_index.size(1) / 6000 == pytest.approx(20, rel=0.1)


def test_suggest_tau_is_repeatable_and_follows_its_generator(generator):
    x = torch.randn(5000, 4, generator=generator)
    assert suggest_tau(x, 10) == suggest_tau(x, 10)
    first = suggest_tau(x, 10, generator=torch.Generator().manual_seed(1))
    assert first == suggest_tau(x, 10, generator=torch.Generator().manual_seed(1))
    assert first != suggest_tau(x, 10, generator=torch.Generator().manual_seed(2))


def test_suggest_tau_uses_the_distance(generator):
    x = torch.randn(300, 3, generator=generator)
    distance = SensitiveSubspace(torch.eye(3)[:1])
    rest = x[:, 1:].double().numpy()
    dist = np.sqrt(((rest[:, None] - rest) ** 2).sum(-1))
    others = np.sort(dist[~np.eye(300, dtype=bool)])
    assert suggest_tau(x, 7, distance=distance) == pytest.approx(others[7 * 300 - 1])
    called = CallableDistance(lambda a, b: torch.cdist(a[:, 1:], b[:, 1:]))
    assert suggest_tau(x, 7, distance=called) == pytest.approx(
        others[7 * 300 - 1], rel=1e-5
    )


def test_suggest_tau_rejects():
    x = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"'target_degree' must be positive \(got 0"):
        suggest_tau(x, 0)
    message = r"'target_degree' must be at most 3 for these rows \(got 4\)"
    with pytest.raises(ValueError, match=message):
        suggest_tau(x, 4)
    with pytest.raises(ValueError, match=r"'x' must have at least 2 rows \(got 1\)"):
        suggest_tau(x[:1], 1)
    message = r"'target_degree' must be at most 1 for these rows \(got 2\)"
    with pytest.raises(ValueError, match=message):
        suggest_tau(x, 2, batch=torch.tensor([0, 1, 1, 0]))
