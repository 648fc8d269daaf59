"""What a monitor has counted, and what of it can be believed when it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyg_glif._utils.validation import check_count, check_kind, check_scalar
from pyg_glif.guarantees.betting import Array
from pyg_glif.monitoring._stream import Stream

#: Of settings, tally and streams, wherever they are kept.
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
    """Counts, and the streams by name; ``moved`` are those that a draft has changed."""

    streams: dict[str, Stream]
    tally: dict[str, Any] = field(default_factory=lambda: dict(_TALLY))
    moved: set[str] = field(default_factory=set)

    def copy(self) -> "State":
        """A draft, whose changes do not reach this one."""
        streams = {name: one.copy() for name, one in self.streams.items()}
        return State(streams, dict(self.tally))

    def restart(self, streams: dict[str, Stream]) -> None:
        """Starts the next run, with streams that nothing has come through yet."""
        runs, version = self.tally["runs"] + 1, self.tally["version"]
        self.tally = {**_TALLY, "runs": runs, "version": version}
        self.streams, self.moved = streams, set(streams)

    def step(self, name: str, value: float) -> None:
        """Counts a value in a stream, if there is one of that name."""
        if name in self.streams:
            self.streams[name].step(value)
            self.moved.add(name)

    def fill(self, tally: object, streams: Mapping[str, Array]) -> None:
        """Takes over counts and numbers that were kept; raises on what cannot be."""
        self.tally = _checked_tally(tally)
        for name, stream in self.streams.items():
            if name not in streams:
                raise ValueError(f"'streams' must hold '{name}' (got none)")
            stream.state = streams[name]
            if stream.num > self.tally["num"]:
                msg = f"'{name}' must have counted at most 'num' samples"
                raise ValueError(f"{msg} (got {stream.num} of {self.tally['num']})")


def _checked_tally(tally: object) -> dict[str, Any]:
    """Counts as they were kept."""
    check_kind("tally", tally, Mapping)
    assert isinstance(tally, Mapping)
    if set(tally) != set(_TALLY):
        wrong = min(set(tally) ^ set(_TALLY), key=str)
        msg = f"'tally' must hold {', '.join(_TALLY)}"
        raise ValueError(f"{msg} (got '{wrong}' missing or too many)")
    found = dict(tally)
    for name, start in _TALLY.items():
        if start is not None:
            check_count(f"tally {name}", found[name], minimum=start)
    if found["last_time"] is not None:
        check_scalar("tally last_time", found["last_time"])
    if found["num_isolated"] > found["num"]:
        got = f"{found['num_isolated']} of {found['num']}"
        raise ValueError(f"'tally num_isolated' must be at most 'num' (got {got})")
    return found


def checked_recent(keys: object) -> list[bytes]:
    """The last ids as they were kept: sixteen bytes each, written as text."""
    check_kind("state recent", keys, list)
    assert isinstance(keys, list)
    try:
        found = [bytes.fromhex(key) for key in keys]
    except (TypeError, ValueError):
        found = [b""]
    if any(len(key) != 16 for key in found):
        raise ValueError("'state recent' must hold hashes of 16 bytes (got others)")
    return found
