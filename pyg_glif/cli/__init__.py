"""The command line; ``python -m pyg_glif`` is the same."""

from pyg_glif.cli._app import main

__all__ = ["main"]
