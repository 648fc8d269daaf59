"""Measurement of memory."""

import threading

import psutil


class PeakMemory:
    """Highest resident memory of this process while inside, beyond the start."""

    def __enter__(self) -> "PeakMemory":
        self._process = psutil.Process()
        self._start = self._peak = int(self._process.memory_info().rss)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.005):
            self._peak = max(self._peak, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def bytes(self) -> int:
        """Bytes beyond what was resident at the start."""
        return self._peak - self._start
