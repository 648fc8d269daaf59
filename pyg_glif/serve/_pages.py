"""The routes for people."""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from jinja2 import ChoiceLoader, PackageLoader
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pyg_glif.reporting import (
    ASSETS,
    Figure,
    asset,
    bar_chart,
    environment,
    front_chart,
    histogram,
    interval_chart,
    number,
)
from pyg_glif.serve._background import BackgroundTask
from pyg_glif.serve._loaded_fit import LoadedFit
from pyg_glif.serve._middleware import COOKIE
from pyg_glif.serve._reference import routes_of
from pyg_glif.serve._state import AppState
from pyg_glif.serve._views import grid_content, sample_line, sample_page

# Scripts and styles, by name: nothing else is read, whatever a path says.
_OWN = ("service.css", "service.js")
_TYPES = {"css": "text/css", "js": "text/javascript"}
_PAGES = (
    ("/", "Overview"),
    ("/people", "People"),
    ("/what-if", "What if"),
    ("/newcomer", "Newcomer"),
)
# People listed at once, and columns up to which a form has a field for each.
_LISTED, _FIELDS = 50, 64
_KINDS = ("other settings", "this radius", "served now", "chosen here")
_UNLIKE = "difference between similar people"


def pages(state: AppState) -> APIRouter:
    """Pages of a fit."""
    router = APIRouter(include_in_schema=False)
    env = environment()
    assert env.loader is not None
    env.loader = ChoiceLoader([PackageLoader("pyg_glif.serve"), env.loader])
    vega = BackgroundTask("vega", _vega, threading.Lock())

    shown = _PAGES if state.monitor is None else (*_PAGES, ("/monitor", "Monitor"))

    def page(request: Request, name: str, here: str = "", **values: Any) -> Response:
        root = request.scope.get("root_path", "")
        shared = {
            "root": root,
            "static": f"{root}/static",
            "pages": shown,
            "here": here,
            "title": dict(shown).get(here, "Person"),
            "fit_name": state.name,
            "info": state.fit.info,
            "show_people": state.settings.show_people,
        }
        return HTMLResponse(env.get_template(name).render(**{**shared, **values}))

    def waiting(request: Request, here: str, what: str, error: str | None) -> Response:
        vega.ask()  # what comes next has charts
        return page(request, "wait.html", here, what=what, error=error)

    @router.get("/")
    async def overview(request: Request) -> Response:
        task = state.fit.audit
        report = task.ask()
        if report is None:
            return waiting(request, "/", "The audit", task.error)
        return page(
            request,
            "overview.html",
            "/",
            report=report,
            facts=_facts(state.fit),
            figures=await asyncio.to_thread(report.figures),
            charts=True,
        )

    @router.get("/people")
    async def people(request: Request, q: str = "") -> Response:
        if not state.settings.show_people:
            return page(request, "people.html", "/people")
        fit, query = state.fit, q.strip()[:200]
        rows, said = await asyncio.to_thread(_found, fit, query)
        found = [sample_line(fit, row) for row in rows]
        names = fit.output_names
        return page(
            request,
            "people.html",
            "/people",
            query=query,
            found=found,
            said=said,
            outputs=[f"{name}, {when}" for name in names for when in _WHEN],
        )

    @router.get("/people/{row}")
    async def person(request: Request, row: int) -> Response:
        fit = state.fit
        if not state.settings.show_people or not 0 <= row < fit.num_samples:
            raise HTTPException(404, "nobody there")
        found = await asyncio.to_thread(sample_page, fit, row)
        return page(
            request,
            "person.html",
            "/people/",
            title=fit.ids[row],
            charts=True,
            **found,
        )

    @router.get("/what-if")
    async def what_if(request: Request) -> Response:
        task = state.fit.what_if
        grid = task.ask()
        if grid is None:
            return waiting(request, "/what-if", "The grid of settings", task.error)
        root = request.scope.get("root_path", "")
        content = grid_content(state.fit, grid)
        content |= {"words": _words(state.fit), "person": f"{root}/people/"}
        return page(
            request,
            "what_if.html",
            "/what-if",
            grid=content,
            figures=_figures(content),
            charts=True,
        )

    @router.get("/newcomer")
    async def newcomer(request: Request) -> Response:
        fit = state.fit
        return page(
            request,
            "newcomer.html",
            "/newcomer",
            fields=_fields(fit),
            outputs=fit.output_names,
            many=fit.num_outputs is not None,
        )

    @router.get("/docs")
    async def reference(request: Request) -> Response:
        url = str(request.base_url).rstrip("/")
        return page(
            request,
            "docs.html",
            "/docs",
            title="For programs",
            token=state.settings.token is not None,
            routes=list(routes_of(request.app.openapi(), state.fit, url)),
        )

    @router.get("/monitor")
    async def monitor(request: Request) -> Response:
        if state.monitor is None:
            raise HTTPException(404, "there is no monitor. See --monitor")
        monitored = state.monitor.to_dict()
        figures = [_streams(monitored["streams"])] if monitored["num"] else []
        return page(
            request,
            "monitor.html",
            "/monitor",
            state=monitored,
            figures=figures,
            rows=_lines(monitored["streams"]),
            charts=True,
        )

    @router.get("/login")
    async def login(request: Request) -> Response:
        return page(request, "login.html", failed=False)

    @router.post("/login")
    async def enter(request: Request) -> Response:
        body = (await request.body()).decode("utf-8", "replace")
        given = parse_qs(body).get("token", [""])[0]
        if state.settings.token is None or not state.settings.is_token(given):
            await asyncio.sleep(0.5)  # guessing takes time
            failed = page(request, "login.html", failed=True)
            failed.status_code = 403
            return failed
        root = request.scope.get("root_path", "")
        found = RedirectResponse(f"{root}/", 303)
        found.set_cookie(
            COOKIE,
            state.settings.session,
            path=root or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return found

    @router.get("/static/{name}")
    async def static(request: Request, name: str) -> Response:
        if name == "vega.js":
            text = await asyncio.to_thread(vega.wait)
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
        return Response(
            text, headers=headers, media_type=_TYPES[name.rpartition(".")[2]]
        )

    return router


_WHEN = ("model", "corrected")


def _vega(stopped: Callable[[], bool]) -> str:
    """The script that draws charts, from a process of its own.

    Putting it together takes seconds, in which this process would answer nothing.
    """
    code = "import sys, pyg_glif.reporting as p; sys.stdout.write(p.asset('vega.js'))"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=here, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


@lru_cache
def _own_file(name: str) -> str:
    """A style or script of the fit."""
    return (files("pyg_glif.serve") / "static" / name).read_text(encoding="utf-8")


def _found(fit: LoadedFit, query: str) -> tuple[list[int], str]:
    """People whose id holds a text, or those who moved most; and what was done."""
    if not query:
        return fit.most_moved[:_LISTED], "Those who moved most."
    rows = fit.search(query, _LISTED + 1)
    count = "Nobody" if not rows else f"{len(rows[:_LISTED])}"
    more = " first" if len(rows) > _LISTED else ""
    return rows[:_LISTED], f"{count}{more} whose id contains “{query}”."


def _words(fit: LoadedFit) -> dict[str, Any]:
    """What the what-if page calls things."""
    decided = fit.decide is not None
    one = fit.num_outputs is None
    return {
        "kinds": _KINDS,
        "unlike": _UNLIKE,
        "kept": "decisions kept" if decided else "share of people not affected",
        "up": "become yes" if one else "become another",
        "down": "become no" if one else "",
    }


def _figures(grid: Mapping[str, Any]) -> list[Figure]:
    """The charts of the what-if page, for the settings of the fit."""
    words, (tau, lam) = grid["words"], grid["at"]
    own = grid["points"][tau * len(grid["lams"]) + lam]
    x, y = words["unlike"], words["kept"]
    front = [
        {
            x: point["unlike"],
            y: point["kept_or_near"],
            "kind": _KINDS[int(point["tau"] == own["tau"])],
            "setting": f"strength {number(point['lam'])}",
        }
        for point in grid["points"]
    ]
    last = {x: own["unlike"], y: own["kept_or_near"], "setting": "the fit"}
    front += [{**last, "kind": _KINDS[2]}, {**last, "kind": _KINDS[3]}]
    found = [
        Figure(
            "front",
            "What is given up for what",
            "Each point is a setting; the line joins strengths of the radius chosen.",
            draw=lambda: front_chart(front, x, y, kind="kind", order=_KINDS),
        )
    ]
    colors = {words["up"]: "#12a37a"}
    ways = [("up", 1)]
    if words["down"]:
        colors[words["down"]] = "#c65f9e"
        ways.append(("down", -1))
    groups = [
        {"people": sign * one[way], "group": one["group"], "way": words[way]}
        for one in own["groups"]
        for way, sign in ways
    ]
    if groups:
        found.append(
            Figure(
                "decisions",
                "Decisions that change",
                "People whose decision differs from the model's, by group.",
                draw=lambda: bar_chart(
                    groups, "people", "group", color="way", colors=colors
                ),
            )
        )
    edges = grid["edges"]
    bars = [
        {"from": edges[k], "to": edges[k + 1], "people": count, "group": "everybody"}
        for k, count in enumerate(own["bars"])
    ]
    title = "how far the output moves"
    found.append(
        Figure(
            "movement",
            "People affected",
            "How many people move how far.",
            draw=lambda: histogram(
                bars, "from", "to", "people", color="group", title=title
            ),
        )
    )
    return found


def _facts(fit: LoadedFit) -> list[tuple[str, Any]]:
    """What was fitted, in a few lines."""
    info = fit.info
    near = f"within {number(info['tau'])} {info['unit']}" if info["tau"] else ""
    if info["k"] is not None:
        near = f"the {info['k']} nearest{', ' if near else ''}{near}"
    counted = [one.name for one in fit.columns if one.counts]
    return [
        ("who is similar", near or "everybody"),
        ("compared by", counted or f"{info['num_features']} features"),
        ("strength", info["lam"]),
        ("people without anybody similar", info["num_isolated"]),
    ]


def _lines(streams: Mapping[str, Any]) -> list[list[Any]]:
    """The same as a table."""
    keys = ("limit", "p_value", "alarm_at")
    return [
        [name, one["num"], one["mean"], *one["interval"], *(one[key] for key in keys)]
        for name, one in streams.items()
    ]


def _streams(streams: Mapping[str, Any]) -> Figure:
    """The means that a monitor watches, with their intervals."""
    rows = [
        {
            "mean": one["mean"],
            "low": one["interval"][0],
            "high": one["interval"][1],
            "limit": one["limit"],
            "of": name,
            "kind": kind,
        }
        for name, one in streams.items()
        for kind in ("alarm" if one["alarm"] else "no alarm",)
        if one["num"]
    ]
    colors = {"no alarm": "#1f8fd6", "alarm": "#e07b00"}
    return Figure(
        "streams",
        "What is watched",
        "Points are means by now. Lines hold the true mean at all times at once, if it "
        "is one and the same number throughout. The upright line is the limit.",
        draw=lambda: interval_chart(
            rows, "mean", "of", color="kind", colors=colors, limit="limit"
        ),
    )


def _fields(fit: LoadedFit) -> list[dict[str, Any]]:
    """Fields of the form for newcomers; none if there would be too many."""
    columns = [one for one in fit.columns if one.counts]
    if len(columns) > _FIELDS:
        return []
    found = []
    for one in columns:
        kind = "number" if one.kind in ("number", "duration") else "text"
        kind = "date" if one.kind == "date" else kind
        found.append(
            {
                "name": one.name,
                "hint": {"duration": "days", "date": "a day"}.get(one.kind, ""),
                "input": "option" if one.values else kind,
                "type": kind,
                "options": one.values,
                "nullable": one.nullable,
            }
        )
    return found
