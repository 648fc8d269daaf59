"""Base classes of data sets from local files, and a reader of tables."""

import csv
import gzip
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch_geometric.data import Data, InMemoryDataset

from pyg_glif._utils.data_folder import VARIABLE, data_folder

Transform = Callable[[Data], Data]


class LocalDataset(InMemoryDataset):  # type: ignore[misc]
    """Data set from local files; nothing is ever downloaded.

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
                # PyG before 2.7 advises to reload even then.
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
    """Data set of one element, made by :meth:`_build`.

    With ``root`` the element is kept there; without, it is made anew in memory.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
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
