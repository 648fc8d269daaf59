"""Encodings on disk, row by row under the hash of their text.

A folder per encoder holds files of a few hundred rows. A file appears under its name
only when it is complete, is never changed, and says which texts it holds; so work can
stop at any moment, several processes can share a folder, and more texts can come later.
"""

import hashlib
import os
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

_FORMAT = "pyg_glif-encodings-1"


def hash_text(text: str) -> bytes:
    """What a text is known by, 32 bytes."""
    # Lone surrogates cannot be encoded strictly; any injective form will do.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class EncodingCache:
    """Rows of one encoder.

    Args:
        folder: Where the folders of all encoders are.
        name: What users call the encoder.
        fingerprint: What tells it from every other one.
    """

    def __init__(self, folder: Path, name: str, fingerprint: str) -> None:
        safe = re.sub(r"[^\w.-]", "-", Path(name).name)
        self.folder = folder / f"{safe}-{fingerprint[:16]}"
        self._about = {"format": _FORMAT, "encoder": name, "fingerprint": fingerprint}

    def read(self, wanted: set[bytes]) -> dict[bytes, Tensor]:
        """The rows there are, by the hash of their text."""
        rows: dict[bytes, Tensor] = {}
        for path in sorted(self.folder.glob("*.safetensors")):
            found = self._read_file(path)
            rows |= {key: row for key, row in found if key in wanted}
        return rows

    def write(self, keys: list[bytes], rows: Tensor) -> None:  # rows: [B, D] float16
        """Adds rows, all of them or none."""
        hashes = torch.from_numpy(
            np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, 32).copy()
        )
        tensors = {"hash": hashes, "row": rows.contiguous()}
        digest = _digest(**tensors)
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
        os.close(handle)
        try:
            save_file(tensors, draft, metadata={**self._about, "sha256": digest})
            # Renamed in one step: others find the whole file or none.
            os.replace(draft, self.folder / f"{digest[:32]}.safetensors")
        finally:
            Path(draft).unlink(missing_ok=True)

    def _read_file(self, path: Path) -> list[tuple[bytes, Tensor]]:
        """The rows of one file; a damaged one is reported and removed."""
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                hashes, rows = file.get_tensor("hash"), file.get_tensor("row")
            reason = self._fault(about, hashes, rows)
        except SafetensorError as error:
            reason = str(error)
        if reason:
            msg = f"'{path}' is damaged and was removed ({reason})"
            warnings.warn(f"{msg}. Its texts are encoded again", stacklevel=4)
            path.unlink(missing_ok=True)
            return []
        keys = [key.tobytes() for key in hashes.numpy()]
        return list(zip(keys, rows, strict=True))

    def _fault(self, about: dict[str, str], hashes: Tensor, rows: Tensor) -> str | None:
        """What is wrong with a file that could be read, if anything."""
        for key, value in self._about.items():
            # The name is for people: a checkpoint may have moved.
            if key != "encoder" and about.get(key) != value:
                return f"its {key} is {about.get(key)!r}, not {value!r}"
        if about.get("sha256") != _digest(hashes, rows):
            return "its contents do not match their hash"
        return None


def _digest(hash: Tensor, row: Tensor) -> str:  # [B, 32] uint8, [B, D] float16
    """A hash of a file's contents."""
    digest = hashlib.sha256(hash.numpy().tobytes())
    digest.update(repr(tuple(row.shape)).encode())
    digest.update(row.numpy().tobytes())
    return digest.hexdigest()
