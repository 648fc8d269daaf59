"""GLIFCallback: equal to smoothing by hand what a trainer gives."""

import csv
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data

from pyg_glif.distances import Mahalanobis
from pyg_glif.errors import NotFittedError
from pyg_glif.functional import glif_smooth
from pyg_glif.graph import edge_weights, fair_radius_graph, suggest_tau
from pyg_glif.graph.weights import DECAY
from pyg_glif.lightning import FairClassifier, FairDataModule, GLIFCallback
from pyg_glif.lightning.resolve import LightningModule
from pyg_glif.links import Link
from pyg_glif.solvers import CG, SolveStatus
from tests.lightning.conftest import TrainerFactory, make_model

pytestmark = pytest.mark.lightning

MEASURES = ["accuracy", "energy", "lipschitz"]
WORKERS = "ignore:The '.*_dataloader' does not have many workers"


class Arsinh(Link):
    """An output space whose averages are not those of the outputs."""

    def to_dual(self, y_hat: Tensor) -> Tensor:
        return y_hat.sinh()

    def from_dual(self, eta: Tensor) -> Tensor:
        return eta.asinh()


def classifier() -> FairClassifier:
    return FairClassifier(make_model())


def dense_smooth(x: Tensor, y: Tensor, tau: float, theta: float, lam: float) -> Any:
    """Weights, and outputs smoothed by a dense solve."""
    X, Y = x.double().numpy(), y.double().numpy()
    sq_dist = ((X[:, None] - X[None]) ** 2).sum(-1)
    W = np.where(sq_dist <= tau**2, np.exp(-theta * sq_dist), 0.0)
    np.fill_diagonal(W, 0.0)
    L = np.diag(W.sum(1)) - W
    return L, np.linalg.solve(np.eye(len(X)) + lam * L, Y)


def test_prediction_is_smoothed(samples: Data, make_trainer: TrainerFactory) -> None:
    callback = GLIFCallback(lam=0.7, tau=1.5, theta=0.2)
    trainer = make_trainer(callbacks=callback)
    predictions = trainer.predict(classifier(), FairDataModule(samples, batch_size=13))
    y_hat = torch.cat(predictions)
    assert torch.equal(callback.y_hat_, y_hat)
    edges, sq_dist = fair_radius_graph(samples.x, 1.5)
    expected = glif_smooth(y_hat, edges, edge_weights(sq_dist, 0.2), lam=0.7)
    assert torch.equal(callback.y_fair_, expected)
    _, dense = dense_smooth(samples.x, y_hat, 1.5, 0.2, 0.7)
    np.testing.assert_allclose(callback.y_fair_, dense, rtol=1e-4, atol=1e-5)
    assert callback.post_.solution_.status is SolveStatus.CONVERGED


class OneBuffer:
    """A loader that fills the same memory for every batch."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y
        self.buffer = torch.empty(10, 4), torch.empty(10, dtype=torch.long)

    def __len__(self) -> int:
        return len(self.x) // 10  # known, or Lightning would fetch a batch ahead

    def __iter__(self) -> Any:
        for start in range(0, len(self.x), 10):
            self.buffer[0].copy_(self.x[start : start + 10])
            self.buffer[1].copy_(self.y[start : start + 10])
            yield self.buffer


class Echo(LightningModule):
    """Returns its input, whose memory the loader will fill again."""

    def test_step(self, batch: Any, batch_idx: int) -> Tensor:
        return batch[0]


def test_batches_in_reused_memory_are_kept_apart(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(lam=0.7, tau=1.5, theta=0.2)
    trainer = make_trainer(callbacks=callback)
    trainer.test(Echo(), OneBuffer(samples.x, samples.y), verbose=False)
    assert torch.equal(callback.y_hat_, samples.x)
    _, dense = dense_smooth(samples.x, samples.x, 1.5, 0.2, 0.7)
    np.testing.assert_allclose(callback.y_fair_, dense, rtol=1e-4, atol=1e-5)
    known = samples.y >= 0
    right = (samples.x.argmax(1) == samples.y)[known].double().mean()
    assert callback.metrics_["glif_accuracy_before"] == pytest.approx(float(right))


@pytest.mark.parametrize(
    "settings",
    [
        {"normalization": "density", "solver": CG(rtol=1e-8)},
        {"link": Arsinh()},
        {"distance": Mahalanobis(torch.diag(torch.tensor([1.0, 0.1, 2.0, 1.0])))},
    ],
)
def test_options_are_those_of_smoothing(
    settings: dict[str, Any], samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(lam=0.7, target_degree=5, **settings)
    make_trainer(callbacks=callback).predict(classifier(), FairDataModule(samples))
    distance = settings.pop("distance", None)
    tau = suggest_tau(samples.x, 5, distance=distance)
    assert callback.post_.tau_ == tau
    edges, sq_dist = fair_radius_graph(samples.x, tau, distance=distance)
    expected = glif_smooth(
        callback.y_hat_,
        edges,
        torch.exp(-DECAY / tau**2 * sq_dist),
        lam=0.7,
        **settings,
    )
    torch.testing.assert_close(callback.y_fair_, expected, rtol=1e-6, atol=1e-7)
    assert torch.equal(callback.y_fair_, callback.post_.y_fair_)


def test_testing_is_smoothed_and_logged(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(lam=0.7, tau=1.5, theta=0.2)
    trainer = make_trainer(callbacks=callback)
    (found,) = trainer.test(
        classifier(), FairDataModule(samples, batch_size=7), verbose=False
    )
    x, y = samples.x[samples.test_mask], samples.y[samples.test_mask]
    L, dense = dense_smooth(x, callback.y_hat_, 1.5, 0.2, 0.7)
    np.testing.assert_allclose(callback.y_fair_, dense, rtol=1e-4, atol=1e-5)
    before = callback.y_hat_.double().numpy()
    i, j = np.nonzero(np.triu(L, 1))
    dist = np.linalg.norm(x.numpy()[i] - x.numpy()[j], axis=1)
    for when, f in (("before", before), ("after", dense)):
        right = (f.argmax(1) == y.numpy()).mean()
        ratio = np.sort(np.linalg.norm(f[i] - f[j], axis=1) / dist)
        lipschitz = ratio[int(np.ceil(0.99 * len(ratio))) - 1]
        assert found[f"glif_accuracy_{when}"] == pytest.approx(right)
        energy = np.trace(f.T @ L @ f)
        assert found[f"glif_energy_{when}"] == pytest.approx(energy, rel=1e-4)
        assert found[f"glif_lipschitz_{when}"] == pytest.approx(lipschitz, rel=1e-4)
    assert found["glif_accuracy_before"] == pytest.approx(found["test_accuracy"])
    assert found["glif_energy_after"] < found["glif_energy_before"]


def test_prediction_reaches_the_loggers(
    samples: Data, make_trainer: TrainerFactory, tmp_path: Path
) -> None:
    callback = GLIFCallback(name="smooth")
    logger = CSVLogger(tmp_path)
    trainer = make_trainer(callbacks=callback, logger=logger)
    trainer.predict(classifier(), FairDataModule(samples))
    names = {f"smooth_{m}_{w}" for m in MEASURES for w in ("before", "after")}
    assert set(callback.metrics_) == names
    logger.save()
    with (Path(logger.log_dir) / "metrics.csv").open() as file:
        (logged,) = csv.DictReader(file)
    for name in names:
        assert float(logged[name]) == pytest.approx(callback.metrics_[name])


def test_several_callbacks_serve_one_run(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callbacks = [GLIFCallback(lam=lam, tau=2.0, name=f"lam{lam}") for lam in (0, 1)]
    trainer = make_trainer(callbacks=callbacks)
    (found,) = trainer.test(classifier(), FairDataModule(samples), verbose=False)
    assert torch.equal(callbacks[0].y_fair_, callbacks[1].y_hat_)
    assert found["lam0_energy_after"] == found["lam1_energy_before"]
    assert found["lam1_energy_after"] < found["lam1_energy_before"]


def test_each_run_starts_afresh(samples: Data, make_trainer: TrainerFactory) -> None:
    callback = GLIFCallback(tau=2.0)
    trainer, module = make_trainer(callbacks=callback), FairDataModule(samples)
    trainer.predict(classifier(), module)
    assert len(callback.y_fair_) == 100
    trainer.test(classifier(), module, verbose=False)
    assert len(callback.y_fair_) == 20
    trainer.predict(classifier(), module)
    assert len(callback.y_fair_) == 100


@pytest.mark.filterwarnings(WORKERS)
def test_an_interrupted_run_leaves_nothing_behind(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(tau=2.0)
    trainer = make_trainer(callbacks=callback)
    loader = DataLoader(samples.x, batch_size=30)
    trainer.predict(Foreign(lambda x: x), loader)
    with pytest.raises(ValueError, match="must have as many rows"):
        # The first batches are fine, the last one is shorter than 30.
        trainer.predict(Foreign(lambda x: torch.zeros(30)), loader)
    with pytest.raises(NotFittedError):
        _ = callback.y_fair_
    trainer.predict(Foreign(lambda x: x), loader)
    assert torch.equal(callback.y_hat_, samples.x)


def test_results_can_be_used_where_gradients_are_wanted(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(tau=2.0)
    make_trainer(callbacks=callback).predict(classifier(), FairDataModule(samples))
    weight = torch.ones(3, requires_grad=True)
    (callback.y_fair_ @ weight + callback.y_hat_ @ weight).sum().backward()
    assert weight.grad is not None


@pytest.mark.filterwarnings(WORKERS)
def test_whole_data_counts_test_rows_only(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(tau=2.0)
    loader = DataLoader([samples], collate_fn=lambda items: items[0])
    trainer = make_trainer(callbacks=callback)
    trainer.test(classifier(), loader, verbose=False)
    assert len(callback.y_fair_) == 100
    right = (callback.y_fair_.argmax(1) == samples.y)[samples.test_mask]
    expected = float(right.float().mean())
    assert callback.metrics_["glif_accuracy_after"] == pytest.approx(expected)


class Foreign(LightningModule):
    """A module of another package, with one score per row."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return self.output(batch)

    test_step = predict_step


@pytest.mark.filterwarnings(WORKERS)
def test_other_modules_are_served(samples: Data, make_trainer: TrainerFactory) -> None:
    loader = DataLoader(samples.x, batch_size=30)
    for output in (
        lambda x: x[:, 0],
        lambda x: {"logits": x[:, 0].to(torch.bfloat16), "other": 1},
    ):
        callback = GLIFCallback(tau=2.0)
        make_trainer(callbacks=callback).predict(Foreign(output), loader)
        assert callback.y_fair_.shape == (100,)
        assert callback.y_fair_.dtype == torch.float32
        torch.testing.assert_close(callback.y_hat_, samples.x[:, 0], rtol=1e-2, atol=0)
        assert not any("accuracy" in name for name in callback.metrics_)


@pytest.mark.filterwarnings(WORKERS)
@pytest.mark.filterwarnings("ignore:predict returned None")
@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        (
            lambda x: None,
            TypeError,
            "'predict_step' must return outputs, or a dictionary with 'logits' "
            "(got NoneType)",
        ),
        (lambda x: {"loss": x}, TypeError, "'predict_step' must return outputs, or"),
        (
            lambda x: x[1:],
            ValueError,
            "'predict_step(...)' must have as many rows as 'x' (got 29 for 30)",
        ),
        (lambda x: x / 0, ValueError, "'y_hat' must be finite"),
    ],
)
def test_bad_outputs_are_refused(
    output: Any,
    error: type[Exception],
    message: str,
    samples: Data,
    make_trainer: TrainerFactory,
) -> None:
    trainer = make_trainer(callbacks=GLIFCallback(tau=2.0))
    with pytest.raises(error, match=re.escape(message)):
        trainer.predict(Foreign(output), DataLoader(samples.x, batch_size=30))


@pytest.mark.filterwarnings(WORKERS)
def test_several_loaders_are_refused(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    loader = DataLoader(samples.x, batch_size=30)
    message = (
        "'GLIFCallback' must see one dataloader (got 2). Run them one after another"
    )
    trainer = make_trainer(callbacks=GLIFCallback(tau=2.0))
    with pytest.raises(ValueError, match=re.escape(message)):
        trainer.predict(classifier(), [loader, loader])


def test_several_processes_are_refused() -> None:
    trainer: Any = SimpleNamespace(world_size=4, num_predict_batches=[1])
    message = "'GLIFCallback' must run in one process (got 4). Pass 'devices=1' to"
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFCallback().on_predict_start(trainer, classifier())


def test_nothing_gathered_is_said(samples: Data, make_trainer: TrainerFactory) -> None:
    callback = GLIFCallback()
    message = (
        "This GLIFCallback has seen no outputs yet. Pass it to a trainer and call "
        "'trainer.test' or 'trainer.predict'"
    )
    for name in ("y_hat_", "y_fair_", "post_", "metrics_"):
        with pytest.raises(NotFittedError, match=re.escape(message)):
            getattr(callback, name)
    trainer: Any = SimpleNamespace(world_size=1, num_test_batches=[0], testing=True)
    callback.on_test_start(trainer, classifier())
    message = "'GLIFCallback' must see at least one batch (got none)"
    with pytest.raises(ValueError, match=re.escape(message)):
        callback.on_test_epoch_end(trainer, classifier())


def test_settings_are_checked_at_once() -> None:
    with pytest.raises(ValueError, match=r"'lam' must be non-negative \(got -1.0\)"):
        GLIFCallback(lam=-1.0)
