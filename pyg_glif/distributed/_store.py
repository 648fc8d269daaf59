"""Folders of arrays with checksums, on disk or wherever fsspec reaches.

A file is written under another name and then renamed, so that it is there as a whole
or not at all. Beside it goes a record, or its record is part of a manifest: nothing is
read whose content does not match the checksum that its record has. A record has the key
of the call that wrote it, and no other call uses it.
"""

import contextlib
import functools
import hashlib
import io
import json
import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import PurePath
from typing import Any, BinaryIO

import fsspec
import numpy as np
import torch
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray
from torch import Tensor

from pyg_glif._utils import fingerprints as _fingerprints
from pyg_glif._utils.files import replacing
from pyg_glif.errors import DamagedFileError

#: Of the layout on disk; raised when a reader of the old one would go wrong.
FORMAT = 4
# A file that changed less than so many nanoseconds ago may change again unnoticed:
# clocks of file systems tick some hundred times a second, at worst every two seconds.
_TICK = 2_000_000_000
_PACKAGES = ("pyg_glif", "torch", "numpy")  # that matter for results
_REMEDY = "The call that wrote it makes it anew"
# NumPy has the compiler read headers, which Python 3.11 may fail at in two threads.
_PARSING = threading.Lock()

#: Size and checksum of a file, as plain data.
Record = dict[str, Any]


class Store:
    """One folder, at a path or at a URL that fsspec knows."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        self._fs, self._root = fsspec.core.url_to_fs(self.url)
        self._root = self._root.rstrip("/")
        self.is_local = isinstance(self._fs, LocalFileSystem)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __getstate__(self) -> str:
        return self.url

    def __setstate__(self, url: str) -> None:
        self.__init__(url)  # type: ignore[misc]

    def path(self, name: str) -> str:
        """Where a file is."""
        return f"{self._root}/{name}"

    def shown(self, name: str) -> str:
        """A file as messages name it."""
        return f"{self.url.rstrip('/')}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return bool(self._fs.exists(self.path(name)))

    def holds(self, url: str | os.PathLike[str]) -> bool:
        """Whether a file or folder is this folder, or somewhere in it."""
        fs, path = fsspec.core.url_to_fs(os.fspath(url))
        if type(fs) is not type(self._fs):
            return False
        real = os.path.realpath if self.is_local else str
        return PurePath(real(path)).is_relative_to(real(self._root))

    def check_out(self, kind: str, *inputs: str | os.PathLike[str]) -> None:
        """Raises if results of a kind would be written over something else."""
        for url in inputs:
            if self.holds(url):
                msg = "'out' must not hold what is read"
                msg = f"{msg} (got '{self.url}', which holds '{os.fspath(url)}')"
                raise ValueError(f"{msg}. Use another folder")
        try:
            other = self.read_json("manifest.json").get("kind")
        except FileNotFoundError:
            return
        except DamagedFileError:
            try:
                text = json.loads(self._fs.cat_file(self.path("manifest.json")))
            except ValueError:
                return  # what is left of one that was written here
            if isinstance(text, dict) and not {"sha256", "data"}.isdisjoint(text):
                return
            other = "something else"
        if other != kind:
            msg = f"'out' must be a new folder or one of {kind}"
            msg = f"{msg} (got one of {other} in '{self.url}')"
            raise ValueError(f"{msg}. Use another folder")

    def names(self, folder: str) -> list[str]:
        """Files in a folder inside, in order."""
        if not self._fs.isdir(self.path(folder)):
            return []
        paths = self._fs.ls(self.path(folder), detail=False, refresh=True)
        return sorted(path.rstrip("/").rsplit("/", 1)[-1] for path in paths)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self.path(name))

    def clear(self, folder: str) -> None:
        """Removes a folder inside and all in it."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self.path(folder), recursive=True)

    def free_space(self) -> int | None:
        """Bytes that fit on the disk, if it is one."""
        if not self.is_local:
            return None
        os.makedirs(self._root, exist_ok=True)
        return shutil.disk_usage(self._root).free

    def write(self, name: str, *parts: Any, sync: bool = False) -> Record:
        """Writes a file, which takes its name when it is complete.

        A file that its reader checks need not be on the disk (``sync``) before that.
        """
        path, views = self.path(name), [memoryview(part) for part in parts]
        digest = hashlib.sha256()
        for view in views:
            digest.update(view)
        if self.is_local:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with replacing(path, sync) as file:
                file.writelines(views)
        else:
            beside = f"{path}.{uuid.uuid4().hex}.part"
            try:
                with self._fs.open(beside, "wb") as file:
                    for view in views:
                        file.write(view)
                self._fs.mv(beside, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    self._fs.rm_file(beside)
                raise
        size = sum(view.nbytes for view in views)
        return {"name": name, "size": size, "sha256": digest.hexdigest()}

    def open(self, name: str) -> BinaryIO:
        """A file as it is."""
        file: BinaryIO = self._fs.open(self.path(name), "rb")
        return file

    def save(self, name: str, array: NDArray[Any] | Tensor) -> Record:
        """Writes an array."""
        if isinstance(array, Tensor):
            array = array.detach().numpy()
        array, head = np.ascontiguousarray(array), io.BytesIO()
        description = np.lib.format.header_data_from_array_1_0(array)
        np.lib.format.write_array_header_1_0(head, description)
        return self.write(name, head.getbuffer(), array.reshape(-1).view(np.uint8))

    def load(self, record: Record) -> NDArray[Any]:
        """An array that matches its record; on a disk it is mapped, not read."""
        name = record["name"]
        self.check(record)
        path: Any = self.path(name)
        path = path if self.is_local else io.BytesIO(self._fs.cat_file(path))
        mode: Any = "r" if self.is_local else None
        with _PARSING:
            array: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
        return array

    def tensor(self, record: Record) -> Tensor:
        """The same as a tensor, which must not be written to."""
        return as_tensor(self.load(record))

    def check(self, record: Record) -> None:
        """Raises unless a file is what was written."""
        path, shown = self.path(record["name"]), self.shown(record["name"])
        try:
            size = os.stat(path).st_size if self.is_local else self._fs.size(path)
            sound = size == record["size"]
            sound = sound and _digest(self._fs, path) == record["sha256"]
        except FileNotFoundError:
            msg = f"'{shown}' must be there, its record names it (got no file)"
            raise DamagedFileError(f"{msg}. {_REMEDY}") from None
        if not sound:
            msg = f"'{shown}' must be as it was written (got another checksum)"
            raise DamagedFileError(f"{msg}. {_REMEDY}")

    def is_sound(self, record: Record) -> bool:
        """Whether a file is what was written."""
        try:
            self.check(record)
        except DamagedFileError:
            return False
        return True

    def put(
        self,
        name: str,
        key: str,
        arrays: Mapping[str, NDArray[Any] | Tensor],
        **facts: Any,
    ) -> dict[str, Any]:
        """Writes arrays, then their record with the key and further facts."""
        files = {
            part: self.save(f"{name}.{part}.npy", array)
            for part, array in arrays.items()
        }
        record = {"key": key, **facts, "files": files}
        self.write_json(f"{name}.json", record)
        return record

    def done(self, name: str, key: str) -> dict[str, Any] | None:
        """A record that :meth:`put` wrote, if it and all of its files are sound."""
        record = self.record_of(f"{name}.json", key)
        if record is None or not all(map(self.is_sound, files_of(record))):
            return None
        return record

    def write_json(self, name: str, data: dict[str, Any]) -> None:
        """Writes plain data, with the checksum of its text."""
        whole = {"sha256": _fingerprints.of_plain(data), "data": data}
        self.write(name, json.dumps(whole).encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Plain data that matches its checksum."""
        text = self._fs.cat_file(self.path(name))
        try:
            whole = json.loads(text)
            data = whole["data"]
            sound = whole["sha256"] == _fingerprints.of_plain(data)
        except (ValueError, LookupError, TypeError):
            sound = False
        if not sound:
            raise DamagedFileError(
                f"'{self.shown(name)}' must be as it was written (got another content)"
            )
        content: dict[str, Any] = data
        return content

    def record_of(self, name: str, key: str) -> dict[str, Any] | None:
        """Plain data under a key, ``None`` if there is none that is sound."""
        try:
            record = self.read_json(name)
        except (FileNotFoundError, DamagedFileError):
            return None
        return record if record.get("key") == key else None

    def own(self, name: str, key: str) -> dict[str, Any]:
        """Plain data under a key; raises if there is none that is sound."""
        record = self.record_of(name, key)
        if record is None:
            msg = f"'{self.shown(name)}' must be of this call"
            msg = f"{msg} (got none, or one of another call into the same folder)"
            raise DamagedFileError(
                f"{msg}. Call again, with an 'out' that no other has"
            )
        return record

    def manifest(self, kind: str) -> dict[str, Any]:
        """Manifest of a finished folder."""
        try:
            manifest = self.read_json("manifest.json")
        except FileNotFoundError:
            msg = f"'{self.url}' must be a folder of {kind} (got no manifest)"
            raise FileNotFoundError(msg) from None
        if manifest.get("kind") != kind:
            msg = f"'{self.url}' must be a folder of {kind}"
            raise DamagedFileError(f"{msg} (got one of {manifest.get('kind')})")
        if manifest.get("format") != FORMAT:
            got = manifest.get("format")
            msg = f"'{self.url}' must have format {FORMAT} (got {got})"
            raise DamagedFileError(f"{msg}. Build it again with this version")
        return manifest

    def finish(self, kind: str, key: str, content: dict[str, Any]) -> dict[str, Any]:
        """Writes the manifest of a folder, once all files are there."""
        versions = {name: metadata.version(name) for name in _PACKAGES}
        head = {"kind": kind, "format": FORMAT, "key": key, "versions": versions}
        self.write_json("manifest.json", {**head, **content})
        return {**head, **content}

    def finished(self, key: str, **folders: str) -> dict[str, Any] | None:
        """Manifest of a folder if it has this key and all files are sound.

        Otherwise the manifest is removed. ``folders`` are current places of its inputs.
        """
        manifest = self.done("manifest", key)
        if manifest is None:
            self.remove("manifest.json")
        elif not folders.items() <= manifest.items():  # the same, in another place
            manifest |= folders
            self.write_json("manifest.json", manifest)
        return manifest


def files_of(data: Any) -> Iterator[Record]:
    """All records of files in plain data."""
    if isinstance(data, dict) and data.keys() == {"name", "size", "sha256"}:
        yield data
    elif isinstance(data, (dict, list)):
        for part in data.values() if isinstance(data, dict) else data:
            yield from files_of(part)


def facts_of(record: dict[str, Any]) -> dict[str, Any]:
    """A record without the key of the call that wrote it."""
    return {name: value for name, value in record.items() if name != "key"}


def digest_of(url: str) -> str:
    """Fingerprint of the contents of a file.

    Its SHA-256, or the tag of a remote file where the store has a strong one.
    """
    fs, path = fsspec.core.url_to_fs(url)
    if not isinstance(fs, LocalFileSystem):
        fs.invalidate_cache()
        info = fs.info(path)
        for name in ("ETag", "etag", "md5Hash"):
            tag = str(info.get(name) or "W/")
            if not tag.startswith("W/"):  # which marks a weak one
                return f"{info['size']} {tag}"
    return _digest(fs, path)


def _digest(fs: fsspec.AbstractFileSystem, path: str) -> str:
    """The SHA-256 of a file, of a local one once for each time it was changed."""
    if not isinstance(fs, LocalFileSystem):
        with fs.open(path, "rb") as file:
            return _fingerprints.of_stream(file)
    stat = os.stat(path)
    if time.time_ns() - stat.st_ctime_ns < _TICK:
        return _fingerprints.of_file(path)
    # The time of the last change of a file ('ctime') cannot be set back.
    return _local_digest(
        path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
    )


@functools.lru_cache(maxsize=1 << 16)
def _local_digest(path: str, *identity: int) -> str:
    """The SHA-256 of a file in one state."""
    return _fingerprints.of_file(path)


def as_tensor(array: NDArray[Any]) -> Tensor:
    """An array as a tensor, without a copy; nothing here writes to what was read."""
    if array.flags.writeable:
        return torch.from_numpy(array)
    return torch.from_numpy(np.asarray(_Mapped(array)))


class _Mapped:
    """A mapped file as torch wants it: it remarks on arrays that cannot be written to.

    Filters of warnings are no way out, for threads share them.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array  # kept as long as the tensor
        face = dict(array.__array_interface__)
        self.__array_interface__ = {**face, "data": (face["data"][0], False)}


def contents_of(manifest: dict[str, Any]) -> str:
    """Fingerprint of a finished folder, without the places of its inputs.

    Inputs may move, and versions do not change the contents.
    """
    ignored = ("key", "versions", "dataset", "graph")
    content = {name: value for name, value in manifest.items() if name not in ignored}
    return _fingerprints.of_plain(content)


def scratch_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros in a file without a name: may be larger than memory, gone after use."""
    if 0 in shape:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype=dtype, mode="w+", shape=shape)
