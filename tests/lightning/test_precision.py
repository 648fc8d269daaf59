"""Double, mixed and half precision: the graph and the penalty stay exact."""

from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.plugins import DoublePrecision, HalfPrecision, MixedPrecision
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif.baselines import SenSeIRegularizer, SenSRLoss
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.lightning import (
    FairClassifier,
    FairDataModule,
    GLIFCallback,
    SimilarityPenalty,
)
from tests.lightning.conftest import TrainerFactory, full_batch, make_model

pytestmark = [
    pytest.mark.lightning,
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many"),
]

TAU, THETA, LAM = 1.5, 0.3, 0.2


def plugin(kind: str) -> Any:
    # Lightning turns precision="16-mixed" into bfloat16 on a CPU, which not every CPU
    # can multiply; given as a plugin, half precision it is.
    if kind == "mixed":
        return MixedPrecision("16-mixed", device="cpu")
    return HalfPrecision("16-true") if kind == "half" else DoublePrecision()


def as_run(kind: str, x: Tensor) -> Tensor:
    """Logits of the untrained model, as that precision computes them."""
    model = make_model()
    with torch.no_grad():
        if kind == "mixed":
            with torch.autocast("cpu", torch.float16):
                return model(x)
        dtype = torch.float16 if kind == "half" else torch.float64
        return model.to(dtype)(x.to(dtype))


def expected_losses(f: Tensor, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Cross-entropy of labelled rows and the penalty, in float64."""
    F, X = f.double().numpy(), x.double().numpy()
    sq_dist = ((X[:, None] - X[None]) ** 2).sum(-1)
    W = np.where(sq_dist <= TAU**2, np.exp(-THETA * sq_dist), 0.0)
    energy = 0.5 * (W * ((F[:, None] - F[None]) ** 2).sum(-1)).sum()
    known = (y >= 0).numpy()
    G, target = F[known], y.numpy()[known]
    fit = np.log(np.exp(G).sum(1)) - G[np.arange(len(G)), target]
    return float(fit.mean()), LAM * float(energy) / len(F)


@pytest.mark.parametrize("kind", ["double", "mixed", "half"])
@pytest.mark.parametrize("source", ["rows", "full", "data"])
def test_losses_match_numpy_in_every_precision(
    kind: str, source: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    x, train = samples.x, samples.train_mask
    if kind == "half":
        x = samples.x = samples.x.half().float()  # what the trainer makes of it
    trainer = make_trainer(max_steps=1, limit_val_batches=0, plugins=plugin(kind))
    graph: Any = "full" if source == "full" else "batch"
    classifier = FairClassifier(
        make_model(), lam=LAM, tau=TAU, theta=THETA, graph=graph
    )
    logits, y = as_run(kind, x), torch.where(train, samples.y, -1)
    if source == "data":
        trainer.fit(classifier, full_batch(samples), full_batch(samples))
    else:
        trainer.fit(classifier, FairDataModule(samples))
    if source == "rows":
        fit, penalty = expected_losses(logits[train], x[train], y[train])
    else:
        fit, penalty = expected_losses(logits, x, y)
    found = trainer.callback_metrics
    # Within float32 of the same logits; batches come in another order.
    assert float(found["train_regularizer"]) == pytest.approx(penalty, rel=2e-3)
    assert float(found["train_cross_entropy"]) == pytest.approx(fit, rel=2e-3)
    if source == "data":
        assert float(found["train_regularizer"]) == pytest.approx(penalty, rel=1e-5)


@pytest.mark.parametrize("kind", ["double", "mixed", "half"])
def test_validation_and_smoothing_in_every_precision(
    kind: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    callback = GLIFCallback(lam=1.0, tau=TAU)
    trainer = make_trainer(max_epochs=1, plugins=plugin(kind), callbacks=[callback])
    classifier = FairClassifier(make_model(), lam=LAM, tau=TAU)
    # Not trained: Adam's eps of 1e-8 is zero in half precision, and its steps are NaN.
    trainer.validate(classifier, FairDataModule(samples, batch_size=30), verbose=False)
    assert np.isfinite(float(trainer.callback_metrics["val_cross_entropy"]))
    trainer.test(classifier, FairDataModule(samples), verbose=False)
    wanted = torch.float64 if kind == "double" else torch.float32
    assert callback.y_hat_.dtype == callback.y_fair_.dtype == wanted


@pytest.mark.parametrize("kind", ["double", "mixed"])
@pytest.mark.parametrize("name", ["term", "loss"])
def test_robust_training_in_other_precisions(
    name: str, kind: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    def make() -> FairClassifier:
        distance = SensitiveSubspace(torch.tensor([[0.0, 0.0, 0.0, 1.0]]))
        if name == "term":
            return FairClassifier(make_model(), term=SenSeIRegularizer(distance))
        return FairClassifier(make_model(), loss=SenSRLoss(distance))

    trainer = make_trainer(max_steps=1, limit_val_batches=0, plugins=plugin(kind))
    trainer.fit(make(), FairDataModule(samples))
    found = {key: float(value) for key, value in trainer.callback_metrics.items()}
    plain = make_trainer(max_steps=1, limit_val_batches=0)
    plain.fit(make(), FairDataModule(samples))
    for key, value in plain.callback_metrics.items():
        # Half-precision logits have eleven bits; the rest is as precise as ever.
        assert found[key] == pytest.approx(float(value), rel=2e-2)


def test_the_graph_does_not_depend_on_autocast(generator: torch.Generator) -> None:
    x = torch.randn(60, 4, generator=generator)
    distance = SensitiveSubspace(torch.tensor([[0.3, 0.1, 0.0, 1.0]]))
    logits = make_model()(x)
    expected = SimilarityPenalty(LAM, tau=0.9, distance=distance)(x, logits)
    with torch.autocast("cpu", torch.float16):
        found = SimilarityPenalty(LAM, tau=0.9, distance=distance)(x, logits)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
