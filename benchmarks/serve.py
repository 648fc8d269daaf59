"""How much does the service add to the call it stands for, and how many may ask?

Run ``python benchmarks/serve.py`` (about five minutes on two cores, 2 GiB), or name
parts: ``python benchmarks/serve.py load reload``. Fitted people: 78,686 x 768,
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
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.request import urlopen

import psutil
import torch
from common import write
from data import embedding_like
from torch import Tensor

from pyg_glif import GLIFPostProcessor

FITTED, NEW, DEGREE, LAM = 78_686, 2_000, 40, 10.0
CLIENTS = (1, 8, 64)
REQUESTS = {1: 2_000, 8: 4_000, 64: 10_000}
SECONDS = 120.0  # at most, for each number of clients
PARTS = ("load", "reload")


class Client(asyncio.Protocol):
    """One open connection: a request, its answer, the next request."""

    def __init__(self, requests: Iterator[bytes], seconds: list[float]) -> None:
        self._requests, self._seconds = requests, seconds
        self._buffer = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.errors = 0

    def connection_made(self, transport: Any) -> None:
        """Asks for the first time."""
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
        """Counts an answer once all of it is there, and asks again."""
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
        """Ends this client."""
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


class Served:
    """A fit in a file, people it has not seen, and the call that the service makes."""

    def __init__(self, folder: str) -> None:
        x = embedding_like(FITTED + NEW)
        generator = torch.Generator().manual_seed(1)
        mix = torch.randn(x.size(1), generator=generator) / 28.0
        noise = torch.randn(len(x), generator=generator)
        y = torch.sigmoid(x @ mix + 0.3 * noise)
        self.post = GLIFPostProcessor(target_degree=DEGREE, lam=LAM)
        self.post.fit(x[:FITTED], y[:FITTED])
        self.path = os.path.join(folder, "fit.safetensors")
        self.post.save(self.path)
        self.x, self.y = x[FITTED:].clone(), y[FITTED:].clone()

    def in_process(self, count: int = 300) -> list[float]:
        """Seconds of the call for one newcomer, without a service around it."""
        seconds = []
        for k in range(count + 20):
            start = time.perf_counter()
            row = slice(k, k + 1)
            self.post.transform_info(self.x[row], self.y[row])
            seconds.append(time.perf_counter() - start)
        return seconds[20:]


def load(served: Served) -> dict[str, Any]:
    """One-row requests from several numbers of clients."""
    single = served.in_process()
    found = []
    with Server(served.path) as server:
        requests = bodies(served.x, served.y, server.port)
        asyncio.run(ask(server.port, requests, 64, 1000))  # warm
        for clients in CLIENTS:
            before = server.rss
            seconds, total, errors = asyncio.run(
                ask(server.port, requests, clients, REQUESTS[clients])
            )
            found.append(
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
            print(found[-1], flush=True)
    single += served.in_process()  # before and after: the machine may change
    return {
        "part": "load",
        "rows": FITTED,
        "in_process_seconds": statistics.median(single),
        "in_process_p99": quantile(single, 0.99),
        "clients": found,
    }


def reload(served: Served) -> dict[str, Any]:
    """The same requests while the fit is saved again and taken, three times."""
    with Server(served.path, "--reload-seconds", "0.5") as server:
        requests = bodies(served.x, served.y, server.port)
        stop = threading.Event()

        def save() -> None:
            for _ in range(3):
                served.post.save(served.path)
                if stop.wait(4.0):
                    return

        saver = threading.Thread(target=save)
        saver.start()
        seconds, _, errors = asyncio.run(ask(server.port, requests, 8, REQUESTS[64]))
        stop.set()
        saver.join()
        taken = _metric(server.port, 'pyg_glif_reloads_total{result="taken"}')
    return {
        "part": "reload",
        "requests": len(seconds),
        "errors": errors,
        "reloads": int(taken),
        "p50": quantile(seconds, 0.5),
        "p99": quantile(seconds, 0.99),
    }


def _metric(port: int, name: str) -> float:
    """A number that the service counts."""
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.rpartition(" ")[2])
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(PARTS))
    wanted = parser.parse_args().parts or list(PARTS)
    with tempfile.TemporaryDirectory() as folder:
        served = Served(folder)
        rows = [{"load": load, "reload": reload}[part](served) for part in wanted]
    write("serve", rows, key=("part",))
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
