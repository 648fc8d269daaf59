"""Frames of samples to coordinates in which distances mean something."""

from pyg_glif.tables.fair_table import FairTable
from pyg_glif.tables.summary import ColumnSummary, TableSummary

__all__ = ["ColumnSummary", "FairTable", "TableSummary"]
