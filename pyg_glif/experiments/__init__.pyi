from .experiment import Experiment, Trial
from .records import Record, Run, Runtime, Summary
from .registry import EXPERIMENTS
from .report import Report, Table
from .sentiment import (
    SENTIMENT,
    SentimentConfig,
    SentimentExperiment,
)
from .text import (
    BIOS,
    TOXICITY,
    TextConfig,
    TextExperiment,
)
from .training import Recipe

__all__ = [
    "BIOS",
    "EXPERIMENTS",
    "SENTIMENT",
    "TOXICITY",
    "Experiment",
    "Recipe",
    "Record",
    "Report",
    "Run",
    "Runtime",
    "SentimentConfig",
    "SentimentExperiment",
    "Summary",
    "Table",
    "TextConfig",
    "TextExperiment",
    "Trial",
]
