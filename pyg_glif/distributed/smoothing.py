"""The solve over parts with its error bound, in the order of the input."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.optional import require
from pyg_glif._utils.runtime import available_memory
from pyg_glif._utils.validation import (
    check_choice,
    check_kind,
    check_scalar,
)
from pyg_glif.distributed._communicator import Communicator
from pyg_glif.distributed._inputs import FileColumns, are_paths, as_files
from pyg_glif.distributed._outputs import outputs_table, write_blocks, write_outputs
from pyg_glif.distributed._partition import Shard, part_of
from pyg_glif.distributed._store import FORMAT, Store
from pyg_glif.distributed.engine import Engine, as_engine
from pyg_glif.distributed.graph import ShardedGraph
from pyg_glif.graph.weights import decay_of
from pyg_glif.links import Link
from pyg_glif.registry import describe
from pyg_glif.smoothing import Smoother
from pyg_glif.solvers import CG, SolveStatus
from pyg_glif.typing import Normalization

_KIND = "outputs"
_BYTES_PER_EDGE = 32  # of a part, in memory


@dataclass(frozen=True, eq=False)
class ShardedSolution:
    """Fair outputs on disk, with their certificate.

    ``status``, ``num_iter``, ``residual``, ``error_bound`` and ``solver`` are those of
    a :class:`~pyg_glif.solvers.Solution`: the residual was recomputed from its
    definition in the end, whatever happened on the way.

    Args:
        store (Store): The folder.
        manifest (dict): Its manifest.
    """

    store: Store
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | PathLike[str]) -> "ShardedSolution":
        """Opens what :func:`smooth` made.

        Args:
            path (str or PathLike): The folder, or a URL that fsspec knows.
        """
        store = Store(path)
        return cls(store, store.manifest(_KIND))

    @property
    def status(self) -> SolveStatus:
        """How the solve ended."""
        return SolveStatus[self.manifest["solution"]["status"]]

    @property
    def num_iter(self) -> int:
        """Iterations since the last restart."""
        return int(self.manifest["solution"]["num_iter"])

    @property
    def residual(self) -> Tensor:  # [C] float64
        """Norm of the residual of each column, from its definition."""
        return torch.tensor(self.manifest["solution"]["residual"], dtype=torch.float64)

    @property
    def error_bound(self) -> Tensor:  # [C] float64
        """Bound on the distance of each column from the exact solution."""
        bound = self.manifest["solution"]["error_bound"]
        return torch.tensor(bound, dtype=torch.float64)

    @property
    def solver(self) -> str:
        """Name of the solver."""
        return str(self.manifest["solution"]["solver"])

    @property
    def columns(self) -> list[str]:
        """Names of the outputs."""
        return list(self.manifest["columns"])

    @property
    def files(self) -> list[str]:
        """Parquet files with ids and fair outputs, in the order of the input."""
        return [self.store.shown(file["name"]) for file in self.manifest["files"]]

    @cached_property
    def value(self) -> Tensor:  # [N] or [N, C]
        """All fair outputs in memory, in the order of the input.

        One column of numbers is a vector, as it is for one machine.
        """
        parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
        parts = []
        for record in self.manifest["files"]:
            self.store.check(record)
            with self.store.open(record["name"]) as file:
                table = parquet.read_table(file, columns=self.columns)
            columns = [table.column(name).to_numpy() for name in self.columns]
            parts.append(np.stack(columns, axis=1))
        value = torch.from_numpy(np.concatenate(parts))
        return value[:, 0] if self.manifest["flat"] else value

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(status={self.status.name}, "
            f"num_iter={self.num_iter}, residual={float(self.residual.max()):.1e}, "
            f"error_bound={float(self.error_bound.max()):.1e})"
        )


def smooth(
    graph: ShardedGraph,
    y_hat: Any,
    *,
    lam: float = 1.0,
    out: str | PathLike[str],
    theta: float | None = None,
    normalization: Normalization = None,
    link: Link | None = None,
    solver: CG | None = None,
    engine: Engine | str | None = None,
    address: str | None = None,
) -> ShardedSolution:
    r"""Smooths outputs over a graph in shards: :math:`(I + \lambda L)^{-1} \hat y`.

    Every worker holds the rows of consecutive blocks and runs the solver of
    :func:`~pyg_glif.glif_smooth`; before a product it fetches the rows of neighbors
    that others hold. If a worker is lost, all go on from the last checkpoint. A call
    that was stopped goes on from there, too; one with the same contents of files, graph
    and settings uses what was solved before.

    Args:
        graph (ShardedGraph): The graph.
        y_hat (str, sequence of str or array-like): The model's outputs: Parquet files
            with the ids of the samples in any order, or ``.npy`` files, or an array in
            memory, in the order of the dataset. :class:`FileColumns` selects columns.
        lam (float): Smoothing weight; zero returns the outputs. (default: :obj:`1.0`)
        out (str or PathLike): The folder to write, or a URL that fsspec knows. Fair
            outputs are Parquet files in the order of the input, with ids. One call at a
            time may write to it.
        theta (float, optional): Decay of the weights.
            (default: as :class:`~pyg_glif.GLIFPostProcessor` has it)
        normalization (str, optional): :obj:`None`, ``"density"`` or ``"nrw"``, which
            is refused where the objective has no minimum. (default: :obj:`None`)
        link (Link, optional): Coordinates in which outputs are averaged.
        solver (CG, optional): Tolerance and limits. (default: :obj:`CG()`)
        engine (Engine or str, optional): ``"process"``, ``"ray"`` or an engine.
            (default: Ray if this process is connected to it, else this process)
        address (str, optional): Of a Ray cluster, for ``engine="ray"``.

    Example:
        >>> import tempfile, numpy as np
        >>> from pyg_glif.distributed import ShardedDataset, radius_graph
        >>> folder = tempfile.mkdtemp()
        >>> rows = np.array([[0.0], [1.0], [3.0]], "float32")
        >>> dataset = ShardedDataset.build(f"{folder}/data", rows)
        >>> graph = radius_graph(dataset, tau=1.0, out=f"{folder}/graph")
        >>> y_hat = np.array([0.0, 3.0, 5.0], "float32")
        >>> fair = smooth(graph, y_hat, lam=1.0, theta=0.0, out=f"{folder}/fair")
        >>> fair.status.name, fair.value.round(decimals=4)
        ('CONVERGED', tensor([1., 2., 5.]))
    """
    lam = check_scalar("lam", lam, minimum=0.0)
    check_choice("normalization", normalization, (None, "nrw", "density"))
    solver = CG() if solver is None else solver
    check_kind("solver", solver, CG)
    if link is not None:
        check_kind("link", link, Link)
    if theta is not None:
        theta = check_scalar("theta", theta, minimum=0.0)
    decay = float(decay_of(theta, graph.tau))
    dataset, store = graph.dataset, Store(out)
    runner = as_engine(engine, address)
    store.check_out(_KIND, dataset.store.url, graph.store.url)
    selected = y_hat if isinstance(y_hat, FileColumns) else FileColumns(y_hat)
    files = as_files("y_hat", selected.files, store, _KIND)
    table = outputs_table(dataset, replace(selected, files=files))
    contents = table.contents()
    is_vector = are_paths(selected.files) or np.ndim(selected.files) == 1
    flat = table.width == 1 and is_vector
    settings = {
        "graph": graph.contents,
        "inputs": contents,
        "columns": [table.columns, table.id, flat],
        "solve": [lam, decay, normalization, describe(solver)],
        "link": None if link is None else describe(link),
        "format": FORMAT,
    }
    key = _fingerprints.of_plain(settings)
    done = store.finished(key, graph=graph.store.url)
    if done is not None:
        return ShardedSolution(store, done)
    columns = write_blocks(dataset, table, contents, store, key, runner.progress)
    parts = _parts(graph, runner.num_workers)
    size = graph.num_edges * _BYTES_PER_EDGE / max(1, runner.num_workers)
    # Edges of a part that take half of the memory had better stay on disk.
    mapped = size > 0.5 * available_memory(torch.device("cpu"))
    job = _SolveJob(
        graph, store, key, lam, decay, normalization, link, solver, parts, mapped,
        runner.checkpoint_every,
    )  # fmt: skip
    reports = runner.run_group(_solve, [job] * (len(parts) - 1))
    written = list(write_outputs(dataset, store, columns, key, runner.progress))
    content = {
        "graph": graph.store.url,
        "graph_contents": graph.contents,
        "lam": lam,
        "theta": decay,
        "normalization": normalization,
        "link": None if link is None else describe(link),
        "columns": columns,
        "flat": flat,
        "solution": reports[0],
        "parts": [report["part"] for report in reports],
        # In k-d order, for new samples.
        "fit": [
            store.own(f"fit/{block:05d}.json", key)["files"]
            for block in range(dataset.num_blocks)
        ],
        "files": written,
    }
    manifest = store.finish(_KIND, key, content)
    store.clear("work")
    for record in written:
        store.check(record)  # which another call may have replaced
    return ShardedSolution(store, manifest)


@dataclass(frozen=True, eq=False)
class _SolveJob:
    """Settings that all parts of a solve share."""

    graph: ShardedGraph
    store: Store
    key: str
    lam: float
    theta: float
    normalization: Normalization
    link: Link | None
    solver: CG
    parts: list[int]  # first block of each part, and the number of blocks
    mapped: bool
    every: int


def _parts(graph: ShardedGraph, num_parts: int) -> list[int]:
    """Consecutive blocks for each part, with about as many samples and edges."""
    blocks = graph.manifest["blocks"]
    counts = np.diff(graph.dataset.starts)
    cost = np.array([block["num_edges"] for block in blocks]) + 32.0 * counts
    num_parts = min(num_parts, len(blocks))
    done = np.concatenate([[0.0], cost.cumsum()]) / cost.sum()
    cuts = [0]
    for part in range(1, num_parts):
        cut = int(np.abs(done - part / num_parts).argmin())
        cuts.append(min(max(cut, cuts[-1] + 1), len(blocks) - (num_parts - part)))
    return [*cuts, len(blocks)]


def _solve(member: Communicator, job: _SolveJob) -> dict[str, Any]:
    """Solves one part with the others, and writes its outputs."""
    graph, dataset = job.graph, job.graph.dataset
    cuts = np.array(job.parts)
    blocks = range(int(cuts[member.rank]), int(cuts[member.rank + 1]))
    starts = dataset.starts[cuts]

    def reader(block: int) -> Callable[[], Shard]:
        return lambda: graph.shard(block)

    parts = [dataset.batch(block) for block in blocks]
    some = [part for part in parts if part is not None]
    checkpoints = _Checkpoints(job, member, blocks)
    op = part_of(
        member,
        [reader(block) for block in blocks],
        starts,
        job.theta,
        job.normalization,
        torch.cat(some) if some else None,
        job.mapped,
        checkpoints.reached,
    )
    records = [job.store.own(f"work/{block:05d}.json", job.key) for block in blocks]
    y = torch.cat([job.store.tensor(record["files"]["y"]) for record in records])
    smoother = Smoother(job.lam, link=job.link)
    eta = smoother.to_dual(y)
    scaled = op.scaled_deg if job.normalization == "nrw" else None
    system = op.system(job.lam)
    solution = job.solver.solve(system, eta, checkpoints.latest())
    f = solution.value
    value = smoother.from_dual(f, y, op.deg == 0)
    ends = np.cumsum([0, *(dataset.starts[b + 1] - dataset.starts[b] for b in blocks)])
    for block, left, right in zip(blocks, ends[:-1], ends[1:], strict=True):
        arrays = {"f": f[left:right], "deg": op.deg[left:right]}
        if job.link is not None:
            arrays["out"] = value[left:right]
        if scaled is not None:
            arrays["scaled_deg"] = scaled[left:right]
        job.store.put(f"fit/{block:05d}", job.key, arrays)
    scale = op.lam_scale
    return {
        "status": solution.status.name,
        "num_iter": solution.num_iter,
        "residual": solution.residual.tolist(),
        "error_bound": solution.error_bound.tolist(),
        "solver": solution.solver,
        "restarts": checkpoints.restarts,
        "lam_scale": float(scale) if scale.dim() == 0 else None,
        "part": {
            "samples": int(starts[member.rank + 1] - starts[member.rank]),
            "edges": op.num_edges,
            "halo": op.collectives.num_halo,
            "sent": op.collectives.num_sent,
        },
    }


class _Checkpoints:
    """Iterates of a solve on disk, to resume from if a part is lost."""

    def __init__(self, job: _SolveJob, comm: Communicator, blocks: range) -> None:
        self._store, self._key, self._every = job.store, job.key, job.every
        self._comm, self._blocks = comm, blocks
        self._starts = job.graph.dataset.starts
        self._from = 0
        self._numbers: list[int] = []  # iterations of the checkpoints there are
        self.restarts = 0

    def reached(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Writes a checkpoint if one is due, and removes those before the last two."""
        if num_iter % self._every:
            return
        x, first = iterate(), 0
        number = self._from + num_iter
        for block in self._blocks:
            count = int(self._starts[block + 1] - self._starts[block])
            arrays = {"x": x[first : first + count]}
            self._store.put(_name(number, block), self._key, arrays)
            first += count
        numbers = sorted({*self._numbers, number})
        self._numbers = numbers[-2:]
        for old, block in product(numbers[:-2], self._blocks):
            for suffix in ("json", "x.npy"):
                self._store.remove(f"{_name(old, block)}.{suffix}")

    def latest(self) -> Tensor | None:
        """The last iterate of which all members have their part."""
        names = [name.split(".") for name in self._store.names("work")]
        written = {int(p[1]) for p in names if p[0] == "iter" and p[-1] == "json"}
        # As the first member sees them: others may have written since.
        numbers = torch.tensor(sorted(written), dtype=torch.int64)
        self._numbers = self._comm.gather_any(numbers)[0].tolist()
        for number in reversed(self._numbers):
            x = self._read(number)
            complete = self._comm.gather(torch.tensor([x is not None]))
            if all(map(bool, complete)):
                self._from, self.restarts = number, 1
                return x
        return None

    def _read(self, number: int) -> Tensor | None:
        """This part of a checkpoint, if all of its files are sound."""
        parts = []
        for block in self._blocks:
            record = self._store.done(_name(number, block), self._key)
            if record is None:
                return None
            parts.append(self._store.tensor(record["files"]["x"]))
        return torch.cat(parts)


def _name(number: int, block: int) -> str:
    """Name of a block of a checkpoint."""
    return f"work/iter.{number:06d}.{block:05d}"
