"""Iterates of a solve on disk, to resume from if a part is lost."""

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif.distributed._communicator import Communicator
from pyg_glif.distributed._store import Store


class Checkpoints:
    """Iterates of a solve, written block by block every few iterations.

    Args:
        store: The folder.
        key: Fingerprint of the solve.
        every: Iterations between checkpoints.
        comm: Member that holds the part.
        blocks: Blocks of the part.
        starts: First sample of each block of all, and the number of samples.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        every: int,
        comm: Communicator,
        blocks: range,
        starts: NDArray[np.int64],
    ) -> None:
        self._store, self._key, self._every = store, key, every
        self._comm, self._blocks, self._starts = comm, blocks, starts
        self._from = 0
        self._numbers: list[int] = []  # iterations of the checkpoints there are
        self.restarts = 0

    def reached(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Writes a checkpoint if one is due, and removes those before the last two."""
        if num_iter % self._every:
            return
        x, first = iterate(), 0
        number = self._from + num_iter
        for block in self._blocks:
            count = int(self._starts[block + 1] - self._starts[block])
            arrays = {"x": x[first : first + count]}
            self._store.put(_name(number, block), self._key, arrays)
            first += count
        numbers = sorted({*self._numbers, number})
        self._numbers = numbers[-2:]
        for old, block in product(numbers[:-2], self._blocks):
            for suffix in ("json", "x.npy"):
                self._store.remove(f"{_name(old, block)}.{suffix}")

    def latest(self) -> Tensor | None:
        """The last iterate of which all members have their part."""
        names = [name.split(".") for name in self._store.names("work")]
        written = {int(p[1]) for p in names if p[0] == "iter" and p[-1] == "json"}
        # As the first member sees them: others may have written since.
        numbers = torch.tensor(sorted(written), dtype=torch.int64)
        self._numbers = self._comm.gather_any(numbers)[0].tolist()
        for number in reversed(self._numbers):
            x = self._read(number)
            complete = self._comm.gather(torch.tensor([x is not None]))
            if all(map(bool, complete)):
                self._from, self.restarts = number, 1
                return x
        return None

    def _read(self, number: int) -> Tensor | None:
        """This part of a checkpoint, if all of its files are sound."""
        parts = []
        for block in self._blocks:
            record = self._store.done(_name(number, block), self._key)
            if record is None:
                return None
            parts.append(self._store.tensor(record["files"]["x"]))
        return torch.cat(parts)


def _name(number: int, block: int) -> str:
    """Name of a block of a checkpoint."""
    return f"work/iter.{number:06d}.{block:05d}"
