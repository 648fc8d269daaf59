from pathlib import Path

import pytest
import torch
from torch.utils.data.datapipes.iter import IterableWrapper
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.transforms import AddSelfLoops, Compose

from pyg_glif.transforms import AnnotatorGraph

PAIRS = torch.tensor([[2, 0]])


def people(num_nodes: int) -> Data:
    return Data(x=torch.zeros(num_nodes, 1))


def test_annotator_graph() -> None:
    transform = AnnotatorGraph(PAIRS)
    assert str(transform) == "AnnotatorGraph(num_annotators=1, combine='any')"
    data = transform(people(4))
    assert data.edge_index.tolist() == [[0, 2], [2, 0]]
    assert data.edge_weight.tolist() == [1.0, 1.0]
    data.validate()


def test_annotator_graph_of_several_weighted_annotators() -> None:
    transform = AnnotatorGraph(
        [PAIRS, PAIRS.flip(1)],
        weights=[torch.tensor([0.5]), torch.tensor([1.0])],
        combine="mean",
    )
    assert str(transform) == "AnnotatorGraph(num_annotators=2, combine='mean')"
    assert transform(people(3)).edge_weight.tolist() == [0.75, 0.75]


def test_annotator_graph_leaves_its_input_alone() -> None:
    data = people(3)
    AnnotatorGraph(PAIRS)(data)
    assert data.keys() == ["x"]


def test_annotator_graph_refuses_to_overwrite() -> None:
    data = people(3)
    data.edge_index, data.edge_attr = torch.tensor([[0], [1]]), torch.ones(1)
    with pytest.raises(ValueError, match="overwrite") as caught:
        AnnotatorGraph(PAIRS)(data)
    assert str(caught.value) == (
        "'data' must not have a graph yet (got 'edge_attr', 'edge_index'). "
        "Pass 'overwrite=True' to replace it, or 'name' for a second graph"
    )
    out = AnnotatorGraph(PAIRS, overwrite=True)(data)
    assert sorted(out.keys()) == ["edge_index", "edge_weight", "x"]
    assert out.edge_index.tolist() == [[0, 2], [2, 0]]


def test_annotator_graph_refuses_a_batch_of_several_graphs() -> None:
    message = (
        r"^'data' must be one graph \(got a batch of 2\)\. "
        r"Transform the graphs before they are batched$"
    )
    with pytest.raises(ValueError, match=message):
        AnnotatorGraph(PAIRS)(Batch.from_data_list([people(3), people(3)]))
    (alone,) = AnnotatorGraph(PAIRS)(Batch.from_data_list([people(3)])).to_data_list()
    assert alone.edge_index.tolist() == [[0, 2], [2, 0]]


def test_annotated_graphs_can_be_batched() -> None:
    graphs = [AnnotatorGraph(PAIRS)(people(n)) for n in (3, 4)]
    batch = Batch.from_data_list(graphs)
    assert batch.edge_index.tolist() == [[0, 2, 3, 5], [2, 0, 5, 3]]


def test_annotator_graph_in_compose_and_as_function() -> None:
    transform = Compose([AnnotatorGraph(PAIRS), AddSelfLoops(attr="edge_weight")])
    assert transform(people(3)).num_edges == 5
    (data,) = IterableWrapper([people(3)]).glif_annotator_graph(PAIRS)
    assert data.num_edges == 2


def test_annotator_graph_as_pre_transform(tmp_path: Path) -> None:
    class People(InMemoryDataset):
        def __init__(self, root: Path) -> None:
            super().__init__(str(root), pre_transform=AnnotatorGraph(PAIRS))
            self.load(self.processed_paths[0])

        @property
        def processed_file_names(self) -> str:
            return "data.pt"

        def process(self) -> None:
            self.save([self.pre_transform(people(3))], self.processed_paths[0])

    assert People(tmp_path)[0].edge_index.tolist() == [[0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (
            people(2),
            ValueError,
            "'pairs' must hold node indices from 0 to 1 (got 2)",
        ),
        (HeteroData(), ValueError, "'data' must have one type of node (got none)"),
        (
            Data(y=torch.zeros(3)),
            ValueError,
            "'data' must have the attribute 'num_nodes' (got 'y')",
        ),
    ],
)
def test_annotator_graph_rejects_bad_data(
    data: Data, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        AnnotatorGraph(PAIRS)(data)
    assert str(caught.value) == message


def test_annotator_graph_rejects_bad_arguments_when_made() -> None:
    with pytest.raises(ValueError, match=r"^'combine' must be one of"):
        AnnotatorGraph(PAIRS, combine="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^'pairs' must name two different nodes"):
        AnnotatorGraph(torch.tensor([[1, 1]]))
    with pytest.raises(ValueError, match=r"^'weights' must be between 0 and 1"):
        AnnotatorGraph(PAIRS, weights=torch.tensor([2.0]))
