"""Routes for programs."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from torch import Tensor

import pyg_glif.serve._schemas as schemas
from pyg_glif._utils.json import plain
from pyg_glif.serve._background import BackgroundTask
from pyg_glif.serve._batching import BusyError
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._metrics import CONTENT_TYPE
from pyg_glif.serve._middleware import Receive, Scope, Send
from pyg_glif.serve._state import AppState, monitor_of, state_of
from pyg_glif.serve._views import grid_content

_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Refusal, "description": why}
    for code, why in {
        401: "No token.",
        403: "Not shown.",
        408: "The body did not come in time.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        421: "The name of another service.",
        503: "Too many requests wait, or the service is not ready.",
    }.items()
}
_NONE: dict[str, Any] = {"model": schemas.Refusal, "description": "There is none."}
_PENDING: dict[int | str, dict[str, Any]] = {
    202: {"model": schemas.Health, "description": "It is computed; ask again."}
}
_FAULTS: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.RequestFaults, "description": "What is wrong, by field."}
}


class RequestFaultError(Exception):
    """A request that cannot be used, and what is wrong with it."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__("a request that cannot be used")
        self.content = content


class DirectRoute(APIRoute):
    """A route that FastAPI describes, and that calls its endpoint itself.

    The endpoint takes a request and returns a response. What FastAPI does between the
    two for dependencies costs more than a batched answer, and there are none.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive))
            await response(scope, receive, send)

        self.app = answer


def add_routes(app: Any, state: AppState) -> None:
    """Adds the routes of programs; bodies are described by the columns of the fit."""
    # The first route is the first to be compared with a path.
    for path, endpoint, summary, answer, body in (
        (
            "/v1/correct",
            correct,
            "Correct the outputs of newcomers",
            schemas.Corrected,
            state.fit.correct_model,
        ),
        (
            "/v1/explain",
            explain,
            "Why a newcomer gets what they get",
            schemas.Explained,
            state.fit.explain_model,
        ),
    ):
        app.router.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            summary=summary,
            response_class=Response,
            responses={200: {"model": answer}, **_FAULTS, **_REFUSALS},
            openapi_extra=_request_body(body),
            route_class_override=DirectRoute,
        )
    app.include_router(router)


async def correct(request: Request) -> Response:
    """Corrected outputs of new samples."""
    state = state_of(request)
    fit = state.fit
    body = await _body(request, fit.correct_model)
    x, y, notes = _samples(fit, body)
    try:
        answer = await state.batcher.correct(fit, x, y, body.ids)
    except BusyError:
        headers = {"Retry-After": "1"}
        raise HTTPException(503, "not now: too many wait", headers) from None
    except ValueError as error:
        raise RequestFaultError(schemas.refused((), error)) from None
    return _json({**answer.to_dict(), "notes": notes, "fit": fit.fit_id})


async def explain(request: Request) -> Response:
    """Explanation of the correction of one new sample."""
    state = state_of(request)
    fit = state.fit
    body = await _body(request, fit.explain_model)
    if body.names and not state.settings.show_people:
        raise HTTPException(403, "people are not shown. See --show-people")
    x, y, notes = _samples(fit, body)
    frame = None
    rows = getattr(body, "rows", None)  # not of a fit without named columns
    if rows is not None and fit.table is not None:
        frame = fit.frame([row.model_dump(by_alias=True) for row in rows])
    try:
        content = await asyncio.to_thread(
            _explanation, fit, x, y, frame, body.top if body.names else 0
        )
    except ValueError as error:
        raise RequestFaultError(schemas.refused((), error)) from None
    return _json({**content, "notes": notes, "fit": fit.fit_id})


router = APIRouter()


@router.get(
    "/v1/audit",
    summary="How similar fitted people are treated, before and after",
    response_class=Response,
    responses={200: {"model": dict[str, Any]}, **_PENDING, **_REFUSALS},
)
async def audit(request: Request) -> Response:
    """The audit report of the fit."""
    task = state_of(request).fit.audit
    report = task.ask()
    return _not_yet(task) if report is None else _json(plain(report.to_dict()))


@router.get(
    "/v1/what-if",
    summary="What other strengths and radii would change",
    response_class=Response,
    responses={200: {"model": dict[str, Any]}, **_PENDING, **_REFUSALS},
)
async def what_if(request: Request) -> Response:
    """The grid of other settings."""
    fit = state_of(request).fit
    grid = fit.what_if.ask()
    return _not_yet(fit.what_if) if grid is None else _json(grid_content(fit, grid))


@router.get(
    "/v1/monitor",
    summary="Whether served people are treated as their peers are",
    response_class=Response,
    responses={200: {"model": dict[str, Any]}, 404: _NONE, **_REFUSALS},
)
async def monitor(request: Request) -> Response:
    """The state of the monitor."""
    return _json(monitor_of(request).to_dict())


@router.get("/v1/info", summary="What is served", responses=_REFUSALS)
async def info(request: Request) -> schemas.Info:
    """The fit and its limits."""
    state = state_of(request)
    return schemas.Info(**state.fit.info, reload_error=state.reload_error)


@router.get("/healthz", summary="Whether the process runs")
async def healthz() -> schemas.Health:
    """A sign of life."""
    return schemas.Health(status="ok")


@router.get(
    "/readyz",
    summary="Whether newcomers are answered",
    responses={503: {"model": schemas.Health}},
    response_model=schemas.Health,
)
async def readyz(request: Request) -> Response:
    """Readiness: the fit is warm and threads run."""
    state = state_of(request)
    ready = state.is_ready and state.batcher.is_alive
    status = {"status": "ready" if ready else "not ready"}
    return JSONResponse(status, 200 if ready else 503)


@router.get("/metrics", summary="Counters for Prometheus", response_class=Response)
async def metrics(request: Request) -> Response:
    """Counters in the text format of Prometheus."""
    state = state_of(request)
    state.metrics.waiting.set(state.batcher.num_waiting)
    return Response(state.metrics.text(), media_type=CONTENT_TYPE)


def _not_yet(task: BackgroundTask[Any]) -> Response:
    """The answer while something is computed, or if that failed."""
    if task.error is not None:
        return JSONResponse({"detail": "it could not be computed"}, 503)
    return JSONResponse({"status": "computing"}, 202, {"Retry-After": "2"})


def _request_body(model: type[BaseModel]) -> dict[str, Any]:
    """A request body in the OpenAPI description, references resolved."""
    schema = model.model_json_schema()
    schema = schemas.resolved(schema, schema.pop("$defs", {}))
    content = {"application/json": {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


async def _body(request: Request, model: type[BaseModel]) -> Any:
    """The body of a request, parsed and checked in one pass."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "'Content-Type' must be application/json")
    try:
        return model.model_validate_json(await request.body())
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        raise RequestFaultError(schemas.faults(errors)) from None


def _samples(fit: LoadedFit, body: Any) -> tuple[Tensor, Tensor, list[str]]:
    """Coordinates and outputs of the samples of a request, and notes about them."""
    # NumPy reads lists several times faster than torch.
    y = torch.from_numpy(np.array(body.y_hat, dtype=np.float64))
    if body.x is not None:
        return torch.from_numpy(np.array(body.x, dtype=np.float64)), y, []
    rows = [row.model_dump(by_alias=True) for row in body.rows]
    try:
        x, notes = fit.coordinates(rows)
    except (TypeError, ValueError) as error:
        raise RequestFaultError(schemas.refused(("rows",), error)) from None
    return x, y, notes


def _explanation(
    fit: LoadedFit, x: Tensor, y: Tensor, frame: Any, top: int
) -> dict[str, Any]:
    """Explanation of one new sample, with ids of the ``top`` neighbors."""
    why = fit.explain_new(x, y, frame)
    content = why.to_dict(names=fit.disclosure is None)
    names = ("own_share", "neighbors_share", "others_share", "num_others")
    answer = {name: content[name] for name in names}
    for name in ("neighbors_mean", "others_mean"):
        mean = content[name]
        answer[name] = [mean] if isinstance(mean, float) else mean
    if top:
        answer["neighbors"] = [
            {"id": fit.ids[row], "share": share}
            for row, share in fit.contributors(why, top)
        ]
    return {
        "y_fair": [content["y_fair"]],
        "text": why.to_text(reasons=True),
        "num_neighbors": content["num_neighbors"],
        **answer,
    }


def _json(content: dict[str, Any]) -> Response:
    """Plain data as a response."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")
