"""Long computations, run once in a thread of low priority on the first request."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")
_log = logging.getLogger("pyg_glif.serve")


class BackgroundTask(Generic[_T]):
    """One value, computed in a thread of low priority.

    Args:
        name (str): Name in the log.
        compute (callable): Returns the value; takes a function that says whether the
            task was stopped.
        turn (Lock): Shared by tasks that should not run at the same time.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[[Callable[[], bool]], _T],
        turn: threading.Lock,
    ) -> None:
        self._name, self._compute, self._turn = name, compute, turn
        self._start, self._stop = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.error: str | None = None
        self._value: _T | None = None

    def ask(self) -> _T | None:
        """The value, or :obj:`None` while it is computed, which this starts."""
        with self._start:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=self._run, name=f"pyg_glif-{self._name}", daemon=True
                )
                self._thread.start()
        return self._value

    def wait(self) -> _T | None:
        """The value once it is there, :obj:`None` if it could not be computed."""
        self.ask()
        if self._thread is not None:
            self._thread.join()
        return self._value

    def stop(self) -> None:
        """Gives up on the value at the next look of the computation."""
        self._stop.set()

    def _run(self) -> None:
        # Linux has priorities of threads; elsewhere this one is like the others.
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        with self._turn:
            if self._stop.is_set():
                return
            try:
                value = self._compute(self._stop.is_set)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
                _log.error("%s could not be computed (%s)", self._name, type(error))
                return
        if not self._stop.is_set():
            self._value = value
