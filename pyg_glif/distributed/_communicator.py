"""Members of a group that run the same code on parts of the data.

All of them call the same methods in the same order: each call waits for the others.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

_R = TypeVar("_R")


class Member(ABC):
    """One of ``size`` members, number ``rank``."""

    rank: int
    size: int

    @abstractmethod
    def gather(self, value: Tensor) -> list[Tensor]:
        """What every member gave, in the order of their numbers; shapes are equal."""

    @abstractmethod
    def exchange(self, sent: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Sends one tensor to each member, and fills one from each; empty ones too."""

    def gather_any(self, value: Tensor) -> list[Tensor]:
        """The same for vectors of different lengths."""
        counts = self.gather(torch.tensor([value.numel()]))
        longest = max(int(count) for count in counts)
        if longest == 0:
            return [value] * self.size
        padded = value.new_zeros(longest)
        padded[: value.numel()] = value
        parts = self.gather(padded)
        return [part[: int(n)] for part, n in zip(parts, counts, strict=True)]


class Alone(Member):
    """The only member."""

    rank, size = 0, 1

    def gather(self, value: Tensor) -> list[Tensor]:
        """The one value."""
        return [value]

    def exchange(self, sent: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Nobody to send to."""


def alone() -> Member:
    """A group of one."""
    return Alone()


class Group:
    """Members in threads of one process."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._barrier = threading.Barrier(size)
        self._slots: list[Any] = [None] * size

    def run(
        self, function: Callable[[Member, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Runs all members and returns what they return."""

        def member(rank: int) -> _R:
            try:
                return function(_InThread(self, rank), arguments[rank])
            except BaseException:
                self._barrier.abort()  # or the others would wait for ever
                raise

        with ThreadPoolExecutor(self._size) as pool:
            futures = [pool.submit(member, rank) for rank in range(self._size)]
            errors = [e for e in (f.exception() for f in futures) if e is not None]
        told = [e for e in errors if not isinstance(e, threading.BrokenBarrierError)]
        if errors:
            raise (told or errors)[0]
        return [future.result() for future in futures]

    def swap(self, rank: int, value: Any) -> list[Any]:
        """Leaves a value for the others, and returns what all have left."""
        self._slots[rank] = value
        self._barrier.wait()
        found = list(self._slots)
        self._barrier.wait()
        return found


class _InThread(Member):
    def __init__(self, group: Group, rank: int) -> None:
        self._group, self.rank, self.size = group, rank, group._size

    def gather(self, value: Tensor) -> list[Tensor]:
        return [part.clone() for part in self._group.swap(self.rank, value.clone())]

    def exchange(self, sent: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        copies = [part.clone() for part in sent]
        for other, parts in enumerate(self._group.swap(self.rank, copies)):
            wanted[other].copy_(parts[self.rank])
