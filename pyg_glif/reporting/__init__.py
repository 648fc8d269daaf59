"""Pages: templates, style, scripts and charts; they know nothing of the method."""

from pyg_glif.reporting.charts import (
    BEFORE_AFTER,
    PALETTE,
    band_chart,
    bar_chart,
    bubble_chart,
    front_chart,
    histogram,
    interval_chart,
)
from pyg_glif.reporting.environment import ASSETS, asset, digest, environment
from pyg_glif.reporting.tables import Figure, ReportTable
from pyg_glif.reporting.words import counted, number, percent, shown

__all__ = [
    "ASSETS",
    "BEFORE_AFTER",
    "PALETTE",
    "Figure",
    "ReportTable",
    "asset",
    "band_chart",
    "bar_chart",
    "bubble_chart",
    "counted",
    "digest",
    "environment",
    "front_chart",
    "histogram",
    "interval_chart",
    "number",
    "percent",
    "shown",
]
