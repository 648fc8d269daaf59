"""Outputs in the order of the blocks, and back in that of the files."""

from collections.abc import Iterator
from io import BytesIO
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyg_glif._utils.optional import require
from pyg_glif._utils.runtime import Progress
from pyg_glif.distributed._inputs import (
    FileColumns,
    RowFiles,
    as_arrow,
    positions_of,
)
from pyg_glif.distributed._store import Store, scratch_array
from pyg_glif.distributed.sharded_dataset import ShardedDataset

_FILE_ROWS = 1 << 20  # of an output file
_READ_ROWS = 1 << 18  # of outputs that are read at once


def outputs_table(dataset: ShardedDataset, selected: FileColumns) -> RowFiles:
    """The files with outputs."""
    id, files = selected.id or dataset.id_column, selected.files
    first = files if isinstance(files, (str, PathLike)) else next(iter(files), "")
    by_position = str(first).lower().endswith(".npy")
    if by_position or dataset.id_column is None:
        id = None
    table = RowFiles.open("y_hat", files, selected.columns, id)
    if table.num_rows != dataset.num_samples:
        msg = f"'y_hat' must have one row for each of {dataset.num_samples} samples"
        raise ValueError(f"{msg} (got {table.num_rows})")
    return table


def write_blocks(
    dataset: ShardedDataset,
    table: RowFiles,
    contents: list[str],
    store: Store,
    key: str,
    progress: bool | None,
) -> list[str]:
    """Puts outputs into the order of the blocks; returns the names of the columns."""
    columns = table.names
    blocks = range(dataset.num_blocks)
    if all(store.done(f"work/{block:05d}", key) is not None for block in blocks):
        return columns
    store.clear("work")
    values = scratch_array((dataset.num_samples, table.width), table.dtype)
    pieces = list(table.pieces(_READ_ROWS))
    places = _places(dataset, table)
    with Progress(len(pieces), "reading outputs", progress) as bar:
        for piece in pieces:
            rows = slice(piece.first, piece.first + piece.stop - piece.start)
            values[rows if places is None else places[rows]] = table.read(piece).values
            bar.update()
    table.check_contents(contents)
    for block in blocks:
        arrays = {"y": values[dataset.place(block)]}
        store.put(f"work/{block:05d}", key, arrays)
    return columns


def _places(dataset: ShardedDataset, table: RowFiles) -> NDArray[np.int64] | None:
    """Positions of the rows in the dataset; :obj:`None` for the same order."""
    if table.id is None or dataset.id_column is None:
        return None
    pieces = table.pieces(_READ_ROWS)
    queries = (table.read(piece, values=False).ids for piece in pieces)
    known = (ids for _, ids in dataset.ids())
    return positions_of("y_hat", known, (ids for ids in queries if ids is not None))


def write_outputs(
    dataset: ShardedDataset,
    store: Store,
    columns: list[str],
    key: str,
    progress: bool | None,
) -> Iterator[dict[str, Any]]:
    """Writes Parquet files with ids in the order of the input."""
    arrow = require("pyarrow", "pyg_glif.distributed", "ray")
    parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
    blocks = range(dataset.num_blocks)
    fit = [store.own(f"fit/{block:05d}.json", key)["files"] for block in blocks]
    what = "out" if "out" in fit[0] else "f"
    dtype = store.load(fit[0][what]).dtype
    values = scratch_array((dataset.num_samples, len(columns)), dtype)
    with Progress(dataset.num_blocks, "writing outputs", progress) as bar:
        for block in blocks:
            values[dataset.place(block)] = store.load(fit[block][what])
            bar.update()
    named = dataset.id_column is not None
    parts = dataset.ids() if named else _numbered(dataset.num_samples)
    for number, (first, ids) in enumerate(_rows_of_files(parts)):
        data = {dataset.id_column or "row": as_arrow(ids)}
        for j, name in enumerate(columns):
            data[name] = arrow.array(np.array(values[first : first + len(ids), j]))
        name = f"part-{number:05d}.parquet"
        buffer = BytesIO()
        parquet.write_table(arrow.table(data), buffer)
        yield store.write(name, buffer.getbuffer(), sync=True)


def _numbered(count: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """Positions in place of ids."""
    for start in range(0, count, _FILE_ROWS):
        yield start, np.arange(start, min(start + _FILE_ROWS, count))


def _rows_of_files(
    parts: Iterator[tuple[int, NDArray[Any]]],
) -> Iterator[tuple[int, NDArray[Any]]]:
    """The same ids, about as many at a time as a file is to hold."""
    held: list[NDArray[Any]] = []
    first, count = 0, 0
    for start, ids in parts:
        if count and count + len(ids) > _FILE_ROWS:
            yield first, np.concatenate(held)
            held, count = [], 0
        first = start if not count else first
        held.append(ids)
        count += len(ids)
    if count:
        yield first, np.concatenate(held)
