"""Counts and streams of a monitor, checked when they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyg_glif._utils.validation import check_count, check_kind, check_scalar
from pyg_glif.guarantees.betting import Array
from pyg_glif.monitoring._stream import Stream

#: Version of the format of settings, tally and streams.
FORMAT = 1
_TALLY = {
    "version": 0,
    "num": 0,
    "num_isolated": 0,
    "num_repeated": 0,
    "num_steps_back": 0,
    "runs": 1,
    "last_time": None,
}


@dataclass
class State:
    """Counts, and the streams by name; ``changed`` are those with new samples."""

    streams: dict[str, Stream]
    tally: dict[str, Any] = field(default_factory=lambda: dict(_TALLY))
    changed: set[str] = field(default_factory=set)

    def copy(self) -> "State":
        """An independent copy, without changes."""
        streams = {name: stream.copy() for name, stream in self.streams.items()}
        return State(streams, dict(self.tally))

    def restart(self, streams: dict[str, Stream]) -> None:
        """Starts the next run, with empty streams."""
        runs, version = self.tally["runs"] + 1, self.tally["version"]
        self.tally = {**_TALLY, "runs": runs, "version": version}
        self.streams, self.changed = streams, set(streams)

    def step(self, name: str, value: float) -> None:
        """Counts a value in a stream, if there is one of that name."""
        if name in self.streams:
            self.streams[name].step(value)
            self.changed.add(name)

    def fill(self, tally: object, streams: Mapping[str, Array]) -> None:
        """Restores stored counts and numbers; raises on impossible ones."""
        self.tally = _checked_tally(tally)
        for name, stream in self.streams.items():
            if name not in streams:
                raise ValueError(f"'streams' must hold '{name}' (got none)")
            stream.state = streams[name]
            if stream.num > self.tally["num"]:
                msg = f"'{name}' must have counted at most 'num' samples"
                raise ValueError(f"{msg} (got {stream.num} of {self.tally['num']})")


def _checked_tally(tally: object) -> dict[str, Any]:
    """Stored counts."""
    check_kind("tally", tally, Mapping)
    assert isinstance(tally, Mapping)
    if set(tally) != set(_TALLY):
        wrong = min(set(tally) ^ set(_TALLY), key=str)
        msg = f"'tally' must hold {', '.join(_TALLY)}"
        raise ValueError(f"{msg} (got '{wrong}' missing or too many)")
    counts = dict(tally)
    for name, start in _TALLY.items():
        if start is not None:
            check_count(f"tally {name}", counts[name], minimum=start)
    if counts["last_time"] is not None:
        check_scalar("tally last_time", counts["last_time"])
    if counts["num_isolated"] > counts["num"]:
        got = f"{counts['num_isolated']} of {counts['num']}"
        raise ValueError(f"'tally num_isolated' must be at most 'num' (got {got})")
    return counts


def checked_recent(keys: object) -> list[bytes]:
    """Stored hashes of the last ids: sixteen bytes each, written as text."""
    check_kind("state recent", keys, list)
    assert isinstance(keys, list)
    try:
        hashes = [bytes.fromhex(key) for key in keys]
    except (TypeError, ValueError):
        hashes = [b""]
    if any(len(key) != 16 for key in hashes):
        raise ValueError("'state recent' must hold hashes of 16 bytes (got others)")
    return hashes
