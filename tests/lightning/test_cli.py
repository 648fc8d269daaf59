"""Signatures that LightningCLI understands."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

pytest.importorskip("jsonargparse")

from pytorch_lightning.cli import LightningCLI

from pyg_glif.distances import Euclidean
from pyg_glif.lightning import (
    MLP,
    FairClassifier,
    GLIFCallback,
    SentimentDataModule,
)

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
            "class_path": "pyg_glif.lightning.MLP",
            "init_args": {"in_channels": 100, "hidden_channels": 16},
        },
        "lr": 0.01,
        "lam": 0.1,
        "tau": 3.0,
        "normalization": "density",
        "distance": {"class_path": "pyg_glif.distances.Euclidean"},
    },
    "data": {"variant": "us", "batch_size": 20, "steps_per_epoch": 3, "seed": 2},
}


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
    cli = LightningCLI(FairClassifier, SentimentDataModule, run=False, args=args)
    assert isinstance(cli.model.model, MLP)
    assert isinstance(cli.model.distance, Euclidean)
    assert (cli.model.lr, cli.model.tau, cli.model.graph) == (0.02, 3.0, "full")
    assert cli.model.penalty.normalization == "density"
    assert (cli.datamodule.batch_size, cli.datamodule.seed) == (20, 2)
    (callback,) = [c for c in cli.trainer.callbacks if isinstance(c, GLIFCallback)]
    assert callback.tau == 3.0


def test_cli_fits_and_its_checkpoint_loads_alone(config: str, tmp_path: Path) -> None:
    cli = LightningCLI(
        FairClassifier,
        SentimentDataModule,
        args=["fit", "--config", config, "--trainer.max_steps", "2"],
        save_config_callback=None,
    )
    assert cli.trainer.global_step == 2
    assert "train_regularizer" in cli.trainer.callback_metrics
    path = tmp_path / "model.ckpt"
    cli.trainer.save_checkpoint(path)
    # The checkpoint holds the configuration, so the model need not be given.
    x = torch.ones(3, 100)
    for kwargs in ({}, {"weights_only": True}, {"model": MLP(100, 16)}):
        loaded = FairClassifier.load_from_checkpoint(path, **kwargs)
        assert torch.equal(loaded(x), cli.model(x))


def test_cli_rejects_bad_values(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["--config", config, "--model.graph", "some"]
    with pytest.raises(SystemExit):
        LightningCLI(FairClassifier, SentimentDataModule, run=False, args=args)
    assert "some" in capsys.readouterr().err
