"""State of a running service: the fit in use, threads, the watch for newer files."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from torch import Tensor

from pyg_glif.errors import DamagedFileError
from pyg_glif.fit import TransformInfo
from pyg_glif.monitoring import TreatmentMonitor
from pyg_glif.serve._batching import Batcher
from pyg_glif.serve._loaded_fit import LoadedFit, identity
from pyg_glif.serve._metrics import Metrics
from pyg_glif.serve._settings import ServiceSettings
from pyg_glif.serve.sample_metadata import ReadMetadata, SampleMetadataError

_log = logging.getLogger("pyg_glif.serve")
# Errors whose messages hold paths, rows and columns, but no cell of the data.
_WITHOUT_CELLS = (DamagedFileError, SampleMetadataError, OSError)


class AppState:
    """Everything that outlives a request, as ``app.state.service``.

    ``fit`` is exchanged as a whole: a request keeps the one it began with, and the
    next one finds the other. Until a newer one is loaded and warm, the old one serves.
    """

    def __init__(
        self,
        path: Path,
        metadata: ReadMetadata | None,
        watch: Sequence[Path],
        settings: ServiceSettings,
        monitor: TreatmentMonitor | None = None,
    ) -> None:
        self.settings, self.metrics, self.name = settings, Metrics(), path.name
        self._path, self._metadata, self._watch = path, metadata, (path, *watch)
        self.monitor = monitor
        if monitor is not None:
            self.metrics.watch(monitor)
        self.batcher = self._new_batcher()
        self._last_monitor_error: type[Exception] | None = None
        self.reload_error: str | None = None
        self.is_ready = False
        self._reload_wanted = asyncio.Event()
        self._seen = identity(self._watch)
        self.fit = self._loaded()
        self.metrics.loaded(self.fit, again=False)

    def _new_batcher(self) -> Batcher:
        """Threads that answer, once they are started."""
        watch = None if self.monitor is None else self._record
        return Batcher(self.metrics.batch, watch)

    def _loaded(self) -> LoadedFit:
        """The fit in the file, checked against its metadata."""
        return LoadedFit(self._path, self._metadata, self.settings)

    def _record(
        self, ids: Sequence[str | None], y_fair: Tensor, info: TransformInfo
    ) -> None:
        """Hands served samples to the monitor; its errors stop no answer.

        A batch that it refuses is halved until the refused sample is found: a batch is
        of many requests, and none of them may make the monitor miss another.
        """
        assert self.monitor is not None
        assert info.neighbors is not None
        try:
            self.monitor.watch(y_fair, info, id=ids)
        except Exception as error:
            size = len(y_fair)
            is_input = isinstance(error, (ValueError, TypeError))
            if is_input and size > 1 and not isinstance(error, DamagedFileError):
                for start, stop in ((0, size // 2), (size // 2, size)):
                    half = replace(info, neighbors=info.neighbors.of(start, stop))
                    self._record(ids[start:stop], y_fair[start:stop], half)
                return
            self.metrics.unwatched(size)
            if self._last_monitor_error is not type(error):
                self._last_monitor_error = type(error)
                name = type(error).__name__
                _log.error("the monitor cannot count some samples (%s)", name)

    def reload(self) -> None:
        """Has the fit read again now, changed or not; not from another thread."""
        self._reload_wanted.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers, warms up and watches while inside; finishes before it leaves."""
        self.batcher.start()
        tasks = [asyncio.create_task(self._warm_up())]
        tasks.append(asyncio.create_task(self._watch_files()))
        try:
            yield
        finally:
            self.is_ready = False
            self.fit.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.batcher.stop()
            self.batcher = self._new_batcher()  # an application may be started again

    async def _warm_up(self) -> None:
        await asyncio.to_thread(self.fit.warm_up)
        self.is_ready = True

    async def _watch_files(self) -> None:
        """Polls the files, and takes a new fit when one was replaced."""
        seconds = self.settings.reload_seconds or None
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._reload_wanted.wait(), seconds)
            is_wanted = self._reload_wanted.is_set()
            self._reload_wanted.clear()
            with contextlib.suppress(OSError):  # between two files there may be none
                current = await asyncio.to_thread(identity, self._watch)
                if is_wanted or current != self._seen:
                    self._seen = current
                    await self._take()

    async def _take(self) -> None:
        """Loads and warms up the fit in the file, or keeps the one in use."""
        try:
            fit = await asyncio.to_thread(self._loaded)
            await asyncio.to_thread(fit.warm_up)
        except Exception as error:
            # Messages of other errors may quote the data.
            name = type(error).__name__
            is_safe = isinstance(error, _WITHOUT_CELLS)
            self.reload_error = f"{name}: {error}" if is_safe else name
            self.metrics.refused()
            msg = "kept the fit in use, the new one is refused: %s"
            _log.error(msg, self.reload_error)
            return
        self.fit.stop()
        self.fit, self.reload_error = fit, None
        self.metrics.loaded(fit, again=True)
        _log.info("took the fit %s of %s", fit.fit_id, self._path.name)


def state_of(request: Request) -> AppState:
    """The state of the application that a request has come to."""
    state: AppState = request.app.state.service
    return state


def monitor_of(request: Request) -> TreatmentMonitor:
    """The monitor of the application; raises if there is none."""
    monitor = state_of(request).monitor
    if monitor is None:
        raise HTTPException(404, "there is no monitor. See --monitor")
    return monitor
