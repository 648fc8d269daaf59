"""MLP: layers, values, bad input."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from pyg_glif.lightning import MLP


def test_mlp_layers() -> None:
    assert [type(layer).__name__ for layer in MLP(4)] == ["Linear", "ReLU", "Linear"]
    assert [len(p) for p in MLP(4).parameters()] == [1000, 1000, 2, 2]
    assert [type(layer).__name__ for layer in MLP(4, num_layers=1)] == ["Linear"]
    deep = MLP(4, 5, 3, num_layers=3, dropout=0.5)
    hidden = ["Linear", "ReLU", "Dropout"]
    assert [type(layer).__name__ for layer in deep] == [*hidden, *hidden, "Linear"]
    assert (deep.in_channels, deep.out_channels) == (4, 3)
    assert deep(torch.zeros(7, 4)).shape == (7, 3)


def test_mlp_matches_numpy(generator: torch.Generator) -> None:
    model = MLP(4, 5, 3)
    x = torch.randn(6, 4, generator=generator)
    w1, b1, w2, b2 = (p.detach().numpy() for p in model.parameters())
    expected = np.maximum(x.numpy() @ w1.T + b1, 0) @ w2.T + b2
    np.testing.assert_allclose(model(x).detach(), expected, rtol=1e-5, atol=1e-6)


def test_mlp_outputs_depend_on_no_other_row(generator: torch.Generator) -> None:
    model = MLP(4, 50, 3).double().train()
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    single = torch.cat([model(row) for row in x.split(1)])
    torch.testing.assert_close(model(x), single)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"in_channels": 0}, "'in_channels' must be at least 1 (got 0)"),
        ({"hidden_channels": 0}, "'hidden_channels' must be at least 1 (got 0)"),
        ({"out_channels": 0}, "'out_channels' must be at least 1 (got 0)"),
        ({"num_layers": 0}, "'num_layers' must be at least 1 (got 0)"),
        ({"dropout": 1.0}, "'dropout' must be below 1.0 (got 1.0)"),
    ],
)
def test_mlp_rejects_bad_settings(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        MLP(**{"in_channels": 4, **kwargs})
