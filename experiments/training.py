"""Trains the networks of the experiments, the same way for every method."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from pyg_glif.baselines import Auditor, SenSeIRegularizer
from pyg_glif.distances import FairDistance
from pyg_glif.lightning import FairClassifier, FairDataModule
from pyg_glif.lightning.resolve import Trainer

#: Makes what is trained of a fresh network.
Make = Callable[[nn.Module], FairClassifier]
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

    def network(self, in_channels: int, out_channels: int, seed: int) -> nn.Module:
        """A fresh network; the same one for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(
                nn.Linear(in_channels, self.hidden_channels),
                nn.ReLU(),
                nn.Linear(self.hidden_channels, out_channels),
            )

    def outputs(
        self,
        make: Make,
        data: Data,
        x: Tensor,
        seed: int,
        *,
        num_classes: int = 2,
        num_unlabelled: int = 0,
        progress: bool | None = None,
    ) -> Tensor:  # x: [N, F] -> [N, C]
        """Logits of the rows ``x`` by a fresh network trained on ``data``."""
        network = self.network(data.num_features, num_classes, seed)
        classifier = fit(
            make(network),
            data,
            self,
            seed,
            num_unlabelled=num_unlabelled,
            progress=progress,
        )
        return logits_of(classifier, x)


def for_accuracy(lr: float) -> Make:
    """Training for accuracy alone."""
    return partial(FairClassifier, lr=lr)


def with_penalty(
    lr: float, lam: float, distance: FairDistance, tau: float, theta: float
) -> Make:
    """Training with the Laplacian penalty on the graph of each batch."""
    return partial(
        FairClassifier, lr=lr, lam=lam, distance=distance, tau=tau, theta=theta
    )


def with_sensei(lr: float, rho: float, distance: FairDistance, num_steps: int) -> Make:
    """Training with SenSeI, whose auditor takes ``num_steps`` of both kinds."""
    auditor = Auditor(num_subspace_steps=num_steps, num_full_steps=num_steps)

    def make(network: nn.Module) -> FairClassifier:
        # A term of its own for every network: it learns along, as a dual variable.
        term = SenSeIRegularizer(distance, rho=rho, auditor=auditor)
        return FairClassifier(network, lr=lr, term=term)

    return make


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
    """Logits of a trained network for some rows."""
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
    """Silences Lightning's log and warnings for a while."""
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
