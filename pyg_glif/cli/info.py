"""``pyg-glif info``: what is installed, and where data is looked for."""

import argparse
import platform
from typing import Any

from pyg_glif.cli._command import Outcome, aligned

SUMMARY = "versions, optional parts, where data is looked for"
DESCRIPTION = "Versions, optional parts found or missing, where data is looked for."
EPILOG = """\
examples:
  pyg-glif info
  pyg-glif info --json
"""
_CORE = (
    *("pyg_glif", "torch", "torch-geometric", "pytorch-lightning", "lightning"),
    *("torchmetrics", "numpy", "pandas", "scikit-learn"),
)
# Distribution, and the extra that brings it.
_OPTIONAL = {
    "matplotlib": "plots",
    "pyarrow": "files",
    "openpyxl": "files",
    "scipy": "baselines",
    "torch-sparse": "sparse",
    "sentence-transformers": "text",
    "faiss-cpu": "benchmark",
    "fairlearn": "benchmark",
    "inFairness": "benchmark",
}
# Data sets, and whether the package itself holds them.
_DATA = {"sentiment": True, "bios": False, "toxicity": False}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no arguments: the command has only the options that all share."""


def run(args: argparse.Namespace) -> Outcome:
    """Collects versions, hardware and data; imports no optional package."""
    import torch

    from pyg_glif._data import VARIABLE, data_folder

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
            for name, extra in _OPTIONAL.items()
        },
        "data": {
            "variable": VARIABLE,
            "folder": None if folder is None else str(folder),
            "packaged": [name for name, inside in _DATA.items() if inside],
            "found": [n for n in _DATA if folder and (folder / n).is_dir()],
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
