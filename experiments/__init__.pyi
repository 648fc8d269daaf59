from .experiment import Comparison, Experiment, Trial
from .records import Record, Run, Runtime, Summary
from .registry import EXPERIMENTS
from .report import Report, ResultTable
from .sentiment import (
    SENTIMENT,
    SentimentConfig,
    SentimentExperiment,
)
from .tabular import ADULT, GERMAN, TabularExperiment
from .tabular_config import TabularConfig
from .text import (
    BIOS,
    TOXICITY,
    TextConfig,
    TextExperiment,
)
from .training import Recipe

__all__ = [
    "ADULT",
    "BIOS",
    "EXPERIMENTS",
    "GERMAN",
    "SENTIMENT",
    "TOXICITY",
    "Comparison",
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
    "TabularConfig",
    "TabularExperiment",
    "TextConfig",
    "TextExperiment",
    "Trial",
]
