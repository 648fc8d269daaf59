"""The network in front of the application: sockets, and connections within bounds.

uvicorn bounds neither the head of a request, in size or in time, nor the number of
connections that send none. These bounds hold before a token is shown, for all
connections.
"""

import asyncio
import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Any

from uvicorn import Config
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from pyg_glif.serve._middleware import MAX_HEAD

if TYPE_CHECKING:
    from fastapi import FastAPI

#: Seconds for the head of a request, and for what comes after an early answer.
HEAD_SECONDS = 10.0
#: Connections at a time, where the system lets a process have so many files.
MAX_CONNECTIONS = 1024
#: Requests that a connection may send ahead of their answers.
MAX_AHEAD = 64
# What separates the head's lines comes on top of what the guard counts.
_MAX_BYTES = 2 * MAX_HEAD
_TOO_LARGE = b"431 Request Header Fields Too Large"
_LATE = b"408 Request Timeout"


class Bounds(asyncio.Protocol):
    """A connection, closed if a request does not begin in time or begins too large.

    Where there are too many, the one that has been silent for longest makes room,
    unless it is being answered. To be mixed into a protocol of uvicorn.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    connections: "set[Bounds]"
    cycle: Any
    since: float

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the clock, and makes room."""
        super().connection_made(transport)
        self._num_bytes, self._in_body = 0, False
        self._late: asyncio.TimerHandle | None = None
        self._wait()
        if len(self.connections) > max_connections():
            others = (c for c in self.connections if c is not self and c.is_waiting)
            silent = min(others, key=lambda other: other.since, default=self)
            self.connections.discard(silent)
            silent.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Reads on, within the bounds of a head."""
        if self.is_waiting and not self.is_in_body:
            self._num_bytes += len(data)
        super().data_received(data)
        if not self.is_waiting:
            self._num_bytes = 0
            self._stop_clock()
            if len(getattr(self, "pipeline", ())) > MAX_AHEAD:
                self.transport.abort()
            return
        self._wait()
        if self._num_bytes > _MAX_BYTES and not self.is_in_body:
            self._refuse(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Notes that a body begins; called by httptools."""
        self._in_body = True
        super().on_headers_complete()  # type: ignore[misc]

    def on_message_complete(self) -> None:
        """Notes that it ends."""
        self._in_body = False
        super().on_message_complete()  # type: ignore[misc]

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    @property
    def is_in_body(self) -> bool:
        """Whether what comes is the body of a request."""
        conn = getattr(self, "conn", None)  # of h11
        return self._in_body if conn is None else str(conn.their_state) == "SEND_BODY"

    def _wait(self) -> None:
        """Lets the clock run, if it does not."""
        self.since = self.loop.time()
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._refuse, _LATE)

    def _stop_clock(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, status: bytes) -> None:
        """Ends the connection, with a status if a request has begun."""
        if self.transport.is_closing():
            return
        if self._num_bytes and not self.is_in_body:
            lines = b"connection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(b"HTTP/1.1 %b\r\n%b" % (status, lines))
        self.transport.close()


class BoundedProtocol(Bounds, AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """The protocol that uvicorn would choose, within bounds."""


def max_connections() -> int:
    """Connections that leave enough files for everything else."""
    return min(MAX_CONNECTIONS, _num_files() - _reserve())


def _num_files() -> int:
    """Files that this process may have open."""
    with contextlib.suppress(ImportError):
        import resource

        number = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if number != resource.RLIM_INFINITY:
            return int(number)
    return 1 << 16


def _reserve() -> int:
    """Files for fits and journals, and connections that are not looked at yet."""
    return min(256, _num_files() // 2)


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets for an address; raises :class:`OSError` if one of them is taken."""
    sockets: list[socket.socket] = []
    with contextlib.ExitStack() as stack:
        kind = socket.SOCK_STREAM
        addresses = socket.getaddrinfo(host, port, type=kind, flags=socket.AI_PASSIVE)
        for family, _, number, _, address in dict.fromkeys(addresses):
            listener = stack.enter_context(socket.socket(family, kind, number))
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if sockets:  # a free port is the same for all
                address = (address[0], sockets[0].getsockname()[1], *address[2:])
            try:
                listener.bind(address)
            except OSError as error:
                # A name may have addresses that this machine has not.
                if error.errno != errno.EADDRNOTAVAIL or address == addresses[-1][4]:
                    raise
                continue
            sockets.append(listener)
        stack.pop_all()
    return sockets


def config(app: "FastAPI", **options: Any) -> Config:
    """How uvicorn serves an application within the bounds."""
    own: dict[str, Any] = {
        "http": BoundedProtocol,
        "ws": "none",  # nothing here talks over them, and their heads have no bounds
        "log_config": None,
        "access_log": False,  # it would hold paths, and so ids
        "server_header": False,
        # All that wait to be accepted may be, before the first of them is looked at.
        "backlog": _reserve() // 2,
        "timeout_graceful_shutdown": 30,
    }
    return Config(app, **{**own, **options})
