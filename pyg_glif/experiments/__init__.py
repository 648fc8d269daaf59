"""The paper's experiments: settings, runs of one seed, tables and figures."""

from pyg_glif.experiments.records import Record, Run, Summary
from pyg_glif.experiments.registry import EXPERIMENTS
from pyg_glif.experiments.report import Report, Table
from pyg_glif.experiments.sentiment import SentimentConfig, run_sentiment
from pyg_glif.experiments.sentiment_report import (
    draw_sentiment,
    report_sentiment,
    reproduce_sentiment,
)
from pyg_glif.experiments.text import TextConfig, run_text
from pyg_glif.experiments.text_report import (
    BIOS,
    TOXICITY,
    draw_text,
    report_text,
    reproduce_bios,
    reproduce_toxicity,
)
from pyg_glif.experiments.training import Recipe

__all__ = [
    "BIOS",
    "EXPERIMENTS",
    "TOXICITY",
    "Recipe",
    "Record",
    "Report",
    "Run",
    "SentimentConfig",
    "Summary",
    "Table",
    "TextConfig",
    "draw_sentiment",
    "draw_text",
    "report_sentiment",
    "report_text",
    "reproduce_bios",
    "reproduce_sentiment",
    "reproduce_toxicity",
    "run_sentiment",
    "run_text",
]
