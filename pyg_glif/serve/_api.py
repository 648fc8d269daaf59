"""The routes for programs."""

import asyncio
import json
from typing import Any

import numpy as np
import torch
from fastapi import APIRouter, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from torch import Tensor

import pyg_glif.serve._schemas as schemas
from pyg_glif._utils.json import plain
from pyg_glif.serve._batching import BusyError
from pyg_glif.serve._loaded_fit import Answer
from pyg_glif.serve._metrics import CONTENT_TYPE
from pyg_glif.serve._middleware import App, Receive, Scope, Send
from pyg_glif.serve._service import Service
from pyg_glif.serve._state import Desk

_REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": schemas.Refusal, "description": why}
    for code, why in {
        401: "No token.",
        403: "Not shown to anybody.",
        408: "The body did not come in time.",
        413: "The body is too large.",
        415: "The body is not JSON.",
        421: "The name of another service.",
        503: "Too many requests wait, or the service is not ready.",
    }.items()
}
_NONE: dict[str, Any] = {"model": schemas.Refusal, "description": "There is none."}
_LATER: dict[int | str, dict[str, Any]] = {
    202: {"model": schemas.Health, "description": "It is computed; ask again."}
}
_FAULTS: dict[int | str, dict[str, Any]] = {
    422: {"model": schemas.Faults, "description": "What is wrong, by field."}
}


def api(desk: Desk) -> APIRouter:
    """Routes over a desk."""
    router = APIRouter()

    @router.post(
        "/v1/correct",
        summary="Correct the outputs of newcomers",
        response_class=Response,
        responses={200: {"model": schemas.Corrected}, **_FAULTS, **_REFUSALS},
        openapi_extra=_takes(desk.service.requests.correct),
    )
    async def correct(request: Request) -> Response:
        return await corrected(desk, request.scope, request.receive)

    @router.post(
        "/v1/explain",
        summary="Why a newcomer gets what they get",
        response_class=Response,
        responses={200: {"model": schemas.Explained}, **_FAULTS, **_REFUSALS},
        openapi_extra=_takes(desk.service.requests.explain),
    )
    async def explain(request: Request) -> Response:
        service = desk.service
        model = service.requests.explain
        body = await _body(request.scope, request.receive, model)
        if body.names and not desk.settings.show_people:
            raise HTTPException(403, "people are not shown. See --show-people")
        x, y, notes = _people(service, body)
        frame = None
        rows = getattr(body, "rows", None)  # not of a fit without named columns
        if rows is not None and service.served.table is not None:
            frame = service.served.frame([r.model_dump(by_alias=True) for r in rows])
        try:
            found = await asyncio.to_thread(
                service.explain_new, x, y, body.top, body.names, frame
            )
        except ValueError as error:
            raise RequestFaultError(schemas.refused((), error)) from None
        return _json({**found, "notes": notes, "fit": service.served.fit_id})

    @router.get(
        "/v1/audit",
        summary="How similar fitted people are treated, before and after",
        response_class=Response,
        responses={200: {"model": dict[str, Any]}, **_LATER, **_REFUSALS},
    )
    async def audit() -> Response:
        later = desk.service.audit
        report = later.ask()
        if report is None:
            return _not_yet(later.error)
        return _json(plain(report.to_dict()))

    @router.get(
        "/v1/what-if",
        summary="What other strengths and radii would change",
        response_class=Response,
        responses={200: {"model": dict[str, Any]}, **_LATER, **_REFUSALS},
    )
    async def what_if() -> Response:
        later = desk.service.what_if
        grid = later.ask()
        if grid is None:
            return _not_yet(later.error)
        return _json(desk.service.grid(grid))

    @router.get(
        "/v1/monitor",
        summary="Whether served people are treated as their peers are",
        response_class=Response,
        responses={200: {"model": dict[str, Any]}, 404: _NONE, **_REFUSALS},
    )
    async def monitor() -> Response:
        if desk.monitor is None:
            raise HTTPException(404, "there is no monitor. See --monitor")
        return _json(desk.monitor.to_dict())

    @router.get("/v1/info", summary="What is served", responses=_REFUSALS)
    async def info() -> schemas.Info:
        error = desk.reload_error
        return schemas.Info(**desk.service.info, reload_error=error)

    @router.get("/healthz", summary="Whether the process runs")
    async def healthz() -> schemas.Health:
        return schemas.Health(status="ok")

    @router.get(
        "/readyz",
        summary="Whether newcomers are answered",
        responses={503: {"model": schemas.Health}},
        response_model=schemas.Health,
    )
    async def readyz() -> Response:
        ready = desk.is_ready and desk.batcher.is_alive
        status = {"status": "ready" if ready else "not ready"}
        return JSONResponse(status, 200 if ready else 503)

    @router.get("/metrics", summary="Counters for Prometheus", response_class=Response)
    async def metrics() -> Response:
        desk.metrics.waiting.set(desk.batcher.num_waiting)
        return Response(desk.metrics.text(), media_type=CONTENT_TYPE)

    return router


async def corrected(desk: Desk, scope: Scope, receive: Receive) -> Response:
    """The answer of ``/v1/correct``."""
    service = desk.service
    body = await _body(scope, receive, service.requests.correct)
    x, y, notes = _people(service, body)
    answer = await _answered(desk, service, x, y, body.ids)
    return _json(
        {
            **answer.to_dict(),
            "notes": notes,
            "fit": service.served.fit_id,
        }
    )


def directly(desk: Desk) -> dict[str, App]:
    """The same without the framework around it, for those who ask often."""

    async def correct(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await corrected(desk, scope, receive)
        except RequestFaultError as error:
            response = JSONResponse(error.content, 422)
        except HTTPException as error:
            content = {"detail": error.detail}
            response = JSONResponse(content, error.status_code, error.headers)
        await response(scope, receive, send)

    return {"/v1/correct": correct}


def _not_yet(error: str | None) -> Response:
    """The answer while something is computed, or if that failed."""
    if error is not None:
        return JSONResponse({"detail": "it could not be computed"}, 503)
    return JSONResponse({"status": "computing"}, 202, {"Retry-After": "2"})


def _takes(model: type[BaseModel]) -> dict[str, Any]:
    """A request body in the description of the service."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})

    def resolved(value: Any) -> Any:
        """Parts where they are used: the description is of the fit in use."""
        if isinstance(value, dict):
            if "$ref" in value:
                return resolved(parts[value["$ref"].rpartition("/")[2]])
            return {key: resolved(one) for key, one in value.items()}
        return list(map(resolved, value)) if isinstance(value, list) else value

    content = {"application/json": {"schema": resolved(schema)}}
    return {"requestBody": {"required": True, "content": content}}


async def _body(scope: Scope, receive: Receive, model: type[BaseModel]) -> Any:
    """The body of a request; read as JSON and checked in one pass."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if kind.partition(b";")[0].strip().lower() != b"application/json":
        raise HTTPException(415, "'Content-Type' must be application/json")
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    try:
        return model.model_validate_json(b"".join(parts))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise RequestFaultError(schemas.faults(found)) from None


class RequestFaultError(Exception):
    """A request that cannot be used, and what is wrong with it."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__("a request that cannot be used")
        self.content = content


def _people(service: Service, body: Any) -> tuple[Tensor, Tensor, list[str]]:
    """Coordinates and outputs of the people of a request, and what was odd."""
    # NumPy reads lists several times faster than torch.
    y = torch.from_numpy(np.array(body.y_hat, dtype=np.float64))
    if body.x is not None:
        return torch.from_numpy(np.array(body.x, dtype=np.float64)), y, []
    rows = [row.model_dump(by_alias=True) for row in body.rows]
    try:
        x, notes = service.served.coordinates(rows)
    except (TypeError, ValueError) as error:
        raise RequestFaultError(schemas.refused(("rows",), error)) from None
    return x, y, notes


async def _answered(
    desk: Desk, service: Service, x: Tensor, y: Tensor, ids: list[str] | None
) -> Answer:
    """Corrected outputs; what the method refuses is a fault of the request."""
    try:
        return await desk.batcher.correct(service.served, x, y, ids)
    except BusyError:
        headers = {"Retry-After": "1"}
        raise HTTPException(503, "not now: too many wait", headers) from None
    except ValueError as error:
        raise RequestFaultError(schemas.refused((), error)) from None


def _json(content: dict[str, Any]) -> Response:
    """Plain data as a response."""
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")
