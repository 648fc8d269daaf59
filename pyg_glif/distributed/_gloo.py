"""Members of a group in processes of their own, that talk by torch's gloo."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta

import torch
from torch import Tensor

from pyg_glif.distributed._communicator import Member

_TIMEOUT = timedelta(minutes=10)  # for what members wait on each other


class NoGlooError(RuntimeError):
    """Members cannot reach each other by gloo."""


class LostMemberError(RuntimeError):
    """A member did not answer."""


class ByGloo(Member):
    """A member that talks by torch's gloo."""

    def __init__(self, where: tuple[str, int], rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        if size == 1:
            return
        from torch import distributed

        try:
            store = distributed.TCPStore(  # type: ignore[attr-defined]
                *where, size, is_master=rank == 0, timeout=timedelta(seconds=60)
            )
            distributed.init_process_group(
                "gloo", store=store, rank=rank, world_size=size, timeout=_TIMEOUT
            )
        except (RuntimeError, ValueError) as error:
            raise NoGlooError(str(error)) from error
        self._store = store

    def leave(self) -> None:
        """Leaves the group."""
        if self.size > 1:
            from torch import distributed

            with contextlib.suppress(Exception):
                distributed.destroy_process_group()

    def gather(self, value: Tensor) -> list[Tensor]:
        """What every member gave."""
        if self.size == 1:
            return [value]
        from torch import distributed

        kind = value.dtype
        # Gloo knows no booleans.
        sent = value.to(torch.uint8) if kind == torch.bool else value
        out = [torch.empty_like(sent) for _ in range(self.size)]
        with _losing():
            distributed.all_gather(out, sent.contiguous())
        return [one.to(kind) for one in out]

    def exchange(self, sent: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
        """Sends to all and receives from all at the same time."""
        if self.size == 1:
            return
        from torch import distributed

        operations = []
        for other in range(self.size):
            if other == self.rank:
                continue
            if sent[other].numel():
                part = sent[other].contiguous()
                operations.append(distributed.P2POp(distributed.isend, part, other))
            if wanted[other].numel():
                operations.append(
                    distributed.P2POp(distributed.irecv, wanted[other], other)
                )
        with _losing():
            for work in distributed.batch_isend_irecv(operations) if operations else ():
                work.wait()


@contextlib.contextmanager
def _losing() -> Iterator[None]:
    """Tells a connection that broke from an error of ours."""
    try:
        yield
    except RuntimeError as error:
        raise LostMemberError(str(error)) from None
