"""Engine on Ray: the only module that imports it."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from pyg_glif._utils.optional import require
from pyg_glif._utils.runtime import Progress
from pyg_glif._utils.validation import check_count
from pyg_glif.distributed._communicator import (
    Communicator,
    GlooCommunicator,
    LostMemberError,
    SingleMember,
)
from pyg_glif.distributed.engine import Engine

_T = TypeVar("_T")
_R = TypeVar("_R")

_RETRIES = 20  # of a task whose worker is lost
_REBUILDS = 20  # of a group of which a member is lost


class RayEngine(Engine):
    """Runs tasks and groups on a Ray cluster, each on one core.

    Ray runs a task again if its worker or node is lost. A solve is a group of actors
    that exchange tensors by torch's gloo; if one is lost, all are started anew and go
    on from the last checkpoint.

    Args:
        address (str, optional): Of a cluster, ``"auto"`` for one on this machine.
            (default: the one that this process is connected to, else a new one on
            this machine)
        num_workers (int, optional): Tasks at a time, and parts of a solve.
            (default: the cores of the cluster)
        timeout (float): Seconds to wait for an address to answer.
            (default: :obj:`20.0`)
        progress (bool, optional): Whether to show progress bars.
            (default: on a terminal)
        checkpoint_every (int): Iterations of a solve between checkpoints.
            (default: :obj:`10`)
        options: Further arguments of ``ray.init`` for a new cluster.

    Example:
        >>> RayEngine("10.0.0.1:6379", num_workers=2)
        RayEngine(address='10.0.0.1:6379')
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        num_workers: int | None = None,
        timeout: float = 20.0,
        progress: bool | None = None,
        checkpoint_every: int = 10,
        **options: Any,
    ) -> None:
        if num_workers is not None:
            check_count("num_workers", num_workers)
        self.address, self._num_workers = address, num_workers
        check_count("checkpoint_every", checkpoint_every)
        self.progress, self.checkpoint_every = progress, checkpoint_every
        self._timeout, self._options = timeout, options
        #: How often a group was started anew.
        self.num_rebuilds = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(address={self.address!r})"

    @property
    def num_workers(self) -> int:  # type: ignore[override]
        """Tasks that run at a time."""
        if self._num_workers is not None:
            return self._num_workers
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
    ) -> Iterator[tuple[_T, _R]]:
        """Runs tasks in any order, a few more submitted than there are workers."""
        ray, waiting = self._ray, list(reversed(tasks))
        if not waiting:
            return
        # The function is sent once, not with every task.
        shared = ray.put(function)
        call = ray.remote(_call).options(num_cpus=1, max_retries=_RETRIES)
        most = 2 * self.num_workers
        running: dict[Any, _T] = {}
        try:
            with Progress(len(waiting), label, self.progress) as bar:
                while waiting or running:
                    while waiting and len(running) < most:
                        task = waiting.pop()
                        running[call.remote(shared, task)] = task
                    done, _ = ray.wait(list(running), num_returns=1)
                    for reference in done:
                        task = running.pop(reference)
                        yield task, self._result(reference)
                        bar.update()
        finally:
            for reference in running:
                with contextlib.suppress(Exception):
                    ray.cancel(reference)

    def _result(self, reference: Any) -> Any:
        """Result of a task; raises the error of the task itself."""
        ray = self._ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error

    def run_group(
        self, function: Callable[[Communicator, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Runs each member in an actor."""
        for attempt in range(_REBUILDS + 1):
            try:
                return self._attempt(function, arguments)
            except self._ray.exceptions.RayActorError:
                if attempt == _REBUILDS:
                    raise
                self.num_rebuilds += 1
        raise AssertionError("unreachable")

    def _attempt(
        self, function: Callable[[Communicator, Any], _R], arguments: Sequence[Any]
    ) -> list[_R]:
        """Starts a group, waits for it and stops it, whatever happens."""
        ray, size = self._ray, len(arguments)
        actor_class = ray.remote(_Actor).options(num_cpus=1, max_restarts=0)
        actors = [actor_class.remote() for _ in range(size)]
        try:
            address = ray.get(actors[0].address.remote())
            kinds = set(ray.get([actor.capability.remote() for actor in actors]))
            if len(kinds) > 1:
                msg = "workers must have one kind of processor, or weights of an edge"
                msg = f"{msg} differ in their last digits (got {sorted(kinds)})"
                raise RuntimeError(f"{msg}. Set ATEN_CPU_CAPABILITY=default everywhere")
            shared = ray.put(function)
            running = {
                actor.run.remote(shared, arguments[rank], rank, size, address): rank
                for rank, actor in enumerate(actors)
            }
            results: dict[int, Any] = {}
            lost: BaseException | None = None
            while running:
                done, _ = ray.wait(list(running), num_returns=1)
                rank = running.pop(done[0])
                try:
                    results[rank] = ray.get(done[0])
                except ray.exceptions.RayActorError:
                    raise
                except ray.exceptions.RayTaskError as error:
                    # Failing to reach another member says less than the loss of that
                    # member, which Ray reports soon.
                    if not isinstance(error.cause, LostMemberError):
                        raise error.cause from error
                    lost = lost or error.cause
                    self._await_loss(actors)
            if lost is not None:
                raise lost
            return [results[rank] for rank in range(size)]
        finally:
            for actor in actors:
                with contextlib.suppress(Exception):
                    ray.kill(actor)

    def _await_loss(self, actors: list[Any], seconds: float = 30.0) -> None:
        """Raises once Ray has noticed that an actor is gone."""
        ray, end = self._ray, time.monotonic() + seconds
        while time.monotonic() < end:
            for actor in actors:
                answer = actor.ping.remote()
                # A busy actor does not answer; one that is gone raises.
                if ray.wait([answer], timeout=0.5)[0]:
                    ray.get(answer)


def _call(function: Callable[[Any], Any], task: Any) -> Any:
    """Result of a task, in one thread."""
    torch.set_num_threads(1)
    return function(task)


class _Actor:
    """A member of a group."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def address(self) -> tuple[str, int]:
        """Host and a free port of this actor."""
        ray = require("ray", "pyg_glif.distributed.RayEngine", "ray")
        host = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind(("", 0))
            return host, int(probe.getsockname()[1])

    def capability(self) -> str:
        """Instruction set that torch uses."""
        return str(torch.backends.cpu.get_cpu_capability())

    def ping(self) -> None:
        """Answers."""

    def run(
        self,
        function: Callable[[Communicator, Any], Any],
        argument: Any,
        rank: int,
        size: int,
        address: tuple[str, int],
    ) -> Any:
        """Joins the group and works."""
        if size == 1:
            return function(SingleMember(), argument)
        comm = GlooCommunicator(address, rank, size)
        try:
            return function(comm, argument)
        finally:
            comm.leave()


def _check_answer(address: str, timeout: float) -> None:
    """Raises if nothing listens at an address, before Ray waits for minutes."""
    name = address.removeprefix("ray://")
    host, _, port = name.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=timeout):
            return
    except (OSError, ValueError) as error:
        msg = "'address' must be that of a Ray cluster"
        msg = f"{msg} (got {address!r}, which does not answer: {error})"
        raise ConnectionError(f"{msg}. Start one by 'ray start --head'") from error
