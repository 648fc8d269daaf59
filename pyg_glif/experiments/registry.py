"""Experiments by the name that the command line knows them by."""

from collections.abc import Callable

from pyg_glif.experiments.report import Report
from pyg_glif.experiments.sentiment_report import reproduce_sentiment
from pyg_glif.experiments.text_report import reproduce_bios, reproduce_toxicity

#: Each takes ``seeds``, ``variant``, ``out`` and ``progress``.
EXPERIMENTS: dict[str, Callable[..., Report]] = {
    "sentiment": reproduce_sentiment,
    "bios": reproduce_bios,
    "toxicity": reproduce_toxicity,
}
