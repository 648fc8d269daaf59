"""A similarity graph beside the one that a network passes messages on."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader, NeighborLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.transforms import Compose
from torch_geometric.utils import subgraph

from pyg_glif import AnnotatorGraph, FairKNNGraph, FairRadiusGraph, GLIFConv, GLIFSmooth
from pyg_glif.graph import fair_radius_graph
from pyg_glif.transforms import FairSubgraph


def _data(generator, num_nodes=20):
    x = torch.rand(num_nodes, 2, generator=generator)
    links = torch.randint(0, num_nodes, (2, 3 * num_nodes), generator=generator)
    return Data(x=x, edge_index=links, edge_attr=torch.ones(3 * num_nodes))


@pytest.mark.parametrize(
    ("kind", "setting"),
    [(FairRadiusGraph, 0.3), (FairKNNGraph, 3), (AnnotatorGraph, [(0, 1), (2, 5)])],
)
def test_second_graph_does_not_change_the_first(generator, kind, setting):
    data = _data(generator)
    transform = kind(setting, name="fair")
    out = transform(data)
    assert out.edge_index is data.edge_index
    assert out.edge_attr is data.edge_attr
    plain = kind(setting)(Data(x=data.x))
    torch.testing.assert_close(out.fair_edge_index, plain.edge_index)
    torch.testing.assert_close(out.fair_edge_weight, plain.edge_weight)
    with pytest.raises(ValueError, match=r"graph yet \(got 'fair_edge_index'"):
        transform(out)


def test_second_graph_is_batched_and_cut_like_the_first(generator):
    members = [_data(generator, n) for n in (5, 9, 14)]
    transform = FairRadiusGraph(0.4, name="fair")
    one_by_one = Batch.from_data_list([transform(data) for data in members])
    together = transform(Batch.from_data_list(members))
    torch.testing.assert_close(together.fair_edge_index, one_by_one.fair_edge_index)
    torch.testing.assert_close(together.fair_edge_weight, one_by_one.fair_edge_weight)
    for part, data in zip(together.to_data_list(), members, strict=True):
        index, _ = fair_radius_graph(data.x, 0.4)
        torch.testing.assert_close(part.fair_edge_index, index)
        torch.testing.assert_close(part.edge_index, data.edge_index)
    (batch,) = DataLoader([transform(data) for data in members], batch_size=3)
    torch.testing.assert_close(batch.fair_edge_index, together.fair_edge_index)


def test_relation_of_heterogeneous_data(generator):
    data = HeteroData()
    data["user"].x = torch.rand(12, 2, generator=generator)
    data["bank"].num_nodes = 3
    data["user", "uses", "bank"].edge_index = torch.tensor([[0, 5], [1, 2]])
    out = FairRadiusGraph(0.4)(data)
    index, _ = fair_radius_graph(data["user"].x, 0.4)
    torch.testing.assert_close(out["user", "fair", "user"].edge_index, index)
    named = FairKNNGraph(2, name="similar")(out)
    assert ("user", "similar", "user") in named.edge_types
    with pytest.raises(ValueError, match="must not have a graph yet"):
        FairRadiusGraph(0.4)(out)
    again = FairRadiusGraph(0.1, overwrite=True)(out)
    index, _ = fair_radius_graph(data["user"].x, 0.1)
    torch.testing.assert_close(again["user", "fair", "user"].edge_index, index)
    data["bank"].x = torch.zeros(3, 1)
    with pytest.raises(ValueError, match="one type of node with 'x'"):
        FairRadiusGraph(0.4)(data)
    # The relation is sampled and cut with its nodes.
    part = out.subgraph({"user": torch.arange(6)})
    kept, _ = subgraph(torch.arange(6), out["user", "fair", "user"].edge_index)
    torch.testing.assert_close(part["user", "fair", "user"].edge_index, kept)


def test_smoothing_reads_the_named_graph(generator):
    data = _data(generator)
    data.y_hat = torch.rand(20, generator=generator)
    compose = Compose([FairRadiusGraph(0.3, name="fair"), GLIFSmooth(2.0, name="fair")])
    out = compose(data)
    index, weight = out.fair_edge_index, out.fair_edge_weight
    expected = GLIFConv(lam=2.0)(data.y_hat, index, weight)
    torch.testing.assert_close(out.y_fair, expected)
    with pytest.raises(ValueError, match="'fair_edge_index'"):
        GLIFSmooth(1.0, name="fair")(data)


NAMED = [
    FairRadiusGraph(0.3, name="fair"),
    FairKNNGraph(3, name="fair"),
    AnnotatorGraph([(0, 1), (2, 5)], name="fair"),
    FairSubgraph(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), name="fair"),
    GLIFSmooth(1.0, name="fair"),
]


@pytest.mark.parametrize("transform", NAMED, ids=lambda t: type(t).__name__)
def test_what_takes_a_name_shows_it(transform):
    assert "name='fair'" in str(transform)
    transform = copy.copy(transform)
    if hasattr(transform, "node_type"):
        assert "node_type" not in str(transform)
        transform.node_type = "user"
        assert "name='fair', node_type='user'" in str(transform)


@pytest.mark.parametrize("first", NAMED[:-1], ids=lambda t: type(t).__name__)
def test_a_graph_without_a_name_is_refused_beside_a_named_one(generator, first):
    data = _data(generator)
    data.y_hat = torch.rand(20, generator=generator)
    data.n_id = torch.arange(20)
    message = r"'name' must say which graph is meant \(got None beside a graph 'fair'\)"
    with pytest.raises(ValueError, match=f"{message}. Pass 'name='fair''"):
        Compose([first, GLIFSmooth(1.0)])(data)
    Compose([first, GLIFSmooth(1.0, name="fair")])(data)


def test_edges_of_link_prediction_are_no_second_graph():
    data = Data(
        y_hat=torch.tensor([0.0, 3.0]),
        edge_index=torch.tensor([[0, 1], [1, 0]]),
        pos_edge_index=torch.tensor([[0], [1]]),
        edge_label_index=torch.tensor([[0], [1]]),
    )
    torch.testing.assert_close(GLIFSmooth(1.0)(data).y_fair, torch.tensor([1.0, 2.0]))


def _hetero(generator, num_nodes=12):
    data = HeteroData()
    data["user"].x = torch.rand(num_nodes, 2, generator=generator)
    data["user"].y_hat = torch.rand(num_nodes, generator=generator)
    data["bank"].x = torch.rand(3, 2, generator=generator)
    data["bank"].y_hat = torch.rand(3, generator=generator)
    uses = torch.randint(0, 3, (2, 5), generator=generator)
    data["user", "uses", "bank"].edge_index = uses
    return data


@pytest.mark.parametrize("name", [None, "similar"])
@pytest.mark.parametrize(
    "graph", [(FairRadiusGraph, 0.4), (FairKNNGraph, 2), (AnnotatorGraph, [(0, 2)])]
)
def test_a_type_of_node_is_treated_like_data_of_its_own(generator, graph, name):
    kind, setting = graph
    data = _hetero(generator)
    where = {"name": name, "node_type": "user"}
    compose = Compose([kind(setting, **where), GLIFSmooth(2.0, **where)])
    out = compose(data)
    single = Data(x=data["user"].x, y_hat=data["user"].y_hat)
    single = Compose([kind(setting), GLIFSmooth(2.0)])(single)
    edges = out["user", name or "fair", "user"]
    torch.testing.assert_close(edges.edge_index, single.edge_index)
    torch.testing.assert_close(edges.edge_weight, single.edge_weight)
    torch.testing.assert_close(out["user"].y_fair, single.y_fair)
    assert "y_fair" not in out["bank"]
    assert data.edge_types == [("user", "uses", "bank")]  # the input is not changed


def test_a_batch_of_heterogeneous_data_equals_its_members(generator):
    members = [_hetero(generator, n) for n in (5, 9, 14)]
    where = {"node_type": "user"}
    compose = Compose([FairRadiusGraph(0.5, **where), GLIFSmooth(2.0, **where)])
    together = compose(Batch.from_data_list(members))
    for part, member in zip(together.to_data_list(), members, strict=True):
        expected = compose(member)
        fair, wanted = (d["user", "fair", "user"] for d in (part, expected))
        torch.testing.assert_close(fair.edge_index, wanted.edge_index)
        torch.testing.assert_close(fair.edge_weight, wanted.edge_weight)
        torch.testing.assert_close(part["user"].y_fair, expected["user"].y_fair)
        uses = part["user", "uses", "bank"].edge_index
        torch.testing.assert_close(uses, member["user", "uses", "bank"].edge_index)


@pytest.mark.parametrize(
    "transform", [FairRadiusGraph(0.4), FairKNNGraph(2), GLIFSmooth(1.0)]
)
def test_types_of_node_that_do_not_fit_are_refused(generator, transform):
    data, transform = _hetero(generator), copy.copy(transform)
    several = f"one type of node with '{transform.attr}' \\(got 'user', 'bank'\\)"
    with pytest.raises(ValueError, match=f"{several}. Pass 'node_type'"):
        transform(data)
    transform.node_type = "users"
    with pytest.raises(ValueError, match="'node_type' must be a type of node with"):
        transform(data)
    with pytest.raises(ValueError, match="'node_type' must be None unless"):
        transform(_data(generator))
    with pytest.raises(ValueError, match=r"must have the relation .*Pass the 'name'"):
        GLIFSmooth(1.0, name="similar", node_type="user")(data)


def test_subgraph_has_the_edges_among_its_nodes(generator):
    x = torch.rand(30, 2, generator=generator)
    index, sq_dist = fair_radius_graph(x, 0.3)
    weight = 1.0 - sq_dist
    nodes = torch.randperm(30, generator=generator)[:12]
    batch = FairSubgraph(index, weight)(Data(x=x[nodes], n_id=nodes))
    dense, whole = torch.zeros(12, 12), torch.zeros(30, 30)
    dense[tuple(batch.fair_edge_index)] = batch.fair_edge_weight
    whole[tuple(index)] = weight
    torch.testing.assert_close(dense, whole[nodes][:, nodes])
    bare = FairSubgraph(index, name="similar")(Data(n_id=nodes, num_nodes=12))
    assert "similar_edge_weight" not in bare
    assert str(FairSubgraph(index[:, :4])) == "FairSubgraph(num_edges=4, name='fair')"
    empty = FairSubgraph(index[:, :0])(Data(n_id=nodes, num_nodes=12))
    assert empty.fair_edge_index.shape == (2, 0)
    with pytest.raises(ValueError, match="'n_id'"):
        FairSubgraph(index)(Data(x=x))


class _Net(nn.Module):
    """One layer of any kind, and GLIF over the similarity graph behind it."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer(2, 1), GLIFConv(lam=1.0)

    def forward(self, data):
        out = self.layer(data.x, data.edge_index)
        return self.head(out, data.fair_edge_index, data.fair_edge_weight)


def _learns(batches, net, num_epochs):
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for _ in range(num_epochs):
        total = 0.0
        for batch in batches:
            optimizer.zero_grad()
            loss = (net(batch)[:, 0] - batch.x.sum(1)).square().mean()
            loss.backward()
            optimizer.step()
            total += float(loss.detach())
        losses.append(total)
    return losses[-1] < 0.6 * losses[0]


@pytest.mark.parametrize("layer", [GCNConv, GATConv, SAGEConv])
def test_networks_train_with_a_head_on_the_second_graph(generator, layer):
    torch.manual_seed(0)
    data = FairRadiusGraph(0.15, name="fair")(_data(generator, 40))
    assert _learns([data], _Net(layer), 60)


@pytest.mark.filterwarnings("ignore:.*without a 'pyg-lib' installation")
@pytest.mark.parametrize("layer", [GCNConv, GATConv, SAGEConv])
def test_networks_train_on_sampled_neighborhoods(generator, layer):
    torch.manual_seed(0)
    data = _data(generator, 40)
    fair = FairRadiusGraph(0.15, name="fair")(data)
    transform = FairSubgraph(fair.fair_edge_index, fair.fair_edge_weight)
    try:
        loader = NeighborLoader(
            data, num_neighbors=[5], batch_size=16, transform=transform
        )
        batches = list(loader)
    except ImportError as error:
        pytest.skip(f"sampling needs pyg-lib or torch-sparse: {error}")
    assert _learns(batches, _Net(layer), 40)


def test_names_must_be_words():
    for name in ("", "my graph", 3):
        with pytest.raises(ValueError, match="'name' must be a word"):
            FairRadiusGraph(1.0, name=name)
