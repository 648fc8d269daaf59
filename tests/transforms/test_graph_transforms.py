"""Transforms that write a similarity graph: its edges, and the manners of PyG."""

import copy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import AddSelfLoops, Compose

from pyg_glif.distances import CallableDistance, Mahalanobis
from pyg_glif.graph.weights import DECAY
from pyg_glif.transforms import AnnotatorGraph, FairKNNGraph, FairRadiusGraph

PAIRS = torch.tensor([[1, 0]])
#: One of each kind; all of them join the nodes at 0 and 1, and no other.
TRANSFORMS = {
    "glif_fair_radius_graph": (FairRadiusGraph, 1.0),
    "glif_fair_knn_graph": (FairKNNGraph, 1),
    "glif_annotator_graph": (AnnotatorGraph, PAIRS),
}
JOINED = [[0, 1], [1, 0]]


@pytest.fixture(params=TRANSFORMS)
def name(request: pytest.FixtureRequest) -> str:
    """Name of the functional form."""
    return str(request.param)


def build(name: str, **options: Any) -> Any:
    kind, setting = TRANSFORMS[name]
    return kind(setting, **options)


def line(*positions: float) -> Data:
    """Nodes on a line."""
    return Data(x=torch.tensor(positions).view(-1, 1))


# --- Edges and weights -------------------------------------------------------


@pytest.mark.parametrize(
    ("transform", "edges", "sq_dist", "text"),
    [
        (
            FairRadiusGraph(tau=2, theta=0.5),
            [[0, 0, 1, 1, 3, 3], [1, 3, 0, 3, 0, 1]],
            [4, 1, 4, 1, 1, 1],
            "FairRadiusGraph(tau=2.0, distance=Euclidean(), theta=0.5)",
        ),
        (
            FairKNNGraph(1, theta=0.5),
            [[0, 1, 1, 2, 3, 3], [3, 2, 3, 1, 0, 1]],
            [1, 9, 1, 9, 1, 1],
            "FairKNNGraph(k=1, distance=Euclidean(), theta=0.5)",
        ),
    ],
)
def test_edges_and_weights_by_hand(
    transform: Any, edges: list[list[int]], sq_dist: list[float], text: str
) -> None:
    assert str(transform) == text
    data = transform(line(0.0, 2.0, 5.0, 1.0))
    assert data.edge_index.tolist() == edges
    weight = np.exp(-0.5 * np.array(sq_dist))
    np.testing.assert_allclose(data.edge_weight, weight, rtol=1e-6)
    assert data.edge_weight.dtype == torch.float32
    data.validate()


def test_annotator_graph() -> None:
    transform = AnnotatorGraph(PAIRS)
    assert str(transform) == "AnnotatorGraph(num_annotators=1, combine='any')"
    assert transform(line(0.0, 1.0, 2.0)).edge_weight.tolist() == [1.0, 1.0]
    transform = AnnotatorGraph(
        [PAIRS, PAIRS.flip(1)],
        weights=[torch.tensor([0.5]), torch.tensor([1.0])],
        combine="mean",
    )
    assert str(transform) == "AnnotatorGraph(num_annotators=2, combine='mean')"
    assert transform(line(0.0, 1.0, 2.0)).edge_weight.tolist() == [0.75, 0.75]


def test_repr_shows_rule_and_distance() -> None:
    transform = FairRadiusGraph(1.5, distance=Mahalanobis(torch.eye(2)))
    distance = "distance=Mahalanobis(num_features=2, rank=2)"
    assert str(transform) == f"FairRadiusGraph(tau=1.5, {distance}, theta=None)"
    text = "FairKNNGraph(k=2, mutual=True, tau=1.5, distance=Euclidean(), theta=None)"
    assert str(FairKNNGraph(2, mutual=True, tau=1.5)) == text


def joined(x: np.ndarray, k: int, mutual: bool, tau: float) -> tuple[np.ndarray, ...]:
    """Joined pairs, distances, and the larger scale of both, from the definition."""
    dist = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) + np.diag([np.inf] * len(x))
    scale = np.minimum(np.sort(dist, axis=1)[:, k - 1], tau)
    larger = np.maximum(scale[:, None], scale[None])
    limit = np.minimum(scale[:, None], scale[None]) if mutual else larger
    return (dist <= limit) & (dist <= tau) & np.isfinite(dist), dist, larger


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


@pytest.mark.parametrize("kind", [FairRadiusGraph, lambda k, **o: FairKNNGraph(1, **o)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_and_attribute_are_used(kind: Any, dtype: torch.dtype) -> None:
    emb = torch.tensor([[0.0, 0.0], [1.0, 90.0], [90.0, 0.0]], dtype=dtype)
    distance = Mahalanobis(torch.diag(torch.tensor([4.0, 0.0])), learnable=True)
    data = Data(emb=emb.requires_grad_())
    out = FairRadiusGraph(2.0, distance=distance, theta=0, attr="emb")(data)
    assert out.edge_index.tolist() == JOINED
    assert out.edge_weight.dtype == dtype
    assert not out.edge_weight.requires_grad
    # The last node has no edge, and PyG cannot count it from 'emb'.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert out.num_nodes == 3
    assert "num_nodes" not in data
    black_box = CallableDistance(lambda a, b: torch.cdist(a, b, p=1.0))
    options = {"distance": black_box}
    assert kind(2.0, **options)(line(0.0, 2.0)).edge_index.tolist() == JOINED


@pytest.mark.parametrize("num_nodes", [0, 1])
def test_few_nodes_have_no_edges(num_nodes: int) -> None:
    for transform in (FairRadiusGraph(1.0), FairKNNGraph(1)):
        data = transform(Data(x=torch.zeros(num_nodes, 2)))
        assert data.edge_index.shape == (2, 0)
        assert data.edge_weight.shape == (0,)
        assert data.num_nodes == num_nodes


# --- Manners of PyG ----------------------------------------------------------


def test_input_is_not_changed(name: str) -> None:
    data = line(0.0, 1.0)
    x = data.x.clone()
    out = build(name)(data)
    assert out.edge_index.tolist() == JOINED
    assert data.keys() == ["x"]
    assert torch.equal(data.x, x)
    assert out.x is data.x


def test_a_graph_that_is_there_is_not_overwritten(name: str) -> None:
    data = line(0.0, 1.0)
    data.edge_index = torch.tensor([[0], [1]])
    data.edge_attr = torch.ones(1, 3)
    data.edge_time = torch.ones(1)
    data.edge_label = torch.ones(7)
    before = sorted(data.keys())
    message = r"graph yet \(got 'edge_attr', 'edge_index', 'edge_time'\)\. Pass 'overw"
    with pytest.raises(ValueError, match=message):
        build(name)(data)
    out = build(name, overwrite=True)(data)
    assert sorted(out.keys()) == ["edge_index", "edge_label", "edge_weight", "x"]
    assert out.edge_index.tolist() == JOINED
    assert sorted(data.keys()) == before
    data = line(0.0, 1.0)
    data.adj_t = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to_sparse()
    with pytest.raises(ValueError, match=r"graph yet \(got 'adj_t'\)"):
        build(name)(data)
    assert "adj_t" not in build(name, overwrite=True)(data)


def test_compose_and_pipes(name: str) -> None:
    transform = Compose([build(name), AddSelfLoops(attr="edge_weight")])
    assert transform(line(0.0, 1.0)).num_edges == 4
    pipe = IterableWrapper([line(0.0, 1.0)])
    (data,) = getattr(pipe, name)(TRANSFORMS[name][1])
    assert data.num_edges == 2


def test_pre_transform(name: str, tmp_path: Path) -> None:
    class Lines(InMemoryDataset):
        def __init__(self, root: Path) -> None:
            super().__init__(str(root), pre_transform=build(name))
            self.load(self.processed_paths[0])

        @property
        def processed_file_names(self) -> str:
            return "data.pt"

        def process(self) -> None:
            lines = [line(0.0, 1.0), line(0.0, 0.5)]
            self.save([self.pre_transform(d) for d in lines], self.processed_paths[0])

    for _ in range(2):  # computed, then loaded
        dataset = Lines(tmp_path)
        assert [data.edge_index.tolist() for data in dataset] == [JOINED] * 2


# --- Batches -----------------------------------------------------------------


@pytest.mark.parametrize(
    "transform", [FairRadiusGraph(1.0, theta=0.3), FairKNNGraph(4)]
)
def test_batch_equals_its_members(transform: Any, generator: torch.Generator) -> None:
    graphs = [
        Data(x=torch.randn(n, 2, generator=generator), y=torch.tensor([n]))
        for n in (9, 1, 0, 3, 12)
    ]
    batch = Batch.from_data_list(graphs)
    parts = transform(batch).to_data_list()
    for graph, part in zip(graphs, parts, strict=True):
        single = transform(graph)
        assert torch.equal(part.edge_index, single.edge_index)
        torch.testing.assert_close(part.edge_weight, single.edge_weight)
        assert torch.equal(part.x, graph.x)
        assert torch.equal(part.y, graph.y)
    if isinstance(transform, FairKNNGraph):
        assert parts[3].num_edges == 6  # all others, because they are fewer than four
    # The batch it was made from still comes apart as before.
    assert [sorted(g.keys()) for g in batch.to_data_list()] == [["x", "y"]] * 5


def test_graphs_of_a_batch_are_replaced() -> None:
    first, second = line(0.0, 1.0, 2.0), line(0.0, 1.0)
    first.edge_index = torch.tensor([[0, 1], [1, 0]])
    second.edge_index = torch.tensor([[0, 1, 0], [1, 0, 0]])
    for data in (first, second):
        data.edge_attr = torch.ones(data.num_edges)
    batch = Batch.from_data_list([first, second], follow_batch=["edge_index"])
    out = FairRadiusGraph(1.0, overwrite=True)(batch)
    assert "edge_index_batch" not in out
    parts = out.to_data_list()
    assert parts[0].edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert parts[1].edge_index.tolist() == JOINED
    assert "edge_attr" not in parts[1]
    old, _ = batch.to_data_list()
    assert torch.equal(old.edge_index, first.edge_index)


def test_batch_vector_and_loader() -> None:
    data = line(0.0, 0.1, 0.2, 0.3)
    data.batch = torch.tensor([1, 0, 1, 0])  # in any order
    out = FairRadiusGraph(1.0)(data)
    assert out.edge_index.tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]
    loader = DataLoader([line(0.0, 1.0), line(0.0, 5.0), line(3.0, 3.0)], batch_size=3)
    (batch,) = loader
    out = FairRadiusGraph(1.0)(batch)
    assert out.edge_index.tolist() == [[0, 1, 4, 5], [1, 0, 5, 4]]
    assert [g.num_edges for g in out.to_data_list()] == [2, 0, 2]


def test_annotators_judge_one_graph_that_can_be_batched() -> None:
    transform, members = AnnotatorGraph(PAIRS), [line(0.0, 1.0, 2.0), line(0.0, 1.0)]
    message = (
        r"^'data' must be one graph \(got a batch of 2\)\. "
        r"Transform the graphs before they are batched$"
    )
    with pytest.raises(ValueError, match=message):
        transform(Batch.from_data_list(members))
    (single,) = transform(Batch.from_data_list(members[:1])).to_data_list()
    assert single.edge_index.tolist() == JOINED
    batch = Batch.from_data_list([transform(data) for data in members])
    assert batch.edge_index.tolist() == [[0, 1, 3, 4], [1, 0, 4, 3]]


# --- Bad input ---------------------------------------------------------------


RADIUS, ANNOTATORS = FairRadiusGraph(1.0), AnnotatorGraph(PAIRS)
X = torch.zeros(3, 1)
BAD_DATA = [
    (RADIUS, Data(pos=X), "'data' must have the attribute 'x' (got 'pos')"),
    (RADIUS, Data(), "'data' must have the attribute 'x' (got none)"),
    (RADIUS, HeteroData(), "'data' must have one type of node with 'x' (got none)"),
    (RADIUS, Data(x=X / 0), "'x' must be finite (got nan at index (0, 0), 3 such val"),
    (RADIUS, Data(x=X, num_nodes=4), "'x' must have one row per node (got shape (3, 1"),
    (RADIUS, Data(x=X[:, 0]), "'x' must be 2-dimensional (got shape (3,))"),
    (RADIUS, Data(x=X, batch=PAIRS[0]), "'batch' must have one entry per node (got sh"),
    (RADIUS, Data(x=X.numpy()), "'x' must be a torch.Tensor (got ndarray). Use"),
    (ANNOTATORS, line(0.0), "'pairs' must hold node indices from 0 to 0 (got 1)"),
    (ANNOTATORS, HeteroData(), "'data' must have one type of node (got none)"),
    (ANNOTATORS, Data(y=X), "'data' must have the attribute 'num_nodes' (got 'y')"),
]


@pytest.mark.parametrize(("transform", "data", "message"), BAD_DATA)
def test_bad_data_are_refused(transform: Any, data: Data, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        transform(copy.copy(data))
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (FairRadiusGraph, {"tau": -1.0}, "'tau' must be non-negative (got -1.0)"),
        (FairRadiusGraph, {"tau": np.nan}, "'tau' must be finite (got nan)"),
        (FairRadiusGraph, {"tau": 1.0, "theta": -1.0}, "'theta' must be non-negative"),
        (
            FairRadiusGraph,
            {"tau": 1.0, "distance": "euclidean"},
            "'distance' must be a FairDistance",
        ),
        (FairKNNGraph, {"k": 0}, "'k' must be at least 1 (got 0)"),
        (FairKNNGraph, {"k": 1, "tau": -1.0}, "'tau' must be non-negative (got -1.0)"),
        (FairKNNGraph, {"k": 1, "mutual": "both"}, "'mutual' must be one of True"),
        (FairKNNGraph, {"k": 1, "theta": -1.0}, "'theta' must be non-negative"),
        (AnnotatorGraph, {"pairs": PAIRS, "combine": "all"}, "'combine' must be one"),
        (
            AnnotatorGraph,
            {"pairs": torch.tensor([[1, 1]])},
            "'pairs' must name two different nodes",
        ),
        (
            AnnotatorGraph,
            {"pairs": PAIRS, "weights": torch.tensor([2.0])},
            "'weights' must be between 0 and 1",
        ),
    ],
)
def test_bad_arguments_are_refused(
    kind: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        kind(**arguments)
    assert str(caught.value).startswith(message)
    assert FairRadiusGraph(float("inf")).rule.tau == float("inf")
