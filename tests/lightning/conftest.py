from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.nn import MLP

from pyg_glif.lightning.resolve import Trainer

TrainerFactory = Callable[..., Trainer]


def make_model(seed: int = 0, hidden: int = 8, outputs: int = 3, **kwargs: Any) -> MLP:
    """The network of a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return MLP([4, hidden, outputs], norm=None, **kwargs)


def full_batch(data: Data) -> DataLoader[Data]:
    """A loader that serves the whole data as one batch."""
    return DataLoader([data], collate_fn=lambda items: items[0])


@pytest.fixture
def make_trainer() -> TrainerFactory:
    """Trainers that print and write nothing unless told to."""

    def make(**kwargs: Any) -> Trainer:
        quiet = {
            "accelerator": "cpu",
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "max_epochs": 2,
        }
        return Trainer(**{**quiet, **kwargs})

    return make


@pytest.fixture
def samples(generator: torch.Generator) -> Data:
    """Ninety labelled samples of three classes, and ten without a label."""
    x = torch.randn(100, 4, generator=generator)
    y = x[:, :3].argmax(1)
    part = torch.arange(100) % 10
    return Data(
        x=x,
        y=torch.where(part == 9, -1, y),
        train_mask=part < 6,
        val_mask=part == 6,
        test_mask=(part == 7) | (part == 8),
    )
