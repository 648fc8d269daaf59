"""Where work is done: in the calling process, or on Ray."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import check_count
from pyg_glif.distributed._communicator import Group, Member, alone

_T = TypeVar("_T")
_R = TypeVar("_R")


class Engine(ABC):
    """Runs tasks that may be run twice, and groups that talk to each other."""

    #: Tasks that run at a time.
    num_workers: int = 1

    @abstractmethod
    def run(
        self,
        function: Callable[[_T], _R],
        tasks: Sequence[_T],
        label: str,
        progress: bool | None = None,
    ) -> Iterator[tuple[_T, _R]]:
        """Tasks and their results, in the order in which they are done."""

    @abstractmethod
    def together(
        self, function: Callable[[Member, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Runs a function at the same time for each of some arguments.

        The members of the group can exchange tensors. If one is lost, all of them
        start again: the function goes on from what it has written.
        """


class InProcess(Engine):
    """A loop in the calling process, one block after another.

    Memory holds a block or two, whatever the number of people.

    Args:
        num_parts (int): Parts that a solve is cut into, each in a thread of its own.
            One is best, unless the exchange between parts is to be tried out.
            (default: :obj:`1`)

    Example:
        >>> InProcess()
        InProcess(num_parts=1)
    """

    def __init__(self, num_parts: int = 1) -> None:
        check_count("num_parts", num_parts)
        self.num_workers = num_parts

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_parts={self.num_workers})"

    def run(
        self,
        function: Callable[[_T], _R],
        tasks: Sequence[_T],
        label: str,
        progress: bool | None = None,
    ) -> Iterator[tuple[_T, _R]]:
        """One after another."""
        with Progress(len(tasks), label, progress) as bar:
            for task in tasks:
                yield task, function(task)
                bar.update()

    def together(
        self, function: Callable[[Member, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """In threads, or as it is where there is one argument."""
        if len(arguments) == 1:
            return [function(alone(), arguments[0])]
        return Group(len(arguments)).run(function, arguments)


def as_engine(engine: "Engine | str | None", address: str | None = None) -> Engine:
    """An engine by its name, or Ray at an address.

    Without either it is Ray, if this process is connected to it.
    """
    if address is not None:
        if engine not in (None, "ray"):
            msg = "'address' must be None unless the engine is 'ray'"
            raise ValueError(f"{msg} (got {address!r})")
        from pyg_glif.distributed.ray_engine import RayEngine

        return RayEngine(address)
    if isinstance(engine, Engine):
        return engine
    if engine is None:
        ray = sys.modules.get("ray")
        engine = "ray" if ray is not None and ray.is_initialized() else "process"
    if engine == "process":
        return InProcess()
    if engine == "ray":
        from pyg_glif.distributed.ray_engine import RayEngine

        return RayEngine()
    msg = "'engine' must be an Engine, 'process', 'ray' or None"
    raise ValueError(f"{msg} (got {engine!r})")
