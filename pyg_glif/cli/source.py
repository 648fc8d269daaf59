"""Files of people by columns, whatever the format."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli.base import UsageError, listed


class Source(ABC):
    """Columns of one file; they are read when they are asked for.

    Args:
        path (Path): The file.
        names (sequence of str): Its columns.
        blocks (dict, optional): Names that stand for several columns.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        blocks: dict[str, list[str]] | None = None,
    ) -> None:
        self.path = path
        self.names = list(names)
        self.blocks = blocks or {}

    @abstractmethod
    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""

    @abstractmethod
    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``."""

    def outputs(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, ``[N]`` for a single column."""
        value = self.numbers(names)
        return value[:, 0] if len(names) == 1 and self.is_flat(names[0]) else value

    def is_flat(self, name: str) -> bool:
        """Whether a column stands for itself, not for a matrix of one column."""
        return True

    def place(self, row: int) -> str:
        """Where a row is, in words."""
        return f"row {row}"

    def has(self, name: str) -> bool:
        """Whether a name can be found."""
        return name in self.names or name in self.blocks

    def find(self, names: Sequence[str], option: str) -> list[str]:
        """Columns for names, blocks and patterns; each once, in the order asked."""
        found: dict[str, None] = {}
        for name in names:
            found.update(dict.fromkeys(self._find(name, option)))
        return list(found)

    def _find(self, name: str, option: str) -> list[str]:
        """Columns for one name, block or pattern."""
        if name in self.names:
            return [name]
        if name in self.blocks:
            return self.blocks[name]
        if "*" in name:
            pattern = name.replace("[", "[[]").replace("?", "[?]")
            matches = [one for one in self.names if fnmatchcase(one, pattern)]
            if matches:
                return matches
        msg = f"{option}: '{self.path}' has no column '{name}'"
        raise UsageError(f"{msg} (it has {listed(self._shown)})")

    @property
    def _shown(self) -> list[str]:
        """Names for messages: blocks in place of their columns."""
        inside = {name for block in self.blocks.values() for name in block}
        alone = [name for name in self.names if name not in inside]
        return [*self.blocks, *alone]

    def check_finite(
        self, value: NDArray[Any], names: Sequence[str], first_row: int = 0
    ) -> None:
        """Names the first cell that is not a finite number."""
        bad = ~np.isfinite(value)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            got = value[row, column]
            cell = f"column '{names[column]}', {self.place(first_row + row)}"
            msg = f"'{self.path}': {cell} must be finite (got {got})"
            raise UsageError(f"{msg}. Fill or drop it first")

    def text_error(self, name: str, row: int, got: Any) -> UsageError:
        """The error for a cell that is empty or holds text."""
        place = self.place(row)
        if got is None or got == "":
            msg = f"'{self.path}': column '{name}' is empty in {place}"
            return UsageError(f"{msg}. Fill or drop it first")
        msg = f"'{self.path}': column '{name}' must hold numbers (got {got!r} in"
        remedy = f"Leave it out with --ignore {name}, or pick columns with --features"
        return UsageError(f"{msg} {place}). {remedy}")
