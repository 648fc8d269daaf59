from .fair_classifier import FairClassifier
from .fair_data_module import FairDataModule
from .glif_callback import GLIFCallback
from .mlp import MLP
from .sentiment_data_module import SentimentDataModule
from .similarity_penalty import SimilarityPenalty

__all__ = [
    "MLP",
    "FairClassifier",
    "FairDataModule",
    "GLIFCallback",
    "SentimentDataModule",
    "SimilarityPenalty",
]
