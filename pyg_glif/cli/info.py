"""``pyg-glif info``: what is installed, and where data is looked for."""

import argparse
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pyg_glif.cli.base import Outcome, aligned

DESCRIPTION = "Versions, optional parts found or missing, where data is looked for."
EPILOG = """\
examples:
  pyg-glif info
  pyg-glif info --json
"""
_CORE = (
    "pyg_glif",
    "torch",
    "torch-geometric",
    "pytorch-lightning",
    "lightning",
    "torchmetrics",
    "numpy",
)
# Distribution, and the extra that brings it.
_OPTIONAL = {
    "matplotlib": "plots",
    "pyarrow": "files",
    "pandas": "files",
    "scipy": "baselines",
    "torch-sparse": "sparse",
    "sentence-transformers": "text",
    "faiss-cpu": "benchmark",
    "inFairness": "benchmark",
}
_DATA = ("sentiment", "bios", "toxicity")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but what all commands take."""


def run(args: argparse.Namespace) -> Outcome:
    """Looks around; nothing optional is imported."""
    import torch

    from pyg_glif._data import VARIABLE, data_folder

    versions = {name: _version(name) for name in _CORE}
    versions["python"] = platform.python_version()
    machine = {
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.is_available(),
        "cuda_devices": torch.cuda.device_count(),
    }
    optional = {
        name: {"version": _version(name), "extra": f"pyg_glif[{extra}]"}
        for name, extra in _OPTIONAL.items()
    }
    folder = data_folder()
    found = {n: folder is not None and (folder / n).is_dir() for n in _DATA}
    where = None if folder is None else str(folder)
    data = {"variable": VARIABLE, "folder": where, "found": found}
    return Outcome(
        _text(versions, machine, optional, data),
        {
            "command": "info",
            "versions": versions,
            "machine": machine,
            "optional": optional,
            "data": data,
        },
    )


def _version(name: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _text(
    versions: dict[str, str | None],
    machine: dict[str, Any],
    optional: dict[str, dict[str, str | None]],
    data: dict[str, Any],
) -> str:
    """The same in lines."""
    rows: list[tuple[str, Any]] = [(k, v) for k, v in versions.items() if v]
    cuda = f"{machine['cuda_devices']} devices" if machine["cuda"] else "none"
    rows += [("", ""), ("threads", machine["threads"]), ("CUDA", cuda), ("", "")]
    for name, part in optional.items():
        missing = f"missing, comes with '{part['extra']}'"
        rows.append((name, part["version"] or missing))
    rows += [("", ""), ("data folder", f"{data['folder']} ({data['variable']})")]
    rows += [(k, "found" if v else "missing") for k, v in data["found"].items()]
    return "\n".join(line.rstrip() for line in aligned(rows).splitlines())
