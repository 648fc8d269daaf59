"""Put GLIF behind a graph neural network, and look at who is treated alike.

A GCN, a GAT and a GraphSAGE predict which of 4,000 released prisoners will reoffend.
The edges of their graph say who resembles whom in the raw records, race included.
Fairness asks for something else: people who are alike *apart from* race should get like
scores. So a second graph is built, by the distance of the features without it, and the
networks' logits are smoothed over that graph: after training, as the last layer in
training, and as the last layer where training sees samples of the graph.

The "bail" graph is used if it is found in the folder named by the environment variable
PYG_GLIF_DATA; a synthetic one otherwise.

    python -m examples.gnn_head
"""

import warnings
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
from torch_geometric.utils import to_undirected

from experiments.datasets import SensitiveGraph
from pyg_glif import FairKNNGraph, GLIFConv
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.graph import SimilarityGraph
from pyg_glif.transforms import FairSubgraph

NETWORKS = {"GCN": GCNConv, "GAT": GATConv, "GraphSAGE": SAGEConv}


def read_bail(num_nodes: int = 4000) -> tuple[Data, int]:
    """A sample of the bail graph, and the column of the sensitive attribute."""
    data = SensitiveGraph(name="bail")[0]
    keep = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
    sensitive = data.feature_names.index("WHITE")
    x = data.x / data.x.std(dim=0)
    part = Data(x=x, y=data.y, edge_index=data.edge_index)
    return part.subgraph(keep[:num_nodes].sort().values), sensitive


def make_synthetic(num_nodes: int = 1000) -> tuple[Data, int]:
    """People whose links and labels lean on the sensitive attribute."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_nodes, 7, generator=generator)
    x[:, 6] = 2.0 * (x[:, 6] > 0.5)  # the sensitive one, last
    noise = torch.randn(num_nodes, generator=generator)
    score = x[:, 0] + 0.5 * x[:, 1] - 0.4 * x[:, 6] + 0.7 * noise
    links = SimilarityGraph.nearest(x, 10).edge_index
    return Data(x=x, y=(score > score.median()).long(), edge_index=links), 6


class FairNet(nn.Module):
    """Two layers of any kind; ``lam`` above zero smooths their logits."""

    def __init__(self, layer: type[nn.Module], num_features: int, lam: float) -> None:
        super().__init__()
        self.first, self.second = layer(num_features, 16), layer(16, 2)
        self.head = GLIFConv(lam)

    def forward(self, data: Data) -> Tensor:
        """Logits of everybody in ``data``."""
        h = self.first(data.x, data.edge_index).relu()
        h = self.second(h, data.edge_index)
        return self.head(h, data.fair_edge_index, data.fair_edge_weight)


def samples(data: Data, batch_size: int = 250) -> Iterator[Data]:
    """Batches of people, neighbours in the network, and who is similar in each."""
    links = Data(x=data.x, y=data.y, edge_index=data.edge_index)
    links.train_mask = data.train_mask
    # The loader knows the edges of the network; this adds those of the second graph.
    add_fair = FairSubgraph(data.fair_edge_index, data.fair_edge_weight)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that sampling has a faster way
            yield from NeighborLoader(
                links, [10, 10], batch_size=batch_size, shuffle=True, transform=add_fair
            )
    except ImportError:  # neither pyg-lib nor torch-sparse: parts at random
        for nodes in torch.randperm(data.num_nodes).split(batch_size):
            batch = links.subgraph(nodes)
            batch.n_id = nodes
            yield add_fair(batch)


def train(net: nn.Module, data: Data, num_epochs: int, *, sampled: bool) -> Tensor:
    """Ordinary training, full batch or on samples; returns the logits of everybody."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02, weight_decay=5e-4)
    for _ in range(num_epochs):
        for batch in samples(data) if sampled else [data]:
            optimizer.zero_grad()
            known = batch.train_mask
            loss = nn.functional.cross_entropy(net(batch)[known], batch.y[known])
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return net(data)


def describe(name: str, logits: Tensor, data: Data) -> str:
    """Test accuracy, and how alike similar people are treated."""
    decision, score = logits.argmax(dim=1), logits.softmax(dim=1)[:, 1]
    accuracy = (decision == data.y)[~data.train_mask].float().mean()
    (row, col), weight = data.fair_edge_index, data.fair_edge_weight
    same = (decision[row] == decision[col]).float()
    consistency = (weight * same).sum() / weight.sum()
    gap = (score[row] - score[col]).abs().mean()
    return f"{name:36s} | {accuracy:8.3f} | {consistency:11.3f} | {gap:9.4f}"


def main() -> None:
    """Trains every network with and without the layer and prints one table."""
    try:
        kind, (data, sensitive) = "bail", read_bail()
    except FileNotFoundError:
        kind, (data, sensitive) = "synthetic", make_synthetic()
    data.edge_index = to_undirected(data.edge_index, num_nodes=data.num_nodes)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(0))
    data.train_mask = order < data.num_nodes // 2
    # Similar people: near in every feature but the sensitive one.
    blind = SensitiveSubspace(torch.eye(data.num_features)[sensitive : sensitive + 1])
    data = FairKNNGraph(10, distance=blind, name="fair")(data)

    degree = data.fair_edge_index.size(1) / data.num_nodes
    print(f"{kind}: {data.num_nodes} people, {degree:.1f} similar people each\n")
    print(f"{'':36s} | accuracy | consistency | score gap")
    for name, layer in NETWORKS.items():

        def trained(
            lam: float, layer: type[nn.Module] = layer, *, sampled: bool = False
        ) -> Tensor:
            torch.manual_seed(0)
            net = FairNet(layer, data.num_features, lam)
            return train(net, data, 10 if sampled else 40, sampled=sampled)

        logits = trained(lam=0.0)
        print(describe(name, logits, data))
        fair = GLIFConv(lam=1.0)(logits, data.fair_edge_index, data.fair_edge_weight)
        print(describe(f"{name}, smoothed afterwards", fair, data))
        print(describe(f"{name} with a GLIF head", trained(lam=1.0), data))
        fair = trained(lam=1.0, sampled=True)
        print(describe(f"{name} with a GLIF head, sampled", fair, data))
    print("\nconsistency: weighted share of similar pairs with the same decision")
    print("score gap: mean difference of probability within similar pairs")


if __name__ == "__main__":
    main()
