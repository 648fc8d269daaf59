"""Results depend on their arguments, not on torch's default dtype."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from experiments.baselines import inform_debias
from pyg_glif.baselines import (
    Auditor,
    SenSeIRegularizer,
    SenSRLoss,
    lipschitz_projection,
)
from pyg_glif.distances import Euclidean, SensitiveSubspace
from pyg_glif.metric_learning import EXPLORE, FACE, LogisticSubspace, SensitiveSVD


@pytest.fixture
def float64_as_default() -> Iterator[None]:
    """What ``torch.set_default_dtype(torch.float64)`` at the top of a script does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def _samples(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 4, generator=generator, dtype=torch.float32).to(dtype)
    return x, torch.arange(40) % 3


def _model(x: Tensor) -> Tensor:
    return torch.stack([x[:, 0] + x[:, 3].sin(), x[:, 1] * x[:, 3]], dim=1)


def _distance(x: Tensor) -> SensitiveSubspace:
    return SensitiveSubspace(torch.tensor([[0, 0, 0, 1]]).to(x.dtype))


WORK: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "FACE": lambda x, y: FACE(2).fit(x, y).basis,
    "SensitiveSVD": lambda x, y: SensitiveSVD(2, center=True).fit(x).basis,
    "LogisticSubspace": lambda x, y: LogisticSubspace().fit(x, y).basis,
    "EXPLORE": lambda x, y: EXPLORE(0.1).fit(x[:20], x[20:], y[:20] > 0).sigma,
    "projection": lambda x, y: lipschitz_projection(x, x[:, 0] ** 2, 0.5).value,
    "inform": lambda x, y: inform_debias(
        x, torch.stack([torch.arange(40), torch.arange(40).flip(0)]), 0.7
    ),
    "auditor": lambda x, y: (
        Auditor().search(lambda x: _model(x).sum(1), x, Euclidean(), 1.0).x
    ),
    "SenSeI": lambda x, y: SenSeIRegularizer(_distance(x))(_model, x),
    "SenSR": lambda x, y: SenSRLoss(_distance(x))(_model, x, y % 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", WORK)
def test_results_do_not_depend_on_the_default_dtype(
    name: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    x, y = _samples(dtype)
    expected = WORK[name](x, y)
    request.getfixturevalue("float64_as_default")
    found = WORK[name](x, y)
    assert found.dtype == expected.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
