"""What was counted, on disk: an id and what it changed, both or neither."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np

from pyg_glif._betting import Array
from pyg_glif.errors import DamagedFileError

_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seen (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class Journal:
    """A file of SQLite that any number of processes may write to.

    A transaction is written ahead, so that a process that is killed leaves all of it or
    nothing.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._link: sqlite3.Connection | None = None
        self._owner = 0

    def __reduce__(self) -> tuple[type["Journal"], tuple[str]]:
        return type(self), (self.path,)  # a copy has a connection of its own

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Everything inside, or nothing if it raises or the process ends."""
        link = self._open()
        with self._worded():
            link.execute("BEGIN IMMEDIATE")
        try:
            yield link
            with self._worded():
                link.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                link.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        """The connection of this process; one that was inherited is not used."""
        if self._link is None or self._owner != os.getpid():
            with self._worded():
                link = sqlite3.connect(
                    self.path,
                    timeout=60.0,
                    isolation_level=None,
                    check_same_thread=False,
                )
                link.execute("PRAGMA journal_mode=WAL")
                link.execute("PRAGMA synchronous=NORMAL")
                link.executescript(_TABLES)
            self._link, self._owner = link, os.getpid()
        return self._link

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """Errors of SQLite in terms of the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise OSError(f"'{self.path}': {error}") from error
            msg = f"'{self.path}' is not the journal of a monitor: {error}"
            raise DamagedFileError(msg) from error

    def read(self, link: sqlite3.Connection, name: str) -> Any:
        """Plain data by name, ``None`` if there is none."""
        found = link.execute("SELECT value FROM about WHERE name = ?", (name,))
        row = found.fetchone()
        return None if row is None else json.loads(row[0])

    def write(self, link: sqlite3.Connection, name: str, value: Any) -> None:
        """Keeps plain data under a name."""
        link.execute("REPLACE INTO about VALUES (?, ?)", (name, json.dumps(value)))

    def is_new(self, link: sqlite3.Connection, key: bytes) -> bool:
        """Whether an id was never seen; it is from now on."""
        found = link.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,))
        return found.rowcount > 0

    def read_streams(self, link: sqlite3.Connection) -> dict[str, Array]:
        """The numbers of every stream."""
        rows = link.execute("SELECT name, state FROM streams")
        return {name: np.frombuffer(state) for name, state in rows}

    def write_stream(self, link: sqlite3.Connection, name: str, state: Array) -> None:
        """Keeps the numbers of a stream."""
        link.execute("REPLACE INTO streams VALUES (?, ?)", (name, state.tobytes()))

    def close(self) -> None:
        """Closes the file."""
        if self._link is not None and self._owner == os.getpid():
            self._link.close()
        self._link = None
