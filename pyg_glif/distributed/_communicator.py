"""Exchange of tensors between processes that run the same code.

All members of a group call the same methods in the same order: each call waits for
the others.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch
from torch import Tensor

_TIMEOUT = timedelta(minutes=10)  # of a collective call


class LostMemberError(RuntimeError):
    """A member of a group did not answer."""


class Communicator(ABC):
    """Member ``rank`` of a group of ``size``."""

    rank: int
    size: int

    @abstractmethod
    def gather(self, value: Tensor) -> list[Tensor]:
        """Tensors of all members by rank; shapes are equal."""

    @abstractmethod
    def exchange(self, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        """Sends one tensor to each member and fills one from each; empty ones too."""

    def gather_any(self, value: Tensor) -> list[Tensor]:
        """Vectors of all members by rank; lengths may differ."""
        counts = self.gather(torch.tensor([value.numel()]))
        longest = max(int(count) for count in counts)
        if longest == 0:
            return [value] * self.size
        padded = value.new_zeros(longest)
        padded[: value.numel()] = value
        parts = self.gather(padded)
        return [part[: int(n)] for part, n in zip(parts, counts, strict=True)]


class SingleMember(Communicator):
    """The only member of its group."""

    rank, size = 0, 1

    def gather(self, value: Tensor) -> list[Tensor]:
        """The one value."""
        return [value]

    def exchange(self, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        """No other member to exchange with."""


class GlooCommunicator(Communicator):
    """A member in a process of its own, over torch's gloo.

    ``address`` is the host and the port of the first member.
    """

    def __init__(self, address: tuple[str, int], rank: int, size: int) -> None:
        from torch import distributed

        self.rank, self.size = rank, size
        try:
            # Kept: the connection lives as long as the store.
            self._store = distributed.TCPStore(  # type: ignore[attr-defined]
                *address, size, is_master=rank == 0, timeout=timedelta(seconds=60)
            )
            distributed.init_process_group(
                "gloo", store=self._store, rank=rank, world_size=size, timeout=_TIMEOUT
            )
        except (RuntimeError, ValueError) as error:
            msg = f"gloo could not connect to {address[0]}:{address[1]}: {error}"
            msg = f"{msg}. Open the ports between the machines, or set"
            raise RuntimeError(f"{msg} GLOO_SOCKET_IFNAME on all of them") from error

    def leave(self) -> None:
        """Leaves the group."""
        from torch import distributed

        with contextlib.suppress(Exception):
            distributed.destroy_process_group()

    def gather(self, value: Tensor) -> list[Tensor]:
        """Tensors of all members by rank."""
        from torch import distributed

        dtype = value.dtype
        # Gloo knows no booleans.
        sent = value.to(torch.uint8) if dtype == torch.bool else value
        out = [torch.empty_like(sent) for _ in range(self.size)]
        with _raising_lost():
            distributed.all_gather(out, sent.contiguous())
        return [part.to(dtype) for part in out]

    def exchange(self, sent: Sequence[Tensor], received: Sequence[Tensor]) -> None:
        """Sends to all and receives from all at the same time."""
        from torch import distributed

        operations = []
        for other in range(self.size):
            if other == self.rank:
                continue
            if sent[other].numel():
                part = sent[other].contiguous()
                operations.append(distributed.P2POp(distributed.isend, part, other))
            if received[other].numel():
                operations.append(
                    distributed.P2POp(distributed.irecv, received[other], other)
                )
        with _raising_lost():
            for work in distributed.batch_isend_irecv(operations) if operations else ():
                work.wait()


@contextlib.contextmanager
def _raising_lost() -> Iterator[None]:
    """Distinguishes a broken connection from errors of the caller."""
    try:
        yield
    except RuntimeError as error:
        raise LostMemberError(str(error)) from None
