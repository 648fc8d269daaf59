"""Signatures that LightningCLI understands."""

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

pytest.importorskip("jsonargparse")

from pytorch_lightning.cli import LightningCLI
from torch_geometric.nn import MLP

from pyg_glif.datasets import Sentiment
from pyg_glif.distances import Euclidean
from pyg_glif.lightning import FairClassifier, FairDataModule, GLIFCallback

pytestmark = pytest.mark.lightning

CONFIG: dict[str, Any] = {
    "seed_everything": False,
    "trainer": {
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "max_steps": 1,
        "callbacks": [
            {
                "class_path": "pyg_glif.lightning.GLIFCallback",
                "init_args": {
                    "lam": 0.1,
                    "tau": 3.0,
                    "link": {"class_path": "pyg_glif.links.Softmax"},
                    "solver": {"class_path": "pyg_glif.solvers.CG"},
                },
            }
        ],
    },
    "model": {
        "model": {
            "class_path": "torch_geometric.nn.MLP",
            "init_args": {"channel_list": [100, 16, 2], "norm": None},
        },
        "lr": 0.01,
        "lam": 0.1,
        "tau": 6.0,
        "normalization": "density",
        "distance": {"class_path": "pyg_glif.distances.Euclidean"},
    },
    "data": {"batch_size": 20, "seed": 2},
}


class Words(FairDataModule):
    """The data module of :doc:`lightning`."""

    def __init__(self, seed: int = 0, batch_size: int = 1000) -> None:
        data = Sentiment(seed=seed)[0]
        super().__init__(
            data, batch_size=batch_size, balanced=True, steps_per_epoch=3, seed=seed
        )


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # Lightning warns if there are arguments on the command line as well.
    monkeypatch.setattr(sys, "argv", ["test"])
    # Its own calls of the parser are the ones that are deprecated.
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return str(path)


def test_cli_builds_everything(config: str) -> None:
    args = ["--config", config, "--model.lr", "0.02", "--model.graph", "full"]
    cli = LightningCLI(FairClassifier, Words, run=False, args=args)
    assert isinstance(cli.model.model, MLP)
    (penalty,) = cli.model.terms
    assert isinstance(penalty.distance, Euclidean)
    assert (cli.model.lr, penalty.tau, cli.model.graph) == (0.02, 6.0, "full")
    assert penalty.loss.normalization == "density"
    assert (cli.datamodule.batch_size, cli.datamodule.seed) == (20, 2)
    (callback,) = [c for c in cli.trainer.callbacks if isinstance(c, GLIFCallback)]
    assert (callback.post.tau, callback.post.lam) == (3.0, 0.1)


def test_cli_builds_terms(config: str, tmp_path: Path) -> None:
    term = {
        "class_path": "pyg_glif.baselines.SenSeIRegularizer",
        "init_args": {
            "distance": {"class_path": "pyg_glif.distances.Euclidean"},
            "rho": 2.0,
            "auditor": {"num_full_steps": 3},
        },
    }
    other = {"class_path": "pyg_glif.lightning.SimilarityPenalty"}
    terms = tmp_path / "terms.yaml"
    terms.write_text(yaml.safe_dump({"model": {"lam": 0.0, "term": [term, other]}}))
    args = ["--config", config, "--config", str(terms)]
    cli = LightningCLI(FairClassifier, Words, run=False, args=args)
    first, second = cli.model.terms
    assert (first.rho, first.auditor.num_full_steps) == (2.0, 3)
    assert second.lam == 1.0


def test_cli_fits_and_its_checkpoint_loads_without_arguments(
    config: str, tmp_path: Path
) -> None:
    cli = LightningCLI(
        FairClassifier,
        Words,
        args=["fit", "--config", config, "--trainer.max_steps", "2"],
        save_config_callback=None,
    )
    assert cli.trainer.global_step == 2
    assert "train_regularizer" in cli.trainer.callback_metrics
    path = tmp_path / "model.ckpt"
    cli.trainer.save_checkpoint(path)
    # The checkpoint holds the configuration, so the model need not be given.
    x = torch.ones(3, 100)
    takes = inspect.signature(FairClassifier.load_from_checkpoint).parameters
    known = [{"weights_only": True}] if "weights_only" in takes else []
    for kwargs in ({}, *known, {"model": MLP([100, 16, 2], norm=None)}):
        loaded = FairClassifier.load_from_checkpoint(path, **kwargs)
        assert torch.equal(loaded(x), cli.model(x))


def test_cli_rejects_bad_values(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--config", config, "--model.graph", "some"]
    with pytest.raises(SystemExit):
        LightningCLI(FairClassifier, Words, run=False, args=args)
    assert "some" in capsys.readouterr().err
