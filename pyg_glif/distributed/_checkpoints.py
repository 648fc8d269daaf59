"""How far a solve has come, on disk: what it goes on from if a part is lost."""

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif.distributed._communicator import Communicator
from pyg_glif.distributed._store import Store


class Checkpoints:
    """The point that a solve has reached, written now and then, block by block.

    Args:
        store: The folder.
        key: That of the solve.
        every: Iterations from one to the next.
        member: Whose part it is.
        blocks: Those of the part.
        starts: First person of each block of all, and the number of people.
    """

    def __init__(
        self,
        store: Store,
        key: str,
        every: int,
        member: Communicator,
        blocks: range,
        starts: NDArray[np.int64],
    ) -> None:
        self._store, self._key, self._every = store, key, every
        self._member, self._blocks, self._starts = member, blocks, starts
        self._from = 0
        self._numbers: list[int] = []  # iterations of the checkpoints there are
        self.restarts = 0

    def reached(self, num_iter: int, iterate: Callable[[], Tensor]) -> None:
        """Writes a checkpoint if one is due, and removes those before the last two."""
        if num_iter % self._every:
            return
        x, at = iterate(), 0
        number = self._from + num_iter
        for block in self._blocks:
            count = int(self._starts[block + 1] - self._starts[block])
            name = f"x.{number:06d}.{block:05d}"
            file = self._store.save(f"{name}.npy", x[at : at + count])
            record = {"key": self._key, "iter": number, "file": file}
            self._store.write_json(f"{name}.json", record)
            at += count
        numbers = sorted({*self._numbers, number})
        self._numbers = numbers[-2:]
        for old, block in product(numbers[:-2], self._blocks):
            for suffix in ("json", "npy"):
                self._store.remove(f"x.{old:06d}.{block:05d}.{suffix}")

    def latest(self) -> Tensor | None:
        """The last point of which everybody has their part."""
        names = [name.split(".") for name in self._store.names()]
        found = {int(one[1]) for one in names if one[0] == "x" and one[-1] == "json"}
        # As the first member sees them: others may have written since.
        mine = torch.tensor(sorted(found), dtype=torch.int64)
        self._numbers = self._member.gather_any(mine)[0].tolist()
        for number in reversed(self._numbers):
            x = self._read(number)
            there = self._member.gather(torch.tensor([x is not None]))
            if all(bool(one) for one in there):
                self._from, self.restarts = number, 1
                return x
        return None

    def _read(self, number: int) -> Tensor | None:
        """The part of a checkpoint that is ours, if all of it is sound."""
        parts = []
        for block in self._blocks:
            name = f"x.{number:06d}.{block:05d}.json"
            record = self._store.record_of(name, self._key)
            if record is None or not self._store.is_sound(record["file"]):
                return None
            parts.append(self._store.tensor(record["file"]))
        return torch.cat(parts)
