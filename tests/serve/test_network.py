"""Connections within bounds, over real sockets of this machine."""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pyg_glif.cli import main
from pyg_glif.serve import create_app
from pyg_glif.serve._middleware import MAX_HEAD, MAX_OPEN
from pyg_glif.serve.network import Bounds, bound, config
from tests.serve.conftest import QUIET
from tests.serve.live import Live

resource = pytest.importorskip("resource")
TOKEN = "0123456789abcdef-token"
pytestmark = QUIET


class BoundedTools(Bounds, HttpToolsProtocol):
    pass


class BoundedH11(Bounds, H11Protocol):
    pass


PROTOCOLS = {"httptools": BoundedTools, "h11": BoundedH11}


@contextlib.contextmanager
def served(app: Any, protocol: str = "httptools") -> Iterator[int]:
    """The port of an application that is served while inside."""
    sockets = bound("127.0.0.1", 0)
    server = uvicorn.Server(config(app, http=PROTOCOLS[protocol]))
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(60)


def until(true: Any) -> None:
    """Waits for something that must happen."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(scope="module", params=PROTOCOLS)
def port(request: pytest.FixtureRequest, fit: Path) -> Iterator[int]:
    """A service with a token, under each of the protocols, that is in a hurry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyg_glif.serve.network.HEAD_SECONDS", 0.4)
        patch.setattr("pyg_glif.serve._middleware.PATIENCE", 0.4)
        with served(create_app(fit, token=TOKEN), request.param) as found:
            yield found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def received(link: socket.socket) -> bytes:
    """Everything up to the end of a connection, however it ends."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := link.recv(1 << 16):
            found += part
    return found


def asked(port: int, text: bytes) -> bytes:
    """What a request is answered, over a connection that the service closes."""
    with connected(port) as link, contextlib.suppress(ConnectionError):
        link.sendall(text)
        return received(link)
    return b""


def head(line: str, *lines: str, close: bool = True) -> bytes:
    """The head of a request."""
    end = ["Connection: close"] if close else []
    return "\r\n".join([line, "Host: fair", *lines, *end, "", ""]).encode()


HEALTH = head("GET /healthz HTTP/1.1")
LARGE: dict[str, bytes] = {
    "one header": head("GET /healthz HTTP/1.1", f"X: {'a' * (1 << 21)}"),
    "many headers": head("GET /healthz HTTP/1.1", *["X: a"] * 200_000),
    "more lines than may be": head("GET /healthz HTTP/1.1", *["X: a"] * 101),
    "a path": head(f"GET /{'a' * (1 << 21)} HTTP/1.1"),
    "a query": head(f"GET /healthz?{'a' * (MAX_HEAD + 1)} HTTP/1.1"),
    "a cookie": head("GET / HTTP/1.1", f'Cookie: a="{chr(92) * (1 << 16)}'),
    "a name": head("GET / HTTP/1.1", f"{'a' * (1 << 21)}: a"),
    "no end": b"GET / HTTP/1.1\r\nX: " + b"a" * (1 << 22),
    "a method": b"A" * (1 << 21),
}


@pytest.mark.parametrize("what", LARGE)
def test_a_head_has_bounds(port: int, what: str) -> None:
    found = asked(port, LARGE[what])
    # The connection may be gone before all was sent; what it was not is answered.
    assert not found or found.split()[1] in (b"431", b"400"), found
    assert asked(port, HEALTH).startswith(b"HTTP/1.1 200")


def test_a_head_within_the_bounds_is_fine(port: int) -> None:
    lines = [f"X-{k}: {'a' * 300}" for k in range(90)]
    found = asked(port, head("GET /healthz HTTP/1.1", *lines))
    assert found.startswith(b"HTTP/1.1 200")


SLOW: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "a line": (b"GET /healthz HTTP/1.1\r\n", b""),
    "a letter now and then": (b"GET /healthz HTTP/1.1\r\n", b"X"),
    "a header now and then": (b"GET /healthz HTTP/1.1\r\n", b"X: a\r\n"),
    "no body": (head("POST /login HTTP/1.1", "Content-Length: 9", close=False), b""),
    "a body now and then": (
        head("POST /login HTTP/1.1", "Content-Length: 999", close=False),
        b"a",
    ),
    "a body after its answer": (
        head("POST /v1/correct HTTP/1.1", "Content-Length: 9999", close=False),
        b"a",
    ),
    "chunks after an answer": (
        head("POST /nowhere HTTP/1.1", "Transfer-Encoding: chunked", close=False),
        b"1\r\na\r\n",
    ),
    "a second head": (head("GET /healthz HTTP/1.1", close=False), b"G"),
}


@pytest.mark.parametrize("what", SLOW)
def test_the_slow_are_not_waited_for(port: int, what: str) -> None:
    first, more = SLOW[what]
    with connected(port) as link:
        link.sendall(first)
        link.settimeout(0.1)
        found, end = b"", time.monotonic() + 30
        while time.monotonic() < end:
            try:
                part = link.recv(1 << 16)
                found += part
                if not part:
                    break
            except TimeoutError:
                with contextlib.suppress(ConnectionError):
                    link.sendall(more)
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")
    assert b" 500 " not in found
    assert asked(port, HEALTH).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("size", [MAX_OPEN + 1, 1 << 22])
@pytest.mark.parametrize("path", ["/login", "/healthz", "/v1/correct"])
@pytest.mark.parametrize("chunked", [False, True])
def test_before_the_token_bodies_are_small(
    port: int, path: str, size: int, chunked: bool
) -> None:
    body = b"token=" + b"a" * (size - 6)
    kind = f"Content-Length: {size}"
    if chunked:
        kind, body = (
            "Transfer-Encoding: chunked",
            b"%x\r\n%b\r\n0\r\n\r\n" % (size, body),
        )
    found = asked(port, head(f"POST {path} HTTP/1.1", kind) + body)
    status = b"401" if path == "/v1/correct" and size <= 1 << 24 else b"413"
    status = b"405" if path == "/healthz" and chunked else status
    assert not found or found.split()[1] == status


def test_the_session_is_found_among_other_cookies(fit: Path) -> None:
    app = create_app(fit, token=TOKEN)
    session = app.state.service.settings.session
    with served(app) as port:
        for cookies, status in [
            (f"pyg_glif_session={session}", b"200"),
            (f'a=1; b="x;y"; pyg_glif_session="{session}"; c', b"200"),
            (f"pyg_glif_session={session}x", b"401"),
            (f"other={session}", b"401"),
            ("pyg_glif_session", b"401"),
            ("pyg_glif_session=\xff", b"401"),
            (";" * 10_000, b"401"),
            ('a="' + "\\" * 20_000, b"401"),
        ]:
            found = asked(port, head("GET /v1/info HTTP/1.1", f"Cookie: {cookies}"))
            assert found.split()[1] == status


KNOWN = (f"Authorization: Bearer {TOKEN}", "Content-Type: application/json")
GONE = [
    head(f"POST {path} HTTP/1.1", *KNOWN, "Content-Length: 999", close=False)
    for path in ("/login", "/v1/correct", "/v1/explain")
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_that_leaves_while_sending_is_no_failure(
    fit: Path, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(fit, token=TOKEN)
    with caplog.at_level(logging.INFO), served(app, protocol) as port:
        for text in GONE:
            with connected(port) as link:
                link.sendall(text + b"{")
                time.sleep(0.05)  # the head is read, and the rest of the body awaited
        found = app.state.service.metrics
        until(lambda: found.text().count(b'_count{method="POST"') == len(GONE))
    assert b'status="500"' not in found.text()
    assert found.text().count(b'status="499"} ') >= len(GONE)
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_silent_connections_make_room(
    fit: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyg_glif.serve.network.MAX_CONNECTIONS", 8)
    # The fixture 'port' may still be in a hurry.
    monkeypatch.setattr("pyg_glif.serve._middleware.PATIENCE", 30.0)
    app = create_app(fit)
    body = b'{"x": [[0, 0, 0]], "y_hat": [0.5]}'
    kind = ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines = head("POST /v1/correct HTTP/1.1", *kind).replace(b"fair", b"localhost")
    with served(app, protocol) as port, contextlib.ExitStack() as stack:
        # One is in the middle of a request, and is not sent away.
        busy = stack.enter_context(connected(port))
        busy.sendall(lines + body[:9])
        time.sleep(0.1)
        silent = [stack.enter_context(connected(port)) for _ in range(30)]
        assert asked(port, HEALTH).startswith(b"HTTP/1.1 200")
        busy.sendall(body[9:])
        assert received(busy).startswith(b"HTTP/1.1 200")
        gone = 0
        for link in silent:
            link.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                gone += received(link) == b""
        assert gone >= 30 - 8


def test_requests_that_are_sent_ahead_have_a_bound(fit: Path) -> None:
    ahead = head("GET /healthz HTTP/1.1", close=False)
    with served(create_app(fit)) as port:
        few = asked(port, ahead * 20 + HEALTH)
        assert few.count(b"HTTP/1.1 200") == 21
        asked(port, ahead * 2000)  # ends, whatever it says
        assert asked(port, HEALTH).startswith(b"HTTP/1.1 200")


def test_more_connections_than_files_leave_the_service_open(
    fit: Path,
) -> None:
    """With as few files as 128, as some systems have it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    live = None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        live = Live(fit)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with live, contextlib.ExitStack() as stack:
        for _ in range(300):
            link = stack.enter_context(connected(live.port))
            with contextlib.suppress(ConnectionError):
                link.sendall(b"GET")
        assert asked(live.port, HEALTH).startswith(b"HTTP/1.1 200")
        assert live.get("/readyz")[0] == 200


def test_a_port_that_is_taken_is_reported_in_one_line(
    fit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(fit), "--port", str(port)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"pyg-glif: error: --port {port} of 127.0.0.1 must be free to listen on (got "
    )
    assert line.endswith("Name another, or 0 for one that is free")


def test_an_address_of_another_machine_is_reported_in_one_line(
    fit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", str(fit), "--host", "192.0.2.1", "--token", TOKEN]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--port 8000 of 192.0.2.1 must be free to listen on" in line
