from .experiment import Experiment, Trial
from .records import Record, Run, Runtime, Summary
from .registry import EXPERIMENTS
from .report import Report, ResultTable
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
    "ResultTable",
    "Run",
    "Runtime",
    "SentimentConfig",
    "SentimentExperiment",
    "Summary",
    "TextConfig",
    "TextExperiment",
    "Trial",
]
