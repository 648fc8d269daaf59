"""Routes for browsers; all texts are in the templates."""

import asyncio
import hashlib
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from jinja2 import ChoiceLoader, PackageLoader
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pyg_glif.reporting import ASSETS, asset, environment
from pyg_glif.serve._background import BackgroundTask
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._middleware import COOKIE
from pyg_glif.serve._schemas import resolved
from pyg_glif.serve._state import monitor_of, state_of
from pyg_glif.serve._views import (
    grid_content,
    grid_figures,
    grid_words,
    sample_line,
    sample_page,
    stream_figure,
)

if TYPE_CHECKING:
    from jinja2 import Environment

router = APIRouter(include_in_schema=False)
# Scripts and styles, by name: nothing else is read, whatever a path says.
_OWN = ("service.css", "service.js")
_TYPES = {"css": "text/css", "js": "text/javascript"}
_PAGES = {
    "/": "Overview",
    "/people": "People",
    "/what-if": "What if",
    "/newcomer": "Newcomer",
}
# Samples listed at once, and columns up to which a form has a field for each.
_MAX_LISTED, _MAX_FIELDS = 50, 64
# A value of each kind of column, for examples.
_CELLS = {"number": 0.0, "duration": 1.0, "date": "2024-01-31"}


@router.get("/")
async def overview(request: Request) -> Response:
    """The audit report of the fit."""
    fit = state_of(request).fit
    report = fit.audit.ask()
    if report is None:
        return _wait(request, "The audit", fit.audit)
    figures = await asyncio.to_thread(report.figures)
    counted = [column.name for column in fit.columns if column.counts]
    return _page(
        request, "overview.html", report=report, figures=figures, counted=counted
    )


@router.get("/people")
async def samples(request: Request, q: str = "") -> Response:
    """Fitted samples by id, or those that moved most."""
    fit, query = state_of(request).fit, q.strip()[:200]
    rows: list[int] = []
    if fit.settings.show_people:
        rows = await asyncio.to_thread(fit.search, query, _MAX_LISTED + 1)
    return _page(
        request,
        "people.html",
        query=query,
        lines=[sample_line(fit, row) for row in rows[:_MAX_LISTED]],
        has_more=len(rows) > _MAX_LISTED,
        outputs=fit.output_names,
    )


@router.get("/people/{row}")
async def sample(request: Request, row: int) -> Response:
    """One fitted sample."""
    fit = state_of(request).fit
    if not fit.settings.show_people or not 0 <= row < fit.num_samples:
        raise HTTPException(404, "no such row")
    content = await asyncio.to_thread(sample_page, fit, row)
    return _page(request, "person.html", title=fit.ids[row], **content)


@router.get("/what-if")
async def what_if(request: Request) -> Response:
    """The grid of other settings, with sliders."""
    fit = state_of(request).fit
    grid = fit.what_if.ask()
    if grid is None:
        return _wait(request, "The grid of settings", fit.what_if)
    root = request.scope.get("root_path", "")
    content = grid_content(fit, grid)
    content |= {"words": grid_words(fit), "person": f"{root}/people/"}
    figures = grid_figures(content)
    return _page(request, "what_if.html", grid=content, figures=figures)


@router.get("/newcomer")
async def new_sample(request: Request) -> Response:
    """A form for a new sample."""
    fit = state_of(request).fit
    columns = [column for column in fit.columns if column.counts]
    return _page(
        request,
        "newcomer.html",
        columns=columns if len(columns) <= _MAX_FIELDS else [],
        outputs=fit.output_names,
        many=fit.num_outputs is not None,
    )


@router.get("/docs")
async def reference(request: Request) -> Response:
    """The OpenAPI description, readable without scripts from elsewhere."""
    fit, url = state_of(request).fit, str(request.base_url).rstrip("/")
    openapi = request.app.openapi()
    paths = resolved(openapi["paths"], openapi["components"]["schemas"])
    return _page(
        request,
        "docs.html",
        title="For programs",
        token=fit.settings.token is not None,
        routes=[
            (method, path, route, _curl(method, f"{url}{path}", fit))
            for path, methods in paths.items()
            for method, route in methods.items()
        ],
    )


@router.get("/monitor")
async def monitor(request: Request) -> Response:
    """The state of the monitor."""
    content = monitor_of(request).to_dict()
    figures = [stream_figure(content["streams"])] if content["num"] else []
    return _page(
        request, "monitor.html", title="Monitor", state=content, figures=figures
    )


@router.get("/login")
async def login(request: Request) -> Response:
    """A form for the token."""
    return _page(request, "login.html", title="Token", failed=False)


@router.post("/login")
async def enter(request: Request) -> Response:
    """Sets the cookie of a session in exchange for the token."""
    settings = state_of(request).settings
    body = (await request.body()).decode("utf-8", "replace")
    token = parse_qs(body).get("token", [""])[0]
    if settings.token is None or not settings.is_token(token):
        await asyncio.sleep(0.5)  # guessing takes time
        refusal = _page(request, "login.html", title="Token", failed=True)
        refusal.status_code = 403
        return refusal
    root = request.scope.get("root_path", "")
    response = RedirectResponse(f"{root}/", 303)
    response.set_cookie(
        COOKIE,
        settings.session,
        path=root or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """A script or a style."""
    if name == "vega.js":
        text = await asyncio.to_thread(_VEGA.wait)
    elif name in ASSETS:
        text = asset(name)
    else:
        text = _own_file(name) if name in _OWN else None
    if text is None:
        raise HTTPException(404, "no such file")
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, headers=headers, media_type=_TYPES[name.rpartition(".")[2]])


@lru_cache
def _environment() -> "Environment":
    """Templates of the service before those of reports."""
    env = environment()
    assert env.loader is not None
    env.loader = ChoiceLoader([PackageLoader("pyg_glif.serve"), env.loader])
    return env


def _page(request: Request, template: str, **values: Any) -> Response:
    """A rendered template, with what all pages show."""
    state, here = state_of(request), request.scope["route"].path
    root = request.scope.get("root_path", "")
    shared = {
        "root": root,
        "static": f"{root}/static",
        "pages": _PAGES | ({} if state.monitor is None else {"/monitor": "Monitor"}),
        "here": here,
        "title": _PAGES.get(here),
        "charts": "figures" in values,
        "fit_name": state.name,
        "info": state.fit.info,
        "show_people": state.settings.show_people,
    }
    text = _environment().get_template(template).render(**{**shared, **values})
    return HTMLResponse(text)


def _wait(request: Request, what: str, task: BackgroundTask[Any]) -> Response:
    """The page of a result that is not there yet."""
    _VEGA.ask()  # the next page has charts
    return _page(request, "wait.html", what=what, error=task.error)


def _vega(stopped: Callable[[], bool]) -> str:
    """The script that draws charts, from a process of its own.

    Putting it together takes seconds, in which this process would answer nothing.
    """
    code = "import sys, pyg_glif.reporting as p; sys.stdout.write(p.asset('vega.js'))"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=here, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


_VEGA = BackgroundTask("vega", _vega, threading.Lock())


@lru_cache
def _own_file(name: str) -> str:
    """A style or script of the service."""
    return (files("pyg_glif.serve") / "static" / name).read_text(encoding="utf-8")


def _curl(method: str, url: str, fit: LoadedFit) -> str:
    """A call of a route from a command line, for one sample."""
    words = ["curl"]
    if fit.settings.token is not None:
        words += ["-H", "Authorization: Bearer TOKEN"]
    if method == "post":
        width = fit.num_outputs
        y_hat: Any = 0.5 if width is None else [round(1 / width, 3)] * width
        body: dict[str, Any] = {"x": [[0.0] * fit.post.n_features_in_]}
        if fit.columns:
            row = {
                column.name: next(iter(column.values), _CELLS.get(column.kind))
                for column in fit.columns
                if column.counts
            }
            body = {"rows": [row]}
        words += ["-H", "Content-Type: application/json"]
        words += ["-d", json.dumps({**body, "y_hat": [y_hat]})]
    return shlex.join([*words, url])
