"""Journal of a monitor: ids and the state they led to, in one transaction."""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np

from pyg_glif.errors import DamagedFileError
from pyg_glif.monitoring._state import State

_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS streams (name TEXT PRIMARY KEY, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS seen (id BLOB PRIMARY KEY) WITHOUT ROWID;
"""
# Messages of SQLite about foreign tables and cells, raised like those of the disk.
_FOREIGN = ("no such", "table ", "Could not decode")


class Journal:
    """SQLite file that any number of processes may write to.

    A transaction is written ahead, so that a killed process leaves all or nothing.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._link: sqlite3.Connection | None = None
        self._owner = 0

    def __reduce__(self) -> tuple[type["Journal"], tuple[str]]:
        return type(self), (self.path,)  # a copy has a connection of its own

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside, or none after an error or the end of the process."""
        with self._worded():
            try:
                self._open()
                self._execute("BEGIN IMMEDIATE")
                yield
                self._execute("COMMIT")
            except BaseException:
                self.close()  # rolls back
                raise

    def _open(self) -> None:
        """Connects this process; an inherited connection is not used."""
        if self._link is None or self._owner != os.getpid():
            self._link = sqlite3.connect(
                self.path, timeout=60.0, isolation_level=None, check_same_thread=False
            )
            self._owner = os.getpid()
            self._link.execute("PRAGMA journal_mode=WAL")
            self._link.execute("PRAGMA synchronous=NORMAL")
            self._link.executescript(_TABLES)

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        """Errors of SQLite in terms of the file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            foreign = str(error).startswith(_FOREIGN)
            if isinstance(error, sqlite3.OperationalError) and not foreign:
                raise OSError(f"'{self.path}': {error}") from error
            raise self._damaged(error) from error

    @contextlib.contextmanager
    def content(self) -> Iterator[None]:
        """Errors about the content that was read, in terms of the file."""
        try:
            yield
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> DamagedFileError:
        msg = f"'{self.path}' is not the journal of a monitor, or is damaged: {error}"
        return DamagedFileError(f"{msg}. Restore a copy of it, or name another file")

    def read(self, name: str) -> Any:
        """Plain data by name, ``None`` if there is none."""
        query = "SELECT value FROM about WHERE name = ?"
        row = self._execute(query, name).fetchone()
        with self.content():
            return None if row is None else json.loads(row[0])

    def write(self, name: str, value: Any) -> None:
        """Stores plain data under a name."""
        self._execute("REPLACE INTO about VALUES (?, ?)", name, json.dumps(value))

    def is_new(self, key: bytes) -> bool:
        """Whether an id is new; it is recorded."""
        return self._execute("INSERT OR IGNORE INTO seen VALUES (?)", key).rowcount > 0

    def load(self, state: State) -> None:
        """Brings a state up to date, if its version is not that of the file."""
        tally = self.read("tally")
        with self.content():
            if tally["version"] == state.tally["version"]:
                return
        rows = self._execute("SELECT name, state FROM streams").fetchall()
        with self.content():
            state.fill(tally, {name: np.frombuffer(blob) for name, blob in rows})

    def save(self, state: State) -> None:
        """Writes the tally, and the streams that changed."""
        state.tally["version"] += 1
        for name in state.changed:
            numbers = state.streams[name].state.tobytes()
            self._execute("REPLACE INTO streams VALUES (?, ?)", name, numbers)
        self.write("tally", state.tally)

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Runs a statement inside a transaction."""
        assert self._link is not None
        return self._link.execute(statement, values)

    def close(self) -> None:
        """Closes the file."""
        if self._link is not None and self._owner == os.getpid():
            self._link.close()
        self._link = None
