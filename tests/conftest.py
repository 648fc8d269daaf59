from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pyg_glif._data import data_folder


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh, seeded source of randomness for each test."""
    return torch.Generator().manual_seed(20211206)


@pytest.fixture
def double_by_default() -> Iterator[None]:
    """Runs a test as a user whose default precision is float64 would."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """Finds a folder of data that is not part of the project, or skips the test."""

    def find(name: str) -> Path:
        path = data_folder() / name
        if not path.exists():
            pytest.skip(f"'{name}' is not in '{data_folder()}' (see PYG_GLIF_DATA)")
        return path

    return find
