from .records import Record, Run, Summary
from .registry import EXPERIMENTS
from .report import Report, Table
from .sentiment import SentimentConfig, run_sentiment
from .sentiment_report import (
    draw_sentiment,
    report_sentiment,
    reproduce_sentiment,
)
from .text import TextConfig, run_text
from .text_report import (
    BIOS,
    TOXICITY,
    draw_text,
    report_text,
    reproduce_bios,
    reproduce_toxicity,
)
from .training import Recipe

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
