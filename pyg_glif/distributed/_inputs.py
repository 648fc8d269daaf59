"""Rows in Parquet or ``.npy`` files, read piece by piece."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
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

    Args:
        argument: Name in messages.
        data: Paths, or an array-like.
        out: Folder of the results; it must not hold the input.
        kind: Kind of the results.
    """
    if are_paths(data):
        out.check_out(kind, *_expanded(argument, data))
        return data  # type: ignore[no-any-return]
    out.check_out(kind)
    tensor = to_tensor(argument, data).detach().cpu().contiguous()
    name = f"{argument}-{_fingerprints.of_tensors({'': tensor})[:32]}.npy"
    # Written whether it is there or not: what is there may be damaged.
    inputs = out.child("inputs")
    inputs.save(name, tensor)
    return inputs.shown(name)


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
    """Files with the same columns, one after another.

    Args:
        argument: Name in messages.
        urls: The files.
        columns: Columns of numbers, or one of lists of them; :obj:`None` for all that
            are not named otherwise. ``.npy`` files have no names.
        id: Column of unique ids; :obj:`None` for the position of a row.
        batch: Column of graph numbers.
    """

    argument: str
    urls: tuple[str, ...]
    columns: tuple[str, ...] | None
    id: str | None
    batch: str | None
    width: int
    dtype: str
    counts: tuple[int, ...]  # rows of each file
    groups: tuple[tuple[int, ...], ...]  # rows of each row group

    @classmethod
    def open(
        cls,
        argument: str,
        paths: Paths,
        columns: str | Sequence[str] | None = None,
        id: str | None = None,
        batch: str | None = None,
    ) -> "RowFiles":
        """The files that paths name."""
        urls = _expanded(argument, paths)
        suffixes = {_suffix(url) for url in urls}
        if len(suffixes) > 1 or not suffixes <= {".parquet", ".npy"}:
            shown = ", ".join(sorted(suffixes))
            msg = f"'{argument}' must be .parquet files or .npy files (got {shown})"
            raise ValueError(msg)
        if isinstance(columns, str):
            columns = (columns,)
        columns = None if columns is None else tuple(columns)
        if suffixes == {".npy"}:
            for name, value in (("id", id), ("batch", batch), ("features", columns)):
                if value is not None:
                    msg = f"'{name}' must be None for .npy files, which have no columns"
                    raise ValueError(f"{msg} (got {value!r})")
            heads = [_npy_head(url) for url in urls]
        else:
            heads = [_parquet_head(argument, url, columns, id, batch) for url in urls]
        for url, head in zip(urls, heads, strict=True):
            if head[:2] != heads[0][:2]:
                first, other = _described(heads[0]), _described(head)
                msg = f"'{argument}' must have the same columns in all files"
                msg = f"{msg} (got {first} in '{urls[0]}', {other} in '{url}')"
                raise ValueError(msg)
        width, dtype = heads[0][:2]
        counts = tuple(sum(head[2]) for head in heads)
        groups = tuple(head[2] for head in heads)
        return cls(argument, urls, columns, id, batch, width, dtype, counts, groups)

    @property
    def num_rows(self) -> int:
        """Rows of all files."""
        return sum(self.counts)

    def contents(self) -> list[str]:
        """Fingerprint of the contents of each file."""
        return [digest_of(url) for url in self.urls]

    def check_contents(self, contents: list[str]) -> None:
        """Raises if a file has been changed since."""
        for url, before, after in zip(
            self.urls, contents, self.contents(), strict=True
        ):
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

    def names(self) -> list[str]:
        """Name of each number of a row."""
        names = self.columns
        if names is None and _suffix(self.urls[0]) == ".parquet":
            parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
            fs, path = fsspec.core.url_to_fs(self.urls[0])
            with fs.open(path) as file:
                schema = parquet.read_schema(file)
            names = _numbers(schema, (self.id, self.batch))
        if names is not None and len(names) == self.width:
            return list(names)
        name = names[0] if names is not None and len(names) == 1 else "output"
        if self.width == 1:
            return [name]
        return [f"{name}.{j}" for j in range(self.width)]

    def read(self, piece: Piece, values: bool = True) -> PieceRows:
        """The rows of a piece, all numbers finite and all ids there.

        Without ``values``, only ids and graph numbers.
        """
        url = self.urls[piece.file]
        if _suffix(url) == ".npy":
            array: NDArray[Any] = np.asarray(_npy(url)[piece.start : piece.stop])
            array = np.ascontiguousarray(_two(array), self.dtype)
            rows = PieceRows(array, None, None)
        else:
            rows = self._parquet(url, piece, values)
        bad = ~np.isfinite(rows.values).all(1)
        if bad.any():
            row = int(bad.argmax())
            value = rows.values[row][~np.isfinite(rows.values[row])][0]
            raise ValueError(
                f"'{self.argument}' must be finite (got {value} in row "
                f"{piece.start + row} of '{url}'). Remove the row, or fill the gap"
            )
        return rows

    def _parquet(self, url: str, piece: Piece, with_values: bool) -> PieceRows:
        """A piece of a Parquet file."""
        parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
        fs, path = fsspec.core.url_to_fs(url)
        local = isinstance(fs, LocalFileSystem)
        with parquet.ParquetFile(path if local else fs.open(path)) as file:
            names = self.columns or _numbers(file.schema_arrow, (self.id, self.batch))
            names = names if with_values else ()
            wanted = [*names, *(n for n in (self.id, self.batch) if n is not None)]
            table = file.read_row_groups(
                list(range(*piece.groups)), columns=wanted, use_threads=False
            )
        values = [self._column(table, name, url, piece) for name in names]
        whole = np.empty((len(table), 0)) if not values else values[0]
        whole = whole if len(values) < 2 else np.concatenate(values, axis=1)
        ids = None
        if self.id is not None:
            ids = self._named("id", table.column(self.id), url, piece)
        batch = None
        if self.batch is not None:
            batch = self._named("batch", table.column(self.batch), url, piece)
        return PieceRows(np.ascontiguousarray(whole, self.dtype), ids, batch)

    def _column(self, table: Any, name: str, url: str, piece: Piece) -> NDArray[Any]:
        """A column of numbers or of lists of numbers, ``[N, F]``."""
        column = table.column(name).combine_chunks()
        if column.null_count:
            self._missing(f"column '{name}'", column, url, piece)
        kind = column.type
        if not hasattr(kind, "value_type"):
            return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(-1, 1)
        values = column.flatten()
        if values.null_count:
            where = int(np.asarray(values.is_null()).argmax())
            row = piece.start + where // max(1, len(values) // max(1, len(column)))
            msg = f"'{self.argument}' must be finite (got nothing in row {row}"
            raise ValueError(f"{msg} of '{url}'). Remove the row, or fill the gap")
        width = len(values) // max(1, len(column))
        if hasattr(column, "offsets"):
            lengths = np.diff(np.asarray(column.offsets))
            odd = lengths != lengths[0]
            if odd.any():
                row = int(odd.argmax())
                raise ValueError(
                    f"'{self.argument}' must have rows of one length (got "
                    f"{lengths[row]} numbers in row {piece.start + row} of '{url}', "
                    f"{lengths[0]} before)"
                )
        return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(-1, width)

    def _named(self, what: str, column: Any, url: str, piece: Piece) -> NDArray[Any]:
        """Whole numbers or texts, none of them missing."""
        column = column.combine_chunks()
        if column.null_count:
            self._missing(what, column, url, piece)
        values: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
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
            msg = f"'{what}' must be whole numbers"
            msg = msg if what == "batch" else f"{msg} or texts"
            raise TypeError(f"{msg} (got {column.type} in '{url}')")
        return values

    def _missing(self, what: str, column: Any, url: str, piece: Piece) -> None:
        """Raises, naming the first row without a value."""
        row = int(np.asarray(column.is_null()).argmax())
        msg = f"'{self.argument}' must have {what} in every row"
        raise ValueError(f"{msg} (got none in row {piece.start + row} of '{url}')")


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
    name = url.rsplit("/", 1)[-1]
    return f".{name.rsplit('.', 1)[-1].lower()}" if "." in name else ""


def _two(array: NDArray[Any]) -> NDArray[Any]:
    """Rows, also where each is one number."""
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _npy(url: str) -> NDArray[Any]:
    """An array, mapped where it is on a disk."""
    fs, path = fsspec.core.url_to_fs(url)
    if isinstance(fs, LocalFileSystem):
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped
    with fs.open(path) as file:
        whole: NDArray[Any] = np.load(file, allow_pickle=False)
    return whole


def _npy_head(url: str) -> _Head:
    """Width, type and row count of an ``.npy`` file."""
    array = _npy(url)
    if array.ndim not in (1, 2) or array.dtype.kind != "f":
        msg = f"'{url}' must hold a matrix of floats"
        raise ValueError(f"{msg} (got {array.dtype} of shape {array.shape})")
    return _two(array).shape[1], _float(array.dtype), (len(array),)


def _parquet_head(
    argument: str,
    url: str,
    columns: tuple[str, ...] | None,
    id: str | None,
    batch: str | None,
) -> _Head:
    """Width, type and row counts of a Parquet file."""
    parquet = require("pyarrow.parquet", "pyg_glif.distributed", "ray")
    fs, path = fsspec.core.url_to_fs(url)
    local = isinstance(fs, LocalFileSystem)
    with parquet.ParquetFile(path if local else fs.open(path)) as file:
        schema, meta = file.schema_arrow, file.metadata
        names = columns or _numbers(schema, (id, batch))
        for name in (*names, *(n for n in (id, batch) if n is not None)):
            if name not in schema.names:
                there = ", ".join(repr(n) for n in schema.names[:12])
                msg = f"'{argument}' must have the column '{name}'"
                raise ValueError(f"{msg} in all files (got {there} in '{url}')")
        groups = tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))
        if not names:
            raise ValueError(f"'{argument}' must have columns of numbers (got '{url}')")
        width, dtype = 0, np.dtype(np.float32)
        for name in names:
            kind = schema.field(name).type
            inner = getattr(kind, "value_type", kind)
            dtype = np.promote_types(dtype, _number(argument, name, inner, url))
            size = getattr(kind, "list_size", None)
            if inner is not kind and size is None:
                # Lists may differ in length: the first says how long all must be.
                size = 0
                for part in file.iter_batches(1, columns=[name]):
                    size = len(part.column(0)[0])
                    break
            width += 1 if inner is kind else int(size or 0)
    return width, str(dtype), groups


def _numbers(schema: Any, others: tuple[str | None, ...]) -> tuple[str, ...]:
    """Columns of numbers that have no other use."""
    from pyarrow import types

    return tuple(
        field.name
        for field in schema
        if field.name not in others
        and (types.is_floating(field.type) or types.is_integer(field.type))
    )


def _number(argument: str, name: str, kind: Any, url: str) -> Any:
    """The NumPy type of a column of numbers; whole ones need all digits."""
    from pyarrow import types

    if types.is_floating(kind):
        return np.float64 if types.is_float64(kind) else np.float32
    if types.is_integer(kind):
        return np.float64
    msg = f"'{argument}' must have numbers in column '{name}'"
    raise TypeError(f"{msg} (got {kind} in '{url}')")


def _float(dtype: Any) -> str:
    """float64 for itself, float32 for all that is shorter."""
    return "float64" if dtype == np.float64 else "float32"


def _described(head: _Head) -> str:
    """Columns as messages name them."""
    return f"{head[0]} numbers in {head[1]}"
