"""NumPy files of data sets, checked by their headers and read by rows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_glif.datasets._files import LocalDataset

_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
#: NumPy's letters for truth values, whole numbers and floats.
NUMBERS = "biuf"
#: Rows copied at a time, so that a float64 file is never held twice.
_CHUNK = 4096


@dataclass(frozen=True)
class ArrayFile:
    """A whole ``.npy`` file of known shape, opened only while it is read."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def load(self) -> np.ndarray:
        """Reads the whole file into memory."""
        array: np.ndarray = np.load(self.path)
        return array

    def rows(self, index: Tensor) -> Tensor:  # [N] -> [N, F] float32
        """The rows of ``index``, and no others, from the mapped file."""
        out = torch.empty(len(index), *self.shape[1:], dtype=torch.float32)
        array = np.load(self.path, mmap_mode="r")
        for start in range(0, len(index), _CHUNK):
            part = slice(start, start + _CHUNK)
            block = array[index[part].numpy()].astype(np.float32)
            out[part] = torch.from_numpy(block)
        return out


def find_array(
    dataset: LocalDataset, name: str, shape: Sequence[int | None], kinds: str
) -> ArrayFile:
    """Checks that a file is there, whole, of one of the ``kinds`` and the shape.

    A size of ``None`` is any. Only the header is read.
    """
    what = {"f": "floats", "U": "strings"}.get(kinds, "numbers")
    sizes = ", ".join("any" if size is None else str(size) for size in shape)
    expected = f"{what} of shape ({sizes}{',' if len(shape) == 1 else ''})"
    path = dataset.find(name, expected)
    file = _read_header(path, expected)
    fits = len(file.shape) == len(shape) and all(
        want in (None, size) for want, size in zip(shape, file.shape, strict=True)
    )
    if not fits or file.dtype.kind not in kinds:
        got = f"{file.dtype} of shape {file.shape}"
        raise ValueError(f"'{path}' must hold {expected} (got {got})")
    return file


def _read_header(path: Path, expected: str) -> ArrayFile:
    """Shape and type from the header; raises if the file is too short for them."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            shape, _, dtype = _READERS[version](file)
            start = file.tell()
    except (ValueError, KeyError) as error:
        msg = f"'{path}' must be a NumPy file of {expected}"
        size = path.stat().st_size
        raise ValueError(f"{msg} (got {size} bytes without a header)") from error
    wanted, size = start + math.prod(shape) * dtype.itemsize, path.stat().st_size
    # Pickled objects have no fixed size to compare with.
    if size < wanted and not dtype.hasobject:
        msg = f"'{path}' must have {wanted} bytes, {dtype} of shape {shape}"
        raise ValueError(f"{msg} (got {size}). The file is truncated")
    return ArrayFile(path, tuple(shape), dtype)
