"""Writes columns in the format that a suffix says."""

import csv
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._optional import find, require
from pyg_glif.cli.files import replacing


def write_table(path: str, columns: dict[str, NDArray[Any]]) -> None:
    """Columns, or matrices under one name, in the format of the suffix."""
    where = Path(path)
    kind = where.suffix.lower()
    with replacing(where) as beside:
        if kind == ".npy":
            (array,) = columns.values()
            with beside.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        elif kind == ".npz":
            _write_npz(beside, columns)
        elif kind == ".parquet":
            _write_parquet(beside, flat(columns))
        else:
            _write_csv(beside, flat(columns), "\t" if kind == ".tsv" else ",")


def flat(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Matrices taken apart into columns ``name.0``, ``name.1``, ..."""
    out = {}
    for name, array in columns.items():
        if array.ndim == 1:
            out[name] = array
        else:
            out.update({f"{name}.{j}": column for j, column in enumerate(array.T)})
    return out


def _write_npz(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """Arrays by name; ``np.savez`` has no room for one that is called ``file``."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asanyarray(array))


def _write_csv(path: Path, columns: dict[str, NDArray[Any]], delimiter: str) -> None:
    """Text with as many digits as it takes to get the same numbers back."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        writer.writerow(columns)
        cells = (column.astype(np.str_) for column in columns.values())
        writer.writerows(zip(*cells, strict=True))


def _write_parquet(path: Path, columns: dict[str, NDArray[Any]]) -> None:
    """A Parquet file, by whichever package is there."""
    arrow = find("pyarrow")
    if arrow is None:
        polars = require("polars", "writing .parquet", "files")
        polars.DataFrame(columns).write_parquet(path)
        return
    parquet = require("pyarrow.parquet", "writing .parquet", "files")
    lists = {k: v if v.dtype.kind != "U" else v.tolist() for k, v in columns.items()}
    parquet.write_table(arrow.table(lists), path)
