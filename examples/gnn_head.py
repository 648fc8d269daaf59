"""Put GLIF behind a graph neural network, and look at who is treated alike.

A GCN predicts which of 4,000 released prisoners will reoffend. The edges of its graph
say who resembles whom in the raw records, race included. Fairness asks for something
else: people who are alike *apart from* race should get like scores. So a second
graph is built, by the distance of the features without it, and the network's logits are
smoothed over that graph: after training, or as its last layer.

The "bail" graph is used if it is found in the folder named by the environment variable
PYG_GLIF_DATA (``data`` if it is not set); a synthetic one otherwise.

    python examples/gnn_head.py
"""

import gzip
import logging
import os
from pathlib import Path

import numpy as np
import torch
from pytorch_lightning import Trainer
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, Sequential
from torch_geometric.utils import subgraph, to_undirected

from pyg_glif import GLIFConv, edge_weights, fair_radius_graph, suggest_tau
from pyg_glif.lightning import FairClassifier, FairDataModule

DATA = Path(os.environ.get("PYG_GLIF_DATA", "data"))


def read_bail(folder: Path, num_nodes: int = 4000) -> Data:
    """A sample of the bail graph. Label: reoffends. Sensitive: race."""
    with gzip.open(folder / "nodes.csv.gz", "rt") as file:
        names = file.readline().strip().split(",")
        table = np.loadtxt(file, delimiter=",")
    column = {name: table[:, i] for i, name in enumerate(names)}
    label, sens = column.pop("RECID") > 0, column.pop("WHITE") > 0
    x = np.stack(list(column.values()), axis=1)
    edges = torch.from_numpy(np.load(folder / "edges.npz")["edge_index"]).long()
    keep = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    keep = keep[:num_nodes].sort().values
    edges, _ = subgraph(keep, edges, relabel_nodes=True, num_nodes=len(x))
    return make_data(x[keep], sens[keep], label[keep], edges)


def make_synthetic(num_nodes: int = 1000) -> Data:
    """People whose links and labels lean on the sensitive attribute."""
    rng = np.random.default_rng(0)
    x, sens = rng.normal(size=(num_nodes, 6)), rng.random(num_nodes) < 0.3
    score = x[:, 0] + 0.5 * x[:, 1] - 0.8 * sens + 0.7 * rng.normal(size=num_nodes)
    full = np.concatenate([x, 2.0 * sens[:, None]], axis=1)
    sq_dist = np.sum((full[:, None] - full[None]) ** 2, axis=-1)
    np.fill_diagonal(sq_dist, np.inf)
    edge_index = np.argsort(sq_dist, axis=1)[:, :15]
    pairs = np.stack([np.repeat(np.arange(num_nodes), 15), edge_index.ravel()])
    return make_data(x, sens, score > np.median(score), torch.from_numpy(pairs))


def make_data(
    x: np.ndarray, sens: np.ndarray, label: np.ndarray, edges: Tensor
) -> Data:
    """Standardised features, the sensitive one last, and a split in three."""
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-9)
    features = np.concatenate([x, sens[:, None]], axis=1)
    part = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)) % 4
    return Data(
        x=torch.from_numpy(features).float(),
        y=torch.from_numpy(label).long(),
        edge_index=to_undirected(edges, num_nodes=len(x)),
        train_mask=part < 2,
        test_mask=part == 3,
    )


def make_model(num_features: int, head: nn.Module | None) -> nn.Module:
    """Two GCN layers; ``head`` smooths their logits."""
    layers = [
        (GCNConv(num_features, 16), "x, edge_index -> h"),
        (nn.ReLU(inplace=True), "h -> h"),
        (GCNConv(16, 2), "h, edge_index -> logits"),
    ]
    if head is not None:
        layers.append((head, "logits, fair_index, fair_weight -> logits"))
    return Sequential("x, edge_index, fair_index, fair_weight", layers)


def train(model: nn.Module, data: Data) -> Tensor:
    """Ordinary training; returns the logits of everybody."""
    # The network is given the tensors of 'data' that its arguments are named after.
    classifier = FairClassifier(model, lr=0.02, weight_decay=5e-4, num_classes=2)
    people = FairDataModule(data, batch_size=None)  # the whole graph in one batch
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(
        max_epochs=60,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        log_every_n_steps=1,
        **quiet,
    )
    trainer.fit(classifier, people)
    (logits,) = trainer.predict(classifier, people)
    return logits


def describe(name: str, logits: Tensor, data: Data, fair: tuple[Tensor, Tensor]) -> str:
    """Test accuracy, and how alike similar people are treated."""
    decision, score = logits.argmax(dim=1), logits.softmax(dim=1)[:, 1]
    accuracy = (decision == data.y)[data.test_mask].float().mean()
    (row, col), weight = fair
    same = (decision[row] == decision[col]).float()
    consistency = (weight * same).sum() / weight.sum()
    gap = (score[row] - score[col]).abs().mean()
    return f"{name:34s} | {accuracy:8.3f} | {consistency:11.3f} | {gap:9.4f}"


def main() -> None:
    """Trains with and without the layer and prints one table."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    folder = DATA / "graphs" / "bail"
    found = (folder / "nodes.csv.gz").exists()
    data = read_bail(folder) if found else make_synthetic()
    # Similar people: near in every feature but the sensitive one (the last column).
    z = data.x[:, :-1].contiguous()
    tau = suggest_tau(z, target_degree=20)
    fair_index, sq_dist = fair_radius_graph(z, tau)
    fair = fair_index, edge_weights(sq_dist, theta=1 / tau**2)
    data.fair_index, data.fair_weight = fair

    kind = "bail" if found else "synthetic"
    degree = fair_index.size(1) / data.num_nodes
    print(f"{kind}: {data.num_nodes} people, {degree:.1f} similar people each\n")
    print(f"{'':34s} | accuracy | consistency | score gap")
    torch.manual_seed(0)
    logits = train(make_model(data.num_features, None), data)
    print(describe("GCN", logits, data, fair))
    for lam in (0.1, 1.0, 10.0):
        smoothed = GLIFConv(lam=lam)(logits, *fair)
        print(describe(f"GCN, smoothed afterwards, lam={lam}", smoothed, data, fair))
    torch.manual_seed(0)
    head = GLIFConv(lam=1.0, cached=True)
    logits = train(make_model(data.num_features, head), data)
    print(describe("GCN trained with GLIFConv(lam=1.0)", logits, data, fair))
    print("\nconsistency: weighted share of similar pairs with the same decision")
    print("score gap: mean difference of probability within similar pairs")


if __name__ == "__main__":
    main()
