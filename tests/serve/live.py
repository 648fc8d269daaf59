"""The service as a process of its own, as users start it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class Live:
    """Runs ``pyg-glif serve`` on a free port of this machine while inside."""

    def __init__(self, fit: Path, *options: str, **variables: str) -> None:
        command = [sys.executable, "-m", "pyg_glif", "serve", str(fit), "--port", "0"]
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **variables},
        )
        self.log: list[str] = []
        self._up = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            found = re.search(r"serving http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found[1])
                self._up.set()
        self._up.set()

    def __enter__(self) -> "Live":
        assert self._up.wait(60)
        assert self.process.poll() is None, "".join(self.log)
        self.until(lambda: self.get("/readyz")[0] == 200)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        """A connection that stays open."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON of a path."""
        connection = self.connect()
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def signal(self, name: str) -> None:
        """Sends a signal."""
        self.process.send_signal(getattr(signal, name))

    @staticmethod
    def until(true: Any, seconds: float = 30.0) -> None:
        """Waits for something that must happen."""
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end
            time.sleep(0.02)


def ask(connection: http.client.HTTPConnection, body: Any) -> tuple[int, Any]:
    """Status and answer of one correction over an open connection."""
    head = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/correct", json.dumps(body), head)
    response = connection.getresponse()
    return response.status, json.loads(response.read())
