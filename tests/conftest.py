import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from pyg_glif._utils.data_folder import VARIABLE, data_folder

# Where a checkout may have the data of the experiments beside it. The package itself
# looks only where the variable points.
_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"
if VARIABLE not in os.environ and _BESIDE.is_dir():
    os.environ[VARIABLE] = str(_BESIDE)


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
        folder = data_folder()
        if folder is None or not (folder / name).exists():
            pytest.skip(f"'{name}' is not in the folder of PYG_GLIF_DATA ({folder})")
        return folder / name

    return find
