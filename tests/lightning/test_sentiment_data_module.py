"""SentimentDataModule: the paper's batches from the packaged data."""

import re

import pytest
import torch

from pyg_glif.datasets import Sentiment
from pyg_glif.lightning import MLP, FairClassifier, GLIFCallback, SentimentDataModule
from pyg_glif.metric_learning import SensitiveSVD
from tests.lightning.conftest import TrainerFactory

pytestmark = pytest.mark.lightning


def test_batches_are_those_of_the_paper() -> None:
    module = SentimentDataModule(seed=1)
    expected = Sentiment(seed=1)[0]
    assert torch.equal(module.data.train_mask, expected.train_mask)
    assert module.dataset.side_x.size(1) == 100
    loader = module.train_dataloader()
    assert len(loader) == 200
    _, y, index = next(iter(loader))
    assert torch.bincount(y).tolist() == [500, 500]
    assert bool(expected.train_mask[index].all())
    rows = torch.cat([index for _, _, index in module.predict_dataloader()])
    assert torch.equal(rows, torch.arange(len(expected.x)))


def test_a_short_training_learns(make_trainer: TrainerFactory) -> None:
    module = SentimentDataModule(steps_per_epoch=30)
    distance = SensitiveSVD(num_components=50).fit(module.dataset.side_x)
    classifier = FairClassifier(MLP(100, 100, 2))
    callback = GLIFCallback(lam=0.1, tau=8**0.5, distance=distance)
    trainer = make_trainer(max_epochs=2, callbacks=callback)
    trainer.fit(classifier, module)
    (found,) = trainer.test(classifier, module, verbose=False)
    assert found["test_accuracy"] > 0.8
    trainer.predict(classifier, module)
    names = module.data.name_mask
    spread = [
        (f[names, 1] - f[names, 0]).std() for f in (callback.y_hat_, callback.y_fair_)
    ]
    assert spread[1] < 0.8 * spread[0]


def test_unknown_variant_is_refused() -> None:
    message = "'variant' must be one of 'us', 'nyc', 'word2vec', 'glove42b' (got 'uk')"
    with pytest.raises(ValueError, match=re.escape(message)):
        SentimentDataModule("uk")  # type: ignore[arg-type]
