"""SHA-256 of plain data, files and tensors: the keys of caches.

A key covers all that a result depends on, contents included; a file is identified by
its content, not by its name, size or time.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import torch
from torch import Tensor

_CHUNK = 1 << 20


def of_plain(data: Any) -> str:
    """Digest of plain data, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def of_stream(file: BinaryIO) -> str:
    """Digest of the rest of a stream."""
    total = hashlib.sha256()
    while part := file.read(_CHUNK):
        total.update(part)
    return total.hexdigest()


def of_file(path: str | os.PathLike[str]) -> str:
    """Digest of a file, as ``sha256sum`` prints it."""
    with open(path, "rb") as file:
        return of_stream(file)


def of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Digest of tensors with their names, types and shapes."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().cpu().contiguous()
        total.update(f"{name!r} {tensor.dtype} {list(tensor.shape)};".encode())
        content: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        total.update(memoryview(content))
    return total.hexdigest()
