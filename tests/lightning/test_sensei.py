"""SenSeI and SenSR in training: the step, the effect, checkpoints, bad input."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch_geometric.data import Data
from torch_geometric.nn import GCN

from pyg_glif.baselines import Auditor, SenSeIRegularizer, SenSRLoss
from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.lightning import FairClassifier, FairDataModule
from tests.lightning.conftest import TrainerFactory, make_model as make_network

pytestmark = pytest.mark.lightning

LAST = torch.tensor([[0.0, 0.0, 0.0, 1.0]])
KINDS = ["SenSeI", "SenSR"]


make_model = partial(make_network, hidden=16)


def make(kind: str, model: nn.Module, **settings: Any) -> FairClassifier:
    """SenSeI is a term beside the cross-entropy, SenSR takes its place."""
    lr = settings.pop("lr", 1e-3)
    names = ("num_subspace_steps", "subspace_lr", "num_full_steps", "full_lr")
    steps = {name: settings.pop(name) for name in names if name in settings}
    settings = {"distance": SensitiveSubspace(LAST), **settings}
    settings["auditor"] = Auditor(**steps)
    if kind == "SenSeI":
        return FairClassifier(model, term=SenSeIRegularizer(**settings), lr=lr)
    return FairClassifier(model, loss=SenSRLoss(**settings), lr=lr)


def part(classifier: FairClassifier) -> Any:
    """The only term, or the loss."""
    return (*classifier.terms, *classifier.loss)[0]


@pytest.fixture
def biased(generator: torch.Generator) -> Data:
    """Samples whose labels depend on the sensitive last feature as on the first."""
    x = torch.randn(400, 4, generator=generator)
    return Data(x=x, y=(x[:, 0] + x[:, 3] > 0).long())


def change(model: nn.Module, x: Tensor) -> float:
    """Share of decisions that fall if the sensitive feature moves by two."""
    with torch.no_grad():
        moved = model(x + 2 * LAST).argmax(dim=1)
        return float((moved != model(x).argmax(dim=1)).float().mean())


@pytest.mark.parametrize("kind", KINDS)
def test_training_reduces_changes_under_sensitive_perturbations(
    kind: str, biased: Data, make_trainer: TrainerFactory
) -> None:
    data = FairDataModule(biased, batch_size=100)
    plain = FairClassifier(make_model(outputs=2), lr=0.02)
    make_trainer(max_epochs=15).fit(plain, data)
    options: dict[str, Any] = {"num_subspace_steps": 10, "subspace_lr": 0.2, "lr": 0.02}
    if kind == "SenSeI":
        options["rho"] = 2.0
    fair = make(kind, make_model(outputs=2), **options)
    make_trainer(max_epochs=15).fit(fair, data)
    assert change(plain.model, biased.x) > 0.3
    assert change(fair.model, biased.x) < 0.25 * change(plain.model, biased.x)
    # What the other features say is still used: half of the label is theirs.
    right = (fair(biased.x).argmax(dim=1) == biased.y).float().mean()
    assert float(right) > 0.65


def test_sensei_step_is_cross_entropy_and_regularizer(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    model, distance = make_model(), SensitiveSubspace(LAST)
    auditor = Auditor(num_subspace_steps=3, num_full_steps=2)
    term = SenSeIRegularizer(distance, rho=2.0, eps=0.3, auditor=auditor)
    rows = samples.x[samples.train_mask]
    labels = samples.y[samples.train_mask]
    expected = term(model, rows).detach()
    fit = cross_entropy(model(rows), labels).detach()
    term = SenSeIRegularizer(distance, rho=2.0, eps=0.3, auditor=auditor)
    classifier = FairClassifier(model, term=term)
    data = FairDataModule(samples, batch_size=100)
    trainer = make_trainer(max_epochs=1, limit_val_batches=0)
    trainer.fit(classifier, data)
    logged = trainer.callback_metrics
    # The batch comes in another order, and with it the random start of each row.
    assert float(logged["train_regularizer"]) == pytest.approx(float(expected), rel=0.2)
    assert float(logged["train_cross_entropy"]) == pytest.approx(float(fit), rel=1e-5)
    total = logged["train_cross_entropy"] + logged["train_regularizer"]
    torch.testing.assert_close(logged["train_loss"], total)
    torch.testing.assert_close(logged["train_dual"], term.dual)
    assert float(term.dual) != 1.0


def test_sensr_step_is_the_loss_of_labelled_rows(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    model, distance = make_model(), SensitiveSubspace(LAST)
    labelled = samples.y >= 0
    expected = SenSRLoss(distance)(model, samples.x[labelled], samples.y[labelled])
    expected = expected.detach()
    fit = cross_entropy(model(samples.x[labelled]), samples.y[labelled]).detach()
    classifier = FairClassifier(model, loss=SenSRLoss(distance))
    trainer = make_trainer(max_epochs=1)
    whole = Data(x=samples.x, y=samples.y)
    trainer.fit(classifier, FairDataModule(whole, batch_size=100))
    logged = trainer.callback_metrics
    assert float(logged["train_loss"]) == pytest.approx(float(expected), rel=0.05)
    assert float(logged["train_cross_entropy"]) == pytest.approx(float(fit), rel=1e-5)
    assert float(logged["train_loss"]) > float(logged["train_cross_entropy"])


@pytest.mark.parametrize("kind", KINDS)
def test_batches_without_labels_train_nothing_but_the_regularizer(
    kind: str, generator: torch.Generator
) -> None:
    classifier = make(kind, make_model())
    classifier.log = lambda *_, **__: None  # type: ignore[method-assign, assignment]
    x = torch.randn(6, 4, generator=generator)
    loss = classifier.training_step((x, torch.full((6,), -1)), 0)
    assert (float(loss.detach()) > 0) == (kind == "SenSeI")
    loss.backward()


def test_zero_rho_is_the_plain_classifier(
    samples: Data, make_trainer: TrainerFactory
) -> None:
    data = FairDataModule(samples, batch_size=30)
    plain = FairClassifier(make_model())
    fair = make("SenSeI", make_model(), rho=0.0)
    for classifier in (plain, fair):
        make_trainer().fit(classifier, data)
    for one, other in zip(
        plain.model.parameters(), fair.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_is_the_same(
    kind: str, samples: Data, make_trainer: TrainerFactory
) -> None:
    found = []
    for _ in range(2):
        classifier = make(kind, make_model())
        make_trainer().fit(classifier, FairDataModule(samples, batch_size=30))
        found.append(classifier(samples.x))
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoint_brings_price_and_distance_back(
    kind: str,
    samples: Data,
    make_trainer: TrainerFactory,
    tmp_path: Path,
) -> None:
    classifier = make(kind, make_model(), eps=0.5, full_lr=0.03)
    trainer = make_trainer()
    trainer.fit(classifier, FairDataModule(samples, batch_size=30))
    path = tmp_path / "model.ckpt"
    trainer.save_checkpoint(path)
    # Like the model, the term is given; its state comes from the file.
    other = SensitiveSubspace(torch.eye(4)[1:2])
    fresh = part(make(kind, make_model(), distance=other, full_lr=0.03))
    given = {"term" if kind == "SenSeI" else "loss": fresh}
    loaded = FairClassifier.load_from_checkpoint(
        path, model=make_model(7), map_location="cpu", **given
    )
    old, new = part(classifier), part(loaded)
    assert torch.equal(new.dual, old.dual)
    assert torch.equal(new.distance.directions, old.distance.directions)
    assert torch.equal(loaded.model(samples.x), classifier.model(samples.x))
    inputs = (samples.x,) if kind == "SenSeI" else (samples.x, samples.y.clamp(min=0))
    worst = [part(c).audit(c.model, *inputs).x for c in (loaded, classifier)]
    assert torch.equal(*worst)


def test_only_the_model_is_trained(samples: Data, make_trainer: TrainerFactory) -> None:
    distance = SensitiveSubspace(LAST)
    before = distance.directions.clone()
    classifier = make("SenSeI", make_model(dropout=0.5), distance=distance)
    make_trainer().fit(classifier, FairDataModule(samples, batch_size=30))
    assert torch.equal(distance.directions, before)
    optimizer = classifier.configure_optimizers()
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    assert len(trained) == len(list(classifier.model.parameters()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("model", "kwargs", "error", "message"),
    [
        (
            GCN(4, 8, 1, 3),
            {},
            ValueError,
            "'model' must be a function of the features only for '{name}' "
            "(got a forward with 'edge_index')",
        ),
        (
            make_model(),
            {"distance": CallableDistance(torch.cdist)},
            TypeError,
            "'distance' must have an embedding (got CallableDistance)",
        ),
        (
            make_model(),
            {"full_lr": 0.0},
            ValueError,
            "'full_lr' must be positive (got 0.0)",
        ),
        (make_model(), {"eps": -1.0}, ValueError, "'eps' must be positive (got -1.0)"),
        (make_model(), {"lr": 0.0}, ValueError, "'lr' must be positive (got 0.0)"),
    ],
)
def test_rejects(
    kind: str,
    model: nn.Module,
    kwargs: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    message = message.format(name="term" if kind == "SenSeI" else "loss")
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        make(kind, model, **kwargs)
