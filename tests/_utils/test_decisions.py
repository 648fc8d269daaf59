import pytest
import torch

from pyg_glif._utils.decisions import decisions


@pytest.mark.parametrize(
    ("y", "threshold", "classes"),
    [
        ([0.2, 0.5, 0.8], 0.5, [0, 0, 1]),  # at the threshold is not above it
        ([[0.2], [0.8]], 0.3, [0, 1]),
        ([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]], 0.9, [0, 2]),  # the first one on ties
        ([[[0.2], [0.8]], [[0.6], [0.1]]], 0.5, [[0, 1], [1, 0]]),
        ([[[0.1, 0.9]], [[0.9, 0.1]]], 0.5, [[1], [0]]),
    ],
)
def test_decisions(y: list, threshold: float, classes: list) -> None:
    assert decisions(torch.tensor(y), threshold).tolist() == classes


def test_decisions_of_no_samples() -> None:
    assert decisions(torch.empty(0)).shape == (0,)
    assert decisions(torch.empty(0, 3)).shape == (0,)
