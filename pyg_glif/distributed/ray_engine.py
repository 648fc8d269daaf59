"""Tasks and groups on Ray: the only module that imports it."""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from pyg_glif._utils.optional import require
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import check_choice, check_count
from pyg_glif.distributed._communicator import Member
from pyg_glif.distributed._gloo import ByGloo, LostMemberError, NoGlooError
from pyg_glif.distributed.engine import Engine

_T = TypeVar("_T")
_R = TypeVar("_R")

_RETRIES = 20  # of a task whose worker is lost
_REBUILDS = 20  # of a group of which a member is lost


class RayEngine(Engine):
    """Runs tasks and groups on a Ray cluster, each on one core.

    Ray runs a task again if its worker or node is lost. A solve is a group of actors;
    if one is lost, all are started anew and go on from the last checkpoint.

    Args:
        address (str, optional): Of a cluster, ``"auto"`` for one on this machine.
            (default: the one that this process is connected to, else a new one on
            this machine)
        num_workers (int, optional): Tasks at a time, and parts of a solve.
            (default: the cores of the cluster)
        transport (str): How members of a group exchange tensors: ``"gloo"``, ``"ray"``
            objects, or ``"auto"``: objects where gloo cannot connect.
            (default: ``"auto"``)
        timeout (float): Seconds after which an address that nobody answers at is
            given up. (default: :obj:`20.0`)
        options: Further arguments of ``ray.init`` for a new cluster.

    Example:
        >>> RayEngine(num_workers=2).transport
        'auto'
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_workers: int | None = None,
        transport: Literal["auto", "gloo", "ray"] = "auto",
        timeout: float = 20.0,
        **options: Any,
    ) -> None:
        check_choice("transport", transport, ("auto", "gloo", "ray"))
        if num_workers is not None:
            check_count("num_workers", num_workers)
        self.address, self.transport = address, transport
        self._wanted, self._timeout, self._options = num_workers, timeout, options
        #: How often a group was started anew.
        self.num_rebuilds = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(address={self.address!r})"

    @property
    def num_workers(self) -> int:  # type: ignore[override]
        """Tasks that run at a time."""
        if self._wanted is not None:
            return self._wanted
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def _ray(self) -> Any:
        """Ray, connected."""
        ray = require("ray", "pyg_glif.distributed.RayEngine", "ray")
        if ray.is_initialized():
            return ray
        options: dict[str, Any] = {"include_dashboard": False, "logging_level": 30}
        options |= {"log_to_driver": False, **self._options}
        if self.address is None:
            ray.init("local", **options)
            return ray
        if self.address != "auto":
            _check_answer(self.address, self._timeout)
        try:
            options.pop("include_dashboard")
            ray.init(self.address, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            msg = f"'address' must be that of a Ray cluster (got {self.address!r})"
            raise ConnectionError(f"{msg}. Start one by 'ray start --head'") from error
        return ray

    def run(
        self,
        function: Callable[[_T], _R],
        tasks: Sequence[_T],
        label: str,
        progress: bool | None = None,
    ) -> Iterator[tuple[_T, _R]]:
        """In any order, a few more than there are workers waiting."""
        ray, todo = self._ray, list(reversed(tasks))
        if not todo:
            return
        # What tasks have in common is sent once.
        shared = ray.put(function)
        call = ray.remote(_call).options(num_cpus=1, max_retries=_RETRIES)
        most = 2 * self.num_workers
        running: dict[Any, _T] = {}
        try:
            with Progress(len(todo), label, progress) as bar:
                while todo or running:
                    while todo and len(running) < most:
                        task = todo.pop()
                        running[call.remote(shared, task)] = task
                    done, _ = ray.wait(list(running), num_returns=1)
                    for one in done:
                        task = running.pop(one)
                        yield task, self._result(one)
                        bar.update()
        finally:
            for one in running:
                with contextlib.suppress(Exception):
                    ray.cancel(one)

    def _result(self, reference: Any) -> Any:
        """What a task returned; the error itself if it raised one."""
        ray = self._ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def together(
        self, function: Callable[[Member, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """In an actor for each argument."""
        transport = "gloo" if self.transport == "auto" else self.transport
        for attempt in range(_REBUILDS + 1):
            try:
                return self._attempt(function, arguments, transport)
            except NoGlooError as error:
                if self.transport == "gloo":
                    raise RuntimeError(f"gloo could not connect: {error}") from error
                transport = "ray"
            except self._ray.exceptions.RayActorError:
                if attempt == _REBUILDS:
                    raise
                self.num_rebuilds += 1
        raise AssertionError("unreachable")

    def _attempt(
        self,
        function: Callable[[Member, Any], _R],
        arguments: Sequence[Any],
        transport: str,
    ) -> list[_R]:
        """Starts a group, waits for it and stops it, whatever happens."""
        ray, size = self._ray, len(arguments)
        kind = ray.remote(_Actor).options(num_cpus=1, max_restarts=0)
        hub = ray.remote(_Hub).options(num_cpus=0, max_concurrency=4 * size + 4)
        actors = [kind.remote() for _ in range(size)]
        mailbox = hub.remote(size) if transport == "ray" else None
        try:
            where = ray.get(actors[0].address.remote())
            found = ray.get([one.capability.remote() for one in actors])
            if len(set(found)) > 1:
                msg = "workers must have one kind of processor, or weights of an edge"
                msg = f"{msg} differ in their last digits (got {sorted(set(found))})"
                raise RuntimeError(f"{msg}. Set ATEN_CPU_CAPABILITY=default everywhere")
            shared = ray.put(function)
            running = {
                one.run.remote(
                    shared, arguments[rank], rank, size, where, mailbox
                ): rank
                for rank, one in enumerate(actors)
            }
            results: dict[int, Any] = {}
            failed: BaseException | None = None
            while running:
                done, _ = ray.wait(list(running), num_returns=1)
                rank = running.pop(done[0])
                try:
                    results[rank] = ray.get(done[0])
                except ray.exceptions.RayActorError:
                    raise
                except ray.exceptions.RayTaskError as error:
                    cause = error.cause
                    # A member that fails to reach another tells less than the loss
                    # of that other, which comes soon.
                    if isinstance(cause, LostMemberError):
                        failed = failed or cause
                        self._await_loss(actors)
                        continue
                    raise cause from error
            if failed is not None:
                raise failed
            return [results[rank] for rank in range(size)]
        finally:
            for one in [*actors, *([] if mailbox is None else [mailbox])]:
                with contextlib.suppress(Exception):
                    ray.kill(one)

    def _await_loss(self, actors: list[Any], seconds: float = 30.0) -> None:
        """Raises once Ray has noticed that an actor is gone."""
        ray, end = self._ray, time.monotonic() + seconds
        while time.monotonic() < end:
            for one in actors:
                answer = one.ping.remote()
                # One that still works does not answer; one that is gone raises.
                if ray.wait([answer], timeout=0.5)[0]:
                    ray.get(answer)


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    """A task, in one thread."""
    torch.set_num_threads(1)
    return function(task)


class _Actor:
    """A member of a group."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def address(self) -> tuple[str, int]:
        """Where the first member can be reached."""
        ray = require("ray", "pyg_glif.distributed.RayEngine", "ray")
        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind(("", 0))
            return host, int(probe.getsockname()[1])

    def capability(self) -> str:
        """What torch makes of the processor."""
        return str(torch.backends.cpu.get_cpu_capability())

    def pid(self) -> int:
        """The process."""
        return os.getpid()

    def ping(self) -> None:
        """Answers."""

    def run(
        self,
        function: Callable[[Member, Any], Any],
        argument: Any,
        rank: int,
        size: int,
        where: tuple[str, int],
        mailbox: Any,
    ) -> Any:
        """Joins the group and works."""
        if mailbox is not None:
            return function(_ByObjects(mailbox, rank, size), argument)
        member = ByGloo(where, rank, size)
        try:
            return function(member, argument)
        finally:
            member.leave()


class _ByObjects(Member):
    """A member that talks by Ray objects, through a mailbox."""

    def __init__(self, mailbox: Any, rank: int, size: int) -> None:
        self._mailbox, self.rank, self.size = mailbox, rank, size
        self._turn = 0

    def _swap(self, value: Any) -> list[Any]:
        """Leaves a value for the others, and returns what all have left."""
        ray = require("ray", "pyg_glif.distributed.RayEngine", "ray")
        self._turn += 1
        # In a list, or the mailbox would be handed the value itself.
        left = [ray.put(value)]
        found = ray.get(self._mailbox.swap.remote(self._turn, self.rank, left))
        return [ray.get(one[0]) for one in found]

    def gather(self, value: Tensor) -> list[Tensor]:
        """What every member gave."""
        return [torch.from_numpy(one.copy()) for one in self._swap(value.numpy())]

    def exchange(self, sent: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Sends to all and receives from all."""
        parts = self._swap([part.contiguous().numpy() for part in sent])
        for other, arrays in enumerate(parts):
            if other != self.rank and wanted[other].numel():
                wanted[other].copy_(torch.from_numpy(arrays[self.rank].copy()))


class _Hub:
    """Where members leave values for each other; one turn after another."""

    def __init__(self, size: int) -> None:
        import asyncio

        self._size = size
        self._turns: dict[int, dict[int, Any]] = {}
        self._full: dict[int, asyncio.Event] = {}
        self._left: dict[int, int] = {}

    async def swap(self, turn: int, rank: int, value: Any) -> list[Any]:
        """Waits until everybody has left a value, and returns them all."""
        import asyncio

        values = self._turns.setdefault(turn, {})
        full = self._full.setdefault(turn, asyncio.Event())
        values[rank] = value
        if len(values) == self._size:
            full.set()
        await full.wait()
        found = [values[one] for one in range(self._size)]
        self._left[turn] = self._left.get(turn, 0) + 1
        if self._left[turn] == self._size:
            del self._turns[turn], self._full[turn], self._left[turn]
        return found


def _check_answer(address: str, timeout: float) -> None:
    """Raises if nobody listens at an address, before Ray waits for minutes."""
    name = address.removeprefix("ray://")
    host, _, port = name.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout):
            return
    except (OSError, ValueError) as error:
        msg = f"'address' must be that of a Ray cluster (got {address!r}, where nobody"
        msg = f"{msg} answers: {error})"
        raise ConnectionError(f"{msg}. Start one by 'ray start --head'") from error
