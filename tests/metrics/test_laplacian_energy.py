from typing import Literal

import numpy as np
import pytest
import torch

from pyg_glif.graph import edge_weights, fair_radius_graph
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.metrics import LaplacianEnergy, laplacian_energy
from tests import oracles_metrics as oracle

Graph = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def graph(generator: torch.Generator, num_nodes: int = 20) -> Graph:
    x = torch.randn(num_nodes, 2, dtype=torch.float64, generator=generator)
    edge_index, sq_dist = fair_radius_graph(x, tau=1.0)
    y = torch.randn(num_nodes, 3, dtype=torch.float64, generator=generator)
    return y, edge_index, edge_weights(sq_dist, theta=0.5)


def test_laplacian_energy_matches_oracle(generator: torch.Generator) -> None:
    y, edge_index, weight = graph(generator)
    value = laplacian_energy(y, edge_index, weight)
    expected = oracle.energy(y.numpy(), edge_index.numpy(), weight.numpy())
    assert float(value) == pytest.approx(expected, rel=1e-12)
    one = laplacian_energy(y[:, 0], edge_index)
    ones = np.ones(edge_index.size(1))
    expected = oracle.energy(y[:, :1].numpy(), edge_index.numpy(), ones)
    assert float(one) == pytest.approx(expected, rel=1e-12)
    assert float(laplacian_energy(torch.ones_like(y), edge_index, weight)) == 0.0


@pytest.mark.parametrize("normalization", ["nrw", "density"])
def test_normalised_energy_is_the_quadratic_form(
    generator: torch.Generator, normalization: Literal["nrw", "density"]
) -> None:
    y, edge_index, weight = graph(generator)
    value = laplacian_energy(y, edge_index, weight, normalization=normalization)
    lap = LaplacianOperator(
        edge_index, weight, normalization=normalization, num_nodes=20
    ).to_dense()
    torch.testing.assert_close(value, (y * (lap @ y)).sum())


def test_laplacian_energy_has_gradients(generator: torch.Generator) -> None:
    y, edge_index, _ = graph(generator, 6)
    y.requires_grad_()
    assert torch.autograd.gradcheck(lambda v: laplacian_energy(v, edge_index), (y,))
    LaplacianEnergy()(y, edge_index).backward()
    assert y.grad is not None
    lap = LaplacianOperator(edge_index, num_nodes=6)
    torch.testing.assert_close(y.grad, 2.0 * (lap @ y.detach()))


def test_energy_at_unit_variance_ignores_scale(generator: torch.Generator) -> None:
    y, edge_index, weight = graph(generator)
    value = laplacian_energy(y, edge_index, weight, unit_variance=True)
    energy = oracle.energy(y.numpy(), edge_index.numpy(), weight.numpy())
    assert float(value) == pytest.approx(energy / y.numpy().var(0).sum(), rel=1e-12)
    shrunk = laplacian_energy(0.1 * y + 3, edge_index, weight, unit_variance=True)
    torch.testing.assert_close(shrunk, value)
    same = torch.ones_like(y)
    assert laplacian_energy(same, edge_index, weight, unit_variance=True) == 0.0
    metric = LaplacianEnergy(unit_variance=True)
    metric.update(y, edge_index, weight)
    torch.testing.assert_close(metric.compute(), value)
