from .fair_classifier import FairClassifier
from .fair_data_module import FairDataModule
from .glif_callback import GLIFCallback
from .similarity_penalty import SimilarityPenalty

__all__ = [
    "FairClassifier",
    "FairDataModule",
    "GLIFCallback",
    "SimilarityPenalty",
]
