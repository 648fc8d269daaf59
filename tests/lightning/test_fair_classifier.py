"""FairClassifier: the loss against NumPy, the whole life of a model, bad input."""

import inspect
import re
import warnings
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from pyg_glif.distances import Mahalanobis
from pyg_glif.errors import SimilarityWarning
from pyg_glif.graph import edge_weights, fair_radius_graph
from pyg_glif.lightning import FairClassifier, FairDataModule, SimilarityPenalty
from pyg_glif.metrics import laplacian_energy
from pyg_glif.nn import LaplacianLoss
from tests.lightning.conftest import TrainerFactory, full_batch, make_model

pytestmark = pytest.mark.lightning

TAU, THETA = 1.5, 0.3


def dense_energy(f: Tensor, x: Tensor) -> float:
    """Half the weighted squared differences over all pairs within TAU."""
    F, X = f.detach().double().numpy(), x.double().numpy()
    sq_dist = ((X[:, None] - X[None]) ** 2).sum(-1)
    W = np.where(sq_dist <= TAU**2, np.exp(-THETA * sq_dist), 0.0)
    return float(0.5 * (W * ((F[:, None] - F[None]) ** 2).sum(-1)).sum())


def dense_cross_entropy(f: Tensor, y: Tensor) -> float:
    F = f.detach().double().numpy()[y.numpy() >= 0]
    target = y.numpy()[y.numpy() >= 0]
    log_sum = np.log(np.exp(F).sum(1))
    return float((log_sum - F[np.arange(len(F)), target]).mean())


def make(**kwargs: Any) -> FairClassifier:
    settings = {"tau": TAU, "theta": THETA, **kwargs}
    return FairClassifier(make_model(), **settings)


def first_losses(
    classifier: FairClassifier, trainer: Any, *args: Any, **kwargs: Any
) -> dict[str, float]:
    """What is logged of the first training step."""
    trainer.fit(classifier, *args, **kwargs)
    return {key: float(value) for key, value in trainer.callback_metrics.items()}


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("with_index", [False, True])
def test_loss_on_a_batch_matches_numpy(
    with_index: bool, samples: Data, make_trainer: TrainerFactory
) -> None:
    x, y = samples.x, samples.y  # a tenth of the rows has no label
    parts = (x, y, torch.arange(100)) if with_index else (x, y)
    f = make_model()(x)
    found = first_losses(
        make(lam=0.2),
        make_trainer(max_steps=1, limit_val_batches=0),
        DataLoader(TensorDataset(*parts), batch_size=100),
        DataLoader(TensorDataset(*parts), batch_size=100),
    )
    fit, penalty = dense_cross_entropy(f, y), 0.2 * dense_energy(f, x) / 100
    assert found["train_cross_entropy"] == pytest.approx(fit, rel=1e-5)
    assert found["train_regularizer"] == pytest.approx(penalty, rel=1e-5)
    assert found["train_loss"] == pytest.approx(fit + penalty, rel=1e-5)


def test_full_graph_compares_all_rows(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    f = make_model()(samples.x)
    module = FairDataModule(samples, batch_size=7, seed=4)
    _, y, index = next(iter(module.train_dataloader()))
    found = first_losses(
        make(lam=0.2, graph="full", reduction="sum"),
        make_trainer(max_steps=1, limit_val_batches=0),
        module,
    )
    penalty = 0.2 * dense_energy(f, samples.x)
    fit = dense_cross_entropy(f[index], y)
    assert found["train_regularizer"] == pytest.approx(penalty, rel=1e-5)
    assert found["train_cross_entropy"] == pytest.approx(fit, rel=1e-5)


def test_full_graph_may_come_with_the_data(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    samples.edge_index = torch.tensor([[0, 99], [99, 0]])
    samples.edge_weight = torch.tensor([0.5, 0.5])
    f = make_model()(samples.x)
    found = first_losses(
        make(tau=None, lam=2.0, graph="full", reduction="sum"),
        make_trainer(max_steps=1, limit_val_batches=0),
        FairDataModule(samples, batch_size=7),
    )
    expected = 2.0 * 0.5 * float((f[0] - f[99]).detach().square().sum())
    assert found["train_regularizer"] == pytest.approx(expected, rel=1e-5)


def test_a_new_fit_forgets_the_old_data(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    classifier = make(lam=0.2, graph="full", lr=1e-12)
    trainer = make_trainer(max_epochs=1, limit_val_batches=0)
    trainer.fit(classifier, FairDataModule(samples))
    other = Data(x=samples.x[:30] / 2, y=samples.y[:30])
    trainer = make_trainer(max_epochs=1, limit_val_batches=0)
    found = first_losses(classifier, trainer, FairDataModule(other))
    penalty = 0.2 * dense_energy(make_model()(other.x), other.x) / 30
    assert found["train_regularizer"] == pytest.approx(penalty, rel=1e-4)


def test_batches_see_each_pair_equally_often(generator: torch.Generator) -> None:
    x = torch.randn(6, 4, generator=generator)
    penalty = SimilarityPenalty(1.0, tau=TAU, theta=THETA, reduction="sum")
    f = make_model()(x).detach()
    total = 0.0
    for rows in combinations(range(6), 4):
        batch = torch.tensor(rows)
        total += float(penalty(x[batch], f[batch]))
    # A pair is in as many batches as there are ways to choose the other two.
    assert total == pytest.approx(comb(4, 2) * dense_energy(f, x), rel=1e-5)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
@pytest.mark.parametrize("graph", ["batch", "full"])
def test_a_whole_data_is_a_batch(
    graph: Any, samples: Data, make_trainer: TrainerFactory
) -> None:
    f = make_model()(samples.x)
    classifier = make(lam=0.2, graph=graph, lr=1e-12)
    trainer = make_trainer(max_epochs=2)
    found = first_losses(classifier, trainer, full_batch(samples), full_batch(samples))
    inside = torch.where(samples.train_mask, samples.y, -1)
    penalty = 0.2 * dense_energy(f, samples.x) / 100
    fit = dense_cross_entropy(f, inside)
    assert found["train_cross_entropy"] == pytest.approx(fit, rel=1e-4)
    assert found["train_regularizer"] == pytest.approx(penalty, rel=1e-4)
    right = (f.argmax(1) == samples.y)[samples.val_mask].float().mean()
    assert found["val_accuracy"] == pytest.approx(float(right))
    (predicted,) = trainer.predict(classifier, full_batch(samples))
    torch.testing.assert_close(predicted, f)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_a_graph_network_gets_the_graph(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 99, 3], [1, 0, 2, 1, 3, 99]])
    samples.edge_index = edges
    model = GCN(4, 8, num_layers=2, out_channels=3)
    classifier = FairClassifier(model, lam=0.1, tau=TAU, theta=THETA)
    assert classifier.num_classes == 3
    f = model(samples.x, edges)
    trainer = make_trainer(max_steps=1, limit_val_batches=0)
    found = first_losses(classifier, trainer, full_batch(samples), full_batch(samples))
    penalty = 0.1 * dense_energy(f, samples.x) / 100
    assert found["train_regularizer"] == pytest.approx(penalty, rel=1e-4)
    (predicted,) = trainer.predict(classifier, full_batch(samples))
    torch.testing.assert_close(predicted, model(samples.x, edges))


@pytest.mark.parametrize("graph", ["batch", "full"])
def test_the_penalty_lowers_the_energy(
    graph: Any, samples: Data, make_trainer: TrainerFactory
) -> None:
    edges, sq_dist = fair_radius_graph(samples.x, TAU)
    weight = edge_weights(sq_dist, THETA)
    energy = []
    for lam in (0.0, 0.3, 3.0):
        classifier = make(lam=lam, graph=graph, lr=0.01)
        module = FairDataModule(samples, batch_size=30, balanced=True)
        make_trainer(max_epochs=20).fit(classifier, module)
        with torch.no_grad():
            energy.append(float(laplacian_energy(classifier(samples.x), edges, weight)))
    assert energy[0] > 1.5 * energy[1] > 2 * energy[2]


def test_same_seed_same_numbers(samples: Data, make_trainer: TrainerFactory) -> None:
    def run(seed: int) -> list[Tensor]:
        classifier = make(lam=0.1)
        module = FairDataModule(samples, batch_size=15, balanced=True, seed=seed)
        make_trainer().fit(classifier, module)
        return [p.detach().clone() for p in classifier.parameters()]

    first, second, other = run(0), run(0), run(1)
    assert all(map(torch.equal, first, second))
    assert not any(map(torch.equal, first, other))


def test_one_fit_equals_a_plain_loop(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    classifier = make(lr=0.01, weight_decay=0.1)
    module = FairDataModule(samples, batch_size=15, balanced=True, steps_per_epoch=5)
    make_trainer(max_epochs=3).fit(classifier, module)
    model, loader = make_model(), module.train_dataloader()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1)
    for _ in range(3):
        for x, y, _ in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for found, expected in zip(
        classifier.parameters(), model.parameters(), strict=True
    ):
        assert torch.equal(found, expected)


def test_metrics_match_scikit_learn(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    classifier, trainer = make(), make_trainer()
    module = FairDataModule(samples, batch_size=7)
    trainer.fit(classifier, module)
    fitted = {key: float(value) for key, value in trainer.callback_metrics.items()}
    (tested,) = trainer.test(classifier, module, verbose=False)
    logits = torch.cat(trainer.predict(classifier, module))
    assert logits.shape == (100, 3)
    for split, found in (("val", fitted), ("test", tested)):
        mask = samples[f"{split}_mask"]
        truth, decision = samples.y[mask], logits[mask].argmax(1)
        assert found[f"{split}_accuracy"] == pytest.approx(
            accuracy_score(truth, decision)
        )
        assert found[f"{split}_balanced_accuracy"] == pytest.approx(
            balanced_accuracy_score(truth, decision)
        )
        # Batches of unequal size: the mean over rows, not over batches.
        assert found[f"{split}_cross_entropy"] == pytest.approx(
            dense_cross_entropy(logits[mask], truth), rel=1e-5
        )


def test_balanced_accuracy_is_over_the_classes_that_occur(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    x, classifier = samples.x, make()
    decision = classifier(x).argmax(1)
    y = samples.y.masked_fill(samples.y == 0, -1)  # class 0 is predicted, never true
    assert bool((decision[y >= 0] == 0).any())
    data = Data(x=x, y=y, test_mask=torch.ones(100).bool())
    (found,) = make_trainer().test(classifier, FairDataModule(data), verbose=False)
    within = [float((decision[y == c] == c).double().mean()) for c in (1, 2)]
    assert found["test_balanced_accuracy"] == pytest.approx(sum(within) / 2)


def test_measures_without_a_labelled_row_are_not_logged(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    samples.y = torch.full((100,), -1)
    (found,) = make_trainer().test(make(), FairDataModule(samples), verbose=False)
    assert found == {}


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_changed_features_change_the_graph(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    classifier = make(lam=0.2, lr=1e-12)
    rows = full_batch(samples)
    for _ in range(2):
        trainer = make_trainer(max_steps=1, limit_val_batches=0)
        trainer.fit(classifier, rows, rows)
        penalty = 0.2 * dense_energy(make_model()(samples.x), samples.x) / 100
        found = float(trainer.callback_metrics["train_regularizer"])
        assert found == pytest.approx(penalty, rel=1e-4)
        samples.x.mul_(0.5)  # in place, between two fits


def test_unlabelled_rows_do_not_count_in_metrics(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    classifier, trainer = make(), make_trainer()
    all_rows = Data(x=samples.x, y=samples.y, test_mask=torch.ones(100).bool())
    (found,) = trainer.test(
        classifier, FairDataModule(all_rows, batch_size=13), verbose=False
    )
    known = samples.y >= 0
    decision = classifier(samples.x).argmax(1)
    expected = (decision == samples.y)[known].float().mean()
    assert found["test_accuracy"] == pytest.approx(float(expected))


def test_a_batch_without_labels_trains_on_the_penalty_only(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    samples.y = torch.full((100,), -1)
    classifier = make(lam=1.0)
    trainer = make_trainer(max_epochs=1, limit_val_batches=0)
    found = first_losses(classifier, trainer, FairDataModule(samples))
    assert found["train_cross_entropy"] == 0.0
    assert found["train_loss"] == found["train_regularizer"] > 0


def test_logs_reach_a_logger(
    samples: Data, make_trainer: TrainerFactory, tmp_path: Path
) -> None:
    trainer = make_trainer(logger=CSVLogger(tmp_path), log_every_n_steps=1)
    trainer.fit(make(lam=0.1), FairDataModule(samples, batch_size=30))
    header = (Path(trainer.log_dir) / "metrics.csv").read_text().splitlines()[0]
    names = {"train_loss", "train_cross_entropy", "train_regularizer"}
    names |= {"val_cross_entropy", "val_accuracy", "val_balanced_accuracy"}
    assert names <= set(header.split(","))


@pytest.mark.parametrize("weights_only", [None, True])
def test_checkpoints_load(
    weights_only: bool | None,
    samples: Data,
    make_trainer: TrainerFactory,
    tmp_path: Path,
) -> None:
    takes = inspect.signature(FairClassifier.load_from_checkpoint).parameters
    if weights_only is not None and "weights_only" not in takes:
        pytest.skip("this Lightning knows no 'weights_only'")
    distance = Mahalanobis(torch.diag(torch.tensor([1.0, 1.0, 2.0, 0.5])))
    classifier = make(lam=0.1, distance=distance, normalization="density", lr=0.01)
    trainer = make_trainer()
    trainer.fit(classifier, FairDataModule(samples, batch_size=30))
    path = tmp_path / "model.ckpt"
    trainer.save_checkpoint(path)
    kwargs = {} if weights_only is None else {"weights_only": weights_only}
    loaded = FairClassifier.load_from_checkpoint(
        path, model=make_model(7), distance=Mahalanobis(torch.eye(4)), **kwargs
    )
    (penalty,) = loaded.terms
    assert torch.equal(loaded(samples.x), classifier(samples.x))
    assert torch.equal(penalty.distance.embed(samples.x), distance.embed(samples.x))
    assert dict(loaded.hparams) == dict(classifier.hparams)
    assert (penalty.lam, loaded.lr, penalty.tau) == (0.1, 0.01, TAU)
    assert penalty.loss.normalization == "density"


def test_a_resumed_fit_ends_where_an_unbroken_one_does(
    samples: Data, make_trainer: TrainerFactory, tmp_path: Path
) -> None:
    def module() -> FairDataModule:
        return FairDataModule(samples, batch_size=15, balanced=True)

    whole, half, resumed = make(lr=0.01), make(lr=0.01), make(lr=0.01)
    make_trainer(max_epochs=4).fit(whole, module())
    trainer = make_trainer(max_epochs=2)
    trainer.fit(half, module())
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    trainer = make_trainer(max_epochs=4)
    trainer.fit(resumed, module(), ckpt_path=tmp_path / "half.ckpt")
    assert torch.equal(whole(samples.x), resumed(samples.x))
    assert not torch.equal(whole(samples.x), half(samples.x))


def test_the_distance_is_not_trained(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    distance = Mahalanobis(torch.eye(4), learnable=True)
    before = distance.factor.detach().clone()
    classifier = make(lam=0.1, distance=distance, weight_decay=0.1)
    make_trainer().fit(classifier, FairDataModule(samples))
    assert torch.equal(distance.factor, before)
    (group,) = classifier.configure_optimizers().param_groups
    trained = {id(parameter) for parameter in group["params"]}
    assert trained == {id(parameter) for parameter in classifier.model.parameters()}


def small(logits: Tensor, index: Tensor, x: Tensor) -> Tensor:
    """A term of one's own."""
    assert len(x) == len(logits) == len(index)
    return 2.0 * logits.square().mean()


class Weighted(nn.Module):
    """A term with a default, and one that may keep silent."""

    def forward(self, f: Tensor, y: Tensor, weight: float = 3.0) -> Tensor | None:
        return weight * f[y >= 0].abs().mean() if len(f) > 1 else None


def test_terms_of_ones_own_are_added(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    trainer = make_trainer(max_steps=1, limit_val_batches=0)
    penalty = SimilarityPenalty(0.2, tau=TAU, theta=THETA)
    terms: Any = [small, Weighted(), penalty]
    classifier = FairClassifier(make_model(), term=terms)
    found = first_losses(classifier, trainer, FairDataModule(samples))
    x, y = samples.x[samples.train_mask], samples.y[samples.train_mask]
    f = make_model()(x).detach()
    expected = 2.0 * float(f.square().mean()) + 3.0 * float(f[y >= 0].abs().mean())
    expected += 0.2 * dense_energy(f, x) / len(x)
    assert found["train_regularizer"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers")
def test_the_loss_on_the_graph_of_the_data_is_a_term(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    samples.edge_index = torch.tensor([[0, 99], [99, 0]])
    samples.edge_weight = torch.tensor([0.5, 0.5])
    f = make_model()(samples.x)
    classifier = FairClassifier(make_model(), term=LaplacianLoss())
    trainer = make_trainer(max_steps=1, limit_val_batches=0)
    found = first_losses(classifier, trainer, full_batch(samples), full_batch(samples))
    expected = 0.5 * float((f[0] - f[99]).detach().square().sum())
    assert found["train_regularizer"] == pytest.approx(expected, rel=1e-5)


def test_a_loss_takes_the_place_of_the_cross_entropy(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    def hinge(f: Tensor, y: Tensor) -> Tensor:
        return nn.functional.multi_margin_loss(f, y)

    loss: Any = hinge
    trainer = make_trainer(max_steps=1, limit_val_batches=0)
    whole = Data(x=samples.x, y=samples.y)
    classifier = FairClassifier(make_model(), loss=loss)
    found = first_losses(classifier, trainer, FairDataModule(whole))
    f, known = make_model()(samples.x).detach(), samples.y >= 0
    expected = nn.functional.multi_margin_loss(f[known], samples.y[known])
    assert found["train_loss"] == pytest.approx(float(expected), rel=1e-5)
    fit = dense_cross_entropy(f, samples.y)
    assert found["train_cross_entropy"] == pytest.approx(fit, rel=1e-5)


def test_terms_that_ask_for_too_much_are_refused(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    def odd(logits: Tensor, weather: Tensor) -> Tensor:
        return logits.mean()

    term: Any = odd
    message = (
        "'term' must need no parameters beside model, x, y, logits, f, index, "
        "edge_index, edge_weight (got weather)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        FairClassifier(make_model(), term=term)
    term = 3
    with pytest.raises(TypeError, match="'term' must be callable"):
        FairClassifier(make_model(), term=term)
    message = (
        "'edge_index' must be in the batch for LaplacianLoss (got none). Train on a "
        "whole Data that has it"
    )
    trainer = make_trainer(limit_val_batches=0)
    classifier = FairClassifier(make_model(), term=LaplacianLoss())
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.fit(classifier, FairDataModule(samples))


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (make_model(), 3),
        (nn.Linear(4, 5), 5),
        (nn.Sequential(nn.Linear(4, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 7))), 7),
    ],
)
def test_num_classes_is_read_off_the_model(model: nn.Module, expected: int) -> None:
    assert FairClassifier(model).num_classes == expected


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"model": "mlp"}, TypeError, "'model' must be a Module (got str)"),
        (
            {"model": nn.Sequential(nn.Linear(4, 3), nn.ReLU())},
            ValueError,
            "'num_classes' must be given if 'model' has no 'out_channels' "
            "(got Sequential)",
        ),
        (
            {"model": make_model(outputs=1)},
            ValueError,
            "'num_classes' must be at least 2 (got 1). For a single logit give 'model' "
            "two outputs",
        ),
        ({"lr": 0.0}, ValueError, "'lr' must be positive (got 0.0)"),
        ({"weight_decay": -1.0}, ValueError, "'weight_decay' must be non-negative"),
        ({"lam": -0.5}, ValueError, "'lam' must be non-negative (got -0.5)"),
        ({"tau": -1.0}, ValueError, "'tau' must be non-negative (got -1.0)"),
        ({"theta": -1.0}, ValueError, "'theta' must be non-negative (got -1.0)"),
        ({"distance": 3}, TypeError, "'distance' must be a FairDistance (got int)"),
        ({"graph": "all"}, ValueError, "'graph' must be one of 'batch', 'full'"),
        ({"normalization": "rw"}, ValueError, "'normalization' must be one of None"),
        ({"reduction": "max"}, ValueError, "'reduction' must be one of 'sum', 'mean'"),
        (
            {"reduction": "consistent"},
            ValueError,
            "'normalization' must be one of 'nrw', 'density' (got None)",
        ),
        ({"num_classes": 1}, ValueError, "'num_classes' must be at least 2 (got 1)"),
    ],
)
def test_bad_settings_are_refused(
    kwargs: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        FairClassifier(**{"model": make_model(), **kwargs})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (
            {"tau": None},
            "'tau' must be given if rows come without a graph (got None). Or pass "
            "batches that are a Data with edges",
        ),
        (
            {"tau": None, "graph": "full"},
            "'tau' must be given if rows come without a graph (got None). Or pass ",
        ),
        ({"num_classes": 4}, "'model(x)' must have 4 columns (got 3)"),
    ],
)
def test_what_the_data_shows_to_be_wrong_is_refused(
    kwargs: dict[str, Any],
    message: str,
    samples: Data,
    make_trainer: TrainerFactory,
) -> None:
    trainer = make_trainer(limit_val_batches=0)
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.fit(make(lam=0.1, **kwargs), FairDataModule(samples))


def test_regression_is_refused_with_another_way(make_trainer: TrainerFactory) -> None:
    x, y = torch.zeros(4, 4), torch.tensor([0.5, 1.5, 2.5, 0.1])
    remedy = "must hold whole numbers .*For a regression add 'LaplacianLoss'"
    with pytest.raises(TypeError, match=remedy):
        FairDataModule(Data(x=x, y=y))
    for batch in ((x, y), Data(x=x, y=y)):
        with pytest.raises(TypeError, match=remedy):
            make().training_step(batch, 0)


@pytest.mark.parametrize("graph", ["batch", "full"])
def test_a_penalty_without_edges_says_so_once(
    graph: Any, samples: Data, make_trainer: TrainerFactory
) -> None:
    def warned(tau: float) -> list[str]:
        classifier = make(lam=0.1, tau=tau, graph=graph)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            module = FairDataModule(samples, batch_size=20)
            make_trainer(max_epochs=3).fit(classifier, module)
        return [str(w.message) for w in found if w.category is SimilarityWarning]

    (message,) = warned(1e-3)
    assert "found no edge in the first epoch and has no effect. Raise 'tau'" in message
    assert warned(2.0) == []


def test_full_graph_needs_a_data_module(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    loader = FairDataModule(samples).train_dataloader()
    message = (
        "'graph' must be \"batch\" unless the trainer has a data module with 'data' "
        "(got \"full\"). Use 'FairDataModule'"
    )
    trainer = make_trainer(limit_val_batches=0)
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.fit(make(lam=0.1, graph="full"), loader, loader)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (
            {"x": 1},
            TypeError,
            "'batch' must be 'x', '(x, y)', '(x, y, index)' or a Data (got dict)",
        ),
        ((1, 2, 3, 4), TypeError, "or a Data (got tuple of 4)"),
        (([1.0], [0]), TypeError, "'x' must be a torch.Tensor (got list)"),
        (
            (torch.zeros(2, 4), torch.zeros(2)),
            TypeError,
            "'y' must hold whole numbers (got torch.float32)",
        ),
        (
            (torch.zeros(2, 4), torch.zeros(3).long()),
            ValueError,
            "'y' must have one entry per row (got shape (3,) for 2)",
        ),
        (torch.zeros(2, 4), ValueError, "'y' must be given to train or test"),
    ],
)
def test_bad_batches_are_refused(
    batch: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make().training_step(batch, 0)


def test_prediction_needs_no_labels() -> None:
    classifier = make()
    x = torch.zeros(2, 4)
    for batch in (x, [x], (x, torch.zeros(2).long()), Data(x=x)):
        assert torch.equal(classifier.predict_step(batch, 0), classifier(x))
