"""Rows in Parquet or ``.npy`` files, read piece by piece."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.arrays import to_tensor
from pyg_glif._utils.optional import require
from pyg_glif.distributed._store import Store, digest_of

#: One path or URL, with ``*`` for several, or a list of them.
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class FileColumns:
    """Outputs in some columns of files.

    Args:
        files (str or sequence of str): Parquet files; ``*`` stands for any name.
        columns (str or sequence of str, optional): Columns of numbers, or one column
            of lists. (default: all numbers)
        id (str, optional): Column with the ids. (default: as in the dataset)
    """

    files: Any
    columns: str | Sequence[str] | None = None
    id: str | None = None


def are_paths(data: Any) -> bool:
    """Whether data are paths, and not an array."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return all(isinstance(item, (str, PathLike)) for item in items)


def as_files(argument: str, data: Any, out: Store, kind: str) -> Paths:
    """Paths as they are; an array as a file in a folder, the same for the same array.

    ``out``, which gets results of a ``kind``, must not hold the input.
    """
    if are_paths(data):
        out.check_out(kind, *_expanded(argument, data))
        return data  # type: ignore[no-any-return]
    out.check_out(kind)
    tensor = to_tensor(argument, data).detach().cpu().contiguous()
    name = f"{argument}-{_fingerprints.of_tensors({'': tensor})[:32]}.npy"
    # Written whether it is there or not: what is there may be damaged.
    out.save(f"inputs/{name}", tensor)
    return out.shown(f"inputs/{name}")


class Piece(NamedTuple):
    """Consecutive rows of one file."""

    file: int
    start: int  # row in the file
    stop: int
    first: int  # row among those of all files
    groups: tuple[int, int]  # row groups of a Parquet file


class PieceRows(NamedTuple):
    """Contents of a piece."""

    values: NDArray[Any]  # [N, F]
    ids: NDArray[Any] | None  # [N], whole numbers or texts
    batch: NDArray[Any] | None  # [N]


@dataclass(frozen=True)
class RowFiles:
    """Files with the same columns, one after another."""

    argument: str  # in messages
    urls: tuple[str, ...]
    columns: tuple[str, ...] | None  # of numbers, or one of lists; None for .npy
    id: str | None  # column of unique ids, None for the position of a row
    batch: str | None  # column of graph numbers
    width: int  # numbers in a row
    dtype: str
    groups: tuple[tuple[int, ...], ...]  # rows of each row group of each file

    @classmethod
    def open(
        cls,
        argument: str,
        paths: Paths,
        columns: str | Sequence[str] | None = None,
        id: str | None = None,
        batch: str | None = None,
    ) -> "RowFiles":
        """The files that paths name; all numbers without ``columns``."""
        urls = _expanded(argument, paths)
        suffixes = {_suffix(url) for url in urls}
        if len(suffixes) > 1 or not suffixes <= {".parquet", ".npy"}:
            shown = ", ".join(sorted(suffixes))
            msg = f"'{argument}' must be .parquet files or .npy files (got {shown})"
            raise ValueError(msg)
        if columns is not None:
            columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if suffixes == {".npy"}:
            for name, value in (("id", id), ("batch", batch), ("features", columns)):
                if value is not None:
                    msg = f"'{name}' must be None for .npy files, which have no columns"
                    raise ValueError(f"{msg} (got {value!r})")
            heads = [_npy_head(url) for url in urls]
        else:
            if columns is None:
                with _parquet(urls[0]) as file:
                    columns = _numbers(file.schema_arrow, (id, batch))
            others = tuple(name for name in (id, batch) if name is not None)
            heads = [_parquet_head(argument, url, columns, others) for url in urls]
        for url, head in zip(urls, heads, strict=True):
            if head[:2] != heads[0][:2]:
                first, other = (f"{h[0]} numbers in {h[1]}" for h in (heads[0], head))
                msg = f"'{argument}' must have the same columns in all files"
                msg = f"{msg} (got {first} in '{urls[0]}', {other} in '{url}')"
                raise ValueError(msg)
        width, dtype = heads[0][:2]
        groups = tuple(head[2] for head in heads)
        return cls(argument, urls, columns, id, batch, width, dtype, groups)

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(map(sum, self.groups))

    @property
    def names(self) -> list[str]:
        """Name of each number of a row."""
        names = self.columns or ("output",)
        if len(names) == self.width:
            return list(names)
        name = names[0] if len(names) == 1 else "output"
        return [f"{name}.{j}" for j in range(self.width)]

    def contents(self) -> list[str]:
        """Fingerprint of the contents of each file."""
        return [digest_of(url) for url in self.urls]

    def check_contents(self, contents: list[str]) -> None:
        """Raises if a file has been changed since."""
        now = self.contents()
        for url, before, after in zip(self.urls, contents, now, strict=True):
            if before != after:
                msg = f"'{self.argument}' must stay as it is while it is read"
                raise ValueError(f"{msg} (got a change of '{url}'). Call again")

    def pieces(self, size: int) -> Iterator[Piece]:
        """Pieces of at most ``size`` rows, unless a row group has more."""
        first = 0
        for file, groups in enumerate(self.groups):
            start, group = 0, 0
            while group < len(groups):
                last, rows = group + 1, groups[group]
                while last < len(groups) and rows + groups[last] <= size:
                    rows, last = rows + groups[last], last + 1
                if _suffix(self.urls[file]) == ".npy":
                    for left in range(0, rows, size):
                        right = min(left + size, rows)
                        yield Piece(file, left, right, first + left, (0, 0))
                elif rows:
                    yield Piece(file, start, start + rows, first, (group, last))
                first, start, group = first + rows, start + rows, last

    def read(self, piece: Piece, values: bool = True) -> PieceRows:
        """The rows of a piece, all numbers finite and all ids there.

        Without ``values``, only ids and graph numbers.
        """
        url = self.urls[piece.file]
        if _suffix(url) == ".npy":
            part = np.asarray(_npy(url)[piece.start : piece.stop])
            array = part.reshape(len(part), self.width)
            rows = PieceRows(np.ascontiguousarray(array, self.dtype), None, None)
        else:
            rows = self._read_parquet(url, piece, values)
        bad = ~np.isfinite(rows.values).all(1)
        if bad.any():
            row = int(bad.argmax())
            value = rows.values[row][~np.isfinite(rows.values[row])][0]
            raise self._gap("be finite", value, row, piece)
        return rows

    def _read_parquet(self, url: str, piece: Piece, with_values: bool) -> PieceRows:
        """A piece of a Parquet file."""
        names = (self.columns or ()) if with_values else ()
        wanted = [*names, *(n for n in (self.id, self.batch) if n is not None)]
        with _parquet(url) as file:
            table = file.read_row_groups(
                list(range(*piece.groups)), columns=wanted, use_threads=False
            )
        values = [self._column(table, name, piece) for name in names]
        whole = np.concatenate([np.empty((len(table), 0), self.dtype), *values], axis=1)
        ids = None if self.id is None else self._integers("id", table, piece)
        batch = None if self.batch is None else self._integers("batch", table, piece)
        return PieceRows(np.ascontiguousarray(whole, self.dtype), ids, batch)

    def _column(self, table: Any, name: str, piece: Piece) -> NDArray[Any]:
        """A column of numbers or of lists of numbers, ``[N, F]``."""
        column = table.column(name).combine_chunks()
        self._check_nulls(f"have column '{name}' in every row", column, piece)
        if not hasattr(column.type, "value_type"):
            return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(-1, 1)
        values, width = column.flatten(), 0
        if len(column):
            width = len(values) // len(column)
        if hasattr(column, "offsets"):
            lengths = np.diff(np.asarray(column.offsets))
            odd = lengths != lengths[:1]
            if odd.any():
                row = int(odd.argmax())
                got = f"{lengths[row]} numbers after {lengths[0]}"
                raise self._gap("have rows of one length", got, row, piece)
        self._check_nulls("be finite", values, piece, width)
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, width)

    def _integers(self, what: str, table: Any, piece: Piece) -> NDArray[Any]:
        """Ids or graph numbers, none of them missing; ids may be texts."""
        name = self.id if what == "id" else self.batch
        column = table.column(name).combine_chunks()
        self._check_nulls(f"have {what} in every row", column, piece)
        values: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
        url = self.urls[piece.file]
        if values.dtype.kind in "iu":
            numbers = values.astype(np.int64)
            beyond = (numbers < 0) & (values > 0)
            if beyond.any():
                row = int(beyond.argmax())
                msg = f"'{what}' must be below 2^63 where it is a number"
                msg = f"{msg} (got {values[row]} in row {piece.start + row} of '{url}')"
                remedy = ". Write ids as texts" if what == "id" else ""
                raise ValueError(f"{msg}{remedy}")
            return numbers
        if what == "batch" or values.dtype.kind not in "OUS":
            kinds = "whole numbers" if what == "batch" else "whole numbers or texts"
            raise TypeError(f"'{what}' must be {kinds} (got {column.type} in '{url}')")
        return values

    def _check_nulls(
        self, what: str, column: Any, piece: Piece, width: int = 1
    ) -> None:
        """Raises for the first null of a column with ``width`` entries per row."""
        if column.null_count:
            row = int(np.asarray(column.is_null()).argmax()) // width
            raise self._gap(what, "none", row, piece)

    def _gap(self, what: str, got: object, row: int, piece: Piece) -> ValueError:
        """The error of a row that cannot be used."""
        place = f"row {piece.start + row} of '{self.urls[piece.file]}'"
        msg = f"'{self.argument}' must {what} (got {got} in {place})"
        return ValueError(f"{msg}. Remove the row, or fill the gap")


#: Numbers in a row, their type, and how many rows each row group has.
_Head = tuple[int, str, tuple[int, ...]]


def _expanded(argument: str, paths: Paths) -> tuple[str, ...]:
    """The files that paths name, in order."""
    paths = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    urls: list[str] = []
    for path in [fspath(item) for item in paths]:
        fs, inner = fsspec.core.url_to_fs(path)
        names = sorted(fs.glob(inner)) if "*" in inner else [inner]
        if not names or not all(fs.exists(name) for name in names):
            raise FileNotFoundError(f"'{argument}' must name files (got '{path}')")
        if isinstance(fs, LocalFileSystem):
            urls += names if "*" in inner else [path]
        else:
            urls += [fs.unstrip_protocol(name) for name in names]
    if not urls:
        raise ValueError(f"'{argument}' must name at least one file (got none)")
    return tuple(urls)


def _suffix(url: str) -> str:
    """The end of a file's name, from the last point on."""
    return PurePosixPath(url).suffix.lower()


def _npy(url: str) -> NDArray[Any]:
    """An array, mapped where it is on a disk."""
    fs, path = fsspec.core.url_to_fs(url)
    array: NDArray[Any]
    if isinstance(fs, LocalFileSystem):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    with fs.open(path) as file:
        array = np.load(file, allow_pickle=False)
    return array


def _npy_head(url: str) -> _Head:
    """Width, type and row count of an ``.npy`` file."""
    array = _npy(url)
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        msg = f"'{url}' must hold a matrix of floats"
        raise ValueError(f"{msg} (got {array.dtype} of shape {array.shape})")
    dtype = "float64" if array.dtype == np.float64 else "float32"
    return 1 if array.ndim == 1 else array.shape[1], dtype, (len(array),)


def _parquet(url: str) -> Any:
    """A Parquet file, opened."""
    parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
    fs, path = fsspec.core.url_to_fs(url)
    return parquet.ParquetFile(
        path if isinstance(fs, LocalFileSystem) else fs.open(path)
    )


def _parquet_head(
    argument: str, url: str, columns: tuple[str, ...], others: tuple[str, ...]
) -> _Head:
    """Width, type and row counts of a Parquet file."""
    with _parquet(url) as file:
        schema, meta = file.schema_arrow, file.metadata
        for name in (*columns, *others):
            if name not in schema.names:
                there = ", ".join(repr(n) for n in schema.names[:12])
                msg = f"'{argument}' must have the column '{name}'"
                raise ValueError(f"{msg} in all files (got {there} in '{url}')")
        if not columns:
            raise ValueError(f"'{argument}' must have columns of numbers (got '{url}')")
        width, dtype = 0, np.dtype(np.float32)
        for name in columns:
            kind = schema.field(name).type
            inner = getattr(kind, "value_type", kind)
            number = _dtype(inner)
            if number is None:
                msg = f"'{argument}' must have numbers in column '{name}'"
                raise TypeError(f"{msg} (got {inner} in '{url}')")
            dtype = np.promote_types(dtype, number)
            size = 1 if inner is kind else getattr(kind, "list_size", None)
            if size is None:
                # Lists may differ in length: the first sets the length of all.
                first = next(file.iter_batches(1, columns=[name]), None)
                size = 0 if first is None else len(first.column(0)[0])
            width += int(size)
        groups = tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))
    return width, str(dtype), groups


def _numbers(schema: Any, others: tuple[str | None, ...]) -> tuple[str, ...]:
    """Columns of numbers that have no other use."""
    names = (f.name for f in schema if _dtype(f.type) is not None)
    return tuple(name for name in names if name not in others)


def _dtype(kind: Any) -> Any:
    """The NumPy type of numbers; whole ones need all digits. Else :obj:`None`."""
    from pyarrow import types

    if types.is_floating(kind):
        return np.float64 if types.is_float64(kind) else np.float32
    return np.float64 if types.is_integer(kind) else None


def as_arrow(ids: NDArray[Any]) -> Any:
    """Ids as an Arrow array, texts decoded."""
    arrow = require("pyarrow", "pyg_glif.distributed", "ray")
    if ids.dtype.kind == "S":
        return arrow.array([text.decode() for text in ids])
    return arrow.array(ids)


def check_unique(name: str, ids: Iterable[NDArray[Any]]) -> None:
    """Raises if two rows have one id, and names both."""
    column = _column(ids)
    position = _positions(column, column)
    repeated = np.flatnonzero(position != np.arange(len(position)))
    if len(repeated):
        row = int(repeated[0])
        raise ValueError(
            f"'{name}' must be different for all rows (got {column[row].as_py()!r} in "
            f"rows {position[row]} and {row}, counted over all files)"
        )


def positions_of(
    name: str, known: Iterable[NDArray[Any]], queries: Iterable[NDArray[Any]]
) -> NDArray[np.int64]:
    """Positions of as many ids in another order.

    Raises if an id is unknown or comes twice.
    """
    column = _column(queries)
    position = _positions(column, _column(known))
    unknown = np.flatnonzero(position < 0)
    if len(unknown):
        msg = f"'{name}' must have the ids of the dataset and no others"
        raise ValueError(f"{msg} (got {column[int(unknown[0])].as_py()!r})")
    order = np.argsort(position, kind="stable")
    repeated = order[1:][np.diff(position[order]) == 0]
    if len(repeated):
        msg = f"'{name}' must have every id once"
        raise ValueError(f"{msg} (got {column[int(repeated[0])].as_py()!r} twice)")
    return position


def _column(ids: Iterable[NDArray[Any]]) -> Any:
    """All ids as one Arrow column."""
    arrow = require("pyarrow", "pyg_glif.distributed", "ray")
    return arrow.chunked_array([as_arrow(part) for part in ids])


def _positions(column: Any, known: Any) -> NDArray[np.int64]:
    """First position of each id among known ones; -1 for unknown ones."""
    compute = require("pyarrow.compute", "pyg_glif.distributed", "ray")
    if column.type != known.type:
        return np.full(len(column), -1)
    index = compute.index_in(column, value_set=known)
    return np.asarray(compute.fill_null(index, -1)).astype(np.int64)
