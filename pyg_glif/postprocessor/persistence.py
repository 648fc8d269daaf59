"""One safetensors file for a fit: tensors, and plain data in the header.

Nothing in the file is code. Classes are named, and looked up among the few listed
here; anything else must be left out when saving and handed in when loading.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pyg_glif._validate import check_choice
from pyg_glif.distances import Euclidean, FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.links import Identity, Log, Logit, Softmax
from pyg_glif.postprocessor.fitted import Fitted, Settings
from pyg_glif.solvers import (
    CG,
    Auto,
    Cholesky,
    CoordinateDescent,
    Jacobi,
    Solution,
    SolveStatus,
)

_FORMAT = "pyg_glif.GLIFPostProcessor"
_VERSION = 1
_HEADER = "pyg_glif"

_CLASSES: dict[str, dict[str, Any]] = {
    "distance": {c.__name__: c for c in (Euclidean, Mahalanobis, SensitiveSubspace)},
    "link": {c.__name__: c for c in (Identity, Log, Logit, Softmax)},
    "solver": {c.__name__: c for c in (Auto, CG, Cholesky, CoordinateDescent)},
}
_PLAIN = ("tau", "theta", "lam", "normalization", "target_degree")


def write_fitted(
    path: str | PathLike[str],
    fitted: Fitted,
    params: Mapping[str, Any],
    omit: Sequence[str],
) -> None:
    """Writes a fit and the parameters it came from."""
    for name in omit:
        check_choice("omit", name, tuple(_CLASSES))
    tensors = _tensors(fitted, "distance" not in omit)
    solution = fitted.solution
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "checksum": _checksum(tensors),
        "tau": fitted.settings.tau,
        "params": {name: _plain(params[name]) for name in _PLAIN},
        "objects": {
            name: _named(name, params[name]) for name in _CLASSES if name not in omit
        },
        "omitted": list(omit),
        "solution": {
            "status": solution.status.name,
            "num_iter": solution.num_iter,
            "solver": solution.solver,
        },
    }
    _write(Path(path), tensors, header)


def read_fitted(
    path: str | PathLike[str], given: Mapping[str, Any]
) -> tuple[Fitted, dict[str, Any]]:
    """A fit and the parameters it came from; ``given`` replaces saved objects."""
    header, tensors = _read(Path(path))
    for name in _CLASSES:
        if given[name] is None and name in header.get("omitted", ()):
            msg = f"'{name}' must be given, because the file leaves it out"
            raise ValueError(f"{msg}. Use load(path, {name}=...)")
    try:
        return _rebuilt(header, tensors, given)
    except (KeyError, TypeError) as error:
        raise ValueError(_not_ours(Path(path), "a damaged header")) from error


def _rebuilt(
    header: dict[str, Any], tensors: dict[str, Tensor], given: Mapping[str, Any]
) -> tuple[Fitted, dict[str, Any]]:
    """The fit that header and tensors describe."""
    params = dict(header["params"])
    for name in _CLASSES:
        params[name] = given[name]
        if given[name] is None:
            params[name] = _object(name, header["objects"][name], tensors)
    report = header["solution"]
    solution = Solution(
        tensors["value"],
        SolveStatus[report["status"]],
        report["num_iter"],
        tensors["residual"],
        tensors["error_bound"],
        report["solver"],
    )
    fitted = Fitted(
        Settings.of(params, header["tau"]),
        tensors["x"],
        tensors["y_hat"],
        tensors["edge_index"].long(),
        tensors["sq_dist"],
        solution,
    )
    return fitted, params


def _tensors(fitted: Fitted, with_distance: bool) -> dict[str, Tensor]:
    """Everything large, on the CPU."""
    narrow = torch.int32 if len(fitted.x) < 2**31 else torch.int64
    tensors = {
        "x": fitted.x,
        "y_hat": fitted.y_hat,
        "edge_index": fitted.edge_index.to(narrow),
        "sq_dist": fitted.sq_dist,
        "value": fitted.solution.value,
        "residual": fitted.solution.residual,
        "error_bound": fitted.solution.error_bound,
    }
    distance = fitted.settings.distance
    if with_distance and distance is not None:
        state = distance.state_dict()
        tensors |= {f"distance.{name}": value for name, value in state.items()}
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Against damage on disk or on the way, which safetensors does not notice."""
    total = 0
    for name in sorted(tensors):
        content: Any = tensors[name].reshape(-1).view(torch.uint8).numpy()
        total = zlib.crc32(content, total)
    return total


def _plain(value: Any) -> Any:
    """A number as JSON has it, whatever kind of number it was."""
    return value if value is None or isinstance(value, str) else float(value)


def _named(name: str, value: Any) -> dict[str, Any] | None:
    """An object as the name of its class and plain data."""
    if value is None:
        return None
    kind = type(value).__name__
    if type(value) is not _CLASSES[name].get(kind):
        allowed = ", ".join(_CLASSES[name])
        msg = f"'{name}' must be one of {allowed} to be saved (got {kind})"
        remedy = f'Use save(path, omit=["{name}"]) and load(path, {name}=...)'
        raise TypeError(f"{msg}. {remedy}")
    if name == "distance":
        learnable = any(isinstance(p, nn.Parameter) for p in value.parameters())
        return {"class": kind, "options": {"learnable": learnable}}
    options = {f.name: getattr(value, f.name) for f in fields(value)}
    if options.pop("generator", None) is not None:
        msg = "'solver' must have no generator to be saved"
        raise TypeError(f'{msg}. Use save(path, omit=["solver"])')
    if "preconditioner" in options:
        options["preconditioner"] = options["preconditioner"] is not None
    return {"class": kind, "options": options}


def _object(
    name: str, record: dict[str, Any] | None, tensors: dict[str, Tensor]
) -> Any:
    """The object that ``_named`` described."""
    if record is None:
        return None
    kind, options = _CLASSES[name][record["class"]], dict(record["options"])
    if name == "distance":
        return _distance(kind, tensors, **options)
    if "preconditioner" in options:
        options["preconditioner"] = Jacobi() if options["preconditioner"] else None
    return kind(**options)


def _distance(kind: Any, tensors: dict[str, Tensor], learnable: bool) -> FairDistance:
    """A distance whose tensors are exactly those saved."""
    if kind is Mahalanobis:
        factor = tensors["distance.factor"]
        return Mahalanobis.from_factor(factor, learnable=learnable)
    if kind is SensitiveSubspace:
        directions = tensors["distance.directions"]
        first = torch.eye(1, len(directions), dtype=directions.dtype)
        distance = SensitiveSubspace(first)
        # Building from the directions would orthonormalise, and round, them again.
        distance.load_state_dict({"directions": directions})
        return distance
    return Euclidean()


def _write(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Writes beside the old file and then takes its place."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        save_file(tensors, beside, metadata={_HEADER: json.dumps(header)})
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file that is what it should be."""
    try:
        with safe_open(path, framework="pt") as file:
            header = _checked_header(path, (file.metadata() or {}).get(_HEADER))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(_not_ours(path, str(error))) from error
    if _checksum(tensors) != header["checksum"]:
        raise ValueError(_not_ours(path, "a wrong checksum"))
    return header, tensors


def _checked_header(path: Path, text: str | None) -> dict[str, Any]:
    """The header of a format and version that this code reads."""
    if text is None:
        raise ValueError(_not_ours(path, "another kind of safetensors file"))
    try:
        header: dict[str, Any] = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(_not_ours(path, "a damaged header")) from error
    if header.get("format") != _FORMAT:
        raise ValueError(_not_ours(path, f"format {header.get('format')!r}"))
    if header["version"] > _VERSION:
        msg = f"'path' must be of format version {_VERSION} or earlier"
        msg = f"{msg} (got {header['version']} in '{path}')"
        raise ValueError(f"{msg}. Install a later pyg_glif")
    return header


def _not_ours(path: Path, got: str) -> str:
    """Wording for a file that ``save`` did not write, or that was damaged since."""
    kind = "a file that 'GLIFPostProcessor.save' wrote"
    return f"'path' must be {kind} (got {got} in '{path}')"
