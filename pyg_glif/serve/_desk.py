"""The fit in use, the thread that answers, and the watch for a newer fit."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_glif.postprocessor import GLIFPostProcessor
from pyg_glif.serve._batching import Batcher
from pyg_glif.serve._metrics import Metrics
from pyg_glif.serve._schemas import Requests
from pyg_glif.serve._served import Answer, Served, identity
from pyg_glif.serve._settings import Settings
from pyg_glif.serve.register import Register

_log = logging.getLogger("pyg_glif.serve")


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
    ) -> None:
        self.settings, self.metrics = settings, Metrics()
        self._path, self._people, self._watch = path, people, (path, *watch)
        self.batcher = Batcher(self.metrics.batch)
        self.reload_error: str | None = None
        self.is_ready = False
        self._wanted = asyncio.Event()
        self._seen = identity(self._watch)
        self.service = self._loaded()
        self.metrics.loaded(self.service.served, again=False)

    def _loaded(self) -> "Service":
        """The fit in the file, checked against those it is about."""
        return Service(Served(self._path, self._people), self.settings)

    async def correct(self, served: Served, x: Tensor, y: Tensor) -> Answer:
        """Corrected outputs of newcomers, searched for together with others."""
        return await self.batcher.correct(served, x, y)

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
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self.batcher.stop)

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
            self.reload_error = f"{type(error).__name__}: {error}"
            self.metrics.refused()
            _log.error("kept the fit in use, the new one is refused: %s", error)
            return
        self.service, self.reload_error = service, None
        self.metrics.loaded(service.served, again=True)
        _log.info("took the fit %s of %s", service.served.fit_id, self._path.name)


class Service:
    """A fit, with what is made of it for requests and pages."""

    def __init__(self, served: Served, settings: Settings) -> None:
        self.served, self.settings = served, settings
        self.requests = Requests(served, settings.max_rows)

    @cached_property
    def info(self) -> dict[str, Any]:
        """What ``/v1/info`` says about the fit."""
        from importlib.metadata import version
        from math import isfinite

        served, post = self.served, self.served.post
        return {
            "version": version("pyg_glif"),
            "fit": served.fit_id,
            "loaded_at": served.loaded_at.isoformat(timespec="seconds"),
            "num_people": served.num_people,
            "num_features": post.n_features_in_,
            "num_outputs": served.num_outputs,
            "columns": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "counts": one.counts,
                    "nullable": one.nullable,
                    "values": list(one.values),
                }
                for one in served.columns
            ],
            "unit": served.unit,
            "tau": post.tau_ if isfinite(post.tau_) else None,
            "k": post.k,
            "lam": float(post.lam),
            "num_isolated": post.num_isolated_,
            "max_rows": self.settings.max_rows,
            "max_bytes": self.settings.max_bytes,
            "show_people": self.settings.show_people,
        }
