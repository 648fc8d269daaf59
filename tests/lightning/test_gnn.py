"""Graph networks get their graph, whole or sampled, or a clear error."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.lightning import LightningNodeData
from torch_geometric.loader import DataLoader as GraphLoader
from torch_geometric.nn import GCN, GCNConv, Sequential
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

from pyg_glif.lightning import (
    FairClassifier,
    FairDataModule,
    GLIFCallback,
    SimilarityPenalty,
)
from pyg_glif.nn import LaplacianLoss
from tests.lightning.conftest import TrainerFactory

pytestmark = [
    pytest.mark.lightning,
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many"),
]


@pytest.fixture
def graph(samples: Data, generator: torch.Generator) -> Data:
    """A ring, so that every sample has two neighbors."""
    ring = torch.arange(100)
    forth = torch.stack([ring, (ring + 1) % 100])
    samples.edge_index = torch.cat([forth, forth.flip(0)], dim=1)
    return samples


def make_gcn() -> GCN:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return GCN(4, 8, num_layers=2, out_channels=3)


def test_the_data_module_serves_a_graph_network(
    graph: Data, make_trainer: TrainerFactory
) -> None:
    network, callback = make_gcn(), GLIFCallback(tau=1.5)
    classifier = FairClassifier(network, lam=0.1, tau=1.5, lr=0.01)
    module = FairDataModule(graph, batch_size=None, steps_per_epoch=5)
    trainer = make_trainer(max_epochs=4, callbacks=[callback], log_every_n_steps=1)
    with torch.no_grad():
        logits = network(graph.x, graph.edge_index)
    known = graph.train_mask & (graph.y >= 0)
    before = nn.functional.cross_entropy(logits[known], graph.y[known])
    trainer.fit(classifier, module)
    assert float(trainer.callback_metrics["train_cross_entropy"]) < float(before)
    assert "val_accuracy" in trainer.callback_metrics
    (predicted,) = trainer.predict(classifier, module)
    torch.testing.assert_close(predicted, network(graph.x, graph.edge_index))
    assert callback.y_fair_.shape == (100, 3)
    trainer.test(classifier, module, verbose=False)


class Recorder(nn.Module):
    """A term that records the rows it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, index: Tensor, x: Tensor, logits: Tensor) -> Tensor:
        assert len(index) == len(x) == len(logits)
        self.seen.append(index)
        return 0.0 * logits.sum()


@pytest.mark.skipif(
    not (WITH_PYG_LIB or WITH_TORCH_SPARSE),
    reason="PyG samples neighbors with 'pyg-lib' or 'torch-sparse'",
)
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
def test_sampled_neighborhoods_count_their_seeds_only(
    graph: Data, make_trainer: TrainerFactory
) -> None:
    recorder, network = Recorder(), make_gcn()
    penalty = SimilarityPenalty(0.1, tau=1.5)
    classifier = FairClassifier(network, term=[recorder, penalty])
    module = LightningNodeData(
        graph,
        input_train_nodes=graph.train_mask,
        input_val_nodes=graph.val_mask,
        input_test_nodes=graph.test_mask,
        loader="neighbor",
        # One hop more than layers: they divide by the degrees of the last.
        num_neighbors=[2, 2, 2],
        batch_size=7,
        num_workers=0,
        pin_memory=False,
    )
    trainer = make_trainer(max_epochs=1, limit_val_batches=0)
    trainer.fit(classifier, module)
    seen = torch.cat(recorder.seen).sort().values
    assert torch.equal(seen, graph.train_mask.nonzero().flatten())
    # All neighbors of a ring are sampled: logits of seeds are those of the whole.
    (found,) = trainer.test(classifier, module, verbose=False)
    logits = network.eval()(graph.x, graph.edge_index)
    known = graph.test_mask & (graph.y >= 0)
    right = (logits.argmax(1) == graph.y)[known].double().mean()
    assert found["test_accuracy"] == pytest.approx(float(right))


class Sampled:
    """What a neighbor loader yields, for one batch of seeds, by hand."""

    def __init__(self, graph: Data, seeds: Tensor) -> None:
        # Three steps around: degrees of those two steps away count as well.
        steps = torch.tensor([0, 1, -1, 2, -2, 3, -3])
        near = (seeds + steps[:, None]).flatten() % 100
        order = list(dict.fromkeys(near.tolist()))  # seeds first, none twice
        n_id = torch.tensor(order)
        place = torch.full((100,), -1)
        place[n_id] = torch.arange(len(n_id))
        edges = place[graph.edge_index]
        self.data = Data(
            x=graph.x[n_id],
            y=graph.y[n_id],
            edge_index=edges[:, (edges >= 0).all(0)],
            train_mask=graph.train_mask[n_id],
            n_id=n_id,
            batch_size=len(seeds),
        )


def test_of_a_sampled_batch_the_seeds_count(graph: Data) -> None:
    seeds = torch.tensor([40, 8, 60, 21])
    batch = Sampled(graph, seeds).data
    assert len(batch.x) > 4
    recorder, network = Recorder(), make_gcn()
    classifier = FairClassifier(network, term=recorder)
    logged: dict[str, Any] = {}
    classifier.log = lambda name, value, **_: logged.update({name: value})  # type: ignore[method-assign, assignment]
    classifier.training_step(batch, 0)
    assert torch.equal(recorder.seen[0], seeds)
    # All that two layers need is in the batch: logits are those of the whole.
    F = network(graph.x, graph.edge_index)[seeds].detach().double().numpy()
    y = graph.y[seeds].numpy()
    inside = graph.train_mask[seeds].numpy() & (y >= 0)
    assert 0 < inside.sum() < 4
    log_prob = F - np.log(np.exp(F).sum(1, keepdims=True))
    expected = -log_prob[np.arange(4), y][inside].mean()
    assert float(logged["train_loss"].detach()) == pytest.approx(expected, rel=1e-5)
    assert classifier.predict_step(batch, 0).shape == (4, 3)


def test_a_batch_of_graphs_is_no_sampled_batch(graph: Data) -> None:
    batch = next(iter(GraphLoader([graph, graph], batch_size=2)))
    classifier = FairClassifier(make_gcn())
    assert batch.batch_size == 2
    assert classifier.predict_step(batch, 0).shape == (200, 3)


def test_a_sequential_network_gets_all_its_tensors(graph: Data) -> None:
    graph.fair_index = graph.edge_index.flip(1)
    layers = [
        (GCNConv(4, 8), "x, edge_index -> h"),
        (nn.ReLU(), "h -> h"),
        (GCNConv(8, 3), "h, fair_index -> logits"),
    ]
    network = Sequential("x, edge_index, fair_index", layers)
    classifier = FairClassifier(network, num_classes=3)
    found = classifier.predict_step(graph, 0)
    assert torch.equal(found, network(graph.x, graph.edge_index, graph.fair_index))


class Peeping(nn.Module):
    """Would like to see the labels."""

    out_channels = 3

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        assert y is None
        return x[:, :3]


def test_labels_are_not_shown_to_the_network(graph: Data) -> None:
    assert FairClassifier(Peeping()).predict_step(graph, 0).shape == (100, 3)


def test_a_graph_network_without_a_graph_is_refused(
    graph: Data, make_trainer: TrainerFactory
) -> None:
    message = (
        "'model' must be given 'edge_index', as its 'forward' asks for (got rows "
        "without a graph). Train on a whole Data ('FairDataModule(data, "
        "batch_size=None)') or with a neighbor loader"
    )
    trainer = make_trainer(limit_val_batches=0)
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.fit(FairClassifier(make_gcn()), FairDataModule(graph))
    del graph.edge_index
    with pytest.raises(ValueError, match=re.escape("(got a Data without it)")):
        FairClassifier(make_gcn()).predict_step(graph, 0)


TERMS = [SimilarityPenalty(1.0), LaplacianLoss(reduction="mean")]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: type(term).__name__)
@pytest.mark.parametrize("graph_of", ["batch", "full"])
def test_terms_compare_over_the_named_graph(
    term: nn.Module, graph_of: Any, graph: Data, make_trainer: TrainerFactory
) -> None:
    """The network passes messages on a ring, the penalty compares two rows only."""
    graph.fair_edge_index = torch.tensor([[0, 50], [50, 0]])
    graph.fair_edge_weight = torch.tensor([3.0, 3.0])
    module = FairDataModule(graph, batch_size=None)

    def penalty(**kwargs: Any) -> float:
        settings = {"term": term, "graph": graph_of, "lr": 1e-12, **kwargs}
        trainer = make_trainer(max_epochs=1, limit_val_batches=0, log_every_n_steps=1)
        trainer.fit(FairClassifier(make_gcn(), **settings), module)
        return float(trainer.callback_metrics["train_regularizer"])

    f = make_gcn()(graph.x, graph.edge_index).detach()
    expected = 3.0 * float((f[0] - f[50]).square().sum()) / 100
    assert penalty(name="fair") == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match=r"'name' must say which graph .* 'fair'\)"):
        penalty()
    with pytest.raises(ValueError, match="attribute 'alike_edge_index'"):
        penalty(name="alike")
    # A penalty with a radius reads no edges, and needs no name.
    penalty(term=None, lam=1.0, tau=1.5)
