"""Atomic replacement of files, and the error for damaged ones."""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from pyg_glif.errors import DamagedFileError

try:
    import fcntl
except ImportError:  # Windows, which does not delete a file that is open
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def replacing(path: str | PathLike[str], sync: bool = True) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` once it is complete.

    Each process writes to a temporary file of its own and holds a lock on it; a
    temporary file that another process can lock was left behind and is removed.
    Without ``sync`` a power failure may leave an incomplete file. A symbolic link is
    followed, and only a regular file is replaced: not a folder, a pipe or a device.
    """
    try:
        target = Path(os.path.realpath(path))
        _check_regular(path, target)
        _remove_left_over(target)
        beside, file = _locked(target)
        try:
            with file:
                if target.exists():
                    shutil.copymode(target, beside)
                yield file
                file.flush()
                # On disk before the name changes, so that a crash leaves the old file
                # or the whole new one.
                if sync:
                    os.fsync(file.fileno())
                if os.name != "nt":
                    os.replace(beside, target)  # while locked
            if os.name == "nt":
                os.replace(beside, target)  # which Windows wants closed
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno is None:
            raise
        # Says which path the caller gave, not which one we wrote to.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _check_regular(path: str | PathLike[str], target: Path) -> None:
    """Raises unless there is a regular file to replace, or nothing.

    A pipe or a device would be gone afterwards, and its reader would get nothing.
    """
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if target.exists() and not target.is_file():
        msg = f"'path' must be a regular file or none (got '{path}', which is no file)"
        raise ValueError(f"{msg}. Write to a file, then copy it there")


def _locked(target: Path) -> tuple[Path, BinaryIO]:
    """A new file beside ``target``, which no other process removes while it is open."""
    while True:
        beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        # Closed by the caller, who also holds the lock that comes with it.
        file = open(beside, "xb")  # noqa: SIM115
        if fcntl is None:
            return beside, file
        # Some network folders have no locks: nothing is ever removed there.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Another process may have taken it for left over before it was locked.
        if beside.exists():
            return beside, file
        file.close()


def _remove_left_over(target: Path) -> None:
    """Removes temporary files of killed processes that were writing ``target``."""
    start, end = f".{target.name}.", ".part"
    for beside in target.parent.iterdir():
        name = beside.name
        if not (name.startswith(start) and name.endswith(end)):
            continue
        if len(name) != len(start) + 32 + len(end):
            continue
        with contextlib.suppress(OSError), open(beside, "rb") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                beside.unlink()
        if fcntl is None:
            with contextlib.suppress(OSError):
                beside.unlink()


@contextlib.contextmanager
def damage_in(path: str | PathLike[str]) -> Iterator[None]:
    """Turns any error about the content of a file into :class:`DamagedFileError`."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,  # of shapes that do not fit, and of recursion
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFileError(not_ours(Path(path), "a damaged header")) from error


def not_ours(path: Path, got: str) -> str:
    """The message for a file that ``save`` did not write or that is damaged."""
    kind = "a file that 'GLIFPostProcessor.save' wrote"
    return f"'path' must be {kind} (got {got} in '{path}')"
