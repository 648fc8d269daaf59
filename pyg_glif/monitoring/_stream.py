"""Sequential test of a mean, with its interval and its history."""

import math
from typing import Any

import numpy as np

from pyg_glif.guarantees.betting import Array, Capital, MeanSequence

# Moments that are kept; when they are full, every other one is dropped.
_MOMENTS = 128
#: Columns of the history.
COLUMNS = ("num", "mean", "low", "high", "log_capital")


class Stream:
    """Test that a mean is at most ``limit``, and an interval for the mean.

    Args:
        limit (float): The largest acceptable mean, in :math:`(0, 1)`.
        level (float): Chance of a false alarm, ever, and of an interval that fails at
            some time.
    """

    def __init__(self, limit: float, level: float) -> None:
        self.limit, self.level = limit, level
        self._capital = Capital(limit)
        self._sequence = MeanSequence(level)
        # Number at the alarm (0: none), moments kept, samples between them.
        self._marks: Array = np.array([0.0, 0.0, 1.0])
        self._moments: Array = np.zeros((_MOMENTS, len(COLUMNS)))

    def step(self, x: float) -> None:
        """Counts one more sample."""
        self._capital.step(x)
        self._sequence.step(x)
        num, (alarm, _, between) = self.num, self._marks.tolist()
        if not alarm and self._capital.peak[0] >= -math.log(self.level):
            self._marks[0] = num
        if num % between == 0:
            self._remember()

    def _remember(self) -> None:
        """Keeps this moment; the memory for moments stays constant."""
        size = int(self._marks[1])
        if size == _MOMENTS:
            size //= 2
            self._moments[:size] = self._moments[1::2]
            self._marks[2] *= 2.0
        if self.num % self._marks[2] == 0:
            self._moments[size] = self._now()
            size += 1
        self._marks[1] = size

    def _now(self) -> list[float]:
        return [self.num, self.mean, *self.interval, float(self._capital.log_value[0])]

    @property
    def num(self) -> int:
        """Number of samples."""
        return int(self._sequence.num[0])

    @property
    def mean(self) -> float:
        """Mean of the samples, NaN if there are none."""
        total = float(self._sequence.total[0])
        return total / self.num if self.num else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds for the mean that hold at all times at once."""
        return self._sequence.interval

    @property
    def p_value(self) -> float:
        """Level at which the alarm would be on by now."""
        return min(1.0, math.exp(-float(self._capital.peak[0])))

    @property
    def alarm_at(self) -> int | None:
        """Number of samples at which the alarm was raised."""
        return int(self._marks[0]) or None

    @property
    def moments(self) -> Array:  # [T, 5]
        """Kept moments and the present one, with columns ``COLUMNS``."""
        known = self._moments[: int(self._marks[1])]
        if self.num and (not len(known) or known[-1, 0] != self.num):
            return np.concatenate([known, [self._now()]])
        return known.copy()

    @property
    def _parts(self) -> tuple[Array, ...]:
        capital, sequence = self._capital.state, self._sequence.state
        return capital.reshape(-1), sequence, self._marks, self._moments.reshape(-1)

    @property
    def state(self) -> Array:
        """All that changes, as one vector."""
        return np.concatenate(self._parts)

    @state.setter
    def state(self, value: Array) -> None:
        if value.shape != self.state.shape:
            msg = f"'state' must hold {self.state.size} numbers per stream"
            raise ValueError(f"{msg} (got {value.size})")
        for part in self._parts:
            part[:], value = value[: part.size], value[part.size :]
        self._check()

    def copy(self) -> "Stream":
        """An independent copy."""
        out = Stream(self.limit, self.level)
        for part, own in zip(out._parts, self._parts, strict=True):
            part[:] = own
        return out

    def _check(self) -> None:
        """Raises on numbers that no sequence of samples leads to."""
        if np.isnan(self.state).any() or np.isposinf(self.state).any():
            raise ValueError("'state' must hold numbers (got NaN or infinity)")
        num, (alarm, moments, between) = self._sequence.num[0], self._marks
        counts = np.array([num, alarm, moments, between])
        whole = bool((counts == counts.round()).all())
        ranges = 0 <= alarm <= num and 0 <= moments <= min(_MOMENTS, num)
        total = 0.0 <= self._sequence.total[0] <= num
        if not (
            whole and ranges and total and between >= 1 and num == self._capital.num[0]
        ):
            got = ", ".join(f"{value:g}" for value in counts)
            raise ValueError(f"'state' must hold counts that agree (got {got})")

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "limit": self.limit,
            "level": self.level,
            "num": self.num,
            "mean": self.mean,
            "interval": list(self.interval),
            "log_capital": float(self._capital.log_value[0]),
            "p_value": self.p_value,
            "alarm": self.alarm_at is not None,
            "alarm_at": self.alarm_at,
        }
