"""Engines: where blocks are processed, in the calling process or on Ray."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import check_count
from pyg_glif.distributed._communicator import Communicator, SingleMember

_T = TypeVar("_T")
_R = TypeVar("_R")


class Engine(ABC):
    """Runs repeatable tasks, and groups whose members exchange tensors."""

    #: Tasks that run at a time.
    num_workers: int = 1
    #: Whether to show progress bars; :obj:`None` on a terminal.
    progress: bool | None = None
    #: Iterations of a solve between checkpoints.
    checkpoint_every: int = 10

    @abstractmethod
    def run(
        self,
        function: Callable[[_T], _R],
        tasks: Sequence[_T],
        label: str,
    ) -> Iterator[tuple[_T, _R]]:
        """Tasks and their results, in the order in which they are done."""

    @abstractmethod
    def run_group(
        self, function: Callable[[Communicator, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Results of a function that runs for all arguments at the same time.

        If a member of the group is lost, all start again: the function goes on from
        its own checkpoints.
        """


class InProcess(Engine):
    """A loop in the calling process, one block after another.

    Memory holds a block or two, whatever the number of samples.

    Args:
        progress (bool, optional): Whether to show progress bars.
            (default: on a terminal)
        checkpoint_every (int): Iterations of a solve between checkpoints.
            (default: :obj:`10`)

    Example:
        >>> InProcess()
        InProcess()
    """

    def __init__(
        self,
        *,
        progress: bool | None = None,
        checkpoint_every: int = 10,
    ) -> None:
        check_count("checkpoint_every", checkpoint_every)
        self.progress = progress
        self.checkpoint_every = checkpoint_every

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def run(
        self,
        function: Callable[[_T], _R],
        tasks: Sequence[_T],
        label: str,
    ) -> Iterator[tuple[_T, _R]]:
        """Runs one task after another."""
        with Progress(len(tasks), label, self.progress) as bar:
            for task in tasks:
                yield task, function(task)
                bar.update()

    def run_group(
        self, function: Callable[[Communicator, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Runs the only member, in the calling thread."""
        (argument,) = arguments
        return [function(SingleMember(), argument)]


def as_engine(engine: "Engine | str | None", address: str | None = None) -> Engine:
    """An engine by its name, or Ray at an address.

    Without either it is Ray if this process is connected to it.
    """
    if isinstance(engine, Engine) and address is None:
        return engine
    if address is not None and engine not in (None, "ray"):
        msg = "'address' must be None unless the engine is 'ray'"
        raise ValueError(f"{msg} (got {address!r})")
    if engine is None:
        ray = sys.modules.get("ray")
        connected = ray is not None and ray.is_initialized()
        engine = "ray" if connected or address is not None else "process"
    if engine == "process":
        return InProcess()
    if engine == "ray":
        from pyg_glif.distributed.ray_engine import RayEngine

        return RayEngine(address)
    msg = "'engine' must be an Engine, 'process', 'ray' or None"
    raise ValueError(f"{msg} (got {engine!r})")
