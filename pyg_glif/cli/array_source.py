"""NumPy's own files."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif.cli.base import UsageError
from pyg_glif.cli.source import Source


class ArraySource(Source):
    """Arrays ``[N]`` or ``[N, C]``; one without a name, or several with.

    Column 3 of array ``x`` is ``x.3``, and ``3`` if the array has no name.
    """

    def __init__(self, path: Path) -> None:
        self._arrays = _load(path)
        self._where: dict[str, tuple[str, int]] = {}
        blocks: dict[str, list[str]] = {}
        for key, array in self._arrays.items():
            if array.ndim == 1 and key:
                self._where[key] = (key, 0)
                continue
            width = 1 if array.ndim == 1 else array.shape[1]
            leaves = [f"{key}.{j}" if key else f"{j}" for j in range(width)]
            self._where.update({leaf: (key, j) for j, leaf in enumerate(leaves)})
            if key:
                blocks[key] = leaves
        super().__init__(path, list(self._where), blocks)

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        keys = list(dict.fromkeys(self._where[name][0] for name in names))
        for key in keys:
            if self._arrays[key].dtype.kind not in "fiub":
                got, of = self._arrays[key].dtype, f"array '{key}' " if key else ""
                raise UsageError(f"'{self.path}': {of}must hold numbers (got {got})")
        value = self._gather(names, keys)
        if value.dtype.kind == "f":
            self.check_finite(value, names)
        return value

    def _gather(self, names: Sequence[str], keys: list[str]) -> NDArray[Any]:
        """Columns side by side; a whole array as it is, without a copy."""
        array = self._arrays[keys[0]]
        matrix = array.reshape(len(array), -1)
        at = [self._where[name][1] for name in names]
        if len(keys) == 1:
            return matrix if at == list(range(matrix.shape[1])) else matrix[:, at]
        rows = {key: len(self._arrays[key]) for key in keys}
        if len(set(rows.values())) > 1:
            got = ", ".join(f"{size} in '{key}'" for key, size in rows.items())
            msg = f"'{self.path}': arrays must have equally many rows (got {got})"
            raise UsageError(f"{msg}. Pick arrays with --features")
        return np.stack([self.column(name) for name in names], axis=1)

    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``."""
        key, j = self._where[name]
        array = self._arrays[key]
        return array if array.ndim == 1 else array[:, j]

    def is_flat(self, name: str) -> bool:
        """Whether a column stands for itself, not for a matrix of one column."""
        return self._arrays[self._where[name][0]].ndim == 1


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays by name, the name of a single one being empty; nothing is unpickled."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            arrays = {"": found} if isinstance(found, np.ndarray) else dict(found)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        kind = "arrays of numbers or text" if path.suffix == ".npz" else "an array"
        raise UsageError(f"'{path}' must hold {kind} ({error})") from error
    for key, array in arrays.items():
        if array.ndim not in (1, 2):
            of = f"array '{key}' " if key else ""
            msg = f"'{path}': {of}must have 1 or 2 dimensions"
            raise UsageError(f"{msg} (got shape {array.shape})")
    return arrays
