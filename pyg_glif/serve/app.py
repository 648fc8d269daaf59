"""A fit as an application that any ASGI server runs."""

import contextlib
import logging
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from pyg_glif._optional import require
from pyg_glif.errors import SimilarityWarning
from pyg_glif.serve._settings import LOOPBACK, Settings
from pyg_glif.serve.register import Register

if TYPE_CHECKING:
    from fastapi import FastAPI

    from pyg_glif.postprocessor import GLIFPostProcessor

_log = logging.getLogger("pyg_glif.serve")


def create_app(
    fit: str | PathLike[str],
    *,
    people: "Register | Callable[[GLIFPostProcessor], Register] | None" = None,
    watch: Sequence[str | PathLike[str]] = (),
    token: str | None = None,
    show_people: bool = False,
    hosts: Sequence[str] = LOOPBACK,
    max_rows: int = 10_000,
    max_bytes: int = 1 << 24,
    threshold: float | None = None,
    reload_seconds: float = 2.0,
) -> "FastAPI":
    """The service of a saved fit, for an ASGI server of your own.

    ``pyg-glif serve`` runs it with uvicorn.
    """
    require("fastapi", "pyg_glif.serve", "serve")
    require("prometheus_client", "pyg_glif.serve", "serve")
    require("jinja2", "pyg_glif.serve", "serve")
    from fastapi import FastAPI, Request
    from starlette.responses import JSONResponse, Response

    from pyg_glif.serve._api import RequestFaultError, api, directly
    from pyg_glif.serve._desk import Desk
    from pyg_glif.serve._guard import Guard
    from pyg_glif.serve._pages import pages

    settings = Settings(
        token=token,
        show_people=show_people,
        hosts=tuple(hosts),
        max_rows=max_rows,
        max_bytes=max_bytes,
        threshold=threshold,
        reload_seconds=reload_seconds,
    )
    read = (lambda post: people) if isinstance(people, Register) else people
    desk = Desk(Path(fit), read, [Path(one) for one in watch], settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with warnings.catch_warnings():
            # Said once per process and to nobody who asks; counted instead.
            warnings.simplefilter("ignore", SimilarityWarning)
            warnings.filterwarnings("ignore", message=".*taken by position")
            warnings.filterwarnings("ignore", message=".*the fit has not seen")
            async with desk.at_work():
                yield

    app = FastAPI(
        title="pyg_glif",
        summary="Corrects the outputs of a model so that similar people fare alike.",
        version=desk.service.info["version"],
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.desk = desk
    app.include_router(api(desk))
    app.include_router(pages(desk))
    app.add_middleware(
        Guard, settings=settings, metrics=desk.metrics, direct=directly(desk)
    )

    @app.exception_handler(RequestFaultError)
    async def fault(request: Request, error: RequestFaultError) -> Response:
        return JSONResponse(error.content, 422)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> Response:
        # Where, and of which kind: messages may hold what was sent.
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        _log.error("%s in\n%s", type(error).__name__, where)
        return JSONResponse({"detail": "the service failed"}, 500)

    return app
