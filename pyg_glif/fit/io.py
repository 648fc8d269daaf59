"""One safetensors file for a fit: tensors, and plain data in the header.

A file is loaded only if ``save`` can have written it. The content is built by the
public constructors, which check it, and described again: the description has to be that
in the file. A right checksum tells that a file is whole, not who wrote it.

Nothing in the file is code. Distance, link and solver describe themselves by the name
of their class and plain data (:mod:`pyg_glif.registry`); classes that are not
registered must be left out when saving and handed in when loading.

The metadata of the file is one text, ``pyg_glif``: a checksum, a blank and JSON. The
checksum is the SHA-256 of that JSON and of the name, type, shape and content of every
tensor. Under ``params`` are the parameters as the user set them, under ``tau``,
``theta`` and ``decay`` the numbers in use.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from pyg_glif._utils.files import damage_in, not_ours, replacing
from pyg_glif._utils.fingerprints import of_tensors
from pyg_glif._utils.json import is_subset
from pyg_glif._utils.validation import check_choice, check_outputs
from pyg_glif.errors import DamagedFileError
from pyg_glif.fit.display_features import DisplayFeatures
from pyg_glif.fit.fit import Fit, balanced, check_solution
from pyg_glif.fit.sample_info import Groups, SampleInfo, as_ids
from pyg_glif.fit.settings import FitSettings
from pyg_glif.graph import SimilarityGraph
from pyg_glif.registry import Registered, build, describe, registered
from pyg_glif.solvers import Balance, Solution, SolveStatus

_FORMAT = "pyg_glif.GLIFPostProcessor"
_VERSION = 1
_KEY = "pyg_glif"

# Parameters that are objects, each of the family of the same name.
_OBJECTS = ("distance", "link", "solver")
_PLAIN = (
    "tau",
    "theta",
    "lam",
    "normalization",
    "target_degree",
    "coverage",
    "k",
    "mutual",
)
# Start of the names of the tensors of the distance.
_DISTANCE = "distance."
# Tensors of the balance of groups.
_BALANCE = ("group", "beta", "energy")


def write_fit(
    path: str | PathLike[str],
    fit: Fit,
    omit: Sequence[str],
    metadata: Mapping[str, Any],
) -> None:
    """Writes a fit and the parameters behind it."""
    for name in omit:
        check_choice("omit", name, _OBJECTS)
    tensors, header = _tensors(fit, "distance" not in omit), _header(fit, omit)
    try:
        text = json.dumps({**header, "metadata": dict(metadata)})
    except TypeError as error:
        msg = f"'metadata' must be plain data, as JSON has it (got {error})"
        raise TypeError(msg) from error
    with replacing(path) as file:
        _write(file, text, tensors)


def _write(file: BinaryIO, text: str, tensors: Mapping[str, Tensor]) -> None:
    """Writes header and tensors."""
    from safetensors.numpy import save

    # Bytes, so that a full disk is the usual error of the operating system.
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    file.write(save(arrays, {_KEY: f"{_checksum(text, tensors)} {text}"}))


def read_fit(
    path: str | PathLike[str], objects: Mapping[str, Any], progress: bool | None
) -> tuple[Fit, dict[str, Any]]:
    """A fit and the metadata in the file; ``objects`` replace saved ones."""
    header, tensors = _read(Path(path))
    with damage_in(path):
        missing = [
            (name, kind)
            for name, kind in _kinds(header).items()
            if objects[name] is None and kind not in (None, *registered(name))
        ]
        if not missing:
            fit = _rebuilt(header, tensors, {**objects, "progress": progress})
            _check_rewritten(fit, header, tensors, objects)
            if not isinstance(header["metadata"], dict):
                raise TypeError("metadata that are no mapping")
            return fit, header["metadata"]
    name, kind = missing[0]
    why, remedy = "leaves it out", f"Use load(path, {name}=...)"
    if kind:
        why = f"names the class '{kind}', which is not registered"
        remedy = f"{remedy} or 'pyg_glif.registry.register'"
    raise ValueError(f"'{name}' must be given, because the file {why}. {remedy}")


def read_options(path: str | PathLike[str]) -> tuple[list[str], dict[str, Any]]:
    """Omitted objects and metadata of a file, from the header only."""
    with open(path, "rb") as file, damage_in(path):
        size = int.from_bytes(file.read(8), "little")
        if size > os.fstat(file.fileno()).st_size:
            raise ValueError(f"a header of {size} bytes")
        header = json.loads(_split(json.loads(file.read(size)))[1])
        return list(header["omitted"]), dict(header["metadata"])


def _split(layout: Mapping[str, Any]) -> tuple[str, str]:
    """Checksum and JSON in the head of a safetensors file; empty if it has none."""
    checksum, _, text = layout.get("__metadata__", {}).get(_KEY, "").partition(" ")
    return checksum, text


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file with the right format and checksum.

    Read at once: a file may be replaced meanwhile, and a memory map would change with
    it.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = path.read_bytes()
    with damage_in(path):
        try:
            tensors = load(content)
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        size = int.from_bytes(content[:8], "little")
        checksum, text = _split(json.loads(content[8 : 8 + size]))
        is_whole = checksum == _checksum(text, tensors)
    if not checksum:
        raise DamagedFileError(not_ours(path, "another kind of safetensors file"))
    if not is_whole:
        raise DamagedFileError(not_ours(path, "a wrong checksum"))
    with damage_in(path):
        header: dict[str, Any] = json.loads(text)
        kind, version = header["format"], header["version"]
    if kind != _FORMAT:
        raise DamagedFileError(not_ours(path, f"format {kind!r}"))
    is_number = isinstance(version, int) and not isinstance(version, bool)
    if not is_number or version < _VERSION:
        raise DamagedFileError(not_ours(path, f"format version {version!r}"))
    if version > _VERSION:
        msg = f"'path' must be of format version {_VERSION} (got {version} in '{path}')"
        raise ValueError(f"{msg}. Install a later pyg_glif")
    return header, tensors


def _header(fit: Fit, omit: Sequence[str]) -> dict[str, Any]:
    """All of a fit but its tensors, as plain data."""
    solution, settings, info = fit.solution, fit.settings, fit.sample_info
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "tau": settings.tau,
        "theta": settings.theta,
        "decay": settings.decay,
        "params": {name: _plain(settings.params[name]) for name in _PLAIN},
        "objects": {
            name: _described(name, settings.params[name])
            for name in _OBJECTS
            if name not in omit
        },
        "omitted": list(omit),
        "solution": {
            "status": solution.status.name,
            "num_iter": solution.num_iter,
            "solver": solution.solver,
        },
        "names": fit.names,
    }
    if info.ids is not None:
        header["ids"] = info.ids
    if info.features is not None:
        header["features"] = info.features.to_config()
    if info.groups is not None and solution.balance is not None:
        header["groups"] = info.groups.labels
        header["balance"] = {
            name: _plain(getattr(solution.balance, name))
            for name in ("ratio", "gap", "num_solves")
        }
    return header


def _kinds(header: dict[str, Any]) -> dict[str, str | None]:
    """Class name of each object; empty if it was left out, ``None`` if not set."""
    kinds: dict[str, str | None] = dict.fromkeys(header["omitted"], "")
    for name in _OBJECTS:
        if name not in kinds:
            record = header["objects"][name]
            kinds[name] = None if record is None else record["kind"]
    return kinds


def _rebuilt(
    header: dict[str, Any], tensors: dict[str, Tensor], objects: Mapping[str, Any]
) -> Fit:
    """The fit that header and tensors describe."""
    params = {name: header["params"][name] for name in _PLAIN} | dict(objects)
    for name in _OBJECTS:
        record = header["objects"].get(name)
        if params[name] is None and record is not None:
            state = {"state": _state(tensors)} if name == "distance" else {}
            params[name] = build(name, record, **state)
    info, balance = _sample_info(header, tensors)
    report = header["solution"]
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
    info.check(len(y_hat))
    numbers = (header[name] for name in ("tau", "theta", "decay"))
    settings = FitSettings.of(params, *numbers)
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
    lap = balanced(lap, info, solution)
    names = features, outputs
    return Fit(settings, x, y_hat, graph, lap, y_fair, solution, names, info)


def _sample_info(
    header: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[SampleInfo, Balance | None]:
    """Facts about samples, and the balance of groups."""
    ids, labels, config = (header.get(name) for name in ("ids", "groups", "features"))
    groups = balance = features = None
    if labels is not None:
        groups = Groups(tuple(as_ids(labels, "groups")), tensors["group_code"])
        parts: dict[str, Any] = {name: tensors[f"balance.{name}"] for name in _BALANCE}
        balance = Balance(**parts, **header["balance"])
    if config is not None:
        features = DisplayFeatures.from_config(config, tensors["features"])
    names = None if ids is None else tuple(as_ids(ids))
    return SampleInfo(names, tensors.get("y_std"), groups, features), balance


def _check_rewritten(
    fit: Fit,
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    objects: Mapping[str, Any],
) -> None:
    """Raises unless ``save`` would write of the fit what the file holds."""
    omitted = header["omitted"]
    replaced = {name for name in _OBJECTS if objects[name] is not None} - {*omitted}
    wanted = _shapes(_tensors(fit, "distance" not in {*replaced, *omitted}))
    held = _shapes(tensors)
    if "distance" in replaced:
        held = {name: shape for name, shape in held.items() if name in wanted}
    if held != wanted:
        raise ValueError(f"{held} in place of {wanted}")
    ours = _header(fit, [*omitted, *replaced])
    kept = {name: header["objects"][name] for name in replaced}
    ours |= {"objects": ours["objects"] | kept, "omitted": list(omitted)}
    ours["metadata"] = header["metadata"]
    if not is_subset(header, ours):
        raise ValueError(f"{header} in place of {ours}")


def _names(names: Any) -> Any:
    """Column names with lists, as JSON reads tuples, turned back into tuples."""
    return tuple(map(_names, names)) if isinstance(names, list) else names


def _tensors(fit: Fit, with_distance: bool) -> dict[str, Tensor]:
    """The tensors of a fit by name, contiguous on the CPU."""
    narrow = torch.int32 if len(fit.x) < 2**31 else torch.int64
    info, balance, distance = fit.sample_info, fit.solution.balance, None
    optional = {"scale": fit.graph.scale, "y_std": info.y_std}
    if info.features is not None:
        optional["features"] = info.features.values
    if info.groups is not None and balance is not None:
        optional["group_code"] = info.groups.code
        optional |= {f"balance.{name}": getattr(balance, name) for name in _BALANCE}
    if with_distance:
        distance = fit.settings.distance
    if distance is not None:
        state = distance.state_dict()
        optional |= {f"{_DISTANCE}{name}": value for name, value in state.items()}
    tensors = {
        "x": fit.x,
        "y_hat": fit.y_hat,
        "edge_index": fit.graph.edge_index.to(narrow),
        "sq_dist": fit.graph.sq_dist,
        "value": fit.solution.value,
        "residual": fit.solution.residual,
        "error_bound": fit.solution.error_bound,
        **{name: part for name, part in optional.items() if part is not None},
    }
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[Any]]:
    """Type and shape of tensors by name, as plain data."""
    return {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of header and tensors: safetensors itself notices no damage."""
    return hashlib.sha256(f"{text}{of_tensors(tensors)}".encode()).hexdigest()


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
