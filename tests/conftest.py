import pytest
import torch


@pytest.fixture
def generator() -> torch.Generator:
    """A fresh, seeded source of randomness for each test."""
    return torch.Generator().manual_seed(20211206)
