"""A fit as an application that any ASGI server runs."""

import contextlib
import logging
import traceback
import warnings
from collections.abc import AsyncIterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyg_glif._utils.optional import require
from pyg_glif.errors import SimilarityWarning
from pyg_glif.serve._settings import ServiceSettings
from pyg_glif.serve.sample_metadata import ReadMetadata, SampleMetadata

if TYPE_CHECKING:
    from fastapi import FastAPI

    from pyg_glif.monitoring import TreatmentMonitor

_log = logging.getLogger("pyg_glif.serve")


def create_app(
    fit: str | PathLike[str],
    *,
    metadata: SampleMetadata | ReadMetadata | None = None,
    watch: Sequence[str | PathLike[str]] = (),
    monitor: "TreatmentMonitor | None" = None,
    **settings: Any,
) -> "FastAPI":
    """The service of a saved fit, for an ASGI server of your own.

    ``pyg-glif serve`` runs it with uvicorn. Routes, pages, safety and metrics are in
    :ref:`service`. Needs ``pyg_glif[serve]``.

    Args:
        fit (str or Path): The file that ``save`` wrote. A fit that is saved there later
            is taken without dropping a request.
        metadata (SampleMetadata or callable, optional): Metadata of the fitted samples,
            or a function of the loaded post-processor that returns it, called for
            every new fit. (default: their ids, if the fit has them)
        watch (sequence of str or Path): Other files whose change has the fit loaded
            again, such as those that ``metadata`` reads. (default: none)
        monitor (TreatmentMonitor, optional): Counts all corrected samples.
            (default: :obj:`None`)
        **settings: Safety and limits, the fields of :class:`ServiceSettings`:
            ``token``, ``show_people``, ``max_rows`` and so on, with its defaults.

    Raises what ``GLIFPostProcessor.load`` raises, before anything is served.

    Example:
        >>> import os, tempfile, torch
        >>> from starlette.testclient import TestClient
        >>> from pyg_glif import GLIFPostProcessor
        >>> path = os.path.join(tempfile.mkdtemp(), "fit.safetensors")
        >>> post = GLIFPostProcessor(tau=0.5, theta=0.0)
        >>> x, y = torch.tensor([[0.0], [0.1], [5.0]]), torch.tensor([0.9, 0.3, 0.4])
        >>> post.fit(x, y).save(path)
        >>> app = create_app(path, show_people=True)
        >>> with TestClient(app, base_url="http://localhost") as client:
        ...     body = {"x": [[0.1]], "y_hat": [0.0]}
        ...     answer = client.post("/v1/correct", json=body).json()
        >>> [round(value, 4) for value in answer["y_fair"]], answer["num_neighbors"]
        ([0.4], [2])
    """
    require("fastapi", "pyg_glif.serve", "serve")
    require("prometheus_client", "pyg_glif.serve", "serve")
    require("jinja2", "pyg_glif.serve", "serve")
    from fastapi import FastAPI, Request
    from fastapi.exceptions import RequestValidationError
    from starlette.responses import JSONResponse, Response

    from pyg_glif.serve._api import RequestFaultError, add_routes
    from pyg_glif.serve._middleware import Guard
    from pyg_glif.serve._pages import router as pages
    from pyg_glif.serve._schemas import faults
    from pyg_glif.serve._state import AppState

    options = ServiceSettings(**settings)
    read = (lambda _: metadata) if isinstance(metadata, SampleMetadata) else metadata
    state = AppState(Path(fit), read, [Path(path) for path in watch], options, monitor)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with warnings.catch_warnings():
            # These warnings would reach no client; they are exported as metrics.
            warnings.simplefilter("ignore", SimilarityWarning)
            warnings.filterwarnings("ignore", message=".*taken by position")
            warnings.filterwarnings("ignore", message=".*the fit has not seen")
            async with state.running():
                yield

    app = FastAPI(
        title="pyg_glif",
        summary="Corrects the outputs of a model so that similar people fare alike.",
        version=state.fit.info["version"],
        docs_url=None,  # that page loads scripts from other sites
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = state
    add_routes(app, state)
    app.include_router(pages)
    app.add_middleware(Guard, settings=options, metrics=state.metrics)

    @app.exception_handler(RequestFaultError)
    async def fault(request: Request, error: RequestFaultError) -> Response:
        return JSONResponse(error.content, 422)

    @app.exception_handler(RequestValidationError)
    async def refusal(request: Request, error: RequestValidationError) -> Response:
        return JSONResponse(faults(error.errors()), 422)

    @app.exception_handler(Exception)
    async def failure(request: Request, error: Exception) -> Response:
        # Where, and of which kind: messages may hold what was sent.
        where = "".join(traceback.format_tb(error.__traceback__)[-3:])
        _log.error("%s in\n%s", type(error).__name__, where)
        return JSONResponse({"detail": "the service failed"}, 500)

    return app
