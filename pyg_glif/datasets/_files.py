"""Files of data sets: where they are, what is in them, and how they are read."""

import csv
import gzip
import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from pyg_glif._utils.data_folder import VARIABLE, data_folder

_READERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
Transform = Callable[[Data], Data]
#: NumPy's letters for truth values, whole numbers and floats.
NUMBERS = "biuf"
#: Rows copied at a time, so that a float64 file is never held twice.
_CHUNK = 4096


class LocalDataset(InMemoryDataset):  # type: ignore[misc]
    """A data set from files that the user has: nothing is ever downloaded.

    A file of ``raw_file_names`` is looked for in ``root/raw``, where PyG keeps such
    files, in ``root``, in the data set's folder below ``root``, and in that folder
    below the one that ``PYG_GLIF_DATA`` names.
    """

    #: Name of the data set's folder below that of all data sets.
    folder: str

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        transform: Transform | None,
        pre_transform: Transform | None,
        force_reload: bool,
    ) -> None:
        self._root = None if root is None else Path(os.fspath(root)).expanduser()
        with warnings.catch_warnings():
            if force_reload:
                # PyG before 2.7 advises to reload even those who do.
                message = "The `pre_transform` argument differs"
                warnings.filterwarnings("ignore", message)
            super().__init__(
                None if self._root is None else str(self._root),
                transform,
                pre_transform,
                force_reload=force_reload,
            )

    @property
    def raw_paths(self) -> list[str]:
        """Paths of the files of the source; raises if one is missing."""
        return [str(self.find(name)) for name in self.raw_file_names]

    def find(self, name: str, expected: str = "") -> Path:
        """The path of a raw file; raises, naming the places searched, if missing."""
        root, shared = self._root, data_folder()
        places = [] if root is None else [root / "raw", root, root / self.folder]
        places += [] if shared is None else [shared / self.folder]
        for place in places:
            if (place / name).is_file():
                return place / name
        wanted = f" (expected {expected})" if expected else ""
        where = " or ".join(f"'{place}'" for place in places) or (
            f"a known place: pass 'root' or set '{VARIABLE}'"
        )
        msg = f"'{name}' is missing{wanted}"
        raise FileNotFoundError(f"{msg}. It must be in {where}. {self._origin()}")

    @property
    def has_process(self) -> bool:
        """Without a folder, nothing is stored."""
        return self._root is not None

    def _origin(self) -> str:
        """The sentence of an error that says where to get a missing file."""
        return "The page on experiments lists all files"


class BuiltDataset(LocalDataset):
    """A data set of one element, which :meth:`_build` makes of the files.

    With ``root`` the element is kept there; without, it is made anew in memory.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None,
        transform: Transform | None,
        pre_transform: Transform | None,
        force_reload: bool,
    ) -> None:
        super().__init__(root, transform, pre_transform, force_reload)
        if self._root is None:
            self.data, self.slices = self.collate([self._element()])
        else:
            self.load(self.processed_paths[0])

    def process(self) -> None:
        """Makes the element and keeps it below ``root``."""
        self.save([self._element()], self.processed_paths[0])

    @abstractmethod
    def _build(self) -> Data:
        """The element, as it is in the files."""

    def _element(self) -> Data:
        """The element after ``pre_transform``."""
        data = self._build()
        return data if self.pre_transform is None else self.pre_transform(data)


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
    found = _read_header(path, expected)
    fits = len(found.shape) == len(shape) and all(
        want in (None, size) for want, size in zip(shape, found.shape, strict=True)
    )
    if not fits or found.dtype.kind not in kinds:
        got = f"{found.dtype} of shape {found.shape}"
        raise ValueError(f"'{path}' must hold {expected} (got {got})")
    return found


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


def read_table(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a compressed CSV file, which must have the ``columns``."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = sorted(set(columns) - set(reader.fieldnames or ()))
            rows = [] if missing else list(reader)
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"'{path}' must be a whole gzip file ({error})") from error
    if missing:
        names = ", ".join(repr(name) for name in missing)
        got = ", ".join(repr(name) for name in reader.fieldnames or ()) or "none"
        raise ValueError(f"'{path}' must have the columns {names} (got {got})")
    return rows
