"""Run by test_distributed.py: validates and trains on two processes.

Started once, Lightning's "ddp" strategy starts the second process itself, by the same
command. Each process writes what it has logged to a file of its own.
"""

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch_geometric.nn import MLP

from pyg_glif.lightning import FairClassifier
from pyg_glif.lightning.resolve import LightningDataModule, Trainer

# Who holds which rows, and which of them have a label.
CASES = {
    "uneven": ((0, 22), (22, 30), 0),
    "one process without a label": ((0, 22), (22, 30), 22),
    "one class absent": ((0, 22), (22, 30), -1),
    "nobody has a label": ((0, 22), (22, 30), 30),
    "one process without a batch": ((0, 22), (22, 22), 0),
}


def make_model() -> MLP:
    """The same weights in every process."""
    torch.manual_seed(0)
    return MLP([4, 8, 3], norm=None)


def make_rows(case: str) -> tuple[Tensor, Tensor]:
    """Thirty samples of three classes; some cases take labels away."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(30, 4, generator=generator)
    y = torch.randint(3, (30,), generator=generator)
    last = CASES[case][2]
    if last == -1:
        return x, y.clamp(max=1)
    if last == 22:
        y[22:] = -1
    if last == 30:
        y[:] = -1
    return x, y


class Stream(IterableDataset[tuple[Tensor, ...]]):
    """Rows without a known length, of which there may be none."""

    def __init__(self, *parts: Tensor) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return zip(*self.parts, strict=True)


class OwnLoaders(LightningDataModule):
    """Each process gets the rows that the case says, in batches of five."""

    def __init__(self, case: str) -> None:
        super().__init__()
        self.case = case

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """The first eight rows of the process, twice four."""
        assert self.trainer is not None
        first, _ = CASES[self.case][self.trainer.global_rank]
        x, y = make_rows(self.case)
        part = slice(first, first + 8)
        return DataLoader(TensorDataset(x[part], y[part]), batch_size=4)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """The rows of the process."""
        assert self.trainer is not None
        first, last = CASES[self.case][self.trainer.global_rank]
        x, y = (part[first:last] for part in make_rows(self.case))
        return DataLoader(Stream(x, y), batch_size=5)


def main(folder: Path) -> None:
    """Every case once, and one short fit."""
    warnings.filterwarnings("ignore", ".*does not have many workers")
    warnings.filterwarnings("ignore", ".*LeafSpec")
    seen: dict[str, object] = {}
    settings = {
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "ddp",
        "use_distributed_sampler": False,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    for case in CASES:
        trainer = Trainer(**settings)
        trainer.validate(FairClassifier(make_model()), OwnLoaders(case), verbose=False)
        logged = trainer.callback_metrics
        seen[case] = {key: float(value) for key, value in logged.items()}
    trainer = Trainer(max_epochs=2, **settings)
    classifier = FairClassifier(make_model(), lam=0.1, tau=2.0, lr=0.01)
    trainer.fit(classifier, OwnLoaders("one process without a label"))
    seen["weights"] = [p.detach().flatten().tolist() for p in classifier.parameters()]
    (folder / f"{trainer.global_rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
