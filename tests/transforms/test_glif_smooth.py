"""GLIFSmooth: what it reads and writes, batches, pipelines, bad input."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T  # noqa: N812
from torch_geometric.data import Batch, Data, HeteroData

from pyg_glif.links import Softmax
from pyg_glif.solvers import CG
from pyg_glif.transforms.fair_radius_graph import FairRadiusGraph
from pyg_glif.transforms.glif_smooth import GLIFSmooth
from pyg_glif.typing import Normalization
from tests import oracles_theory as oracle

PAIR = torch.tensor([[0, 1], [1, 0]])


def graph_of(num_nodes: int, generator: torch.Generator) -> Data:
    x = torch.rand(num_nodes, 2, generator=generator, dtype=torch.float64)
    y_hat = torch.randn(num_nodes, 3, generator=generator, dtype=torch.float64)
    return FairRadiusGraph(tau=0.5, theta=2.0)(Data(x=x, y_hat=y_hat))


def dense(data: Data) -> np.ndarray:
    W = np.zeros((data.num_nodes, data.num_nodes))
    W[data.edge_index[0], data.edge_index[1]] = data.edge_weight
    return W


def test_glif_smooth_repr() -> None:
    assert str(GLIFSmooth(2.0)) == "GLIFSmooth(lam=2.0, normalization=None)"
    expected = "lam=1.0, normalization='density', link=Softmax(inputs='logits', eps="
    smooth = GLIFSmooth(1, normalization="density", link=Softmax("logits"))
    assert str(smooth) == f"GLIFSmooth({expected}None))"


def test_glif_smooth_by_hand() -> None:
    data = Data(y_hat=torch.tensor([0.0, 3.0]), edge_index=PAIR)
    out = GLIFSmooth(lam=1.0)(data)
    torch.testing.assert_close(out.y_fair, torch.tensor([1.0, 2.0]))
    assert torch.equal(out.y_hat, torch.tensor([0.0, 3.0]))
    assert "y_fair" not in data


@pytest.mark.parametrize("normalization", [None, "nrw", "density"])
def test_glif_smooth_matches_dense_oracle(
    normalization: Normalization, generator: torch.Generator
) -> None:
    data = graph_of(12, generator)
    smooth = GLIFSmooth(0.1, normalization=normalization, solver=CG(rtol=1e-12))
    expected = oracle.smooth(dense(data), data.y_hat.numpy(), 0.1, normalization)
    np.testing.assert_allclose(smooth(data).y_fair, expected, atol=1e-9)


def test_glif_smooth_in_compose(generator: torch.Generator) -> None:
    data = Data(
        x=torch.rand(20, 2, generator=generator),
        score=torch.rand(20, generator=generator),
    )
    transform = T.Compose(
        [FairRadiusGraph(tau=0.4), GLIFSmooth(1.0, attr="score", out="score")]
    )
    out = transform(data)
    assert out.score.shape == (20,)
    assert float(out.score.std()) < float(data.score.std())
    torch.testing.assert_close(out.score.mean(), data.score.mean())


# Said by torch about how PyG builds the matrix.
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_glif_smooth_reads_a_sparse_adjacency(generator: torch.Generator) -> None:
    data = graph_of(12, generator)
    expected = GLIFSmooth(1.0)(data).y_fair
    sparse = T.ToSparseTensor(attr="edge_weight", layout=torch.sparse_csr)(data)
    assert "edge_index" not in sparse
    torch.testing.assert_close(GLIFSmooth(1.0)(sparse).y_fair, expected)


@pytest.mark.parametrize("normalization", [None, "nrw", "density"])
def test_batch_equals_its_members(
    normalization: Normalization, generator: torch.Generator
) -> None:
    graphs = [graph_of(num_nodes, generator) for num_nodes in (5, 12, 1)]
    smooth = GLIFSmooth(0.1, normalization=normalization, solver=CG(rtol=1e-12))
    batch = smooth(Batch.from_data_list(graphs))
    single = [smooth(data).y_fair for data in graphs]
    torch.testing.assert_close(batch.y_fair, torch.cat(single))
    for member, expected in zip(batch.to_data_list(), single, strict=True):
        torch.testing.assert_close(member.y_fair, expected)
    again = smooth(batch)  # a second run replaces the result
    torch.testing.assert_close(again.y_fair, batch.y_fair)


def test_glif_smooth_applies_the_link() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    data = Data(y_hat=p, edge_index=PAIR)
    out = GLIFSmooth(1.0, link=Softmax())(data).y_fair
    logits = GLIFSmooth(1.0)(Data(y_hat=p.log(), edge_index=PAIR)).y_fair
    torch.testing.assert_close(out, logits.softmax(dim=1))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (Data(edge_index=PAIR, num_nodes=2), ValueError, "y_hat"),
        (Data(y_hat=torch.ones(2)), ValueError, "edge_index"),
        (Data(y_hat=torch.ones(3), x=torch.ones(2, 1), edge_index=PAIR), None, "y_hat"),
        (Data(y_hat=torch.ones(2).long(), edge_index=PAIR), TypeError, "y_hat"),
        (Data(y_hat=torch.tensor([0, torch.nan]), edge_index=PAIR), None, "finite"),
        (HeteroData(), ValueError, "'data' must have one type of node with 'y_hat'"),
        ("data", TypeError, "'data' must be a Data"),
    ],
)
def test_glif_smooth_rejects_bad_data(
    data: Any, error: type[Exception] | None, message: str
) -> None:
    with pytest.raises(error or ValueError, match=re.escape(message)):
        GLIFSmooth(1.0)(data)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"lam": -1}, "'lam' must be non-negative (got -1.0)"),
        ({"lam": 1, "normalization": "sym"}, "(got 'sym')"),
    ],
)
def test_glif_smooth_rejects_bad_settings(kwargs: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFSmooth(**kwargs)
