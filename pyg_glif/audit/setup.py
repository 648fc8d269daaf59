"""What a report says of its set-up: settings, certificate, provenance.

Settings have the keys ``columns``, ``ignored``, ``sensitive``, ``table`` (a
:class:`~pyg_glif.tables.TableSummary` as a list of dictionaries), ``scale``,
``metric``, ``unit``, ``tau``, ``k``, ``mutual``, ``theta``, ``lam``,
``normalization``, ``link``, ``threshold``, ``difference``, ``num_nearest`` and
``files`` (a hash for each name), as far as they are known. Others are shown by their
names.
"""

import platform
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.fingerprints import of_tensors
from pyg_glif.distances import FairDistance
from pyg_glif.fit.fit import Fit
from pyg_glif.graph import SimilarityGraph
from pyg_glif.tables import TableSummary


def graph_setup(
    graph: SimilarityGraph, distance: FairDistance | None
) -> dict[str, Any]:
    """Metric, and radius or number of neighbors, of a graph."""
    reach = {"tau": graph.tau} if graph.k is None else {"k": graph.k}
    return {"metric": _name(distance, "Euclidean"), **reach}


def fit_setup(fit: Fit) -> dict[str, Any]:
    """Metric, neighbors, weights and smoothing of a fit."""
    settings = fit.settings
    names = ("tau", "k", "mutual", "theta", "lam", "normalization")
    return {
        "metric": _name(settings.distance, "Euclidean"),
        **{name: getattr(settings, name) for name in names},
        "link": _name(settings.link, "Identity"),
    }


def table_setup(summary: TableSummary, sensitive: Iterable[Any]) -> dict[str, Any]:
    """Unit, columns and sensitive columns of a table."""
    return {
        "sensitive": [str(name) for name in sensitive],
        "unit": summary.unit,
        "table": summary.to_frame().to_dict("records"),
    }


def certificate_of(fit: Fit) -> dict[str, Any]:
    """How the solve of a fit ended."""
    solution = fit.solution
    return {
        "status": solution.status.name,
        "solver": solution.solver,
        "largest_residual": float(solution.residual.max()),
        "error_bound": float(solution.error_bound.max()),
    }


def provenance(data: Mapping[str, Tensor]) -> dict[str, Any]:
    """Date, versions, and a hash of features and outputs."""
    try:
        version = metadata.version("pyg_glif")
    except metadata.PackageNotFoundError:  # used from its folder
        version = "not installed"
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "pyg_glif": version,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "data_sha256": of_tensors(data),
    }


def _name(value: Any, default: str) -> str:
    return default if value is None else type(value).__name__
