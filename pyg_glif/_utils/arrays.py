"""Conversion of arrays, series and frames to tensors, and back to the same kind.

No optional package is imported: NumPy's protocols read all of them, and the class of a
value builds another one.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Complex, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils.warn import warn_caller

_NUMBERS = "fiub"  # NumPy's kinds: floating point, signed, unsigned, truth values
_TABLE = "'pyg_glif.tables.FairTable'"
_REMEDY = f"Encode text, categories and dates first, or use {_TABLE}"


def to_tensor(name: str, value: Any, *, copy: bool = False) -> Tensor:
    """A float32 or float64 tensor, which shares memory only if it need not be a copy.

    Half precision becomes float32, whole numbers and truth values become float64.

    Args:
        name (str): The caller's name for the value.
        value (array-like): Tensor, array, series, frame or nested lists.
        copy (bool): Whether the tensor must be independent of ``value``.
    """
    value = value.detach() if isinstance(value, Tensor) else value
    return to_floats(name, value, copy=copy)


def to_floats(name: str, value: Any, *, copy: bool = False) -> Tensor:
    """As :func:`to_tensor`, but gradients pass to a tensor."""
    if isinstance(value, Tensor):
        _check_dense(name, value)
        if value.is_complex():
            raise TypeError(f"'{name}' must hold real numbers (got {value.dtype})")
        return value.to(_torch_dtype(value), copy=copy)
    array = _to_array(name, value)
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    array = _plain(array, np.float32 if single else np.float64, copy=copy)
    return torch.from_numpy(array)


def to_labels(name: str, value: Any) -> Tensor:
    """Whole numbers from labels of any kind; text is numbered in its sorted order.

    So are dates, and numbers that no 64-bit integer can hold.
    """
    if isinstance(value, Tensor):
        _check_dense(name, value)
        # torch lacks most operations on uint64, so NumPy takes over.
        value = value.detach().cpu().numpy() if value.dtype == torch.uint64 else value
    if not isinstance(value, Tensor):
        array = _as_array(name, value)
        missing = _missing(array)
        if missing.any():
            where = _index(np.argwhere(missing)[0])
            msg = f"'{name}' must not have missing values (got one at index {where}"
            raise ValueError(f"{msg}, {int(missing.sum())} such values)")
        wide = array.dtype == np.uint64 and array.size and array.max() > _LARGEST
        if wide or array.dtype.kind in "OSUTMm":
            array = _numbered(name, array)
        if array.dtype.kind == "u":
            array = array.astype(np.int64)
        value = torch.from_numpy(_plain(array, array.dtype.newbyteorder("=")))
    label: Tensor = value.detach()
    if label.is_complex() or (
        label.is_floating_point()
        and not bool(((label == label.round()) & label.isfinite()).all())
    ):
        raise TypeError(f"'{name}' must hold labels (got {label.dtype})")
    return label.long()


def like(value: Any, result: Tensor) -> Any:
    """``result`` as the kind of ``value``: type, precision, device, index, columns."""
    if isinstance(value, Tensor):
        dtype = value.dtype if value.is_floating_point() else result.dtype
        return result.to(value.device, dtype)
    array = result.cpu().numpy()
    # By the name of the module, so that neither package need be installed.
    kind, package = type(value), type(value).__module__.split(".")[0]
    if package not in ("pandas", "polars"):
        kept: Any = getattr(value, "dtype", None)
        floating = isinstance(kept, np.dtype) and kept.kind == "f"
        return array.astype(kept, copy=False) if floating else array
    if package == "polars":
        if array.ndim == 1:
            return kind(value.name, array)
        return kind(array, schema=value.columns)
    if array.ndim == 1:
        return kind(array, index=value.index, name=value.name)
    return kind(array, index=value.index, columns=value.columns)


def column_names(name: str, value: Any) -> tuple[Any, ...] | None:
    """Names of the columns of a frame; :obj:`None` if it is no frame."""
    if isinstance(value, (Tensor, np.ndarray)) or not hasattr(value, "columns"):
        return None
    names = tuple(_plain_name(name, column) for column in value.columns)
    twice = sorted({str(n) for n in names if names.count(n) > 1})
    if twice:
        msg = f"'{name}' must have columns of different names"
        raise ValueError(f"{msg} (got {_listed(twice)} more than once)")
    return names


def column_order(
    name: str,
    columns: Sequence[Any] | None,
    fitted: Sequence[Any] | None,
) -> list[int] | None:
    """Positions of the columns of a fit among those of a new table, by name.

    Columns without names are numbered, so arrays and frames without names of their own
    go together. Otherwise, where only one side has names, columns are taken
    by position with a warning, as scikit-learn does.

    Returns:
        The position of each fitted column, or :obj:`None` if they are in order.
    """
    if columns is None or fitted is None:
        named = columns if fitted is None else fitted
        if named is not None and list(named) != list(range(len(named))):
            which = ("has no", "had") if columns is None else ("has", "had no")
            msg = f"'{name}' {which[0]} column names, while the fit {which[1]}"
            warn_caller(f"{msg}: columns are taken by position")
        return None
    missing = [n for n in fitted if n not in columns]
    extra = [n for n in columns if n not in fitted]
    if missing or extra:
        parts = [f"{_listed(missing)} missing"] if missing else []
        parts += [f"{_listed(extra)} new"] if extra else []
        msg = f"'{name}' must have the columns of the fit (got {', '.join(parts)})"
        raise ValueError(msg)
    position = {n: index for index, n in enumerate(columns)}
    order = [position[n] for n in fitted]
    return None if order == list(range(len(order))) else order


_LARGEST = np.iinfo(np.int64).max


def _torch_dtype(tensor: Tensor) -> torch.dtype:
    """The precision that holds a tensor's values."""
    small = (torch.float16, torch.bfloat16, torch.float32)
    return torch.float32 if tensor.dtype in small else torch.float64


def _check_dense(name: str, value: Tensor) -> None:
    """Refuses the sparse layouts of torch."""
    if value.layout != torch.strided:
        kind = str(value.layout).removeprefix("torch.")
        msg = f"'{name}' must be a dense tensor (got layout {kind})"
        raise TypeError(f"{msg}. Use '{name}.to_dense()'")


def _as_array(name: str, value: Any) -> NDArray[Any]:
    """The value as an array; raises on sparse, masked and ragged values."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):  # as SciPy's matrices have
        msg = f"'{name}' must be a dense array (got {type(value).__name__})"
        raise TypeError(f"{msg}. Use '{name}.toarray()'")
    mask: Any = np.ma.getmask(value) if isinstance(value, np.ma.MaskedArray) else False
    if np.any(mask):
        where = _index(np.argwhere(mask)[0])
        raise ValueError(f"'{name}' must not be masked (got an entry at index {where})")
    try:
        return np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        msg = f"'{name}' must have rows of the same length (got different ones)"
        raise ValueError(msg) from error


def _to_array(name: str, value: Any) -> NDArray[Any]:
    """An array of numbers, of whatever kind; NaN where values are missing."""
    if column_names(name, value) is not None:
        return _frame_to_array(name, value)
    dtype = getattr(value, "dtype", None)
    array = _as_array(name, value)
    if array.dtype == object:
        array = _unboxed(array)
    if array.dtype.kind == "c":
        raise TypeError(f"'{name}' must hold real numbers (got {array.dtype})")
    # Categories may be called by numbers without being quantities.
    if array.dtype.kind not in _NUMBERS or str(dtype) == "category":
        got = array.dtype if dtype is None else dtype
        raise TypeError(f"'{name}' must hold numbers (got {got}). {_REMEDY}")
    return array


def _frame_to_array(name: str, frame: Any) -> NDArray[Any]:
    """The numbers of a frame; messages name every column that cannot be used."""
    dtypes = {str(dtype) for dtype in getattr(frame, "dtypes", [])}
    if dtypes <= {"float32"} or dtypes <= {"float64"}:
        out = _to_array(name, frame.to_numpy())
    else:
        # By columns: as a whole, different kinds become objects or lose digits.
        parts, bad = [], []
        for index, label in enumerate(frame.columns):
            column = frame.iloc[:, index] if hasattr(frame, "iloc") else frame[label]
            try:
                parts.append(_to_array(name, column))
            except TypeError:
                bad.append(f"{label!r} of {column.dtype}")
        if bad:
            msg = f"'{name}' must hold numbers (got {', '.join(bad)})"
            raise TypeError(f"{msg}. {_REMEDY}")
        single = all(p.dtype.kind == "f" and p.dtype.itemsize <= 4 for p in parts)
        out = np.empty((len(frame), len(parts)), np.float32 if single else np.float64)
        for index, part in enumerate(parts):
            out[:, index] = part
    # The sum is NaN if an entry is, and costs no boolean copy. Infinities of both signs
    # make it NaN too, hence the second look.
    if out.size and np.isnan(out.sum()) and np.isnan(out).any():
        missing = [
            f"{int(empty.sum())} in {label!r} from row {empty.argmax()}"
            for label, empty in zip(frame.columns, np.isnan(out).T, strict=True)
            if empty.any()
        ]
        msg = f"'{name}' must not have missing values (got {', '.join(missing)})"
        remedy = f"Fill them in, drop these rows, or use {_TABLE}"
        raise ValueError(f"{msg}. {remedy}")
    return out


def _unboxed(array: NDArray[Any]) -> NDArray[Any]:
    """Python's numbers in float64, NaN for missing ones; unchanged if there is text.

    A conversion would read text that looks like a number as one.
    """
    for kind in set(map(type, array.flat)):
        if not (issubclass(kind, (Real, Decimal, np.bool_)) or _is_missing(kind)):
            return array.astype(complex) if issubclass(kind, Complex) else array
    filled = np.where(_missing(array), np.nan, array)
    return filled.astype(np.float64)


def _is_missing(kind: type) -> bool:
    """Whether objects of a class stand for a missing value."""
    # By name, because pandas need not be installed.
    return kind is type(None) or kind.__name__ in ("NAType", "NaTType")


def _missing(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Where values are missing."""
    if array.dtype.kind in "fMm":
        return np.asarray(
            np.isnan(array) if array.dtype.kind == "f" else np.isnat(array)
        )
    if array.dtype != object:
        return np.zeros(array.shape, dtype=bool)
    missing = [
        _is_missing(type(entry)) or (isinstance(entry, float) and entry != entry)
        for entry in array.flat
    ]
    return np.array(missing, dtype=bool).reshape(array.shape)


def _numbered(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The number of each value among the sorted different ones."""
    try:
        # Before NumPy 2 the inverse is flat.
        return np.unique(array, return_inverse=True)[1].reshape(array.shape)
    except TypeError as error:
        kinds = _listed(sorted({type(entry).__name__ for entry in array.flat}))
        msg = f"'{name}' must hold labels of one kind (got {kinds})"
        raise TypeError(msg) from error


def _plain(array: NDArray[Any], dtype: Any, *, copy: bool = False) -> NDArray[Any]:
    """The array for torch: native byte order, positive strides, writable."""
    # torch warns about memory it must not write to, and frames hand out such.
    copy = copy or not array.flags.writeable
    # 'np.array(copy=None)' would do both, but is an error before NumPy 2.
    convert = np.array if copy else np.asarray
    out = convert(array, dtype=dtype, order="C")
    return out.reshape(array.shape)


def _plain_name(name: str, column: Any) -> Any:
    """A column's name as text, whole number or tuple, which files can hold."""
    if isinstance(column, str):
        return str(column)
    if isinstance(column, tuple):
        return tuple(_plain_name(name, part) for part in column)
    if isinstance(column, (int, np.integer)):
        return int(column)
    msg = f"'{name}' must have columns named by text or whole numbers"
    raise TypeError(f"{msg} (got {column!r}). Rename them")


def _index(where: Iterable[Any]) -> Any:
    """An index for messages: a number, or a tuple for several dimensions."""
    index = tuple(int(i) for i in where)
    return index[0] if len(index) == 1 else index


def _listed(names: Iterable[Any]) -> str:
    """Names, quoted and separated."""
    return ", ".join(repr(name) for name in names)
