"""One safetensors file for a fit: tensors, and plain data in the header.

A file is loaded only if ``save`` can have written it. What it describes is built by
the constructors that anybody uses, which check it, and what is built is described
again: that has to be what the file holds. A right checksum tells that a file is whole,
not who wrote it.

Nothing in the file is code. Distance, link and solver describe themselves by the name
of their class and plain data (:mod:`pyg_glif.registry`); classes that are not
registered must be left out when saving and handed in when loading.

The header holds two texts: ``pyg_glif``, which is JSON, and ``checksum``, the SHA-256
of that text and of the name, type, shape and content of every tensor. Under ``params``
are the parameters as they were asked for, under ``tau``, ``theta`` and ``decay`` the
numbers in use. Version 4 added ``ids``, the tensor ``y_std``, and ``groups`` with their
``balance``, all of which may be missing; a fit that needs none of them is written as
version 3. In version 2 the decay that was asked for was the one in use, and there was
no ``k``. Version 1 had a checksum of the tensors' content alone, inside the JSON.
"""

import hashlib
import json
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from pyg_glif._utils.files import damage_in, not_ours, replacing
from pyg_glif._utils.json import is_subset
from pyg_glif._utils.validation import check_choice, check_count, check_outputs
from pyg_glif._utils.warn import warn_caller
from pyg_glif.errors import DamagedFileError, UnprotectedFileWarning
from pyg_glif.fit.display_features import Features
from pyg_glif.fit.fit import (
    Fit,
    Settings,
    balanced,
    check_solution,
)
from pyg_glif.fit.groups import Groups
from pyg_glif.fit.ids import as_ids
from pyg_glif.fit.sample_info import SampleInfo
from pyg_glif.graph import SimilarityGraph
from pyg_glif.registry import Registered, build, describe, registered
from pyg_glif.solvers import Balance, Solution, SolveStatus
from pyg_glif.solvers.cg import Jacobi

_FORMAT = "pyg_glif.GLIFPostProcessor"
_VERSION = 4
_HEADER = "pyg_glif"
_CHECKSUM = "checksum"

# Parameters that are objects, each of the family of the same name.
_OBJECTS = ("distance", "link", "solver")
_PLAIN = ("tau", "theta", "lam", "normalization", "target_degree")
# Parameters that version 3 added, and what they were before.
_ADDED = {"coverage": None, "k": None, "mutual": False}
# What names of the tensors of the distance start with.
_DISTANCE = "distance."
# Tensors of the balance of groups.
_BALANCE = ("group", "beta", "energy")
# What safetensors calls the types that fits are made of.
_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
}


def write_fitted(
    path: str | PathLike[str],
    fitted: Fit,
    omit: Sequence[str],
    metadata: Mapping[str, Any],
) -> None:
    """Writes a fit and the parameters it came from."""
    for name in omit:
        check_choice("omit", name, _OBJECTS)
    tensors = _tensors(fitted, "distance" not in omit)
    header = _header(fitted, omit, metadata)
    try:
        text = json.dumps(header)
    except TypeError as error:
        msg = f"'metadata' must be plain data, as JSON has it (got {error})"
        raise TypeError(msg) from error
    with replacing(path) as file:
        _write(file, tensors, {_HEADER: text, _CHECKSUM: _checksum(text, tensors)})


def _header(
    fitted: Fit, omit: Sequence[str], metadata: Mapping[str, Any]
) -> dict[str, Any]:
    """All of a fit but its tensors, as plain data."""
    solution, params = fitted.solution, fitted.settings.asked
    header = {
        "format": _FORMAT,
        # What earlier versions can read is written so that they do.
        "version": 3 if fitted.people.is_plain else _VERSION,
        "tau": fitted.settings.tau,
        "theta": fitted.settings.theta,
        "decay": fitted.settings.decay,
        "params": {name: _plain(params[name]) for name in (*_PLAIN, *_ADDED)},
        "objects": {
            name: _described(name, params[name])
            for name in _OBJECTS
            if name not in omit
        },
        "omitted": list(omit),
        "solution": {
            "status": solution.status.name,
            "num_iter": solution.num_iter,
            "solver": solution.solver,
        },
        "names": fitted.names,
        "metadata": dict(metadata),
    }
    if fitted.people.ids is not None:
        header["ids"] = fitted.people.ids
    if fitted.people.features is not None:
        header["people"] = fitted.people.features.to_config()
    if fitted.people.groups is not None and solution.balance is not None:
        header["groups"] = fitted.people.groups.labels
        header["balance"] = {
            name: _plain(getattr(solution.balance, name))
            for name in ("ratio", "gap", "num_solves")
        }
    return header


def read_fitted(
    path: str | PathLike[str], given: Mapping[str, Any], progress: bool | None
) -> tuple[Fit, dict[str, Any]]:
    """A fit and the metadata in the file.

    ``given`` replaces saved objects.
    """
    header, tensors = _read(Path(path))
    with damage_in(path):
        missing = [
            (name, kind)
            for name, kind in _kinds_in(header).items()
            if given[name] is None and kind not in (None, *registered(name))
        ]
        if not missing:
            fitted = _rebuilt(header, tensors, {**given, "progress": progress})
            _check_rewritten(fitted, header, tensors, given)
            return fitted, header["metadata"]
    name, kind = missing[0]
    why, remedy = "leaves it out", f"Use load(path, {name}=...)"
    if kind:
        why = f"names the class '{kind}', which is not registered"
        remedy = f"{remedy} or 'pyg_glif.registry.register'"
    raise ValueError(f"'{name}' must be given, because the file {why}. {remedy}")


def omitted_in(path: str | PathLike[str]) -> tuple[list[str], dict[str, Any]]:
    """Which settings a file leaves out, and its metadata, from the header alone."""
    with open(path, "rb") as file, damage_in(path):
        layout, _ = _layout(file)
        header = json.loads(layout["__metadata__"][_HEADER])
        return list(header["omitted"]), dict(header.get("metadata", {}))


def _kinds_in(header: dict[str, Any]) -> dict[str, str | None]:
    """Class name of each object; empty if it was left out, ``None`` if not set."""
    kinds: dict[str, str | None] = dict.fromkeys(header["omitted"], "")
    for name in _OBJECTS:
        if name not in kinds:
            record = header["objects"][name]
            kinds[name] = None if record is None else record["kind"]
    return kinds


def _rebuilt(
    header: dict[str, Any], tensors: dict[str, Tensor], given: Mapping[str, Any]
) -> Fit:
    """The fit that header and tensors describe."""
    old = header["version"] < 3
    if old == ("decay" in header):
        raise ValueError(f"a header of another version than {header['version']}")
    added = _ADDED if old else {name: header["params"][name] for name in _ADDED}
    params = {name: header["params"][name] for name in _PLAIN} | added
    params["progress"] = given["progress"]
    for name in _OBJECTS:
        params[name] = given[name]
        record = header["objects"].get(name)
        if given[name] is None and record is not None:
            state = {"state": _state(tensors)} if name == "distance" else {}
            params[name] = build(name, record, **state)
    report, described = header["solution"], header.get("people")
    labels, ids = header.get("groups"), header.get("ids")
    groups = balance = None
    if labels is not None:
        groups = Groups(tuple(as_ids(labels, "groups")), tensors["group_code"])
        evidence: dict[str, Any] = {
            name: tensors[f"balance.{name}"] for name in _BALANCE
        }
        balance = Balance(**evidence, **header["balance"])
    people = SampleInfo(
        None if ids is None else tuple(as_ids(ids)),
        tensors.get("y_std"),
        groups,
        None
        if described is None
        else Features.from_config(described, tensors["people"]),
    )
    solution = Solution(
        tensors["value"],
        SolveStatus[report["status"]],
        report["num_iter"],
        tensors["residual"],
        tensors["error_bound"],
        report["solver"],
        balance,
    )
    # Before they are used, and again by the fit that they make up.
    x, y_hat = tensors["x"], check_outputs("y_hat", tensors["y_hat"])
    check_solution(solution, y_hat[0].numel())
    people.check(len(y_hat))
    theta = params["theta"] if old else header["theta"]
    decay = {} if old else {"decay": header["decay"]}
    settings = Settings.of(params, header["tau"], theta, **decay)
    settings.smoother.to_dual(y_hat)  # refuses outputs that a fit would have refused
    graph = SimilarityGraph(
        tensors["edge_index"].long(),
        tensors["sq_dist"],
        len(y_hat),
        settings.tau,
        k=settings.k,
        scale=tensors.get("scale"),
    )
    features, outputs = (_names(names) for names in header["names"])
    lap = settings.laplacian(graph)
    y_fair = settings.smoother.from_dual(solution.value, y_hat, lap.deg == 0)
    names = features, outputs
    lap = balanced(lap, people, solution)
    return Fit(settings, x, y_hat, graph, lap, y_fair, solution, names, people)


def _check_rewritten(
    fitted: Fit,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    given: Mapping[str, Any],
) -> None:
    """Raises unless ``save`` writes of a fit what the file holds that it came from."""
    omitted = header["omitted"]
    replaced = {name for name in _OBJECTS if given[name] is not None} - {*omitted}
    wanted = _shapes(_tensors(fitted, "distance" not in {*replaced, *omitted}))
    found = _shapes(tensors)
    if "distance" in replaced:
        found = {name: one for name, one in found.items() if name in wanted}
    if found != wanted:
        raise ValueError(f"{found} in place of {wanted}")
    if header["version"] < 3:  # which wrote less, and under other names
        return
    ours = _header(fitted, [*omitted, *replaced], header["metadata"])
    objects = {name: header["objects"][name] for name in replaced}
    ours |= {"objects": ours["objects"] | objects, "omitted": list(omitted)}
    if not is_subset(header, ours):
        raise ValueError(f"{header} in place of {ours}")


def _names(names: Any) -> Any:
    """Column names with lists, as JSON reads tuples, turned back into tuples."""
    return tuple(map(_names, names)) if isinstance(names, list) else names


def _tensors(fitted: Fit, with_distance: bool) -> dict[str, Tensor]:
    """The tensors of a fit by name, contiguous on the CPU."""
    narrow = torch.int32 if len(fitted.x) < 2**31 else torch.int64
    tensors = {
        "x": fitted.x,
        "y_hat": fitted.y_hat,
        "edge_index": fitted.graph.edge_index.to(narrow),
        "sq_dist": fitted.graph.sq_dist,
        "value": fitted.solution.value,
        "residual": fitted.solution.residual,
        "error_bound": fitted.solution.error_bound,
    }
    if fitted.graph.scale is not None:
        tensors["scale"] = fitted.graph.scale
    if fitted.people.y_std is not None:
        tensors["y_std"] = fitted.people.y_std
    if fitted.people.features is not None:
        tensors["people"] = fitted.people.features.values
    groups, balance = fitted.people.groups, fitted.solution.balance
    if groups is not None and balance is not None:
        tensors["group_code"] = groups.code
        tensors |= {f"balance.{name}": getattr(balance, name) for name in _BALANCE}
    distance = fitted.settings.distance
    if with_distance and distance is not None:
        state = distance.state_dict()
        tensors |= {f"{_DISTANCE}{name}": value for name, value in state.items()}
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Type and shape of tensors by name, as plain data."""
    return {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}


def _content(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, as a view of its memory."""
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of header and tensors: safetensors itself notices no damage."""
    shapes = [text, _shapes(tensors)]
    total = hashlib.sha256(json.dumps(shapes, sort_keys=True).encode())
    for name in sorted(tensors):
        total.update(_content(tensors[name]))
    return total.hexdigest()


def _old_checksum(tensors: Mapping[str, Tensor]) -> int:
    """The checksum of version 1, a CRC over the tensors alone."""
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(_content(tensors[name]), total)
    return total


def _plain(value: Any) -> Any:
    """A parameter for JSON: numbers of any kind as Python's, the rest as it is."""
    as_is = value is None or isinstance(value, (str, int))
    return value if as_is else float(value)


def _described(name: str, value: Registered | None) -> dict[str, Any] | None:
    """An object as the name of its class and plain data."""
    try:
        return None if value is None else describe(value)
    except TypeError as error:
        remedy = f'or use save(path, omit=["{name}"]) and load(path, {name}=...)'
        raise TypeError(f"{error}, {remedy}") from error


def _state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the distance."""
    names = [name for name in tensors if name.startswith(_DISTANCE)]
    return {name.removeprefix(_DISTANCE): tensors[name] for name in names}


def _write(
    file: BinaryIO, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]
) -> None:
    """Writes the safetensors format, one tensor at a time and without a copy.

    The package's own writer calls a full disk an error of its own kind.
    """
    # Wide types first, so that every tensor starts at a multiple of its width.
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    layout: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.numel() * tensor.element_size()
        layout[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(layout).encode()
    # Padded, so that the tensors start at a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name in names:
        file.write(_content(tensors[name]))


def _layout(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """What the head of a safetensors file says, and where tensors start."""
    size = int.from_bytes(file.read(8), "little")
    if size > os.fstat(file.fileno()).st_size:
        raise ValueError(f"a header of {size} bytes")
    layout: dict[str, Any] = json.loads(file.read(size))
    return layout, 8 + size


def _load(file: BinaryIO) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Reads the safetensors format: header and tensors.

    The package's own reader opens the path twice, which mixes two files if somebody
    saves in between, and maps it into memory, where a fit would change with the file.
    Tensors have to follow each other from the head to the end of the file, so that they
    take no more memory than it has bytes, and nothing in it is left unread.
    """
    layout, at = _layout(file)
    metadata = layout.pop("__metadata__", {})
    dtypes = {name: dtype for dtype, name in _DTYPES.items()}
    shapes, end = {}, 0
    for name in sorted(layout, key=lambda name: layout[name]["data_offsets"]):
        entry = layout[name]
        shape, dtype = entry["shape"], dtypes[entry["dtype"]]
        size = math.prod(check_count("shape", one, minimum=0) for one in shape)
        start, end = end, end + size * dtype.itemsize
        if entry["data_offsets"] != [start, end]:
            raise ValueError(f"offsets {entry['data_offsets']} for the shape {shape}")
        shapes[name] = shape, dtype
    if at + end != os.fstat(file.fileno()).st_size:
        raise ValueError(f"tensors of {end} bytes")
    tensors = {}
    for name, (shape, dtype) in shapes.items():
        tensors[name] = torch.empty(shape, dtype=dtype)
        view = _content(tensors[name])
        if len(view) and file.readinto(view) != len(view):  # type: ignore[attr-defined]
            raise ValueError("an end before that of the tensors")
    return metadata, tensors


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file, once format and checksum are verified."""
    with open(path, "rb") as file, damage_in(path):
        metadata, tensors = _load(file)
        text = metadata.get(_HEADER)
    if text is None:
        got = "another kind of safetensors file"
        raise DamagedFileError(not_ours(path, got))
    protected = _CHECKSUM in metadata
    if protected and metadata[_CHECKSUM] != _checksum(text, tensors):
        raise DamagedFileError(not_ours(path, "a wrong checksum"))
    header = _checked_header(path, text, protected)
    if not protected:
        _adopt_version_1(path, header, metadata, tensors)
    return header, tensors


def _checked_header(path: Path, text: str, protected: bool) -> dict[str, Any]:
    """The header of a format and version that this code reads."""
    with damage_in(path):
        header: dict[str, Any] = json.loads(text)
        kind, version = header["format"], header["version"]
    if kind != _FORMAT:
        raise DamagedFileError(not_ours(path, f"format {kind!r}"))
    known = isinstance(version, int) and not isinstance(version, bool)
    if not known or version < (2 if protected else 1):
        raise DamagedFileError(not_ours(path, f"format version {version!r}"))
    if protected and version > _VERSION:
        msg = f"'path' must be of format version {_VERSION} or earlier"
        msg = f"{msg} (got {version} in '{path}')"
        raise ValueError(f"{msg}. Install a later pyg_glif")
    return header


def _adopt_version_1(
    path: Path,
    header: dict[str, Any],
    metadata: dict[str, str],
    tensors: dict[str, Tensor],
) -> None:
    """Checks what a file of version 1 lets us check and adds what it lacks."""
    if header["version"] != 1 or header.get("checksum") != _old_checksum(tensors):
        raise DamagedFileError(not_ours(path, "a wrong checksum"))
    with damage_in(path):
        columns = json.loads(metadata.get("pyg_glif.columns", "null"))
    header["names"] = [None, None]
    with damage_in(path):
        objects = header["objects"].items()
        header["objects"] = {name: _from_version_1(name, one) for name, one in objects}
    header["metadata"] = {} if columns is None else {"columns": columns}
    msg = f"'{path}' is of format version 1, in which no checksum covers the settings"
    warn_caller(f"{msg}. Save it again to protect them", UnprotectedFileWarning)


def _from_version_1(family: str, record: dict[str, Any] | None) -> Any:
    """The description of an object as version 2 has it."""
    if record is None:
        return None
    kind, config = record["class"], dict(record["options"])
    if kind not in registered(family):
        raise LookupError(kind)
    if kind in ("Euclidean", "SensitiveSubspace"):
        config.pop("learnable")
    if "preconditioner" in config:
        config["preconditioner"] = (
            describe(Jacobi()) if config["preconditioner"] else None
        )
    return {"family": family, "kind": kind, "config": config}
