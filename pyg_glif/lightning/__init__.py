"""Lightning: training, data modules, and smoothing what a trainer predicts."""

from pyg_glif.lightning.fair_classifier import FairClassifier
from pyg_glif.lightning.fair_data_module import FairDataModule
from pyg_glif.lightning.glif_callback import GLIFCallback
from pyg_glif.lightning.mlp import MLP
from pyg_glif.lightning.sensei import SenSeI
from pyg_glif.lightning.sensr import SenSR
from pyg_glif.lightning.sentiment_data_module import SentimentDataModule

__all__ = [
    "MLP",
    "FairClassifier",
    "FairDataModule",
    "GLIFCallback",
    "SenSR",
    "SenSeI",
    "SentimentDataModule",
]
