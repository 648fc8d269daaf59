"""Lightning's base classes, under whichever of its two names it is installed."""

from importlib import import_module
from typing import TYPE_CHECKING

from pyg_glif._utils.optional import find

__all__ = ["Callback", "LightningDataModule", "LightningModule", "Trainer"]

# The order of PyG: a module of one package does not run under the other's trainer,
# so all packages have to make the same choice.
if TYPE_CHECKING:
    from pytorch_lightning import (
        Callback,
        LightningDataModule,
        LightningModule,
        Trainer,
    )
else:
    _package = find("lightning.pytorch") or import_module("pytorch_lightning")
    Callback = _package.Callback
    LightningDataModule = _package.LightningDataModule
    LightningModule = _package.LightningModule
    Trainer = _package.Trainer
