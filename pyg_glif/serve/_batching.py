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
from typing import Any

import torch
from torch import Tensor

from pyg_glif.serve._served import Answer, Served

#: Rows that are searched for at once; more of them take as long per row.
MAX_BATCH = 256
#: Requests that may wait. More of them would wait longer than anybody does.
MAX_WAITING = 4096


@dataclass(eq=False)
class Job:
    """Newcomers of one request, the fit that answers, and where the answer goes."""

    served: Served
    x: Tensor
    y: Tensor
    future: "asyncio.Future[Answer]" = field(repr=False)


class Batcher:
    """A thread that answers jobs, as many at once as have gathered.

    Requests of more than ``MAX_BATCH`` rows have a thread of their own, so that a
    single newcomer does not wait for ten thousand.
    """

    def __init__(self, seen: Callable[[int, Sequence[Answer]], None]) -> None:
        # A small search is over before a second core has found its part of it.
        few, many = _Lane("correct", seen, threads=1), _Lane("correct-many", seen)
        self._lanes = {False: few, True: many}

    async def correct(self, served: Served, x: Tensor, y: Tensor) -> Answer:
        """Corrected outputs of newcomers, once it is their turn."""
        loop = asyncio.get_running_loop()
        job = Job(served, x, y, loop.create_future())
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
    """More requests wait than may."""


class _Lane(threading.Thread):
    """A queue and the thread that empties it."""

    def __init__(
        self,
        name: str,
        seen: Callable[[int, Sequence[Answer]], None],
        threads: int | None = None,
    ) -> None:
        super().__init__(name=f"pyg_glif-{name}", daemon=True)
        self._seen, self._threads = seen, threads
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
            answers = _answered(batch)
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


def _answered(batch: Sequence[Job]) -> list[Answer | Exception]:
    """An answer or an error for each job; what one gets wrong hurts no other."""
    served = batch[0].served
    if len(batch) > 1:
        try:
            x, y = (torch.cat([getattr(job, k) for job in batch]) for k in "xy")
            return list(served.correct(x, y).split([len(job.x) for job in batch]))
        except Exception:
            pass  # somebody's fault: each for themselves finds out whose
    out: list[Answer | Exception] = []
    for job in batch:
        try:
            out.append(served.correct(job.x, job.y))
        except Exception as error:
            out.append(error)
    return out


def _deliver(pairs: Iterable[tuple[Job, Any]]) -> None:
    """Hands answers to those who still wait; runs in the loop."""
    for job, answer in pairs:
        if job.future.done():
            continue
        if isinstance(answer, Exception):
            job.future.set_exception(answer)
        else:
            job.future.set_result(answer)
