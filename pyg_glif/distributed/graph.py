"""The exact similarity graph of people in blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._runtime import available_memory, without_autocast
from pyg_glif._validate import check_choice, check_scalar
from pyg_glif.distributed._store import FORMAT, Located, Store, key_of
from pyg_glif.distributed.engine import Engine, as_engine
from pyg_glif.distributed.people import ShardedPeople
from pyg_glif.errors import DamagedFileError, MemoryBudgetError
from pyg_glif.graph.blocks import BlockSearch, Strategy, sample_of, width_for

_KIND = "edges"
_TASK_COLUMNS = 64  # blocks that one task compares a block with, at most
_BUDGET_SHARE = 0.8
# Per directed edge: while a block's edges are sorted, and on disk with half a pair.
_BYTES_IN_MEMORY, _BYTES_ON_DISK = 48, 16
_ATTEMPTS = 3  # at files that are damaged while they are in use


@dataclass(frozen=True)
class TaskCount:
    """How many tasks of a search were run, and how many had been done before."""

    run: int
    reused: int


class ShardedGraph:
    """The edges of people in blocks, as CSR shards: one for each block of rows.

    Made by :func:`radius_graph`, found again by :meth:`open`.

    Args:
        store (Store): The folder.
        manifest (dict): What it says about itself.
        people (ShardedPeople): Whose graph it is.
        tasks (TaskCount, optional): What the search that made it did.
    """

    def __init__(
        self,
        store: Store,
        manifest: dict[str, Any],
        people: ShardedPeople,
        tasks: TaskCount | None = None,
    ) -> None:
        self.store, self.manifest = store, manifest
        self.people = people
        self.tasks = TaskCount(0, 0) if tasks is None else tasks

    @classmethod
    def open(
        cls, path: str | PathLike[str], people: ShardedPeople | None = None
    ) -> "ShardedGraph":
        """Opens what :func:`radius_graph` made.

        Args:
            path (str or PathLike): The folder, or a URL that fsspec knows.
            people (ShardedPeople, optional): Whose graph it is.
                (default: as the folder says)
        """
        store = Store(path)
        manifest = store.manifest(_KIND)
        if people is None:
            people = ShardedPeople.open(manifest["people"])
        if people.manifest["key"] != manifest["people_key"]:
            msg = f"'{store.url}' must be the graph of these people"
            raise ValueError(f"{msg} (got one of others). Call 'radius_graph' again")
        return cls(store, manifest, people)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_people={self.people.num_people}, "
            f"num_edges={self.num_edges}, tau={self.tau:g})"
        )

    @property
    def tau(self) -> float:
        """The radius."""
        return float(self.manifest["tau"])

    @property
    def num_edges(self) -> int:
        """Number of edges, both directions counted."""
        return sum(block["num_edges"] for block in self.manifest["blocks"])

    def shard(self, block: int) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        """Row pointers, columns in k-d order and squared distances of a block."""
        files, store = self.manifest["blocks"][block]["files"], self.store
        folder = store.child("edges")
        try:
            found = tuple(folder.load(files[name]) for name in ("ptr", "col", "sq"))
        except DamagedFileError as error:
            msg = f"{error}. Call 'radius_graph' again, which makes this shard anew"
            raise DamagedFileError(msg) from None
        return found  # type: ignore[return-value]

    def edges(self) -> tuple[Tensor, Tensor]:
        """All edges in memory, in the order of the input.

        Returns:
            ``edge_index`` and ``sq_dist`` as :func:`~pyg_glif.fair_radius_graph` has
            them, sorted by row and column.
        """
        people = self.people
        place = np.empty(people.num_people, dtype=np.int64)
        for block, start in enumerate(people.starts[:-1]):
            part = people.place(block)
            place[start : start + len(part)] = part
        rows, cols, sqs = [], [], []
        for block, start in enumerate(people.starts[:-1]):
            ptr, col, sq = self.shard(block)
            rows.append(np.repeat(place[start : start + len(ptr) - 1], np.diff(ptr)))
            cols.append(place[col])
            sqs.append(sq)
        row, col, sq = (np.concatenate(part) for part in (rows, cols, sqs))
        order = np.lexsort((col, row))
        edges = torch.from_numpy(np.stack([row[order], col[order]]))
        return edges, torch.from_numpy(sq[order])


@without_autocast()
def radius_graph(
    people: ShardedPeople,
    tau: float,
    *,
    out: str | PathLike[str],
    strategy: Strategy = "auto",
    memory_budget: int | None = None,
    engine: Engine | str | None = None,
    progress: bool | None = None,
) -> ShardedGraph:
    r"""Finds all pairs of people within fair distance ``tau``, exactly, block by block.

    The edges are those of :func:`~pyg_glif.fair_radius_graph`: the same rule decides
    in the same place of the code. A call that was stopped goes on where it was, files
    that were damaged are made anew.

    Args:
        people (ShardedPeople): The people.
        tau (float): Radius in units of the distance (not squared).
        out (str or PathLike): The folder to write, or a URL that fsspec knows.
        strategy (str, optional): As in :func:`~pyg_glif.fair_radius_graph`.
            (default: ``"auto"``)
        memory_budget (int, optional): Bytes that all workers of this machine may take
            together. (default: four fifths of what is free here)
        engine (Engine or str, optional): Where the work is done: ``"process"``,
            ``"ray"`` or an engine. (default: Ray if this process is connected to it,
            else this process)
        progress (bool, optional): Whether to show progress bars.
            (default: on a terminal)

    Example:
        >>> import tempfile, numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/rows.npy", np.array([[0.0], [1.0], [3.0]], "float32"))
        >>> people = ShardedPeople.build(f"{folder}/people", f"{folder}/rows.npy")
        >>> graph = radius_graph(people, tau=1.0, out=f"{folder}/graph")
        >>> graph.edges()
        (tensor([[0, 1],
                [1, 0]]), tensor([1., 1.]))
    """
    tau = check_scalar("tau", tau, minimum=0.0, allow_inf=True)
    check_choice("strategy", strategy, ("auto", "projected", "plain"))
    runner, store = as_engine(engine), Store(out)
    rows, batch = people.sample()
    width = width_for(people.frame, rows, tau, strategy)
    settings = {"people": people.manifest["key"], "tau": tau, "format": FORMAT}
    key = key_of(settings)
    done = store.finished(key, partial(_files_of, store))
    if done is not None:
        return ShardedGraph(store, done, people)
    sample = sample_of(people.frame, rows, batch, people.num_people)
    _check_room(people, sample, tau, store, runner.num_workers, memory_budget)
    search = _Search(people, store, key, tau, width)
    return search.run(runner, progress)


class _Task(NamedTuple):
    """A block of rows, and blocks of columns that it is compared with."""

    number: int
    row: int
    cols: tuple[int, ...]


class _Search:
    """One run of :func:`radius_graph`."""

    def __init__(
        self,
        people: ShardedPeople,
        store: Store,
        key: str,
        tau: float,
        width: int | None,
    ) -> None:
        self._people, self._store, self._key, self._tau = people, store, key, tau
        self._job = _Job(people, store, key, tau, width)

    def run(self, engine: Engine, progress: bool | None) -> ShardedGraph:
        """Searches, sorts and writes the manifest."""
        store = self._store
        missing = self._missing(engine)
        plan = self._plan(missing)
        count = TaskCount(0, 0)
        for attempt in range(_ATTEMPTS):
            found = engine.run(
                partial(_search, self._job), plan, "radius graph", progress
            )
            fresh = sum(bool(ran) for _, ran in found)
            count = TaskCount(count.run + fresh, count.reused + len(plan) - fresh)
            reverse = _sources(plan)
            merge = partial(_merge, self._job, reverse)
            try:
                for _ in engine.run(merge, missing, "sorting edges", progress):
                    pass
                break
            except DamagedFileError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        folder = store.child("edges")
        blocks = [
            folder.read_json(f"{block:05d}.json")
            for block in range(self._people.num_blocks)
        ]
        content = {
            "people": self._people.store.url,
            "people_key": self._people.manifest["key"],
            "tau": self._tau,
            "blocks": blocks,
        }
        manifest = store.finish(_KIND, self._key, content)
        store.child("work").clear()
        return ShardedGraph(store, manifest, self._people, count)

    def _missing(self, engine: Engine) -> list[int]:
        """Blocks whose edges are not there, or not as they were written."""
        blocks = range(self._people.num_blocks)
        folder = self._store.child("edges")
        some = [b for b in blocks if folder.exists(f"{b:05d}.json")]
        sound = {
            block
            for block, good in engine.run(partial(_is_sound, self._job), some, "check")
            if good
        }
        return [block for block in blocks if block not in sound]

    def _plan(self, missing: Sequence[int]) -> list[_Task]:
        """Which blocks are to be compared, as an earlier run had it if it stopped."""
        work = self._store.child("work")
        known = work.record_of("plan.json", self._key)
        if known is not None and set(missing) <= set(known["missing"]):
            return [_Task(n, row, tuple(cols)) for n, row, cols in known["tasks"]]
        work.clear()
        plan = list(self._tasks(missing))
        data = {"key": self._key, "missing": list(missing), "tasks": plan}
        work.write_json("plan.json", data)
        return plan

    def _tasks(self, missing: Sequence[int]) -> Iterator[_Task]:
        """Every pair of blocks that may hold edges, once, if one of them is missing.

        Of two that are missing the earlier takes the pair if their numbers are both
        odd or both even, the later otherwise: all have about as much to do.
        """
        people, wanted = self._people, set(missing)
        boxes, search = people.boxes(), self._job.search
        graphs = [block["graphs"] for block in people.manifest["blocks"]]
        number = 0
        for row in missing:
            near = search.near(boxes[row], boxes).tolist()
            cols = []
            for col in range(people.num_blocks):
                mine = col not in wanted or col == row
                mine = mine or (row < col) == ((row + col) % 2 == 0)
                if near[col] and mine and _overlap(graphs[row], graphs[col]):
                    cols.append(col)
            for first in range(0, len(cols), _TASK_COLUMNS):
                yield _Task(number, row, tuple(cols[first : first + _TASK_COLUMNS]))
                number += 1


@dataclass(frozen=True, eq=False)
class _Job:
    """What all tasks of a search have in common."""

    people: ShardedPeople
    store: Store
    key: str
    tau: float
    width: int | None

    @property
    def search(self) -> BlockSearch:
        """Finds pairs."""
        people = self.people
        return BlockSearch(people.frame, self.tau, people.largest, self.width)

    @property
    def pair(self) -> np.dtype[Any]:
        """A pair: rows in their blocks, and the squared distance."""
        sq = "<f8" if self.people.dtype == torch.float64 else "<f4"
        return np.dtype([("i", "<i4"), ("j", "<i4"), ("sq", sq)])


@without_autocast()
def _search(job: _Job, task: _Task) -> bool:
    """Writes the pairs of a task; says whether there was anything to do."""
    work, name = job.store.child("work"), f"{task.number:06d}"
    done = work.record_of(f"{name}.json", job.key)
    if done is not None and work.is_sound(done["file"]):
        return False
    search, people = job.search, job.people
    left = people.block(task.row)
    parts, starts = [], [0]
    for col in task.cols:
        own = col == task.row
        found = search.own(left) if own else search.across(left, people.block(col))
        count = 0
        for i, j, sq in found:
            part = np.empty(len(i), dtype=job.pair)
            part["i"], part["j"], part["sq"] = i.numpy(), j.numpy(), sq.numpy()
            parts.append(part)
            count += len(part)
        starts.append(starts[-1] + count)
    pairs = np.concatenate([np.empty(0, dtype=job.pair), *parts])
    record = {
        "key": job.key,
        "row": task.row,
        "cols": list(task.cols),
        "starts": starts,
        "file": work.save(f"{name}.npy", pairs),
    }
    work.write_json(f"{name}.json", record)
    return True


def _sources(plan: Sequence[_Task]) -> dict[int, list[int]]:
    """The tasks in whose files a block comes as rows or as columns."""
    out: dict[int, list[int]] = {}
    for task in plan:
        for block in {task.row, *task.cols}:
            out.setdefault(block, []).append(task.number)
    return out


def _merge(job: _Job, sources: dict[int, list[int]], block: int) -> None:
    """Writes the edges of a block, sorted by row and column."""
    folder, name = job.store.child("edges"), f"{block:05d}"
    if _is_sound(job, block):
        return
    work, starts = job.store.child("work"), job.people.starts
    rows, cols, sqs = [], [], []
    for number in sources.get(block, []):
        record = work.record_of(f"{number:06d}.json", job.key)
        if record is None:
            msg = f"'{work.shown(f'{number:06d}.json')}' must be there (got no record)"
            raise DamagedFileError(msg)
        pairs = work.load(record["file"])
        bounds = record["starts"]
        for col, start, stop in zip(
            record["cols"], bounds[:-1], bounds[1:], strict=True
        ):
            part = pairs[start:stop]
            ends = []
            if record["row"] == block:
                ends.append((part["i"], part["j"] + starts[col]))
            if col == block:
                ends.append((part["j"], part["i"] + starts[record["row"]]))
            for row, other in ends:
                rows.append(row)
                cols.append(other)
                sqs.append(part["sq"])
    count = int(starts[block + 1] - starts[block])
    total = job.people.num_people
    narrow = np.int32 if total < 2**31 else np.int64
    row = np.concatenate([np.empty(0, np.int64), *rows])
    col = np.concatenate([np.empty(0, np.int64), *cols])
    sq = np.concatenate([np.empty(0, job.pair["sq"]), *sqs])
    order = np.argsort(row * total + col)
    ptr = np.concatenate([[0], np.bincount(row, minlength=count).cumsum()])
    files = {
        "ptr": folder.save(f"{name}.ptr.npy", ptr.astype(np.int64)),
        "col": folder.save(f"{name}.col.npy", col[order].astype(narrow)),
        "sq": folder.save(f"{name}.sq.npy", sq[order]),
    }
    longest = int(np.diff(ptr).max()) if count else 0
    record = {"key": job.key, "num_edges": len(row), "longest": longest}
    folder.write_json(f"{name}.json", {**record, "files": files})


def _is_sound(job: _Job, block: int) -> bool:
    """Whether the edges of a block are there, as they were written."""
    folder = job.store.child("edges")
    record = folder.record_of(f"{block:05d}.json", job.key)
    if record is None:
        return False
    return all(folder.is_sound(file) for file in record["files"].values())


def _files_of(store: Store, manifest: dict[str, Any]) -> Iterator[Located]:
    """All files that a manifest names, with their folder."""
    folder = store.child("edges")
    for block in manifest["blocks"]:
        for record in block["files"].values():
            yield folder, record


def _overlap(one: list[int] | None, other: list[int] | None) -> bool:
    """Whether two blocks may have people of the same graph."""
    if one is None or other is None:
        return True
    return one[0] <= other[1] and other[0] <= one[1]


def _check_room(
    people: ShardedPeople,
    sample: Any,
    tau: float,
    store: Store,
    num_workers: int,
    budget: int | None,
) -> None:
    """Raises if the edges that a sample makes likely would not fit."""
    expected = sample.most_edges(tau)
    largest = max(block["count"] for block in people.manifest["blocks"])
    blocks = 2 * num_workers * largest
    workspace = blocks * 4 * people.num_features + num_workers * 2**26
    share = num_workers * largest / people.num_people
    needed = expected * min(1.0, share) * _BYTES_IN_MEMORY + workspace
    if budget is None:
        budget = int(_BUDGET_SHARE * available_memory(torch.device("cpu")))
    free = store.free_space()
    disk = expected * _BYTES_ON_DISK
    gib = 2.0**30
    start = f"'tau' = {tau:g} gives up to {expected:.3g} edges, which take"
    if needed > budget:
        fits = max(0.0, budget - workspace) / _BYTES_IN_MEMORY / min(1.0, share)
        radius = sample.radius(0.8 * fits)
        remedy = f"About tau={radius:.4g} would fit" if radius else "No radius would"
        raise MemoryBudgetError(
            f"{start} {needed / gib:.3g} GiB with the workspace of {num_workers} "
            f"workers ('memory_budget' is {budget / gib:.3g} GiB). {remedy}"
        )
    if free is not None and disk > free:
        radius = sample.radius(0.8 * free / _BYTES_ON_DISK)
        remedy = f"About tau={radius:.4g} would fit" if radius else "No radius would"
        raise MemoryBudgetError(
            f"{start} {disk / gib:.3g} GiB on disk ({free / gib:.3g} GiB are free in "
            f"'{store.url}'). {remedy}"
        )
