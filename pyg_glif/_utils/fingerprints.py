"""SHA-256 of plain data, files and tensors: the keys of what is used again.

A key holds all that a result depends on, contents included; a file is known by what is
in it, never by its name, size or time alone.
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
    """That of plain data, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def of_stream(file: BinaryIO) -> str:
    """That of what is left to read."""
    total = hashlib.sha256()
    while part := file.read(_CHUNK):
        total.update(part)
    return total.hexdigest()


def of_file(path: str | os.PathLike[str]) -> str:
    """That of a file, as ``sha256sum`` prints it."""
    with open(path, "rb") as file:
        return of_stream(file)


def of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """That of tensors with their names, types and shapes."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        tensor = tensor.detach().cpu().contiguous()
        total.update(f"{name!r} {tensor.dtype} {list(tensor.shape)};".encode())
        content: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        total.update(memoryview(content))
    return total.hexdigest()
