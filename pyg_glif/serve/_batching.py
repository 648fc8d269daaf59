"""Requests that wait together are answered together.

A search among the fitted people costs much the same for one newcomer as for a few. A
thread takes whatever has gathered while it was busy, as one batch; nobody waits for a
batch to fill. Nobody's result depends on who else is in it.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pyg_glif.postprocessor import TransformInfo
from pyg_glif.serve._served import Answer, Served

#: Rows that are searched for at once; more of them take as long per row.
MAX_BATCH = 256
#: Requests that may wait. More of them would wait longer than anybody does.
MAX_WAITING = 4096

#: Told how many requests one search answered, and the answers.
Seen = Callable[[int, Sequence[Answer]], None]
#: Told ids, outputs and peers of everybody who was served.
Watch = Callable[[Sequence[str | None], Tensor, TransformInfo], None]


@dataclass(eq=False)
class Job:
    """Newcomers of one request, the fit that answers, and where the answer goes."""

    served: Served
    x: Tensor
    y: Tensor
    ids: Sequence[str | None]
    future: "asyncio.Future[Answer]" = field(repr=False)


class Batcher:
    """A thread that answers jobs, as many at once as have gathered.

    Requests of more than ``MAX_BATCH`` rows have a thread of their own, so that a
    single newcomer does not wait for ten thousand.
    """

    def __init__(self, seen: Seen, watch: Watch | None = None) -> None:
        # A small search is over before a second core has found its part of it.
        few = _Lane("correct", seen, watch, threads=1)
        many = _Lane("correct-many", seen, watch)
        self._lanes = {False: few, True: many}

    async def correct(
        self, served: Served, x: Tensor, y: Tensor, ids: Sequence[str] | None = None
    ) -> Answer:
        """Corrected outputs of newcomers, once it is their turn."""
        if not self.is_alive:
            raise BusyError
        loop = asyncio.get_running_loop()
        named = [None] * len(x) if ids is None else ids
        job = Job(served, x, y, named, loop.create_future())
        self._lanes[len(x) > MAX_BATCH].put(job)
        return await job.future

    @property
    def is_alive(self) -> bool:
        """Whether both threads are at work."""
        return all(lane.is_alive() for lane in self._lanes.values())

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a thread."""
        return sum(lane.num_waiting for lane in self._lanes.values())

    def start(self) -> None:
        """Starts the threads."""
        for lane in self._lanes.values():
            lane.start()

    def stop(self) -> None:
        """Answers what waits, and ends the threads."""
        for lane in self._lanes.values():
            lane.stop()


class BusyError(Exception):
    """More requests wait than may, or nobody is there to answer."""


class _Lane(threading.Thread):
    """A queue and the thread that empties it."""

    def __init__(
        self,
        name: str,
        seen: Seen,
        watch: Watch | None,
        threads: int | None = None,
    ) -> None:
        super().__init__(name=f"pyg_glif-{name}", daemon=True)
        self._seen, self._watch, self._threads = seen, watch, threads
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()

    @property
    def num_waiting(self) -> int:
        return self._jobs.qsize()

    def put(self, job: Job) -> None:
        if self.num_waiting >= MAX_WAITING:
            raise BusyError
        self._jobs.put(job)

    def stop(self) -> None:
        self._jobs.put(None)
        if self.is_alive():
            self.join()

    def run(self) -> None:
        if self._threads is not None:
            torch.set_num_threads(self._threads)
        left: Job | None = None
        while (first := left or self._jobs.get()) is not None:
            batch, left, ended = self._gathered(first)
            answers = _answered(batch, self._watch)
            done = [one for one in answers if isinstance(one, Answer)]
            self._seen(len(batch), done)
            # All of a batch at once: waking the loop is what costs.
            loop = first.future.get_loop()
            pairs = list(zip(batch, answers, strict=True))
            try:
                loop.call_soon_threadsafe(_deliver, pairs)
            except RuntimeError:  # the loop is closed, and nobody waits any more
                return
            if ended:
                return

    def _gathered(self, first: Job) -> tuple[list[Job], Job | None, bool]:
        """What waits behind a job and fits beside it; who comes next; the end."""
        batch, size = [first], len(first.x)
        while size < MAX_BATCH:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                return batch, None, True
            if job.served is not first.served or size + len(job.x) > MAX_BATCH:
                return batch, job, False
            batch.append(job)
            size += len(job.x)
        return batch, None, False


def _answered(batch: Sequence[Job], watch: Watch | None) -> list[Answer | Exception]:
    """An answer or an error for each job; what one gets wrong hurts no other."""
    if len(batch) > 1:
        try:
            found = _corrected(batch, watch)
            return list(found.split([len(job.x) for job in batch]))
        except Exception:
            pass  # somebody's fault: each for themselves finds out whose
    out: list[Answer | Exception] = []
    for job in batch:
        try:
            out.append(_corrected([job], watch))
        except Exception as error:
            out.append(error)
    return out


def _corrected(batch: Sequence[Job], watch: Watch | None) -> Answer:
    """Everybody of some jobs, in one search."""
    x, y = (torch.cat([getattr(job, name) for job in batch]) for name in "xy")
    watched = None
    if watch is not None:
        watched = partial(watch, [one for job in batch for one in job.ids])
    return batch[0].served.correct(x, y, watched)


def _deliver(pairs: Iterable[tuple[Job, Any]]) -> None:
    """Hands answers to those who still wait; runs in the loop."""
    for job, answer in pairs:
        if job.future.done():
            continue
        if isinstance(answer, Exception):
            job.future.set_exception(answer)
        else:
            job.future.set_result(answer)
