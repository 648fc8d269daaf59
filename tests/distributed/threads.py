"""Parts of a solve in threads of one process, to exercise their exchange."""

import threading
from concurrent.futures import ThreadPoolExecutor

from pyg_glif.distributed import InProcess
from pyg_glif.distributed._communicator import Communicator


class ThreadEngine(InProcess):
    """Runs each part of a solve in a thread of its own."""

    def __init__(self, num_parts, **options):
        super().__init__(**options)
        self.num_workers = num_parts

    def run_group(self, function, arguments):
        size = len(arguments)
        barrier, slots = threading.Barrier(size), [None] * size

        def call(rank):
            try:
                member = _ThreadCommunicator(rank, size, barrier, slots)
                return function(member, arguments[rank])
            except BaseException:
                barrier.abort()  # or the others would wait for ever
                raise

        with ThreadPoolExecutor(size) as pool:
            futures = [pool.submit(call, rank) for rank in range(size)]
            errors = [e for e in (f.exception() for f in futures) if e is not None]
        # A broken barrier only follows from the error of another member.
        causes = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        if errors:
            raise (causes or errors)[0]
        return [future.result() for future in futures]


class _ThreadCommunicator(Communicator):
    def __init__(self, rank, size, barrier, slots):
        self.rank, self.size = rank, size
        self._barrier, self._slots = barrier, slots

    def _swap(self, value):
        self._slots[self.rank] = value
        self._barrier.wait()
        values = list(self._slots)
        self._barrier.wait()
        return values

    def gather(self, value):
        return [part.clone() for part in self._swap(value.clone())]

    def exchange(self, sent, received):
        copies = [part.clone() for part in sent]
        for other, parts in enumerate(self._swap(copies)):
            received[other].copy_(parts[self.rank])
