"""Training on a CUDA device: the same losses and outputs as on the CPU."""

from typing import Any

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from pyg_glif.baselines import SenSeIRegularizer, SenSRLoss
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.lightning import (
    FairClassifier,
    FairDataModule,
    GLIFCallback,
    SimilarityPenalty,
)
from tests.lightning.conftest import TrainerFactory, make_model

pytestmark = pytest.mark.lightning

KINDS = ["batch", "full", "SenSeI", "SenSR", "GNN"]


def run(
    kind: str, accelerator: str, samples: Data, make_trainer: TrainerFactory
) -> Any:
    """Losses of one step, and outputs before and after smoothing."""
    torch.manual_seed(0)
    distance = SensitiveSubspace(torch.eye(4)[3:])
    settings: dict[str, Any] = {}
    if kind == "SenSeI":
        settings["term"] = SenSeIRegularizer(distance)
    elif kind == "SenSR":
        settings["loss"] = SenSRLoss(distance)
    else:
        settings["term"] = SimilarityPenalty(0.2, tau=1.5, distance=distance)
        settings["graph"] = "full" if kind == "full" else "batch"
    model = GCN(4, 8, 2, 3) if kind == "GNN" else make_model()
    if kind == "GNN":
        ring = torch.arange(100)
        forth = torch.stack([ring, (ring + 1) % 100])
        samples.edge_index = torch.cat([forth, forth.flip(0)], dim=1)
    module = FairDataModule(samples, batch_size=None if kind == "GNN" else 100)
    classifier = FairClassifier(model, **settings)
    # The distance is shared with a term, which moves to the device of the model.
    callback = GLIFCallback(lam=0.5, tau=1.5, distance=distance)
    options = {"accelerator": accelerator, "devices": 1, "callbacks": [callback]}
    trainer = make_trainer(max_steps=1, **options)
    trainer.fit(classifier, module)
    logged = {key: float(value) for key, value in trainer.callback_metrics.items()}
    trainer.predict(classifier, module)
    return logged, callback.y_hat_, callback.y_fair_


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_is_valid(
    kind: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    logged, y_hat, y_fair = run(kind, "cpu", samples, make_trainer)
    assert logged["train_loss"] > 0
    assert not torch.equal(y_hat, y_fair)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_trains_as_the_cpu_does(
    kind: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    expected = run(kind, "cpu", samples.clone(), make_trainer)
    found = run(kind, "gpu", samples.clone(), make_trainer)
    assert found[0] == pytest.approx(expected[0], rel=1e-3)
    for one, other in zip(found[1:], expected[1:], strict=True):
        assert one.device.type == "cpu"
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
