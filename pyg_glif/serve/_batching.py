"""Requests that wait together are answered by one search.

A search among the fitted samples costs much the same for one query as for a few. A
thread takes all requests that gathered while it was busy as one batch. It begins once
the event loop has had nothing to read for a moment, which is short beside a search: no
request waits for a batch to fill, and reading does not compete with the search for the
interpreter. No result depends on the other requests of a batch.
"""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pyg_glif.fit import TransformInfo
from pyg_glif.serve._loaded_fit import Answer, LoadedFit

#: Rows that are searched for at once; more of them take as long per row.
MAX_BATCH = 256
# From so many on, a search is worth a second core.
_SHARED = 32
# Rounds of the loop between an answer and the next request of the same client.
_ROUNDS = 3
# The moment without a new request, beside the last search.
_MOMENT = 0.02
#: Requests that may wait. More of them would wait too long.
MAX_WAITING = 4096

#: Takes the number of requests that one search answered, and the answers.
Seen = Callable[[int, Sequence[Answer]], None]
#: Takes ids, outputs and neighbors of all samples served.
Watch = Callable[[Sequence[str | None], Tensor, TransformInfo], None]


@dataclass(eq=False)
class CorrectionJob:
    """New samples of one request, the fit that answers, and where the answer goes."""

    fit: LoadedFit
    x: Tensor
    y: Tensor
    ids: Sequence[str | None]
    future: "asyncio.Future[Answer]" = field(repr=False)


class Batcher:
    """Threads that answer jobs, as many at once as have gathered.

    Requests of more than ``MAX_BATCH`` rows have a thread of their own, so that a
    single sample does not wait for ten thousand. All but the threads themselves
    belongs to the loop in which requests are answered.
    """

    def __init__(self, seen: Seen, watch: Watch | None = None) -> None:
        few = _Lane("correct", seen, watch)
        many = _Lane("correct-many", seen, watch)
        self._lanes = {False: few, True: many}

    async def correct(
        self, fit: LoadedFit, x: Tensor, y: Tensor, ids: Sequence[str] | None = None
    ) -> Answer:
        """Corrected outputs of new samples, once it is their turn."""
        if not self.is_alive:
            raise BusyError
        loop = asyncio.get_running_loop()
        named = [None] * len(x) if ids is None else ids
        job = CorrectionJob(fit, x, y, named, loop.create_future())
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

    async def stop(self) -> None:
        """Answers what waits, and ends the threads."""
        for lane in self._lanes.values():
            await lane.stop()


class BusyError(Exception):
    """More requests wait than may, or no thread answers."""


class _Lane(threading.Thread):
    """Jobs that wait in the loop, and the thread that answers them in batches."""

    def __init__(self, name: str, seen: Seen, watch: Watch | None) -> None:
        super().__init__(name=f"pyg_glif-{name}", daemon=True)
        self._seen, self._watch = seen, watch
        self._waiting: deque[CorrectionJob] = deque()
        self._at_work = False  # or about to be
        self._batches: queue.SimpleQueue[list[CorrectionJob] | None] = (
            queue.SimpleQueue()
        )
        self._threads = torch.get_num_threads()
        self._moment = 0.0  # seconds

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def put(self, job: CorrectionJob) -> None:
        if self.num_waiting >= MAX_WAITING:
            raise BusyError
        self._waiting.append(job)
        if not self._at_work:
            self._at_work = True
            self._gather(0)

    def _gather(self, before: int, rounds: int = 0, since: float = 0.0) -> None:
        """Hands a batch over once the loop has brought nothing new for a moment."""
        now, clock = len(self._waiting), time.perf_counter()
        if now > before:
            rounds, since = 0, clock
        if now < MAX_BATCH and (rounds < _ROUNDS or clock - since < self._moment):
            loop = asyncio.get_running_loop()
            loop.call_soon(self._gather, now, rounds + 1, since)
            return
        batch = [self._waiting.popleft()]
        size = len(batch[0].x)
        while self._waiting:
            job = self._waiting[0]
            size += len(job.x)
            if job.fit is not batch[0].fit or size > MAX_BATCH:
                break
            batch.append(self._waiting.popleft())
        self._batches.put(batch)

    def _deliver(self, pairs: Iterable[tuple[CorrectionJob, Any]]) -> None:
        """Sets results of pending futures, and goes on; runs in the loop."""
        for job, answer in pairs:
            if job.future.done():
                continue
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)
        self._at_work = bool(self._waiting)
        if self._at_work:
            self._gather(0)

    async def stop(self) -> None:
        while self._at_work and self.is_alive():
            await asyncio.sleep(0.01)
        self._batches.put(None)
        if self.is_alive():
            await asyncio.to_thread(self.join)

    def run(self) -> None:
        while (batch := self._batches.get()) is not None:
            size = sum(len(job.x) for job in batch)
            # A small search is over before a second core has found its part of it.
            torch.set_num_threads(1 if size < _SHARED else self._threads)
            start = time.perf_counter()
            answers = _answered(batch, self._watch)
            self._moment = _MOMENT * (time.perf_counter() - start)
            done = [answer for answer in answers if isinstance(answer, Answer)]
            self._seen(len(batch), done)
            # All of a batch at once: waking the loop is what costs.
            loop = batch[0].future.get_loop()
            pairs = list(zip(batch, answers, strict=True))
            try:
                loop.call_soon_threadsafe(self._deliver, pairs)
            except RuntimeError:  # the loop is closed, and nothing waits any more
                return


def _answered(
    batch: Sequence[CorrectionJob], watch: Watch | None
) -> list[Answer | Exception]:
    """An answer or an error for each job; errors of one affect no other."""
    if len(batch) > 1:
        try:
            answer = _corrected(batch, watch)
            return list(answer.split([len(job.x) for job in batch]))
        except Exception:
            pass  # one request is at fault: each by itself finds out which
    out: list[Answer | Exception] = []
    for job in batch:
        try:
            out.append(_corrected([job], watch))
        except Exception as error:
            out.append(error)
    return out


def _corrected(batch: Sequence[CorrectionJob], watch: Watch | None) -> Answer:
    """All samples of some jobs, in one search."""
    x, y = (torch.cat([getattr(job, name) for job in batch]) for name in "xy")
    watched = None
    if watch is not None:
        watched = partial(watch, [name for job in batch for name in job.ids])
    return batch[0].fit.correct(x, y, watched)
