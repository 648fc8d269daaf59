"""Memory, threads, progress bars and locks of the running process."""

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType
from typing import ParamSpec, TypeVar

import psutil
import torch
from torch import Tensor
from tqdm import tqdm

_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S")


def available_memory(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def not_compiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Excludes a function from ``torch.compile``.

    ``torch.compiler.disable`` would do, but loads the compiler at import, which takes
    about as long as torch itself and is rarely needed.
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if torch.compiler.is_compiling():
            result: _T = torch.compiler.disable(function)(*args, **kwargs)
            return result
        return function(*args, **kwargs)

    return call


@contextmanager
def without_autocast() -> Iterator[None]:
    """No gradients, and no autocast: it would turn float32 products into bfloat16.

    Also a decorator. Not for generators, which hand control back in between.
    """
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        if not torch.cuda.is_available():
            yield
            return
        with torch.autocast("cuda", enabled=False):
            yield


class Crew:
    """Threads that share pieces of work, each with one of torch's threads.

    Torch splits each operation among its threads, which synchronize after each: for
    small operations this costs as much as it saves. Here as many threads take whole
    pieces instead. They live as long as the ``with`` block.
    """

    def __init__(self, device: torch.device, num_pieces: int) -> None:
        size = torch.get_num_threads() if device.type == "cpu" else 1
        self._size = min(size, num_pieces)
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> "Crew":
        if self._size > 1:
            self._pool = ThreadPoolExecutor(self._size)
            before, ready = torch.get_num_threads(), threading.Barrier(self._size + 1)

            def limit_threads() -> None:
                torch.get_num_threads()  # or the next operation would set it anew
                torch.set_num_threads(1)
                ready.wait()

            try:
                for _ in range(self._size):
                    self._pool.submit(limit_threads)
                ready.wait()
            except RuntimeError:  # the system allows no more threads
                ready.abort()
                raise
            finally:
                # A thread sets its own number, and that of threads to come.
                torch.set_num_threads(before)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function: Callable[[_S], _T], pieces: Sequence[_S]) -> list[_T]:
        """Results of a function for each piece, in order; without gradients."""
        inference = torch.is_inference_mode_enabled()

        def call(piece: _S) -> _T:
            with torch.inference_mode(inference), torch.no_grad():
                return function(piece)

        if self._pool is None:
            return [call(piece) for piece in pieces]
        return list(self._pool.map(call, pieces))


class Progress:
    """Progress bar on a terminal.

    It appears only after ``delay`` seconds, so that quick work prints nothing.
    ``show=None`` means "if standard error is a terminal".
    """

    def __init__(
        self, total: int, desc: str, show: bool | None = None, delay: float = 2.0
    ) -> None:
        if show is None:
            show = sys.stderr.isatty()
        self._bar = tqdm(
            total=total, desc=desc, delay=delay, disable=not show, leave=False
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.close()

    def update(self, step: int = 1) -> None:
        """Moves the bar on by ``step``."""
        self._bar.update(step)


class Snapshot:
    """Identity and version of values, to detect whether a cached result is stale.

    Tensors are compared by identity and by how often they have been written to. They
    are kept, so that no new one can take the place of an old one in memory.
    """

    def __init__(self, values: Iterable[object]) -> None:
        self._values = [(value, _num_writes(value)) for value in values]

    def matches(self, values: Iterable[object]) -> bool:
        """Whether these are the same objects, not written to since."""
        current = [(value, _num_writes(value)) for value in values]
        if len(current) != len(self._values):
            return False
        pairs = zip(current, self._values, strict=True)
        return all(a is b and m == n for (a, m), (b, n) in pairs)


def _num_writes(value: object) -> int:
    """The version of a tensor, as far as torch counts it."""
    # Inference tensors have no version, and raise if asked for it.
    if not isinstance(value, Tensor) or value.is_inference():
        return 0
    return value._version


class Lock:
    """Reentrant lock that copies do not share.

    An object that holds one can be copied and pickled, unlike with a lock of Python.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def __reduce__(self) -> tuple[type["Lock"], tuple[()]]:
        return type(self), ()
