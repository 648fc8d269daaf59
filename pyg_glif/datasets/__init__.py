"""Data sets of the paper's experiments, as PyG data sets without a graph."""

from pyg_glif.datasets.bios import Bios
from pyg_glif.datasets.sentiment import Sentiment
from pyg_glif.datasets.toxicity import Toxicity

__all__ = ["Bios", "Sentiment", "Toxicity"]
