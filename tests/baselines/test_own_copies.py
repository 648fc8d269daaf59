"""Results do not change when the memory of their arguments does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from experiments.baselines import inform_debias
from pyg_glif.baselines import Auditor, SenSeIRegularizer, lipschitz_projection
from pyg_glif.distances import Euclidean, Mahalanobis
from pyg_glif.metric_learning import EXPLORE, FACE, LogisticSubspace, SensitiveSVD

LEARNERS: dict[str, Callable[[Any, Any], Any]] = {
    "FACE": lambda x, y: FACE(2).fit(x, y),
    "SensitiveSVD": lambda x, y: SensitiveSVD(2, center=True).fit(x),
    "LogisticSubspace": lambda x, y: LogisticSubspace().fit(x, y),
    "EXPLORE": lambda x, y: EXPLORE(0.1).fit(x[:20], x[20:], y[:20] > 0),
}


def _state(distance: Any) -> list[Tensor]:
    fit = distance.fit_result
    fits = fit if isinstance(fit, tuple) else (fit,)
    kept = [value for one in fits for value in vars(one).values()]
    tensors = [value for value in kept if isinstance(value, Tensor)]
    return [*distance.state_dict().values(), *tensors]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("as_array", [False, True])
def test_learned_distances_keep_nothing_of_the_caller(
    name: str, dtype: torch.dtype, as_array: bool, generator: torch.Generator
) -> None:
    x = torch.randn(40, 4, generator=generator, dtype=dtype)
    y = torch.arange(40) % 3
    # An array over the same memory: nothing may be kept of either.
    distance = LEARNERS[name](*((x.numpy(), y.numpy()) if as_array else (x, y)))
    before = [value.clone() for value in _state(distance)]
    x.zero_()
    y.zero_()
    assert all(map(torch.equal, before, _state(distance)))


@pytest.mark.parametrize("lipschitz", [0.0, 0.5, 100.0, torch.inf])
def test_projected_outputs_are_no_view(
    lipschitz: float, generator: torch.Generator
) -> None:
    x = torch.randn(20, 3, generator=generator, dtype=torch.float64)
    y = x[:, 0].clone()
    found = lipschitz_projection(x, y, lipschitz).value
    before = found.clone()
    y.zero_()
    assert torch.equal(found, before)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_debiased_arrays_are_no_view(alpha: float) -> None:
    y = np.array([0.0, 3.0])
    found = inform_debias(y, np.array([[0.0, 1.0], [1.0, 0.0]]), alpha)
    before = found.copy()
    y[:] = 7.0
    np.testing.assert_array_equal(found, before)


@pytest.mark.parametrize("num_steps", [0, 3])
def test_audited_inputs_are_no_view(num_steps: int, generator: torch.Generator) -> None:
    x = torch.randn(5, 2, generator=generator)
    auditor = Auditor(num_subspace_steps=num_steps, num_full_steps=num_steps)
    found = auditor.search(lambda x: -x.square().sum(1), x, Euclidean(), 1.0).x
    before = found.clone()
    x.zero_()
    assert torch.equal(found, before)


def test_free_directions_follow_a_distance_that_changes() -> None:
    distance = Mahalanobis(torch.diag(torch.tensor([1.0, 0.0])))
    term = SenSeIRegularizer(distance, auditor=Auditor(num_full_steps=0))
    x = torch.zeros(3, 2)

    def shift(x: Tensor) -> Tensor:
        return x.sum(dim=1)

    assert float(term.audit(shift, x).x[:, 0].abs().max()) == 0
    with torch.no_grad():
        # Now the first feature is free, and the second is not.
        distance.factor.copy_(distance.factor.flip(0))
    found = term.audit(shift, x).x
    assert float(found[:, 1].abs().max()) < 1e-6
    assert float(found[:, 0].abs().min()) > 0.5
