"""Trains the networks of the experiments, the same way for every method."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from pyg_glif.lightning import MLP, FairClassifier, FairDataModule
from pyg_glif.lightning.resolve import Trainer

_LOGGERS = ("pytorch_lightning", "lightning.pytorch", "lightning_fabric")


@dataclass(frozen=True)
class Recipe:
    """How a network is trained: one hidden layer, Adam, class-balanced batches.

    Args:
        hidden_channels (int): Units of the hidden layer.
        num_steps (int): Steps of Adam.
        lr (float): Learning rate.
        batch_size (int): Labelled rows of a batch, equally many of each class.
        weight_decay (float): Weight decay of Adam.
    """

    hidden_channels: int
    num_steps: int
    lr: float
    batch_size: int = 1000
    weight_decay: float = 0.0

    def network(self, in_channels: int, out_channels: int, seed: int) -> MLP:
        """A fresh network; the same one for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return MLP(in_channels, self.hidden_channels, out_channels)


def fit(
    classifier: FairClassifier,
    data: Data,
    recipe: Recipe,
    seed: int,
    *,
    num_unlabelled: int = 0,
    progress: bool | None = None,
) -> FairClassifier:
    """Trains on the rows of ``train_mask``, quietly."""
    classes = int(data.y.max()) + 1
    batches = FairDataModule(
        data,
        batch_size=recipe.batch_size // classes * classes,
        balanced=True,
        num_unlabelled=num_unlabelled,
        steps_per_epoch=recipe.num_steps,
        seed=seed,
    )
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trainer = Trainer(
            max_steps=recipe.num_steps,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=bool(progress),
            limit_val_batches=0,
        )
        trainer.fit(classifier, datamodule=batches)
    return classifier.eval()


@torch.no_grad()
def logits_of(classifier: FairClassifier, x: Tensor) -> Tensor:  # [N, F] -> [N, C]
    """What a trained network makes of some rows."""
    logits: Tensor = classifier(x)
    return logits


@contextmanager
def same_numbers() -> Iterator[None]:
    """Runs torch on one thread and in float32, whatever the caller has set.

    Training magnifies the last digit: where sums have another order, on two threads
    or on another kind of processor, a network ends up elsewhere.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    try:
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float32)
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps Lightning from telling about devices and loaders."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(pytorch_)?lightning.*")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
