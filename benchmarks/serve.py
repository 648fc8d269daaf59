"""How much does the service add to the call it stands for, and how many may ask?

Run ``python benchmarks/serve.py`` (about five minutes on two cores, 2 GiB), or name
parts: ``python benchmarks/serve.py load reload fuzz``. Fitted people: 78,686 x 768,
average degree about 40. The service is a process of its own, started by ``pyg-glif
serve`` on a free port of 127.0.0.1, and stopped at the end. Clients share its two
cores, so they are as light as can be: requests are made beforehand, and one asyncio
protocol per client writes them to an open socket and looks for the end of the answer.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import psutil
import torch
from torch import Tensor

from pyg_glif import GLIFPostProcessor

FITTED, NEW, DEGREE, LAM = 78_686, 2_000, 40, 10.0
CLIENTS = (1, 8, 64)
REQUESTS = {1: 300, 8: 1000, 64: 4000}
SECONDS = 120.0  # at most, for each number of clients
PARTS = ("load", "reload", "fuzz")


class Client(asyncio.Protocol):
    """One open connection: a request, its answer, the next request."""

    def __init__(self, requests: Iterator[bytes], seconds: list[float]) -> None:
        self._requests, self._seconds = requests, seconds
        self._buffer = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.errors = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._start = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self._buffer.find(b"content-length: ") + 16
        size = int(self._buffer[at : self._buffer.find(b"\r", at)])
        if len(self._buffer) < head + 4 + size:
            return
        self._seconds.append(time.perf_counter() - self._start)
        self.errors += not self._buffer.startswith(b"HTTP/1.1 200")
        self._buffer.clear()
        self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        self.errors += error is not None
        if not self.done.done():
            self.done.set_result(None)


def bodies(x: Tensor, y: Tensor, port: int) -> list[bytes]:
    """A request for each newcomer, as bytes."""
    found = []
    for row, score in zip(x.tolist(), y.tolist(), strict=True):
        body = json.dumps({"x": [row], "y_hat": [score]}).encode()
        head = f"POST /v1/correct HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += "Content-Type: application/json\r\n"
        found.append(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    return found


async def ask(port: int, requests: Sequence[bytes], clients: int, count: int) -> Any:
    """Many requests from a number of clients: seconds each, seconds in all, errors."""
    stop = time.perf_counter() + SECONDS

    def turn() -> Iterator[bytes]:
        for k in range(count):
            if time.perf_counter() > stop:
                return
            yield requests[k % len(requests)]

    seconds: list[float] = []
    line = turn()
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    made = [
        await loop.create_connection(lambda: Client(line, seconds), "127.0.0.1", port)
        for _ in range(clients)
    ]
    await asyncio.gather(*(client.done for _, client in made))
    total = time.perf_counter() - start
    return seconds, total, sum(client.errors for _, client in made)


class Server:
    """The service as a process of its own, while inside."""

    def __init__(self, path: str, *options: str) -> None:
        command = [sys.executable, "-m", "pyg_glif", "serve", path, "--port", "0"]
        self._process = subprocess.Popen(
            [*command, *options], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._up = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            found = re.search(r"serving http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                self._up.set()
            elif " 200 " not in line:
                self.lines.append(line)

    def __enter__(self) -> "Server":
        if not self._up.wait(120):
            self.__exit__()
            raise RuntimeError("the service did not start: " + "".join(self.lines))
        self.memory = psutil.Process(self._process.pid).memory_info
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    @property
    def rss(self) -> int:
        """Resident bytes."""
        return int(self.memory().rss)


def quantile(values: list[float], share: float) -> float:
    """A value that a share of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def load(
    folder: str, new: tuple[Tensor, Tensor], single: list[float]
) -> dict[str, Any]:
    """One-row requests from several numbers of clients."""
    unit = statistics.median(single)
    row: dict[str, Any] = {
        "part": "load",
        "rows": FITTED,
        "in_process_seconds": unit,
        "in_process_p99": quantile(single, 0.99),
        "clients": [],
    }
    path = os.path.join(folder, "fit.safetensors")
    with Server(path) as server:
        requests = bodies(*new, server.port)
        asyncio.run(ask(server.port, requests, 8, 400))  # warm
        for clients in CLIENTS:
            before = server.rss
            seconds, total, errors = asyncio.run(
                ask(server.port, requests, clients, REQUESTS[clients])
            )
            row["clients"].append(
                {
                    "clients": clients,
                    "requests": len(seconds),
                    "errors": errors,
                    "per_second": len(seconds) / total,
                    "p50": quantile(seconds, 0.5),
                    "p99": quantile(seconds, 0.99),
                    "rss_before": before,
                    "rss_after": server.rss,
                }
            )
            print(row["clients"][-1], flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--try-fit", help=argparse.SUPPRESS)
    args = parser.parse_args()
    post = GLIFPostProcessor.load(args.try_fit)
    new = torch.load("/tmp/wt/desk_tmp/new.pt")
    x, y = new
    single = []
    for k in range(210):
        s = time.perf_counter()
        post.transform(x[k : k + 1], y[k : k + 1], return_info=True)
        single.append(time.perf_counter() - s)
    for b in (8, 64, 256):
        s = time.perf_counter()
        for k in range(20):
            post.transform(x[k : k + b], y[k : k + b], return_info=True)
        print(b, (time.perf_counter() - s) / 20)
    print(load(os.path.dirname(args.try_fit), new, single[10:]))


if __name__ == "__main__":
    main()
