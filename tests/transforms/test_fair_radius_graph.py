import copy
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddSelfLoops, Compose

from pyg_glif.distances import CallableDistance, Mahalanobis
from pyg_glif.transforms import FairRadiusGraph


def line(*positions: float) -> Data:
    """People on a line."""
    return Data(x=torch.tensor(positions).view(-1, 1))


def test_fair_radius_graph() -> None:
    transform = FairRadiusGraph(tau=2, theta=0.5)
    expected = "FairRadiusGraph(tau=2.0, distance=Euclidean(), theta=0.5)"
    assert str(transform) == expected
    data = transform(line(0.0, 2.0, 5.0, 1.0))
    assert data.edge_index.tolist() == [[0, 0, 1, 1, 3, 3], [1, 3, 0, 3, 0, 1]]
    weight = np.exp(-0.5 * np.array([4, 1, 4, 1, 1, 1]))
    np.testing.assert_allclose(data.edge_weight, weight, rtol=1e-6)
    assert data.edge_weight.dtype == torch.float32
    data.validate()


def test_fair_radius_graph_repr_shows_the_distance() -> None:
    transform = FairRadiusGraph(1.5, distance=Mahalanobis(torch.eye(2)))
    assert str(transform) == (
        "FairRadiusGraph(tau=1.5, distance=Mahalanobis(num_features=2, rank=2), "
        "theta=None)"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fair_radius_graph_uses_distance_and_attribute(dtype: torch.dtype) -> None:
    emb = torch.tensor([[0.0, 0.0], [1.0, 90.0], [9.0, 0.0]], dtype=dtype)
    sigma = torch.diag(torch.tensor([4.0, 0.0]))
    data = Data(emb=emb)
    transform = FairRadiusGraph(2.0, distance=Mahalanobis(sigma), theta=0, attr="emb")
    out = transform(data)
    assert out.edge_index.tolist() == [[0, 1], [1, 0]]
    assert out.edge_weight.dtype == dtype
    # The last node has no edge, and PyG cannot count it from 'emb'.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert out.num_nodes == 3
    assert "num_nodes" not in data


def test_fair_radius_graph_accepts_a_black_box() -> None:
    distance = CallableDistance(lambda x1, x2: torch.cdist(x1, x2, p=1.0))
    data = FairRadiusGraph(2.0, distance=distance)(line(0.0, 2.0, 5.0))
    assert data.edge_index.tolist() == [[0, 1], [1, 0]]


def test_fair_radius_graph_leaves_its_input_alone() -> None:
    data = line(0.0, 1.0)
    x = data.x.clone()
    out = FairRadiusGraph(1.0)(data)
    assert data.keys() == ["x"]
    assert torch.equal(data.x, x)
    assert out.x is data.x


def test_fair_radius_graph_weights_carry_no_gradient() -> None:
    data = line(0.0, 1.0)
    data.x.requires_grad_()
    distance = Mahalanobis(torch.eye(1), learnable=True)
    assert not FairRadiusGraph(1.0, distance=distance)(data).edge_weight.requires_grad


def test_fair_radius_graph_of_few_people() -> None:
    for num_nodes in (0, 1):
        data = FairRadiusGraph(1.0)(Data(x=torch.zeros(num_nodes, 2)))
        assert data.edge_index.shape == (2, 0)
        assert data.edge_weight.shape == (0,)
        assert data.num_nodes == num_nodes


def test_fair_radius_graph_refuses_to_overwrite() -> None:
    data = line(0.0, 1.0)
    data.edge_index = torch.tensor([[0], [1]])
    data.edge_attr = torch.ones(1, 3)
    data.edge_time = torch.ones(1)
    data.edge_label = torch.ones(7)
    with pytest.raises(ValueError, match="overwrite") as caught:
        FairRadiusGraph(1.0)(data)
    assert str(caught.value) == (
        "'data' must not have a graph yet (got 'edge_attr', 'edge_index', "
        "'edge_time'). Pass 'overwrite=True' to replace it, or 'name' for a second "
        "graph"
    )
    out = FairRadiusGraph(1.0, overwrite=True)(data)
    assert sorted(out.keys()) == ["edge_index", "edge_label", "edge_weight", "x"]
    assert out.edge_index.tolist() == [[0, 1], [1, 0]]
    assert sorted(data.keys()) == [
        "edge_attr",
        "edge_index",
        "edge_label",
        "edge_time",
        "x",
    ]


def test_fair_radius_graph_sees_a_sparse_graph() -> None:
    data = line(0.0, 1.0)
    data.adj_t = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to_sparse()
    with pytest.raises(ValueError, match=r"graph yet \(got 'adj_t'\)"):
        FairRadiusGraph(1.0)(data)
    assert "adj_t" not in FairRadiusGraph(1.0, overwrite=True)(data)


def test_fair_radius_graph_of_batch_equals_its_members(
    generator: torch.Generator,
) -> None:
    graphs = [
        Data(x=torch.randn(n, 2, generator=generator), y=torch.tensor([n]))
        for n in (6, 1, 0, 9, 2)
    ]
    transform = FairRadiusGraph(1.0, theta=0.3)
    batch = Batch.from_data_list(graphs)
    out = transform(batch)
    assert torch.equal(out.batch[out.edge_index[0]], out.batch[out.edge_index[1]])
    separated = out.to_data_list()
    assert len(separated) == len(graphs)
    for graph, part in zip(graphs, separated, strict=True):
        alone = transform(graph)
        assert torch.equal(part.edge_index, alone.edge_index)
        torch.testing.assert_close(part.edge_weight, alone.edge_weight)
        assert torch.equal(part.x, graph.x)
        assert torch.equal(part.y, graph.y)
    # The batch it was made from still comes apart as before.
    assert [sorted(g.keys()) for g in batch.to_data_list()] == [["x", "y"]] * 5


def test_fair_radius_graph_replaces_the_graphs_of_a_batch() -> None:
    first, second = line(0.0, 1.0, 2.0), line(0.0, 1.0)
    first.edge_index = torch.tensor([[0, 1], [1, 0]])
    second.edge_index = torch.tensor([[0, 1, 0], [1, 0, 0]])
    for data in (first, second):
        data.edge_attr = torch.ones(data.num_edges)
    batch = Batch.from_data_list([first, second], follow_batch=["edge_index"])
    out = FairRadiusGraph(1.0, overwrite=True)(batch)
    assert "edge_index_batch" not in out
    one, two = out.to_data_list()
    assert one.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert two.edge_index.tolist() == [[0, 1], [1, 0]]
    assert "edge_attr" not in two
    old, _ = batch.to_data_list()
    assert torch.equal(old.edge_index, first.edge_index)


def test_fair_radius_graph_respects_a_batch_vector_in_any_order() -> None:
    data = line(0.0, 0.1, 0.2, 0.3)
    data.batch = torch.tensor([1, 0, 1, 0])
    out = FairRadiusGraph(1.0)(data)
    assert out.edge_index.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]


def test_fair_radius_graph_after_a_loader() -> None:
    loader = DataLoader([line(0.0, 1.0), line(0.0, 5.0), line(3.0, 3.0)], batch_size=3)
    (batch,) = loader
    out = FairRadiusGraph(1.0)(batch)
    assert out.edge_index.tolist() == [[0, 1, 4, 5], [1, 0, 5, 4]]
    assert [g.num_edges for g in out.to_data_list()] == [2, 0, 2]


def test_fair_radius_graph_in_compose() -> None:
    transform = Compose([FairRadiusGraph(1.0), AddSelfLoops(attr="edge_weight")])
    assert transform(line(0.0, 1.0)).num_edges == 4


def test_fair_radius_graph_has_a_functional_form() -> None:
    pipe = IterableWrapper([line(0.0, 1.0)]).glif_fair_radius_graph(tau=1.0)
    (data,) = pipe
    assert data.num_edges == 2


def test_fair_radius_graph_as_pre_transform(tmp_path: Path) -> None:
    class People(InMemoryDataset):
        def __init__(self, root: Path) -> None:
            super().__init__(str(root), pre_transform=FairRadiusGraph(1.0, theta=0))
            self.load(self.processed_paths[0])

        @property
        def processed_file_names(self) -> str:
            return "data.pt"

        def process(self) -> None:
            people = [line(0.0, 1.0, 2.0), line(0.0, 9.0), line(1.0, 1.0)]
            self.save([self.pre_transform(d) for d in people], self.processed_paths[0])

    for _ in range(2):  # computed, then loaded
        dataset = People(tmp_path)
        assert [data.num_edges for data in dataset] == [4, 0, 2]
        assert dataset[2].edge_index.tolist() == [[0, 1], [1, 0]]
        assert dataset[2].edge_weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (
            Data(pos=torch.zeros(2, 1)),
            ValueError,
            "'data' must have the attribute 'x' (got 'pos')",
        ),
        (Data(), ValueError, "'data' must have the attribute 'x' (got none)"),
        (
            HeteroData(),
            ValueError,
            "'data' must have one type of node with 'x' (got none)",
        ),
        (
            Data(x=torch.tensor([[1.0], [torch.nan]])),
            ValueError,
            "'x' must be finite (got nan at index (1, 0), 1 such values)",
        ),
        (
            Data(x=torch.zeros(3, 1), num_nodes=4),
            ValueError,
            "'x' must have one row per node (got shape (3, 1) for 4)",
        ),
        (
            Data(x=torch.zeros(3)),
            ValueError,
            "'x' must be 2-dimensional (got shape (3,))",
        ),
        (
            Data(x=torch.zeros(3, 1), batch=torch.zeros(2, dtype=torch.int64)),
            ValueError,
            "'batch' must have one entry per node (got shape (2,) for 3)",
        ),
        (
            Data(x=np.zeros((3, 1))),
            TypeError,
            "'x' must be a torch.Tensor (got ndarray). Use 'torch.as_tensor'",
        ),
    ],
)
def test_fair_radius_graph_rejects_bad_data(
    data: Data, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        FairRadiusGraph(1.0)(copy.copy(data))
    assert str(caught.value) == message


def test_fair_radius_graph_rejects_bad_arguments() -> None:
    with pytest.raises(ValueError, match=r"^'tau' must be non-negative \(got -1.0\)$"):
        FairRadiusGraph(-1.0)
    with pytest.raises(ValueError, match=r"^'tau' must be finite \(got nan\)$"):
        FairRadiusGraph(float("nan"))
    with pytest.raises(
        ValueError, match=r"^'theta' must be non-negative \(got -1.0\)$"
    ):
        FairRadiusGraph(1.0, theta=-1.0)
    with pytest.raises(TypeError, match=r"^'distance' must be a FairDistance"):
        FairRadiusGraph(1.0, distance="euclidean")  # type: ignore[arg-type]
    assert FairRadiusGraph(float("inf")).tau == float("inf")
