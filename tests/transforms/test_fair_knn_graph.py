import numpy as np
import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddSelfLoops, Compose

from pyg_glif import FairKNNGraph
from pyg_glif.distances import CallableDistance, Mahalanobis
from pyg_glif.graph.weights import DECAY


def line(*positions: float) -> Data:
    """People on a line."""
    return Data(x=torch.tensor(positions).view(-1, 1))


def joined(x: np.ndarray, k: int, mutual: bool, tau: float) -> np.ndarray:
    """Who is joined to whom, and the larger scale of both, from the definition."""
    dist = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) + np.diag([np.inf] * len(x))
    scale = np.full(len(x), tau)
    if len(x) > k:
        scale = np.minimum(np.sort(dist, axis=1)[:, k - 1], tau)
    larger = np.maximum(scale[:, None], scale[None])
    limit = np.minimum(scale[:, None], scale[None]) if mutual else larger
    return (dist <= limit) & (dist <= tau) & np.isfinite(dist), dist, larger


def test_fair_knn_graph() -> None:
    transform = FairKNNGraph(1, theta=0.5)
    assert str(transform) == "FairKNNGraph(k=1, distance=Euclidean(), theta=0.5)"
    data = transform(line(0.0, 2.0, 5.0, 1.0))
    assert data.edge_index.tolist() == [[0, 1, 1, 2, 3, 3], [3, 2, 3, 1, 0, 1]]
    weight = np.exp(-0.5 * np.array([1, 9, 1, 9, 1, 1]))
    np.testing.assert_allclose(data.edge_weight, weight, rtol=1e-6)
    assert data.edge_weight.dtype == torch.float32
    data.validate()
    transform = FairKNNGraph(2, mutual=True, tau=1.5)
    expected = "FairKNNGraph(k=2, mutual=True, tau=1.5, distance=Euclidean(), "
    assert str(transform) == f"{expected}theta=None)"


@pytest.mark.parametrize("mutual", [False, True])
@pytest.mark.parametrize("tau", [0.4, np.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fair_knn_graph_matches_the_definition(
    mutual: bool, tau: float, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(50, 2, generator=generator, dtype=torch.float64).to(dtype)
    data = FairKNNGraph(3, mutual=mutual, tau=tau)(Data(x=x))
    edges, dist, scale = joined(x.double().numpy(), 3, mutual, tau)
    np.testing.assert_array_equal(data.edge_index, np.nonzero(edges))
    weight = np.exp(-DECAY * (dist[edges] / scale[edges]) ** 2)
    np.testing.assert_allclose(data.edge_weight, weight, rtol=1e-5)
    assert data.edge_weight.dtype == dtype


def test_fair_knn_graph_of_batch_equals_its_members(
    generator: torch.Generator,
) -> None:
    graphs = [Data(x=torch.randn(n, 2, generator=generator)) for n in (9, 1, 0, 3, 12)]
    transform = FairKNNGraph(4)
    parts = transform(Batch.from_data_list(graphs)).to_data_list()
    for graph, part in zip(graphs, parts, strict=True):
        alone = transform(graph)
        assert torch.equal(part.edge_index, alone.edge_index)
        torch.testing.assert_close(part.edge_weight, alone.edge_weight)
    assert parts[3].num_edges == 6  # all others, because they are fewer than four


def test_fair_knn_graph_uses_distance_and_attribute() -> None:
    emb = torch.tensor([[0.0, 0.0], [1.0, 90.0], [9.0, 0.0]])
    sigma = torch.diag(torch.tensor([4.0, 0.0]))
    options = {"distance": Mahalanobis(sigma), "attr": "emb", "tau": 3.0}
    data = FairKNNGraph(1, **options)(Data(emb=emb))
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]
    assert data.num_nodes == 3
    black_box = CallableDistance(lambda a, b: torch.cdist(a, b, p=1.0))
    data = FairKNNGraph(1, distance=black_box)(line(0.0, 2.0, 5.0))
    assert data.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]


def test_fair_knn_graph_in_compose_and_pipes() -> None:
    transform = Compose([FairKNNGraph(1), AddSelfLoops(attr="edge_weight")])
    assert transform(line(0.0, 1.0)).num_edges == 4
    (data,) = IterableWrapper([line(0.0, 1.0)]).glif_fair_knn_graph(k=1)
    assert data.num_edges == 2


def test_fair_knn_graph_refuses_to_overwrite() -> None:
    data = FairKNNGraph(1)(line(0.0, 1.0, 5.0))
    with pytest.raises(ValueError, match="Pass 'overwrite=True' to replace it"):
        FairKNNGraph(2)(data)
    assert FairKNNGraph(2, overwrite=True)(data).num_edges == 6


def test_fair_knn_graph_rejects_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"^'k' must be at least 1 \(got 0\)$"):
        FairKNNGraph(0)
    with pytest.raises(ValueError, match=r"^'tau' must be non-negative \(got -1.0\)$"):
        FairKNNGraph(1, tau=-1.0)
    with pytest.raises(ValueError, match=r"^'mutual' must be one of True, False"):
        FairKNNGraph(1, mutual="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^'theta' must be non-negative"):
        FairKNNGraph(1, theta=-1.0)
