"""What holds for tests and doctests alike: the option of the default dtype."""

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
