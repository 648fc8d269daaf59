"""What holds for tests and doctests alike: the default dtype, and what needs CUDA."""

import pytest
import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds ``--default-dtype``."""
    parser.addoption(
        "--default-dtype",
        choices=tuple(DTYPES),
        default="float32",
        help="torch's default dtype while the tests are read and run",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets the dtype before the tests are read, which make tensors, too."""
    torch.set_default_dtype(DTYPES[config.getoption("--default-dtype")])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leaves torch as it was found."""
    torch.set_default_dtype(torch.float32)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips tests marked ``cuda`` where there is no device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and torch sees none")
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(skip)
