"""Takes arrays, tensors, series and frames, and gives back what it got.

Nothing is imported for that: NumPy's protocols are enough to read any of them, and the
class of a value is enough to build another.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def to_tensor(name: str, value: Any) -> Tensor:
    """A float32 or float64 tensor that shares memory where it can.

    Half precision becomes float32, whole numbers and truth values become float64.
    """
    if isinstance(value, Tensor):
        tensor = value.detach()
    else:
        tensor = torch.from_numpy(_to_array(name, value))
    if tensor.is_complex():
        raise TypeError(f"'{name}' must hold real numbers (got {tensor.dtype})")
    if tensor.dtype in (torch.float16, torch.bfloat16):
        return tensor.float()
    return tensor if tensor.dtype == torch.float32 else tensor.double()


def to_labels(name: str, value: Any) -> Tensor:
    """Whole numbers from labels of any kind; text is numbered in its sorted order."""
    if not isinstance(value, Tensor):
        array = np.asarray(value)
        if array.dtype.kind in "OSUT":
            array = np.unique(array, return_inverse=True)[1].reshape(array.shape)
        value = torch.from_numpy(_plain(array))
    label: Tensor = value.detach()
    whole = not (label.is_floating_point() or label.is_complex())
    if not whole and not bool((label == label.real.round()).all()):
        raise TypeError(f"'{name}' must hold labels (got {label.dtype})")
    return label.long()


def like(value: Any, result: Tensor) -> Any:
    """``result`` as the kind of ``value``: type, precision, device, index, columns."""
    if isinstance(value, Tensor):
        dtype = value.dtype if value.is_floating_point() else result.dtype
        return result.to(value.device, dtype)
    array = result.cpu().numpy()
    kind, package = type(value), type(value).__module__.split(".")[0]
    if package not in ("pandas", "polars"):
        given: Any = getattr(value, "dtype", None)
        floating = isinstance(given, np.dtype) and given.kind == "f"
        return array.astype(given, copy=False) if floating else array
    if package == "polars":
        if array.ndim == 1:
            return kind(value.name, array)
        return kind(array, schema=value.columns)
    if array.ndim == 1:
        return kind(array, index=value.index, name=value.name)
    return kind(array, index=value.index, columns=value.columns)


def _to_array(name: str, value: Any) -> NDArray[Any]:
    """A numeric array that torch can share."""
    array = value.to_numpy() if hasattr(value, "to_numpy") else np.asarray(value)
    if array.dtype == object and not _has_text(array):
        # A frame of truth values and numbers arrives as objects.
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "fiubc":
        msg = f"'{name}' must hold numbers (got {array.dtype})"
        raise TypeError(f"{msg}. Encode text and categories first")
    return _plain(array)


def _has_text(array: NDArray[Any]) -> bool:
    """Whether the first row holds a string, which a conversion would read as number."""
    first = array[:1] if array.ndim else array
    return any(isinstance(entry, (str, bytes)) for entry in first.flat)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Native byte order, positive strides, writable, a type that torch has."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        array = array.astype(np.float64)
    out = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
    # torch warns about memory it must not write to, and frames hand out such.
    out = out if out.flags.writeable else out.copy()
    return out.reshape(array.shape)
