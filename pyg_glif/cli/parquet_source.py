"""Parquet, by whichever package is there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._optional import find, require
from pyg_glif.cli.base import UsageError
from pyg_glif.cli.source import Source


class ParquetSource(Source):
    """A table with typed columns; only those asked for are read."""

    def __init__(self, path: Path) -> None:
        self._polars = None if find("pyarrow") else find("polars")
        if self._polars is None:
            arrow = require("pyarrow.parquet", "reading .parquet", "files")
        try:
            if self._polars is None:
                names = arrow.read_schema(path).names
            else:
                names = list(self._polars.read_parquet_schema(path))
        except Exception as error:  # each package has its own kinds
            msg = f"'{path}' must be a Parquet file ({error})"
            raise UsageError(msg) from error
        super().__init__(path, names)

    def numbers(self, names: Sequence[str]) -> NDArray[Any]:
        """Finite numbers, one column per name, ``[N, C]``."""
        columns = self._read(names)
        value = np.stack([self._number(name, columns[name]) for name in names], 1)
        if value.dtype.kind == "f":
            self.check_finite(value, names)
        return value

    def _number(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        """A column of numbers, or the error for its first text or gap."""
        if array.dtype.kind in "fiub":
            return array
        for row, entry in enumerate(array.tolist()):
            if not isinstance(entry, (bool, int, float)):
                raise self.text_error(name, row, entry)
        return array.astype(np.float64)

    def column(self, name: str) -> NDArray[Any]:
        """A column as it is stored, ``[N]``."""
        return self._read([name])[name]

    def _read(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Some columns."""
        if self._polars is not None:
            frame = self._polars.read_parquet(self.path, columns=list(names))
            return {name: frame[name].to_numpy() for name in names}
        arrow = require("pyarrow.parquet", "reading .parquet", "files")
        table = arrow.read_table(self.path, columns=list(names)).unify_dictionaries()
        return {name: _decoded(table[name]) for name in names}


def _decoded(column: Any) -> NDArray[Any]:
    """The values of a column; categories as what they stand for."""
    kind = column.type
    if hasattr(kind, "value_type") and hasattr(kind, "index_type"):
        column = column.cast(kind.value_type)
    array: NDArray[Any] = column.to_numpy()
    return array
