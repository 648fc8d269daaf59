from .fair_classifier import FairClassifier
from .fair_data_module import FairDataModule
from .glif_callback import GLIFCallback
from .mlp import MLP
from .sensei import SenSeI
from .sensr import SenSR
from .sentiment_data_module import SentimentDataModule

__all__ = [
    "MLP",
    "FairClassifier",
    "FairDataModule",
    "GLIFCallback",
    "SenSR",
    "SenSeI",
    "SentimentDataModule",
]
