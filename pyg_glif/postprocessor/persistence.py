"""One safetensors file for a fit: tensors, and plain data in the header.

Nothing in the file is code. Classes are named, and looked up among the few listed
here; anything else must be left out when saving and handed in when loading.

The header holds two texts: ``pyg_glif``, which is JSON, and ``checksum``, the SHA-256
of that text and of the name, type, shape and content of every tensor. Version 1 had a
checksum of the tensors' content alone, inside the JSON.
"""

import contextlib
import hashlib
import json
import math
import os
import shutil
import uuid
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from pyg_glif._validate import check_choice
from pyg_glif.distances import Euclidean, FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.errors import DamagedFileError, UnprotectedFileWarning
from pyg_glif.graph import SimilarityGraph
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

try:
    import fcntl
except ImportError:  # Windows, which does not delete a file that is open
    fcntl = None  # type: ignore[assignment]

_FORMAT = "pyg_glif.GLIFPostProcessor"
_VERSION = 2
_HEADER = "pyg_glif"
_CHECKSUM = "checksum"

_CLASSES: dict[str, dict[str, Any]] = {
    "distance": {c.__name__: c for c in (Euclidean, Mahalanobis, SensitiveSubspace)},
    "link": {c.__name__: c for c in (Identity, Log, Logit, Softmax)},
    "solver": {c.__name__: c for c in (Auto, CG, Cholesky, CoordinateDescent)},
}
_PLAIN = ("tau", "theta", "lam", "normalization", "target_degree")
# What safetensors calls the types that fits are made of.
_DTYPES = {
    torch.float64: "F64",
    torch.int64: "I64",
    torch.float32: "F32",
    torch.int32: "I32",
}


def write_fitted(
    path: str | PathLike[str],
    fitted: Fitted,
    params: Mapping[str, Any],
    omit: Sequence[str],
    metadata: Mapping[str, Any],
) -> None:
    """Writes a fit and the parameters it came from."""
    for name in omit:
        check_choice("omit", name, tuple(_CLASSES))
    tensors = _tensors(fitted, "distance" not in omit)
    solution = fitted.solution
    header = {
        "format": _FORMAT,
        "version": _VERSION,
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
        "names": fitted.names,
        "metadata": dict(metadata),
    }
    try:
        text = json.dumps(header)
    except TypeError as error:
        msg = f"'metadata' must be plain data, as JSON has it (got {error})"
        raise TypeError(msg) from error
    with _replacing(path) as file:
        _write(file, tensors, {_HEADER: text, _CHECKSUM: _checksum(text, tensors)})


def read_fitted(
    path: str | PathLike[str], given: Mapping[str, Any]
) -> tuple[Fitted, dict[str, Any], dict[str, Any]]:
    """A fit, the parameters it came from and what else is in the file.

    ``given`` replaces saved objects.
    """
    header, tensors = _read(Path(path))
    with damage_in(path):
        omitted = [name for name in _CLASSES if name in header["omitted"]]
        missing = [name for name in omitted if given[name] is None]
        if not missing:
            return _rebuilt(header, tensors, given)
    msg = f"'{missing[0]}' must be given, because the file leaves it out"
    raise ValueError(f"{msg}. Use load(path, {missing[0]}=...)")


@contextlib.contextmanager
def damage_in(path: str | PathLike[str]) -> Iterator[None]:
    """Turns whatever goes wrong with the content of a file into one error."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,  # of shapes that do not fit, and of recursion
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFileError(_not_ours(Path(path), "a damaged header")) from error


def _rebuilt(
    header: dict[str, Any], tensors: dict[str, Tensor], given: Mapping[str, Any]
) -> tuple[Fitted, dict[str, Any], dict[str, Any]]:
    """The fit that header and tensors describe."""
    params = {name: header["params"][name] for name in _PLAIN}
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
    settings, x = Settings.of(params, header["tau"]), tensors["x"]
    edges, sq_dist = tensors["edge_index"].long(), tensors["sq_dist"]
    graph = SimilarityGraph(edges, sq_dist, len(x), settings.tau)
    features, outputs = (_names(names) for names in header["names"])
    lap, y_hat = settings.laplacian(graph), tensors["y_hat"]
    y_fair = settings.from_dual(solution.value, y_hat, lap.deg)
    names = features, outputs
    fitted = Fitted(settings, x, y_hat, graph, lap, y_fair, solution, names)
    return fitted, params, header["metadata"]


def _names(names: Any) -> Any:
    """Column names, whose tuples JSON has as lists."""
    return tuple(map(_names, names)) if isinstance(names, list) else names


def _tensors(fitted: Fitted, with_distance: bool) -> dict[str, Tensor]:
    """Everything large, on the CPU."""
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
    distance = fitted.settings.distance
    if with_distance and distance is not None:
        state = distance.state_dict()
        tensors |= {f"distance.{name}": value for name, value in state.items()}
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _content(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, shared with it."""
    array: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    return memoryview(array)


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Against damage on disk or on the way, which safetensors does not notice."""
    shapes = {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}
    total = hashlib.sha256(json.dumps([text, shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        total.update(_content(tensors[name]))
    return total.hexdigest()


def _old_checksum(tensors: Mapping[str, Tensor]) -> int:
    """That of version 1."""
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(_content(tensors[name]), total)
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
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for name in names:
        file.write(_content(tensors[name]))


@contextlib.contextmanager
def _replacing(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` once it is complete.

    Everybody writes to a file of their own, locked as long as they live; what can be
    locked by somebody else was left behind and is removed.
    """
    try:
        target = Path(os.path.realpath(path))
        _remove_left_over(target)
        beside, file = _locked(target)
        try:
            with file:
                if target.exists():
                    shutil.copymode(target, beside)
                yield file
                file.flush()
                os.fsync(file.fileno())
                if os.name != "nt":
                    os.replace(beside, target)  # while locked
            if os.name == "nt":
                os.replace(beside, target)  # which Windows wants closed
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:
            raise
        # Says which path the caller gave, not which one we wrote to.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _locked(target: Path) -> tuple[Path, BinaryIO]:
    """A new file beside ``target``, which nobody removes while it is open."""
    while True:
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        # Closed by the caller, who also holds the lock that comes with it.
        file = open(beside, "xb")  # noqa: SIM115
        if fcntl is None:
            return beside, file
        fcntl.flock(file, fcntl.LOCK_EX)
        # Somebody may have taken it for left over before it was locked.
        if beside.exists():
            return beside, file
        file.close()


def _remove_left_over(target: Path) -> None:
    """Removes what killed processes left of earlier attempts to write ``target``."""
    start, end = f".{target.name}.", ".part"
    for beside in target.parent.iterdir():
        name = beside.name
        if not (name.startswith(start) and name.endswith(end)):
            continue
        if len(name) != len(start) + 32 + len(end):
            continue
        with contextlib.suppress(OSError), open(beside, "rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                beside.unlink()
        if fcntl is None:
            with contextlib.suppress(OSError):
                beside.unlink()


def _load(file: BinaryIO) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Reads the safetensors format: header and tensors.

    The package's own reader opens the path twice, which mixes two files if somebody
    saves in between, and maps it into memory, where a fit would change with the file.
    """
    total = os.fstat(file.fileno()).st_size
    size = int.from_bytes(file.read(8), "little")
    if size > total:
        raise ValueError(f"a header of {size} bytes")
    layout = json.loads(file.read(size))
    metadata = layout.pop("__metadata__", {})
    dtypes = {name: dtype for dtype, name in _DTYPES.items()}
    tensors = {}
    for name, entry in layout.items():
        shape, dtype = entry["shape"], dtypes[entry["dtype"]]
        start, end = entry["data_offsets"]
        if math.prod(shape) * dtype.itemsize != end - start or end > total:
            raise ValueError(f"{end - start} bytes for the shape {shape}")
        tensors[name] = torch.empty(shape, dtype=dtype)
        file.seek(8 + size + start)
        if end > start and file.readinto(_content(tensors[name])) != end - start:  # type: ignore[attr-defined]
            raise ValueError(f"an end after {total} bytes")
    return metadata, tensors


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file that is what it should be."""
    with open(path, "rb") as file, damage_in(path):
        metadata, tensors = _load(file)
        text = metadata.get(_HEADER)
    if text is None:
        got = "another kind of safetensors file"
        raise DamagedFileError(_not_ours(path, got))
    protected = _CHECKSUM in metadata
    if protected and metadata[_CHECKSUM] != _checksum(text, tensors):
        raise DamagedFileError(_not_ours(path, "a wrong checksum"))
    header = _checked_header(path, text, protected)
    if not protected:
        _adopt_version_1(path, header, metadata, tensors)
    return header, tensors


def _checked_header(path: Path, text: str, protected: bool) -> dict[str, Any]:
    """The header of a format and version that this code reads."""
    with damage_in(path):
        header: dict[str, Any] = json.loads(text)
        kind, version = header["format"], int(header["version"])
    if kind != _FORMAT:
        raise DamagedFileError(_not_ours(path, f"format {kind!r}"))
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
        raise DamagedFileError(_not_ours(path, "a wrong checksum"))
    with damage_in(path):
        columns = json.loads(metadata.get("pyg_glif.columns", "null"))
    header["names"] = [None, None]
    header["metadata"] = {} if columns is None else {"columns": columns}
    msg = f"'{path}' is of format version 1, in which no checksum covers the settings"
    warnings.warn(
        f"{msg}. Save it again to protect them", UnprotectedFileWarning, stacklevel=5
    )


def _not_ours(path: Path, got: str) -> str:
    """Wording for a file that ``save`` did not write, or that was damaged since."""
    kind = "a file that 'GLIFPostProcessor.save' wrote"
    return f"'path' must be {kind} (got {got} in '{path}')"
