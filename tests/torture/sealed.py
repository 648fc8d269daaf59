"""Files with a right checksum load only if ``save`` can have written them.

Whoever can write a file can also write its checksum. Each case changes saved fits and
estimators in many ways, seals them again and uses what loads, in a process of its own:
what it must not do is end, take much memory, or load what no fit can be.
"""

import hashlib
import json
import multiprocessing
import struct
import tempfile
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.audit import Bootstrap
from pyg_glif.distances import Mahalanobis, SensitiveSubspace, TaskDistance
from pyg_glif.errors import ConvergenceError, DamagedFileError
from pyg_glif.links import Logit, Softmax
from pyg_glif.sklearn import GLIFClassifier
from pyg_glif.solvers import CG, CoordinateDescent

from .harness import Campaign, Case

_PER_CASE = 25
_ROOM = 1 << 29  # bytes that a process may take beyond what it has
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "I64": torch.int64}
_DTYPES |= {"I32": torch.int32}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Content(NamedTuple):
    """A saved file in parts."""

    header: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, data: bytes) -> "Content":
        """The parts of a file, read without the library."""
        size = struct.unpack("<Q", data[:8])[0]
        layout = json.loads(data[8 : 8 + size])
        metadata, tensors = layout.pop("__metadata__"), {}
        for name, entry in layout.items():
            start, end = (8 + size + one for one in entry["data_offsets"])
            found = torch.frombuffer(
                bytearray(data[start:end]) or bytearray(8),
                dtype=_DTYPES[entry["dtype"]],
            )
            tensors[name] = found[: (end - start) // found.itemsize].view(
                entry["shape"]
            )
        return cls(json.loads(metadata["pyg_glif"].partition(" ")[2]), tensors)

    def sealed(self, layout: Callable[[dict[str, Any]], None] | None = None) -> bytes:
        """The file with its checksum; ``layout`` may change where tensors are."""
        text, body, entries = json.dumps(self.header), b"", {}
        content = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            content.update(f"{name!r} {tensor.dtype} {list(tensor.shape)};".encode())
            content.update(tensor.numpy().tobytes())
        seal = hashlib.sha256((text + content.hexdigest()).encode()).hexdigest()
        for name, tensor in self.tensors.items():
            part = tensor.contiguous().numpy().tobytes()
            offsets = [len(body), len(body) + len(part)]
            entries[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": offsets,
            }
            body += part
        if layout is not None:
            layout(entries)
        head = json.dumps(
            {"__metadata__": {"pyg_glif": f"{seal} {text}"}, **entries}
        ).encode()
        return struct.pack("<Q", len(head)) + head + body


class Saved(NamedTuple):
    """What was saved, and how to load and use it."""

    data: bytes
    use: Callable[[Path], None]


def _use_post(path: Path) -> None:
    """All that a fit can be asked, and that it can be saved as it was."""
    post = GLIFPostProcessor.load(path)
    x, y = post.x_, post.y_hat_
    std = None if post.fit_.sample_info.y_std is None else 1.0
    out = post.transform(x[:3], y[:3], y_std=std)
    sound = not post.solution_.status.is_failure
    assert not sound or bool(out.isfinite().all()), "outputs that are not finite"
    post.transform(x[:3], y[:3], joint=True, y_std=std)
    post.audit(bootstrap=Bootstrap(num_samples=20), num_nearest=None)
    post.explain(0, top=2)
    post.explain_new(x[:1], top=2, y_std=std)
    post.summary()
    before = Content.of(path.read_bytes())
    post.save(path, metadata=post.metadata_)
    after = Content.of(path.read_bytes())
    assert _same(before, after), "other content when saved again"


def _same(one: Content, other: Content) -> bool:
    """Whether two files say the same, up to options that one of them leaves out."""
    texts = [
        json.dumps({**c.header, "objects": 0}, sort_keys=True) for c in (one, other)
    ]
    return texts[0] == texts[1] and all(
        torch.equal(one.tensors[name].nan_to_num(), other.tensors[name].nan_to_num())
        for name in one.tensors.keys() | other.tensors.keys()
    )


@lru_cache
def _saved() -> list[Saved]:
    """Fits of every kind, small, and an estimator."""
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(14, 2)), dtype=torch.float32)
    y = torch.tensor(rng.random(14), dtype=torch.float32)
    two = torch.stack([y, 1 - y], 1).double()
    head = torch.nn.Linear(2, 1).requires_grad_(False)
    task = TaskDistance(Mahalanobis(torch.eye(2)), head, weight=0.5)
    blind = SensitiveSubspace(torch.tensor([[1.0, 1.0]]))
    ids = [f"s{i}" for i in range(14)]
    posts = [
        GLIFPostProcessor(tau=1.0, theta=0.5, link=Logit(eps=1e-3)).fit(x, y),
        GLIFPostProcessor(k=3, solver=CG(rtol=1e-9)).fit(x.double(), y.double()),
        GLIFPostProcessor(k=2, tau=1.5, mutual=True, distance=task).fit(x, y, ids=ids),
        GLIFPostProcessor(tau=1.0, distance=blind, link=Softmax()).fit(x, two),
        GLIFPostProcessor(tau=1.2).fit(x, y, groups=["a", "b"] * 7),
        GLIFPostProcessor(tau=1.0, solver=CoordinateDescent()).fit(x, y, y_std=1.0),
    ]
    frame = pd.DataFrame(
        {"age": range(14), "job": ["a", None, "b", "a"] * 3 + ["a"] * 2}
    )
    posts[0].describe(frame, ids=ids)
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "fit", []
        for post in posts:
            post.save(path, metadata={"model": "risk 3"})
            out.append(Saved(path.read_bytes(), _use_post))
        out.append(_estimator(path))
    return out


def _estimator(path: Path) -> Saved:
    """A classifier of a table with numbers and categories."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.integers(0, 3, 40)})
    y = (frame["a"] + rng.normal(size=40) > 0).astype(int)
    model = GLIFClassifier(LogisticRegression(), lam=1.0, sensitive=["b"], cv=2)
    model.fit(frame, y).save(path)

    def use(path: Path) -> None:
        found = GLIFClassifier.load(path, estimator=model.estimator_)
        out = found.predict_proba(frame)
        assert np.isfinite(out).all(), "probabilities that are not finite"
        found.predict(frame)
        found.explain(frame[:1])

    return Saved(path.read_bytes(), use)


def _run(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved, kinds = case.pick(_saved()), ["nothing"]
        (Path(folder) / "0").write_bytes(Content.of(saved.data).sealed())
        while len(kinds) < _PER_CASE:
            kind = case.pick([*_BROKEN, *["a leaf", "an entry"] * 8])
            bad = _changed(case, saved.data, kind)
            if bad is not None:
                (Path(folder) / str(len(kinds))).write_bytes(bad)
                kinds.append(kind)
        log = Path(folder) / "log"
        code = _apart(lambda: _try_all(Path(folder), len(kinds), saved, log))
        found = log.read_text().splitlines()
        if code != 0:
            where = kinds[len(found)] if len(found) < len(kinds) else "the end"
            case.found(f"{where}: the process died", f"exit code {code}")
        for kind, line in zip(kinds, found, strict=False):
            case.count("files sealed")
            case.count("files refused" if line == "refused" else "files loaded")
            ok = line == "refused" or (line == "loaded" and kind not in _BROKEN)
            ok = line == "loaded" if kind == "nothing" else ok
            case.check(ok, f"{kind}: {line.split(':')[0]}", line)


def _changed(case: Case, data: bytes, kind: str) -> bytes | None:
    """The file with a change and a right checksum, unless there is none to make."""
    content = Content.of(data)
    try:
        if kind in _LAYOUTS:
            return content.sealed(lambda entries: _LAYOUTS[kind](case, entries))
        change = {**_BROKEN, "a leaf": _leaf, "an entry": _entry}[kind]
        change(case, content.header, content.tensors)
    except (KeyError, IndexError, TypeError, ValueError):  # nothing to change there
        return None
    bad = content.sealed()
    return None if bad == Content.of(data).sealed() else bad


def _apart(work: Callable[[], None]) -> int | None:
    """The exit code of work in a process that may die of it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    process.join(100)
    process.kill()
    process.join()
    return process.exitcode


def _try_all(folder: Path, num: int, saved: Saved, log: Path) -> None:
    """Loads and uses files, and writes down how it went before the next one."""
    import resource

    torch.set_num_threads(1)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with open(log, "w") as file:
        for number in range(num):
            print(_tried(folder / str(number), saved), file=file, flush=True)


def _tried(path: Path, saved: Saved) -> str:
    """How the loading of a file ended."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved.use(path)
    except DamagedFileError:
        return "refused"
    except ConvergenceError:  # a legal limit, such as rtol=0, that no solver meets
        return "loaded"
    except ValueError as error:
        told = (
            "'path' must be of format",
            "must be given, because",
            "must have the classes",
            "'path' must be a",
        )
        if any(one in str(error) for one in told):
            return "refused"
        return f"ValueError: {' '.join(str(error).split())[:160]}"
    except BaseException as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    return "loaded"


# What a leaf of plain data may be replaced by.
_NASTY = (None, True, False, 0, -1, 1, 3, 7.5, -0.5, 2**70, 1e308, float("nan"))
_NASTY += (float("inf"), "", "x", "os.system", [], [1], {}, {"a": 1})


def _leaves(value: Any) -> list[tuple[Any, Any]]:
    """All places in plain data: the container and the key."""
    keys = range(len(value)) if isinstance(value, list) else list(value)
    out = []
    for key in keys:
        out.append((value, key))
        if isinstance(value[key], (dict, list)):
            out += _leaves(value[key])
    return out


def _leaf(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Anything in the header is something else, or gone, or there once more."""
    holder, key = case.pick(_leaves(header))
    if case.chance(0.1) and isinstance(holder, dict):
        del holder[key]
    elif case.chance(0.1) and isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[key] = case.pick(_NASTY)


def _entry(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Any number of any tensor is another one."""
    name = case.pick(sorted(tensors))
    flat = tensors[name].view(-1)
    nasty = [0, -1, 1, 13, 14, 2**31 - 1]
    if flat.is_floating_point():
        nasty += [np.nan, np.inf, -np.inf, 1e30, -0.5, 1e-30]
    flat[int(case.rng.integers(len(flat)))] = case.pick(nasty)


Change = Callable[[Case, dict[str, Any], dict[str, Tensor]], None]


def _put(name: str, value: float) -> Change:
    """One number of a tensor is another one."""

    def change(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        flat = tensors[name].view(-1)
        flat[int(case.rng.integers(len(flat)))] = value

    return change


def _made(name: str, make: Callable[[Tensor], Tensor]) -> Change:
    """A tensor is another one."""

    def change(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors[name] = make(tensors[name]).contiguous()

    return change


def _edges(
    make: Callable[[Tensor], Tensor], keep: Callable[[Tensor], Tensor]
) -> Change:
    """Edges are others, and as many distances go with them."""

    def change(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        tensors["edge_index"] = make(tensors["edge_index"]).contiguous()
        tensors["sq_dist"] = keep(tensors["sq_dist"]).contiguous()

    return change


def _set(value: Any, *keys: str) -> Change:
    """A place in the header has another value."""

    def change(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        held: Any = header
        for key in keys[:-1]:
            held = held[key]
        if held[keys[-1]] is None and value is None:
            raise KeyError(keys)
        held[keys[-1]] = value

    return change


def _looped(edges: Tensor) -> Tensor:
    out = edges.clone()
    out[1, 0] = out[0, 0]
    return out


def _more(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    names = {"scale", "features", "distance.more", "more"} - tensors.keys()
    tensors[case.pick(sorted(names))] = torch.ones(14, dtype=torch.float64)


def _less(case: Case, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    # Of a linear layer the bias may be missing.
    del tensors[case.pick(sorted(tensors.keys() - {"distance.head.bias"}))]


def _unknown_text(
    case: Case, header: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    texts = [at for at, one in enumerate(header["features"]["levels"]) if one]
    tensors["features"][0, case.pick(texts)] = case.pick([-1.0, 0.5, 9.0, np.inf])


_FLOATS = ("x", "y_hat", "sq_dist", "value", "residual", "error_bound", "scale")
_FLOATS += ("y_std", "balance.beta", "balance.energy", "distance.directions")
_FLOATS += ("distance.head.weight", "distance.head.bias", "distance.distance.factor")
_VERSIONS = (0, -1, 1, 2, 2.0, 3.0, 3.5, "3", True, None, [3], {}, 5, 99, 2**70)
_VERSIONS += (float("nan"), float("inf"))

_BROKEN: dict[str, Change] = {
    "an edge out of range": _put("edge_index", 14),
    "an edge far out of range": _put("edge_index", 2**31 - 1),
    "an edge to -1": _put("edge_index", -1),
    "an edge in one direction": _edges(lambda e: e[:, 1:], lambda d: d[1:]),
    "an edge twice": _edges(
        lambda e: torch.cat([e[:, :1], e], 1), lambda d: torch.cat([d[:1], d])
    ),
    "edges out of order": _edges(lambda e: e.flip(1), lambda d: d.flip(0)),
    "edges in three rows": _made("edge_index", lambda e: torch.cat([e, e[:1]])),
    "edges in one row": _made("edge_index", lambda e: e[:1]),
    "edges without a shape": _made("edge_index", lambda e: e.reshape(-1)),
    "edges of another type": _made("edge_index", lambda e: e.long()),
    "edges that are no whole numbers": _made("edge_index", lambda e: e.float()),
    "an edge to itself": _made("edge_index", _looped),
    "a negative distance": _put("sq_dist", -1.0),
    "a distance of one direction": _made(
        "sq_dist", lambda d: torch.cat([d[:1] * 0.5 + 1e-3, d[1:]])
    ),
    "a negative residual": _put("residual", -1.0),
    "a negative error bound": _put("error_bound", -1e-9),
    "a negative scale": _put("scale", -1.0),
    "a negative y_std": _put("y_std", -1.0),
    "a y_std of zero": _put("y_std", 0.0),
    "a negative share": _put("balance.beta", -1.0),
    "a group that is none": _put("group_code", 5),
    "a group below none": _put("group_code", -1),
    "a balance of another group": _put("balance.group", 7),
    "a text that is none": _unknown_text,
    "directions of another length": _made("distance.directions", lambda d: 2.0 * d),
    "a tensor too many": _more,
    "a tensor less": _less,
    "no sample at all": _made("x", lambda x: x[:0]),
    **{f"NaN in {name}": _put(name, np.nan) for name in _FLOATS},
    **{
        f"infinity in {name}": _put(name, np.inf)
        for name in _FLOATS
        if name not in ("residual", "error_bound", "scale")
    },
    **{f"a row less of {name}": _made(name, lambda t: t[1:]) for name in _FLOATS[:8]},
    **{
        f"{name} of another type": _made(
            name, lambda t: t.double() if t.dtype != torch.float64 else t.float()
        )
        for name in ("value", "residual", "error_bound", "features", "y_std", "scale")
    },
    **{f"version {one}": _set(one, "version") for one in _VERSIONS},
    **{
        f"{'.'.join(keys)} = {value}": _set(value, *keys)
        for keys, values in {
            ("tau",): (-1.0, float("nan"), None, "1", 0.123),
            ("theta",): (-1.0, float("nan"), "x"),
            ("decay",): (-1.0, float("nan"), None, "x"),
            ("params", "lam"): (-1.0, float("nan"), float("inf"), None, "1", [1.0]),
            ("params", "k"): (0, -1, True, 2.0, "3"),
            ("params", "mutual"): ("x", None, 2),
            ("params", "normalization"): ("x", 1),
            ("params", "target_degree"): (0, -1, None, "x"),
            ("params", "coverage"): (2.0, -1.0, "x"),
            ("solution", "status"): ("X", None, 1),
            ("solution", "num_iter"): (-1, 1.5, None, "1", True),
            ("solution", "solver"): (None, 1, []),
            ("objects", "solver"): (
                {"family": "solver", "kind": "CG", "config": {"rtol": -1.0}},
                {"family": "solver", "kind": "CG", "config": {"throw": "x"}},
                {"family": "link", "kind": "Logit", "config": {}},
            ),
            ("objects", "distance", "config"): ([], {"os": "system"}, None),
            ("names",): ([], None, [["a"] * 2, None], [None, None, None]),
            ("metadata",): ([], None, "x"),
            ("omitted",): (["x"], None, {}),
            ("ids",): ([], ["s0"] * 14, [1.5] * 14, None),
            ("groups",): (["a"], ["a", "a"], ["a", "b", "c"], None),
            ("balance", "ratio"): (0.5, float("nan"), None),
            ("balance", "gap"): (-1.0, float("nan")),
            ("features", "names"): (["age"], ["age", 3], None),
            ("features", "levels"): ([None, ["a"]], [None], None),
            ("features", "places"): ([0, 9], [-1, 0], [0], "x"),
            ("metadata", "estimator", "dtype"): ("<U999999999", "x", None),
            ("metadata", "estimator", "classes"): ([0], [0, 1, 2], [[0, 1]]),
            ("metadata", "estimator", "table", "columns"): ([], None, [{}]),
            ("metadata", "estimator", "table", "version"): (0, True, None, "1"),
            ("metadata", "estimator", "form", "names"): ([], ["a"], ["b", "a"]),
            ("metadata", "estimator", "params", "max_loss"): (-1, "x", None),
        }.items()
        for value in values
    },
}


def _overlapping(case: Case, entries: dict[str, Any]) -> None:
    """Two tensors share their bytes, the first hundreds of times."""
    name = case.pick(sorted(entries))
    for number in range(200):
        entries[f"{name}.{number}"] = entries[name]


def _moved(case: Case, entries: dict[str, Any]) -> None:
    """A tensor begins elsewhere."""
    entry = entries[case.pick(sorted(entries))]
    by = case.pick([-8, 8, 1, 10**6, -(10**6), 2**62])
    entry["data_offsets"] = [one + by for one in entry["data_offsets"]]


def _huge(case: Case, entries: dict[str, Any]) -> None:
    """A tensor is larger than the file."""
    entry = entries[case.pick(sorted(entries))]
    size = case.pick([2**20, 2**31, 2**40, 2**62])
    entry["shape"] = [size]
    entry["data_offsets"] = [0, size * _DTYPES[entry["dtype"]].itemsize]


def _odd(case: Case, entries: dict[str, Any]) -> None:
    """What is said about a tensor is no description of one."""
    entry = entries[case.pick(sorted(entries))]
    entry[case.pick(sorted(entry))] = case.pick(
        [None, [-1, -1], "x", [True], {}, [0.5]]
    )


_LAYOUTS: dict[str, Callable[[Case, dict[str, Any]], None]] = {
    "tensors that overlap": _overlapping,
    "a tensor elsewhere": _moved,
    "a tensor beyond the file": _huge,
    "a tensor without a description": _odd,
}
# Layouts take content and change it when it is written.
_BROKEN |= dict.fromkeys(_LAYOUTS, _leaf)

CAMPAIGN = Campaign("sealed", _run, 12, 1.0)
