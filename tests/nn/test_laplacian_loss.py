"""LaplacianLoss: the module of the penalty, batches, training, bad input."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_glif.functional import laplacian_penalty
from pyg_glif.nn import LaplacianLoss
from pyg_glif.typing import Normalization
from tests import oracles_theory as oracle

NORMALIZATIONS: list[Normalization] = [None, "density", "nrw"]
Graph = tuple[np.ndarray, Tensor, Tensor]


@pytest.fixture
def graph() -> Graph:
    """Nine nodes around a hub, the last one isolated: dense and as edges."""
    rng = np.random.default_rng(5)
    W = np.triu(rng.random((9, 9)), 1)
    W[rng.random(W.shape) < 0.5] = 0.0
    W[0, 1:8] = 1.0
    W[:, 8] = 0.0
    W = W + W.T
    edge_index, edge_weight = oracle.edges(W)
    return W, torch.from_numpy(edge_index), torch.from_numpy(edge_weight)


def test_laplacian_loss_repr() -> None:
    assert str(LaplacianLoss()) == "LaplacianLoss(normalization=None, reduction='sum')"
    loss = LaplacianLoss("density", "consistent", theta=0.5, num_dims=2)
    expected = "normalization='density', reduction='consistent', theta=0.5, num_dims=2"
    assert str(loss) == f"LaplacianLoss({expected})"


def test_laplacian_loss_by_hand() -> None:
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    weight = torch.tensor([2.0, 2.0, 0.5, 0.5])
    f = torch.tensor([[0.0, 1.0], [3.0, 1.0], [1.0, 3.0]])
    # 2 * (9 + 0) + 0.5 * (4 + 4)
    assert float(LaplacianLoss()(f, edge_index, weight)) == pytest.approx(22.0)
    mean = LaplacianLoss(reduction="mean")(f, edge_index, weight)
    assert float(mean) == pytest.approx(22.0 / 3)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("reduction", ["sum", "mean", "consistent"])
def test_loss_is_the_function(
    normalization: Normalization,
    reduction: Any,
    graph: Graph,
    generator: torch.Generator,
) -> None:
    W, edge_index, weight = graph
    f = torch.randn(9, 4, generator=generator, dtype=torch.float64)
    options = {"normalization": normalization, "reduction": reduction}
    options |= {"theta": 3.0, "num_dims": 2}
    loss = LaplacianLoss(**options)(f, edge_index, weight)
    assert torch.equal(loss, laplacian_penalty(f, edge_index, weight, **options))
    if reduction == "sum":
        L = oracle.laplacian(W, normalization)
        assert float(loss) == pytest.approx(np.trace(f.numpy().T @ L @ f.numpy()))


def test_laplacian_loss_of_a_batch_is_the_sum(
    graph: Graph, generator: torch.Generator
) -> None:
    _, edge_index, weight = graph
    f = torch.randn(18, 2, generator=generator, dtype=torch.float64)
    loss = LaplacianLoss("density")
    edges = torch.cat([edge_index, edge_index + 9], dim=1)
    batch = torch.arange(2).repeat_interleave(9)
    together = loss(f, edges, torch.cat([weight, weight]), batch)
    alone = loss(f[:9], edge_index, weight) + loss(f[9:], edge_index, weight)
    torch.testing.assert_close(together, alone)


def test_minimum_of_the_loss_is_smoothing(
    graph: Graph, generator: torch.Generator
) -> None:
    _, edge_index, weight = graph
    f = torch.randn(9, generator=generator, dtype=torch.float64).requires_grad_()
    y, loss = f.detach().clone(), LaplacianLoss()
    optimizer = torch.optim.LBFGS([f], max_iter=100, tolerance_grad=1e-12)

    def objective() -> Tensor:
        optimizer.zero_grad()
        total = (f - y).square().sum() + 2.0 * loss(f, edge_index, weight)
        total.backward()
        return total

    optimizer.step(objective)
    # Minimising fit + lam * penalty is smoothing, eq. 3.1. LBFGS stops at 1e-5.
    expected = oracle.smooth(graph[0], y.numpy(), 2.0)
    np.testing.assert_allclose(f.detach(), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"normalization": "sym"}, ValueError, "'normalization' must be one of None"),
        ({"reduction": "max"}, ValueError, "'reduction' must be one of 'sum', 'mean'"),
        ({"theta": 0.0}, ValueError, "'theta' must be positive (got 0.0)"),
        ({"num_dims": 0}, ValueError, "'num_dims' must be at least 1 (got 0)"),
        ({"reduction": "consistent"}, ValueError, "'theta' must be given for"),
        (
            {"reduction": "consistent", "theta": 1.0},
            ValueError,
            "'num_dims' must be given for",
        ),
    ],
)
def test_laplacian_loss_rejects_bad_settings(
    kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        LaplacianLoss(**kwargs)(torch.ones(2), torch.tensor([[0, 1], [1, 0]]))


def test_laplacian_loss_of_nothing_is_zero() -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    assert float(LaplacianLoss()(torch.ones(3), empty)) == 0.0
    assert float(LaplacianLoss(reduction="mean")(torch.empty(0), empty)) == 0.0
