"""Damaged files load as they were, or raise the one documented error."""

import json
import struct
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Mahalanobis, SensitiveSubspace
from pyg_glif.links import Logit
from pyg_glif.solvers import CG

from .harness import Campaign, Case

_PER_CASE = 25


def _run(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case.pick([_damage, _damage, _damage, _places])(case, Path(folder))


def _post(case: Case) -> tuple[GLIFPostProcessor, torch.Tensor, torch.Tensor]:
    """A small fit, and newcomers to compare it by."""
    rng = case.rng
    distance = case.pick(
        [
            None,
            Mahalanobis(torch.tensor([[2.0, 0.5], [0.5, 1.0]])),
            SensitiveSubspace(torch.tensor([[1.0, 1.0]])),
        ]
    )
    post = GLIFPostProcessor(
        distance=distance,
        tau=float(rng.uniform(0.5, 2.0)),
        lam=float(rng.uniform(0.1, 5.0)),
        normalization=case.pick([None, "density"]),
        link=case.pick([None, Logit(eps=1e-3)]),
        solver=case.pick([None, CG(rtol=1e-8)]),
    )
    x = torch.tensor(rng.normal(size=(12, 2)), dtype=torch.float32)
    y = torch.tensor(rng.random(12), dtype=torch.float32)
    post.fit(x, y)
    new = torch.tensor(rng.normal(size=(6, 2)), dtype=torch.float32)
    return post, new, torch.tensor(rng.random(6), dtype=torch.float32)


def _state(post: GLIFPostProcessor, new: torch.Tensor, y_new: torch.Tensor) -> str:
    """All that a fit says and does, in full digits."""
    params = {
        name: repr(float(value) if isinstance(value, int) else value)
        for name, value in post.get_params(deep=False).items()
    }
    solution = post.solution_
    return repr(
        (
            sorted(params.items()),
            post.tau_,
            post.y_fair_.tolist(),
            post.transform(new, y_new).tolist(),
            post.graph_.edge_index.tolist(),
            post.graph_.edge_sq_dist.tolist(),
            (solution.status, solution.num_iter, solution.solver),
            (solution.residual.tolist(), solution.error_bound.tolist()),
            post.explain(0).weight.tolist(),
        )
    )


def _damage(case: Case, folder: Path) -> None:
    """Many ways to damage one file."""
    post, new, y_new = _post(case)
    path = folder / "fit.safetensors"
    post.save(path)
    good = path.read_bytes()
    other, *_ = _post(case)
    other.save(folder / "other.safetensors")
    foreign = (folder / "other.safetensors").read_bytes()
    want = _state(GLIFPostProcessor.load(path), new, y_new)
    for _ in range(_PER_CASE):
        kind = case.pick(list(_DAMAGES))
        try:
            bad = _DAMAGES[kind](case, good, foreign)
        except (KeyError, ValueError):  # nothing there to damage in this way
            continue
        if bad == good:
            continue
        path.write_bytes(bad)
        case.count("files damaged")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                loaded = GLIFPostProcessor.load(path)
                got = _state(loaded, new, y_new)
        except Exception as error:
            ok = isinstance(error, ValueError) and "'path' must be" in str(error)
            detail = f"{type(error).__name__}: {str(error)[:160]}"
            case.check(
                ok, f"{kind}: {type(error).__name__} in place of the error", detail
            )
            case.count("files refused")
            continue
        case.count(
            "files loaded as before" if got == want else "files loaded otherwise"
        )
        case.check(got == want, f"{kind}: a damaged file loads with other content")


def _flip(case: Case, good: bytes, foreign: bytes) -> bytes:
    out = bytearray(good)
    out[int(case.rng.integers(len(out)))] ^= 1 << int(case.rng.integers(8))
    return bytes(out)


def _flip_header(case: Case, good: bytes, foreign: bytes) -> bytes:
    out = bytearray(good)
    length = struct.unpack("<Q", good[:8])[0]
    out[int(case.rng.integers(8 + length))] ^= 1 << int(case.rng.integers(8))
    return bytes(out)


def _digit(case: Case, good: bytes, foreign: bytes) -> bytes:
    """Another digit in the header, which leaves the header well formed."""
    length = struct.unpack("<Q", good[:8])[0]
    digits = [at for at in range(8, 8 + length) if chr(good[at]).isdigit()]
    out = bytearray(good)
    at = case.pick(digits)
    out[at] = ord(str((int(chr(out[at])) + int(case.rng.integers(1, 10))) % 10))
    return bytes(out)


def _cut(case: Case, good: bytes, foreign: bytes) -> bytes:
    return good[: int(case.rng.integers(len(good)))]


def _longer(case: Case, good: bytes, foreign: bytes) -> bytes:
    return good + bytes(int(case.rng.integers(1, 40)))


def _swapped_header(case: Case, good: bytes, foreign: bytes) -> bytes:
    """Somebody else's header before our tensors."""
    ours, theirs = (struct.unpack("<Q", data[:8])[0] for data in (good, foreign))
    return foreign[: 8 + theirs] + good[8 + ours :]


def _huge_length(case: Case, good: bytes, foreign: bytes) -> bytes:
    length = case.pick([2**63, 2**40, 10**8, 10**6, 0, 1])
    return struct.pack("<Q", length) + good[8:]


def _edited(case: Case, good: bytes, foreign: bytes) -> bytes:
    """A setting changed in a header that is otherwise in order."""
    header, body = _header(good)
    name = "pyg_glif"
    inner = json.loads(header["__metadata__"][name])
    target: Any = inner
    path = []
    while isinstance(target, dict) and target:
        key = case.pick(sorted(target))
        path.append(key)
        if not isinstance(target[key], dict) or not target[key]:
            break
        target = target[key]
    value = target[path[-1]]
    if isinstance(value, bool):
        target[path[-1]] = not value
    elif isinstance(value, (int, float)):
        target[path[-1]] = case.pick(
            [value * 2 + 1, -1, float("nan"), 1e308, "x", None]
        )
    elif isinstance(value, str):
        target[path[-1]] = case.pick(["", "x", value.upper(), 3, None])
    else:
        target[path[-1]] = case.pick([0, "x", [1], {"a": 1}])
    header["__metadata__"][name] = json.dumps(inner)
    return _joined(header, body)


def _nested(case: Case, good: bytes, foreign: bytes) -> bytes:
    """Very deep JSON where settings should be."""
    header, body = _header(good)
    depth = case.pick([100, 5_000, 200_000])
    header["__metadata__"]["pyg_glif"] = "[" * depth + "]" * depth
    return _joined(header, body)


def _renamed(case: Case, good: bytes, foreign: bytes) -> bytes:
    """Two tensors change names, or one is gone."""
    header, body = _header(good)
    names = [name for name in header if name != "__metadata__"]
    a, b = case.rng.choice(names, size=2, replace=False)
    header[a], header[b] = header[b], header[a]
    if case.chance(0.3):
        header["another"] = header.pop(a)
    return _joined(header, body)


def _retyped(case: Case, good: bytes, foreign: bytes) -> bytes:
    """A tensor of another type or shape with as many bytes."""
    header, body = _header(good)
    names = [name for name in header if name != "__metadata__"]
    record = header[case.pick(names)]
    twins = {"F32": "I32", "I32": "F32", "F64": "I64", "I64": "F64"}
    if case.chance(0.5):
        record["dtype"] = twins[record["dtype"]]
    else:
        record["shape"] = [*record["shape"], 1]
    return _joined(header, body)


def _header(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _joined(header: dict[str, Any], body: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


_DAMAGES = {
    "bit flip": _flip,
    "bit flip in the header": _flip_header,
    "digit in the header": _digit,
    "cut": _cut,
    "longer": _longer,
    "swapped header": _swapped_header,
    "header length": _huge_length,
    "edited setting": _edited,
    "nested header": _nested,
    "renamed tensors": _renamed,
    "retyped tensor": _retyped,
}


def _places(case: Case, folder: Path) -> None:
    """Where files are written: missing folders, links, threads, leftovers."""
    post, new, y_new = _post(case)
    want = _state(post, new, y_new)
    case.count("places")
    try:
        post.save(folder / "missing" / "fit.safetensors")
    except OSError:
        pass
    except Exception as error:
        case.found("a missing folder is no OSError", f"{type(error).__name__}: {error}")
    else:
        case.found("a missing folder is no OSError", "nothing was raised")
    real, link = folder / "real.safetensors", folder / "link.safetensors"
    post.save(real)
    link.symlink_to(real)
    post.save(link)
    case.check(link.is_symlink(), "a symlink is replaced", str(link.name))
    _threads(case, post, folder / "shared.safetensors")
    loaded = _state(GLIFPostProcessor.load(folder / "shared.safetensors"), new, y_new)
    case.check(loaded == want, "a saved fit loads otherwise", "after threads saved it")
    names = {"real.safetensors", "link.safetensors", "shared.safetensors"}
    left = [p.name for p in folder.iterdir() if p.name not in names]
    case.check(not left, "saving leaves files behind", str(sorted(left)))


def _threads(case: Case, post: GLIFPostProcessor, path: Path) -> None:
    """Several threads save to one path, several load from it."""
    post.save(path)
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def repeat(action: Any) -> None:
        start.wait()
        try:
            for _ in range(5):
                action(path)
        except Exception as error:
            errors.append(error)

    actions = [post.save, post.save, post.save, GLIFPostProcessor.load]
    threads = [threading.Thread(target=repeat, args=(act,)) for act in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    detail = f"{type(errors[0]).__name__}: {errors[0]}" if errors else ""
    case.check(not errors, "threads that save to one path collide", detail)


CAMPAIGN = Campaign("files", _run, 25, 1.0)
