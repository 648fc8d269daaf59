"""The fit in use, the thread that answers, and the watch for a newer fit."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from pyg_glif.errors import DamagedFileError
from pyg_glif.fit import TransformInfo
from pyg_glif.monitoring import TreatmentMonitor
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.serve._batching import Batcher
from pyg_glif.serve._loaded_fit import Served, identity
from pyg_glif.serve._metrics import Metrics
from pyg_glif.serve._service import Service
from pyg_glif.serve._settings import Settings
from pyg_glif.serve.sample_metadata import Register, RegisterError

_log = logging.getLogger("pyg_glif.serve")
# Errors whose messages hold paths, rows and columns, but no cell of anybody's data.
_WITHOUT_CELLS = (DamagedFileError, RegisterError, OSError)


class Desk:
    """Everything that a service has beside its routes.

    A fit is exchanged as a whole: a request keeps the one it began with, and the next
    one finds the other. Until a newer one is loaded and warm, the old one serves.
    """

    def __init__(
        self,
        path: Path,
        people: Callable[[GLIFPostProcessor], Register] | None,
        watch: Sequence[Path],
        settings: Settings,
        monitor: TreatmentMonitor | None = None,
    ) -> None:
        self.settings, self.metrics, self.name = settings, Metrics(), path.name
        self._path, self._people, self._watch = path, people, (path, *watch)
        self.monitor = monitor
        if monitor is not None:
            self.metrics.watch(monitor)
        self.batcher = self._at_rest()
        self._complained: type[Exception] | None = None
        self.reload_error: str | None = None
        self.is_ready = False
        self._wanted = asyncio.Event()
        self._seen = identity(self._watch)
        self.service = self._loaded()
        self.metrics.loaded(self.service.served, again=False)

    def _at_rest(self) -> Batcher:
        """Threads that answer, once they are started."""
        watch = None if self.monitor is None else self._watched
        return Batcher(self.metrics.batch, watch)

    def _loaded(self) -> Service:
        """The fit in the file, checked against those it is about."""
        served = Served(self._path, self._people, self.settings.disclosure)
        return Service(served, self.settings)

    def _watched(
        self, ids: Sequence[str | None], y_fair: Tensor, info: TransformInfo
    ) -> None:
        """Tells the monitor; whatever is wrong with it, people are served.

        What cannot be counted is told apart by halves from what can: a batch is of
        many requests, and none of them is to make the monitor miss another.
        """
        assert self.monitor is not None
        assert info.neighbors is not None
        try:
            self.monitor.watch(y_fair, info, id=ids)
        except Exception as error:
            size = len(y_fair)
            theirs = isinstance(error, (ValueError, TypeError))
            if theirs and size > 1 and not isinstance(error, DamagedFileError):
                for start, stop in ((0, size // 2), (size // 2, size)):
                    half = replace(info, neighbors=info.neighbors.of(start, stop))
                    self._watched(ids[start:stop], y_fair[start:stop], half)
                return
            self.metrics.unwatched(size)
            if self._complained is not type(error):
                self._complained = type(error)
                name = type(error).__name__
                _log.error("the monitor cannot count some people (%s)", name)

    def reload(self) -> None:
        """Has the fit read again now, changed or not; not from another thread."""
        self._wanted.set()

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Answers, warms up and watches while inside; finishes before it leaves."""
        self.batcher.start()
        tasks = [asyncio.create_task(self._warm_up())]
        tasks.append(asyncio.create_task(self._watching()))
        try:
            yield
        finally:
            self.is_ready = False
            self.service.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.batcher.stop()
            self.batcher = self._at_rest()  # an application may be started again

    async def _warm_up(self) -> None:
        await asyncio.to_thread(self.service.served.warm_up)
        self.is_ready = True

    async def _watching(self) -> None:
        """Looks now and then whether a file was replaced, and takes the new fit."""
        seconds = self.settings.reload_seconds or None
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), seconds)
            wanted = self._wanted.is_set()
            self._wanted.clear()
            with contextlib.suppress(OSError):  # between two files there may be none
                found = await asyncio.to_thread(identity, self._watch)
                if wanted or found != self._seen:
                    self._seen = found
                    await self._take()

    async def _take(self) -> None:
        """Loads and warms up the fit in the file, or keeps the one in use."""
        try:
            service = await asyncio.to_thread(self._loaded)
            await asyncio.to_thread(service.served.warm_up)
        except Exception as error:
            self.reload_error = _told(error)
            self.metrics.refused()
            _log.error("kept the fit in use, the new one is refused: %s", _told(error))
            return
        self.service.stop()
        self.service, self.reload_error = service, None
        self.metrics.loaded(service.served, again=True)
        _log.info("took the fit %s of %s", service.served.fit_id, self._path.name)


def _told(error: Exception) -> str:
    """An error as logs may have it; messages of others may quote what they found."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, _WITHOUT_CELLS) else name
