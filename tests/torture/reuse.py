"""Whatever changed since the last call, folders that are used again hold what new do.

Builds, searches and solves into the same folders, one after another. Between two of
them one input or setting changes, a file is damaged, or a call is stopped. Input files
keep their time and, as a rule, their size.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pyg_glif.distances import Euclidean, FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.distributed import (
    Engine,
    InProcess,
    ShardedDataset,
    ShardedIndex,
    radius_graph,
    smooth,
)
from pyg_glif.distributed._store import Store
from pyg_glif.links import Link, Logit
from pyg_glif.solvers import CG
from tests.distributed.faults import damage

from .harness import Campaign, Case

_WIDTH = 3
_STEPS = 4  # calls of each case
_TIME = 1_600_000_000  # of all input files


class _Scaled(FairDistance):
    """A distance that is not registered, and whose factor is in no state dict."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


@dataclass(frozen=True)
class Call:
    """All that a result depends on."""

    rows: np.ndarray
    ids: np.ndarray
    y_hat: np.ndarray
    named: bool  # Parquet files with ids, in place of arrays
    in_memory: bool
    distance: FairDistance | None = None
    block_rows: int = 30
    tau: float = 0.8
    lam: float = 2.0
    theta: float | None = None
    normalization: Any = None
    link: Link | None = None
    solver: CG = field(default_factory=CG)


def changes(case: Case, call: Call) -> dict[str, Callable[[], dict[str, Any]]]:
    """One input or setting that is not as before, each."""
    rng, num = case.rng, len(call.rows)
    links = [None, Logit(), Logit(eps=0.05)]

    def one_of(options: list[Any], now: Any) -> Any:
        return case.pick([one for one in options if one != now])

    return {
        "rows": lambda: {"rows": _with_other_row(rng, call.rows)},
        "order of rows": lambda: {"rows": call.rows[rng.permutation(num)]},
        "ids": lambda: {"ids": call.ids[rng.permutation(num)]},
        "outputs": lambda: {"y_hat": call.y_hat[rng.permutation(num)]},
        "columns": lambda: {"y_hat": rng.random((num, int(rng.integers(1, 3))))},
        "distance": lambda: {"distance": _distance(case)},
        "block_rows": lambda: {"block_rows": one_of([20, 30, 45], call.block_rows)},
        "tau": lambda: {"tau": float(rng.uniform(0.5, 1.1))},
        "lam": lambda: {"lam": float(rng.uniform(0.0, 9.0))},
        "theta": lambda: {"theta": float(rng.uniform(0.0, 2.0))},
        "normalization": lambda: {
            "normalization": one_of([None, "density"], call.normalization)
        },
        "link": lambda: {"link": one_of(links, call.link)},
        "solver": lambda: {"solver": CG(rtol=float(10 ** rng.uniform(-9, -5)))},
        "in memory": lambda: {"in_memory": not call.in_memory},
        "nothing": dict,
    }


def _with_other_row(rng: np.random.Generator, rows: np.ndarray) -> np.ndarray:
    rows = rows.copy()
    rows[rng.integers(len(rows))] = rng.normal(size=_WIDTH)
    return rows


def _distance(case: Case) -> FairDistance | None:
    a = torch.from_numpy(case.rng.normal(size=(_WIDTH, _WIDTH))).float()
    return case.pick(
        [
            lambda: None,
            Euclidean,
            lambda: Mahalanobis(a @ a.T / 3.0 + 0.1 * torch.eye(_WIDTH)),
            lambda: SensitiveSubspace(a[:1]),
            lambda: _Scaled(float(case.rng.uniform(0.5, 2.0))),
        ]
    )()


def _written(call: Call, folder: Path) -> tuple[Any, Any]:
    """Rows and outputs as files of these contents, or as arrays."""
    if call.in_memory and not call.named:
        return call.rows, call.y_hat
    folder.mkdir(exist_ok=True)
    suffix = "parquet" if call.named else "npy"
    paths = [folder / f"{name}.{suffix}" for name in ("rows", "outputs")]
    for path, array in zip(paths, (call.rows, call.y_hat), strict=True):
        if call.named:
            columns = {f"c{j}": pa.array(array[:, j]) for j in range(array.shape[1])}
            table = pa.table({"id": pa.array(call.ids), **columns})
            pq.write_table(table, path, compression="none", use_dictionary=False)
        else:
            np.save(path, array)
        os.utime(path, (_TIME, _TIME))
    return str(paths[0]), str(paths[1])


def run_call(
    call: Call, inputs: Path, out: Path, engine: Engine | None = None
) -> dict[str, Any]:
    """Everything that a call gives."""
    rows, y_hat = _written(call, inputs)
    if engine is None:
        engine = InProcess(progress=False, checkpoint_every=2)
    shared: dict[str, Any] = {"engine": engine}
    dataset = ShardedDataset.build(
        out / "dataset",
        rows,
        id="id" if call.named else None,
        distance=call.distance,
        block_rows=call.block_rows,
        **shared,
    )
    graph = radius_graph(dataset, call.tau, out=out / "graph", **shared)
    fair = smooth(
        graph,
        y_hat,
        lam=call.lam,
        out=out / "fair",
        theta=call.theta,
        normalization=call.normalization,
        link=call.link,
        solver=call.solver,
        **shared,
    )
    edges, sq_dist = graph.to_edges()
    table = pa.concat_tables([pq.read_table(path) for path in fair.files])
    found = {
        "edges": edges.numpy().tobytes(),
        "squared distances": sq_dist.numpy().tobytes(),
        "ids": table.column(0).to_pylist(),
        "columns": (fair.columns, tuple(fair.value.shape)),
        "settings": [fair.manifest[name] for name in ("lam", "theta", "normalization")],
        "value": fair.value.double().reshape(len(call.rows), -1),
        "bound": fair.error_bound,
    }
    if not isinstance(call.distance, _Scaled):
        new = torch.from_numpy(call.rows[:4] + 0.01).float()
        index = ShardedIndex(fair, graph)
        y_new = torch.from_numpy(call.y_hat[:4]).reshape(4, -1)
        found["new samples"] = index.correct(new, y_new).double()
    return found


def _stop(case: Case, call: Call, inputs: Path, out: Path) -> None:
    """A call that ends before some file is written."""
    save, left = Store.save, int(case.rng.integers(60))

    def counted(self: Store, name: str, array: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device", self.path(name))
        return save(self, name, array)

    with mock.patch.object(Store, "save", counted):
        try:
            run_call(call, inputs, out)
        except OSError:
            case.count("calls stopped")


def _damage(case: Case, out: Path) -> str:
    """Damages a file, which keeps its time."""
    files = sorted(path for path in out.rglob("*") if path.is_file())
    path, how = case.pick(files), case.pick(["truncated", "flipped", "deleted"])
    stat = path.stat()
    damage(path, how)
    if path.exists():
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    case.count("files damaged")
    return f"{path.relative_to(out)} {how}"


def _run(case: Case) -> None:
    rng = case.rng
    num = int(rng.integers(40, 110))
    call = Call(
        rows=rng.normal(size=(num, _WIDTH)).astype(np.float32),
        ids=rng.permutation(10 * num)[:num],
        y_hat=rng.random((num, 1)),
        named=case.chance(0.5),
        in_memory=case.chance(0.3),
        distance=_distance(case),
    )
    with tempfile.TemporaryDirectory() as name:
        folder, history = Path(name), ["first"]
        for step in range(_STEPS):
            if step:
                what = case.pick(sorted(changes(case, call)))
                call = replace(call, **changes(case, call)[what]())
                history.append(what)
            if case.chance(0.3):
                _stop(case, call, folder / "inputs", folder / "used")
                history.append("stopped")
            if step and case.chance(0.3):
                history.append(_damage(case, folder / "used"))
            used = run_call(call, folder / "inputs", folder / "used")
            fresh = run_call(call, folder / "inputs", folder / f"fresh{step}")
            case.count("calls compared")
            for name in differing(used, fresh):
                what = f"other {name} than in a new folder"
                case.found(what, "; ".join(history))


def differing(used: dict[str, Any], fresh: dict[str, Any]) -> list[str]:
    """What differs between two results, solutions by more than certified errors."""
    return [name for name in fresh if not _same(name, used, fresh)]


def _same(name: str, used: dict[str, Any], fresh: dict[str, Any]) -> bool:
    got, want = used[name], fresh[name]
    if name == "value":
        # With a link the bound is on dual coordinates, which move outputs less.
        bound = used["bound"] + fresh["bound"] + 1e-12
        return got.shape == want.shape and bool(
            ((got - want).norm(dim=0) <= bound).all()
        )
    if name == "bound":
        return bool((got <= 100.0 * want + 1e-5).all())
    if name == "new samples":
        return got.shape == want.shape and torch.allclose(got, want, rtol=0, atol=1e-4)
    return bool(got == want)


CAMPAIGN = Campaign("reuse", _run, 3, 1.0)
