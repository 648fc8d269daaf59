"""Access, limits, headers, metrics and logs of all requests.

One layer, written against ASGI itself because every request passes it.
"""

import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, RedirectResponse, Response

from pyg_glif.serve._metrics import Metrics
from pyg_glif.serve._settings import ServiceSettings

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The cookie of a browser session that has shown the token.
COOKIE = "pyg_glif_session"
#: Bytes of path, query and headers of a request, and how many headers.
MAX_HEAD, MAX_HEADERS = 1 << 15, 100
#: Bytes of a request without a token: enough for one.
MAX_OPEN = 1 << 12
#: Seconds for a body, to which one is added for every so many bytes that came.
PATIENCE, RATE = 30.0, 1 << 14

_log = logging.getLogger("pyg_glif.serve")
# Open without a token: whether the service runs, and the page that asks for one.
_OPEN = frozenset(("/healthz", "/readyz", "/login", "/static/style.css"))
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
_NO_STORE = [(b"cache-control", b"no-store")]
# Labels of metrics and logs; without a list, requests could invent any number.
_METHODS = frozenset(
    ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")
)
# Status of requests whose client left before the answer, as other servers have it.
_GONE = 499


class Guard:
    """Lets requests through to ``app``, or answers them itself."""

    def __init__(self, app: App, settings: ServiceSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request, and counts and logs the answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here talks over sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        start, status = time.perf_counter(), 500

        async def safely(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = message.get("headers", ())
                kept = any(name == b"cache-control" for name, _ in headers)
                message["headers"] = [*headers, *_HEADERS, *([] if kept else _NO_STORE)]
            await send(message)

        method = scope["method"] if scope["method"] in _METHODS else "other"
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        most = MAX_OPEN if path in _OPEN else self._settings.max_bytes
        try:
            refusal = self._refusal(scope, path, most)
            if refusal is not None:
                await refusal(scope, receive, safely)
            else:
                await self._app(scope, _limited(receive, most), safely)
        except ClientDisconnect:
            status = _GONE
        finally:
            seconds = time.perf_counter() - start
            # The pattern, not the path: a path may hold an id.
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.request(route, method, status, seconds)
            if _log.isEnabledFor(logging.DEBUG):
                line = "%s %s %d %.1f ms"
                _log.debug(line, method, route, status, 1e3 * seconds)

    def _refusal(self, scope: Scope, path: str, most: int) -> Response | None:
        """Response to a refused request, :obj:`None` if it may pass; parses nothing."""
        settings, lines = self._settings, scope["headers"]
        length = len(scope["path"]) + len(scope.get("query_string", b""))
        length += sum(len(name) + len(value) for name, value in lines)
        if len(lines) > MAX_HEADERS or length > MAX_HEAD:
            msg = f"the head must have at most {MAX_HEAD} bytes and {MAX_HEADERS} lines"
            return JSONResponse({"detail": msg}, 431)
        headers = dict(lines)
        size = headers.get(b"content-length", b"0")
        if not size.isdigit() or len(size) > 18 or int(size) > most:
            return JSONResponse({"detail": _too_large(most)}, 413)
        if settings.token is None:
            # Another site's name may be pointed here, to read through a browser.
            name = _host(headers.get(b"host", b"").decode("latin-1"))
            if name not in settings.hosts and path not in _OPEN:
                msg = "'Host' must be a name of this service"
                return JSONResponse({"detail": f"{msg}. See --allow-host"}, 421)
            return None
        if path in _OPEN or self._is_known(headers):
            return None
        if b"text/html" in headers.get(b"accept", b"") and scope["method"] == "GET":
            return RedirectResponse(f"{scope.get('root_path', '')}/login", 303)
        return JSONResponse(
            {"detail": "a token is needed: 'Authorization: Bearer TOKEN'"},
            401,
            {"WWW-Authenticate": "Bearer"},
        )

    def _is_known(self, headers: dict[bytes, bytes]) -> bool:
        """Whether a request shows the token, or the session that stands for it."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer":
            return self._settings.is_token(token.strip().decode("latin-1"))
        for cookie in headers.get(b"cookie", b"").split(b";"):
            name, _, value = cookie.strip().partition(b"=")
            if name == COOKIE.encode():
                return self._settings.is_session(value.strip(b'"').decode("latin-1"))
        return False


def _too_large(most: int) -> str:
    return f"the body must have at most {most} bytes"


def _limited(receive: Receive, most: int) -> Receive:
    """Receives a body within limits of size and time."""
    size, complete, end = 0, False, time.perf_counter() + PATIENCE

    async def limited() -> Message:
        nonlocal size, complete
        if complete:  # only the end of the connection may follow
            return await receive()
        left = end + size / RATE - time.perf_counter()
        try:
            with anyio.fail_after(max(left, 0.0)):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time") from None
        complete = not message.get("more_body", False)
        size += len(message.get("body", b""))
        if size > most:
            raise HTTPException(413, _too_large(most))
        return message

    return limited


def _host(header: str) -> str:
    """The name in a 'Host' header, without its port."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""
