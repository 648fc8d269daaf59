"""The search of a graph in tasks: each compares a block of rows with some others.

A task writes the pairs that it finds; then the pairs of each block are gathered from
all tasks and sorted. Both may be run twice, anywhere: sound files are kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from pyg_glif._utils.runtime import without_autocast
from pyg_glif.distributed._store import Store, facts_of
from pyg_glif.distributed.engine import Engine
from pyg_glif.distributed.sharded_dataset import ShardedDataset
from pyg_glif.errors import DamagedFileError
from pyg_glif.graph.blocks import BlockSearch

_TASK_COLUMNS = 64  # blocks that one task compares a block with, at most
_ATTEMPTS = 3  # at files that are damaged while they are in use


@dataclass(frozen=True)
class TaskCount:
    """Numbers of tasks that a search ran, and that an earlier one had done."""

    run: int
    reused: int


class _Task(NamedTuple):
    """A block of rows, and blocks of columns that it is compared with."""

    number: int
    row: int
    cols: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class SearchJob:
    """One search: settings that its tasks share, and the order of the work."""

    dataset: ShardedDataset
    store: Store
    key: str
    tau: float
    width: int | None

    def run(self, engine: Engine) -> tuple[list[dict[str, Any]], TaskCount]:
        """Searches and sorts; returns the records of all blocks."""
        missing = self._missing(engine)
        plan = self._plan(missing)
        count = TaskCount(0, 0)
        for attempt in range(_ATTEMPTS):
            results = engine.run(partial(_search, self), plan, "radius graph")
            fresh = sum(bool(ran) for _, ran in results)
            count = TaskCount(count.run + fresh, count.reused + len(plan) - fresh)
            merge = partial(_merge, self, _sources(plan))
            try:
                for _ in engine.run(merge, missing, "sorting edges"):
                    pass
                break
            except DamagedFileError:
                if attempt + 1 == _ATTEMPTS:
                    raise
        blocks = range(self.dataset.num_blocks)
        names = [f"edges/{block:05d}.json" for block in blocks]
        return [facts_of(self.store.own(name, self.key)) for name in names], count

    def _missing(self, engine: Engine) -> list[int]:
        """Blocks whose edges are not there, or not as they were written."""
        blocks = range(self.dataset.num_blocks)
        some = [b for b in blocks if self.store.exists(f"edges/{b:05d}.json")]
        checked = dict(engine.run(partial(_is_sound, self), some, "check"))
        return [block for block in blocks if not checked.get(block)]

    def _plan(self, missing: Sequence[int]) -> list[_Task]:
        """Which blocks are to be compared, as an earlier run had it if it stopped."""
        known = self.store.record_of("work/plan.json", self.key)
        if known is not None and set(missing) <= set(known["missing"]):
            return [_Task(n, row, tuple(cols)) for n, row, cols in known["tasks"]]
        self.store.clear("work")
        plan = list(self._tasks(missing))
        data = {"key": self.key, "missing": list(missing), "tasks": plan}
        self.store.write_json("work/plan.json", data)
        return plan

    def _tasks(self, missing: Sequence[int]) -> Iterator[_Task]:
        """Every pair of blocks that may hold edges, once, if one of them is missing.

        Of two that are missing the earlier takes the pair if their numbers are both
        odd or both even, the later otherwise: all have about as much to do.
        """
        dataset, wanted = self.dataset, set(missing)
        boxes, search = dataset.boxes(), self.search
        graphs = [block["graphs"] for block in dataset.manifest["blocks"]]
        number = 0
        for row in missing:
            reachable = search.reachable(boxes[row], boxes).tolist()
            cols = []
            for col in range(dataset.num_blocks):
                takes = col not in wanted or col == row
                takes = takes or (row < col) == ((row + col) % 2 == 0)
                if reachable[col] and takes and _overlap(graphs[row], graphs[col]):
                    cols.append(col)
            for first in range(0, len(cols), _TASK_COLUMNS):
                yield _Task(number, row, tuple(cols[first : first + _TASK_COLUMNS]))
                number += 1

    @property
    def search(self) -> BlockSearch:
        """Finds pairs."""
        dataset = self.dataset
        return BlockSearch(dataset.frame, self.tau, dataset.largest, self.width)

    @property
    def pair(self) -> np.dtype[Any]:
        """A pair: rows in their blocks, and the squared distance."""
        sq = "<f8" if self.dataset.dtype == torch.float64 else "<f4"
        return np.dtype([("i", "<i4"), ("j", "<i4"), ("sq", sq)])


@without_autocast()
def _search(job: SearchJob, task: _Task) -> bool:
    """Writes the pairs of a task; says whether there was anything to do."""
    name = f"work/{task.number:06d}"
    done = job.store.done(name, job.key)
    if done is not None and (done["row"], *done["cols"]) == (task.row, *task.cols):
        return False
    search, dataset = job.search, job.dataset
    left = dataset.block(task.row)
    parts, starts = [], [0]
    for col in task.cols:
        own = col == task.row
        near = search.within(left) if own else search.across(left, dataset.block(col))
        count = 0
        for i, j, sq in near:
            part = np.empty(len(i), dtype=job.pair)
            part["i"], part["j"], part["sq"] = i.numpy(), j.numpy(), sq.numpy()
            parts.append(part)
            count += len(part)
        starts.append(starts[-1] + count)
    pairs = np.concatenate([np.empty(0, dtype=job.pair), *parts])
    facts = {"row": task.row, "cols": list(task.cols), "starts": starts}
    job.store.put(name, job.key, {"pairs": pairs}, **facts)
    return True


def _sources(plan: Sequence[_Task]) -> dict[int, list[int]]:
    """The tasks in whose files a block comes as rows or as columns."""
    out: dict[int, list[int]] = {}
    for task in plan:
        for block in {task.row, *task.cols}:
            out.setdefault(block, []).append(task.number)
    return out


def _merge(job: SearchJob, sources: dict[int, list[int]], block: int) -> None:
    """Writes the edges of a block, sorted by row and column."""
    if _is_sound(job, block):
        return
    store, starts = job.store, job.dataset.starts
    rows, cols, sqs = [], [], []
    for number in sources.get(block, []):
        record = store.own(f"work/{number:06d}.json", job.key)
        pairs = store.load(record["files"]["pairs"])
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
    total = job.dataset.num_samples
    narrow = np.int32 if total < 2**31 else np.int64
    row = np.concatenate([np.empty(0, np.int64), *rows])
    col = np.concatenate([np.empty(0, np.int64), *cols])
    sq = np.concatenate([np.empty(0, job.pair["sq"]), *sqs])
    order = np.argsort(row * total + col)
    ptr = np.concatenate([[0], np.bincount(row, minlength=count).cumsum()])
    arrays: dict[str, NDArray[Any]] = {"ptr": ptr.astype(np.int64)}
    arrays |= {"col": col[order].astype(narrow), "sq": sq[order]}
    store.put(f"edges/{block:05d}", job.key, arrays, num_edges=len(row))


def _is_sound(job: SearchJob, block: int) -> bool:
    """Whether the edges of a block are there, as they were written."""
    return job.store.done(f"edges/{block:05d}", job.key) is not None


def _overlap(a: list[int] | None, b: list[int] | None) -> bool:
    """Whether two blocks may have nodes of the same graph."""
    if a is None or b is None:
        return True
    return a[0] <= b[1] and b[0] <= a[1]
