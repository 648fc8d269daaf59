import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif.baselines import Projection, lipschitz_projection
from pyg_glif.distances import CallableDistance, Mahalanobis
from pyg_glif.errors import ConvergenceError
from tests.oracles_projection import (
    euclidean,
    kkt_errors,
    largest_violation,
    projection,
)

TIGHT = 1e-10


def normal(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def looked_up(dist: Tensor) -> tuple[Tensor, CallableDistance]:
    """Rows and a distance that reads a given matrix: any dissimilarity will do."""

    def function(x1: Tensor, x2: Tensor) -> Tensor:
        return dist[x1.long().view(-1)][:, x2.long().view(-1)]

    return torch.arange(len(dist), dtype=torch.float64).unsqueeze(1), CallableDistance(
        function
    )


def assert_optimal(
    found: Projection, dist: np.ndarray, y: Tensor, lipschitz: float
) -> None:
    """The conditions of optimality and the certificate, from the definitions."""
    f = found.value.double().numpy()
    size = float(y.abs().max()) + 1e-300
    errors = kkt_errors(
        dist,
        y.double().numpy(),
        f,
        lipschitz,
        found.active_pairs.numpy(),
        found.multipliers.numpy(),
    )
    assert errors["feasibility"] <= 1e-9 * size
    # The certificate allows sqrt(rtol) times the change in the outputs.
    assert errors["stationarity"] <= 1e-4 * size
    assert errors["complementarity"] <= 1e-6 * size * size
    assert errors["direction"] <= 1e-6 * size * size
    assert found.max_violation == pytest.approx(errors["feasibility"], abs=1e-12 * size)
    objective = ((f - y.double().numpy()) ** 2).sum()
    assert found.objective == pytest.approx(objective, rel=1e-9, abs=1e-20)
    assert 0.0 <= found.duality_gap <= TIGHT


# Closed forms.


def test_two_samples_meet_half_way() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64)
    y = torch.tensor([0.0, 9.0], dtype=torch.float64)
    found = lipschitz_projection(x, y, 1.0, rtol=TIGHT)
    expected = torch.tensor([2.0, 7.0], dtype=torch.float64)
    torch.testing.assert_close(found.value, expected, atol=1e-6, rtol=0)
    assert found.num_active == 1
    assert found.active_pairs.tolist() == [[0], [1]]
    # Sample 0 is below: the pair takes a negative amount from it.
    assert found.multipliers.tolist() == pytest.approx([-2.0], abs=1e-4)
    assert found.objective == pytest.approx(8.0)


def test_two_samples_in_two_columns_meet_along_their_difference() -> None:
    x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    y = torch.tensor([[0.0, 0.0], [6.0, 8.0]], dtype=torch.float64)
    found = lipschitz_projection(x, y, 5.0, rtol=TIGHT)
    expected = torch.tensor([[1.5, 2.0], [4.5, 6.0]], dtype=torch.float64)
    torch.testing.assert_close(found.value, expected, atol=1e-6, rtol=0)


def test_three_on_a_line_become_a_ramp() -> None:
    # f = m + L (x - 1), because both neighboring pairs are pulled to their limit.
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    y = torch.tensor([0.0, 5.0, 13.0], dtype=torch.float64)
    found = lipschitz_projection(x, y, 1.0, rtol=TIGHT)
    expected = torch.tensor([5.0, 6.0, 7.0], dtype=torch.float64)
    torch.testing.assert_close(found.value, expected, atol=1e-5, rtol=0)


def test_lipschitz_zero_gives_the_mean(generator: torch.Generator) -> None:
    x, y = normal(7, 2, generator=generator), normal(7, 3, generator=generator)
    found = lipschitz_projection(x, y, 0.0)
    torch.testing.assert_close(found.value, y.mean(0).expand(7, 3))
    assert found.max_violation == found.num_active == 0
    assert found.duality_gap < 1e-30
    expected = float((y - y.mean(0)).square().sum())
    assert found.objective == pytest.approx(expected)


@pytest.mark.parametrize("shape", [(5,), (5, 2)])
def test_lipschitz_infinity_changes_nothing(
    shape: tuple[int, ...], generator: torch.Generator
) -> None:
    x, y = torch.zeros(5, 2), torch.randn(*shape, generator=generator)
    found = lipschitz_projection(x, y, math.inf)
    assert torch.equal(found.value, y)
    assert found.value is not y
    assert found[1:6] == (0.0, 0.0, 0, 0.0, 0)
    assert found.active_pairs.shape == (2, 0)
    assert found.multipliers.shape == (0, *shape[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fair_outputs_are_returned_to_the_last_bit(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(50, 3, generator=generator, dtype=dtype)
    y = (0.1 * x[:, 0]).contiguous()
    found = lipschitz_projection(x, y, 1.0)
    assert torch.equal(found.value, y)
    assert (found.objective, found.duality_gap, found.num_iter) == (0.0, 0.0, 0)


def test_one_sample() -> None:
    found = lipschitz_projection(torch.zeros(1, 2), torch.tensor([3.0]), 0.5)
    assert found.value.tolist() == [3.0]
    assert found.num_active == 0


@pytest.mark.parametrize("lipschitz", [0.0, 1e-3, 1e3])
def test_constant_outputs_stay(lipschitz: float, generator: torch.Generator) -> None:
    x = torch.randn(9, 2, generator=generator)
    found = lipschitz_projection(x, torch.full((9, 2), 0.1), lipschitz)
    assert torch.equal(found.value, torch.full((9, 2), 0.1))
    assert found.max_violation == found.duality_gap == 0.0


# Against an interior-point method on all pairs.


@pytest.mark.parametrize("num_outputs", [None, 1, 2, 5])
@pytest.mark.parametrize("lipschitz", [0.05, 0.5, 2.0])
def test_matches_all_constraints_at_once(
    num_outputs: int | None, lipschitz: float, generator: torch.Generator
) -> None:
    x = normal(25, 3, generator=generator)
    shape = (25,) if num_outputs is None else (25, num_outputs)
    y = 3.0 * normal(*shape, generator=generator)
    found = lipschitz_projection(x, y, lipschitz, rtol=TIGHT)
    dist = euclidean(x.numpy())
    expected = projection(dist, y.numpy(), lipschitz)
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-5)
    assert found.objective == pytest.approx(
        float(((expected - y.numpy()) ** 2).sum()), rel=1e-7
    )
    assert_optimal(found, dist, y, lipschitz)


def test_uses_the_fair_distance(generator: torch.Generator) -> None:
    x, y = normal(20, 3, generator=generator), normal(20, generator=generator)
    distance = Mahalanobis(torch.diag(torch.tensor([4.0, 1.0, 0.0])).double())
    found = lipschitz_projection(x, y, 0.5, distance=distance, rtol=TIGHT)
    dist = euclidean(x.numpy() * np.array([2.0, 1.0, 0.0]))
    np.testing.assert_allclose(
        found.value.numpy(), projection(dist, y.numpy(), 0.5), atol=1e-5
    )


def test_triangle_inequality_is_not_needed() -> None:
    # The direct distance of 0 and 2 is longer than the way over 1, and shorter of
    # 3 and 4 than any way round: no constraint follows from others.
    dist = torch.full((5, 5), 10.0, dtype=torch.float64).fill_diagonal_(0.0)
    for i, j, d in [(0, 1, 1.0), (1, 2, 1.0), (0, 2, 5.0), (3, 4, 0.5)]:
        dist[i, j] = dist[j, i] = d
    y = torch.tensor([0.0, 0.0, 9.0, -4.0, 4.0], dtype=torch.float64)
    x, distance = looked_up(dist)
    found = lipschitz_projection(x, y, 1.0, distance=distance, rtol=TIGHT)
    expected = projection(dist.numpy(), y.numpy(), 1.0)
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-5)


def test_duplicates_get_one_output(generator: torch.Generator) -> None:
    base = normal(8, 2, generator=generator)
    x = base[torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 0, 0, 3])]
    y = 2.0 * normal(11, 2, generator=generator)
    found = lipschitz_projection(x, y, 0.7, rtol=TIGHT)
    assert torch.equal(found.value[0], found.value[8])
    assert torch.equal(found.value[0], found.value[9])
    assert torch.equal(found.value[3], found.value[10])
    dist = euclidean(x.numpy())
    expected = projection(dist, y.numpy(), 0.7)
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-5)
    assert_optimal(found, dist, y, 0.7)


def test_a_chain_of_zero_distances_links_samples() -> None:
    # 0 and 2 are one unit apart but both coincide with 1.
    dist = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    x, distance = looked_up(dist.double())
    y = torch.tensor([0.0, 3.0, 9.0], dtype=torch.float64)
    found = lipschitz_projection(x, y, 1.0, distance=distance)
    assert found.value.tolist() == [4.0, 4.0, 4.0]
    assert found.num_active == 0


def test_coinciding_samples_share_their_constraints() -> None:
    # 1 coincides with 0, and only 1 is close to 2: all three end up together.
    dist = torch.tensor([[0.0, 0.0, 9.0], [0.0, 0.0, 0.5], [9.0, 0.5, 0.0]])
    x, distance = looked_up(dist.double())
    y = torch.tensor([0.0, 0.0, 6.0], dtype=torch.float64)
    found = lipschitz_projection(x, y, 1.0, distance=distance, rtol=TIGHT)
    expected = projection(dist.numpy(), y.numpy(), 1.0)
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_rows=st.integers(1, 12),
    num_features=st.integers(1, 3),
    num_outputs=st.integers(1, 3),
    lipschitz=st.floats(0.01, 10.0),
    grid=st.booleans(),
)
def test_conditions_of_optimality_hold_for_points(
    seed: int,
    num_rows: int,
    num_features: int,
    num_outputs: int,
    lipschitz: float,
    grid: bool,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = normal(num_rows, num_features, generator=generator)
    x = x.round() if grid else x  # duplicates, and many ties
    y = normal(num_rows, num_outputs, generator=generator)
    found = lipschitz_projection(x, y, lipschitz, rtol=TIGHT)
    assert_optimal(found, euclidean(x.numpy()), y, lipschitz)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_rows=st.integers(2, 10),
    num_outputs=st.integers(1, 3),
    zeros=st.floats(0.0, 0.3),
    lipschitz=st.floats(0.01, 10.0),
)
def test_conditions_of_optimality_hold_for_any_dissimilarity(
    seed: int, num_rows: int, num_outputs: int, zeros: float, lipschitz: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    upper = torch.rand(num_rows, num_rows, generator=generator, dtype=torch.float64)
    upper[torch.rand(num_rows, num_rows, generator=generator) < zeros] = 0.0
    dist = upper.triu(1) + upper.triu(1).mT
    x, distance = looked_up(dist)
    y = normal(num_rows, num_outputs, generator=generator)
    found = lipschitz_projection(x, y, lipschitz, distance=distance, rtol=TIGHT)
    assert_optimal(found, dist.numpy(), y, lipschitz)


# Laws of a projection.


@pytest.fixture
def problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = normal(60, 4, generator=generator), normal(60, 2, generator=generator)
    return x, 2.0 * y


def projected(x: Tensor, y: Tensor, lipschitz: float = 0.6, **kwargs: Any) -> Tensor:
    return lipschitz_projection(x, y, lipschitz, rtol=1e-12, **kwargs).value


TURN = torch.tensor([[0.6, 0.8], [-0.8, 0.6]], dtype=torch.float64)
ORDER = torch.randperm(60, generator=torch.Generator().manual_seed(1))
# Projection of changed input, and the same change of the projection ``f``.
LAWS: dict[str, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "idempotent": lambda x, y, f: (projected(x, f), f),
    "shift": lambda x, y, f: (projected(x, y + 100.0), f + 100.0),
    "scale": lambda x, y, f: (1e5 * projected(x, 1e-5 * y, 0.6e-5), f),
    "scale of features": lambda x, y, f: (projected(7.0 * x, y, 0.6 / 7), f),
    "tiny features": lambda x, y, f: (projected(1e-30 * x, y, 0.6e30), f),
    "huge features": lambda x, y, f: (projected(1e30 * x, y, 0.6e-30), f),
    "rotation of outputs": lambda x, y, f: (projected(x, y @ TURN), f @ TURN),
    "order of rows": lambda x, y, f: (projected(x[ORDER], y[ORDER]), f[ORDER]),
    "callable": lambda x, y, f: (
        projected(x, y, distance=CallableDistance(torch.cdist)),
        f,
    ),
    "tiny tiles": lambda x, y, f: (projected(x, y, tile_size=4), f),
    "a tile less one": lambda x, y, f: (projected(x, y, tile_size=59), f),
    "one tile": lambda x, y, f: (projected(x, y, tile_size=60), f),
}


@pytest.mark.parametrize("name", LAWS)
def test_laws_of_a_projection(name: str, problem: tuple[Tensor, Tensor]) -> None:
    found, expected = LAWS[name](*problem, projected(*problem))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_keeps_the_mean_and_never_expands(
    problem: tuple[Tensor, Tensor], generator: torch.Generator
) -> None:
    x, y = problem
    other = y + normal(60, 2, generator=generator)
    f, g = projected(x, y), projected(x, other)
    torch.testing.assert_close(f.mean(0), y.mean(0), atol=1e-12, rtol=0)
    assert (f - g).norm() <= (y - other).norm() * (1 + 1e-6)


def test_a_larger_constant_costs_less(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    costs = [lipschitz_projection(x, y, k).objective for k in (0.0, 0.2, 0.6, 2.0, 9.0)]
    assert costs == sorted(costs, reverse=True)


def test_same_input_same_output(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    first, second = (lipschitz_projection(x, y, 0.6) for _ in range(2))
    assert torch.equal(first.value, second.value)
    assert first[1:6] == second[1:6]


# The certificate.


@cache
def nearly_exact(num_outputs: int) -> tuple[Tensor, Tensor, Projection]:
    """Samples and their projection to the last digits, the slow part, once."""
    generator = torch.Generator().manual_seed(20211206)
    x, y = normal(100, 5, generator=generator), normal(100, 4, generator=generator)
    y = y[:, :num_outputs]
    return x, y, lipschitz_projection(x, y, 0.3, rtol=1e-13)


@pytest.mark.parametrize("rtol", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("num_outputs", [1, 4])
def test_certificate_bounds_the_error(rtol: float, num_outputs: int) -> None:
    x, y, exact = nearly_exact(num_outputs)
    found = lipschitz_projection(x, y, 0.3, rtol=rtol)
    assert 0.0 <= found.duality_gap <= rtol
    # The gap is relative to the objective found.
    assert found.objective * (1 - rtol) <= exact.objective + 1e-9
    assert found.objective >= exact.objective * (1 - 1e-9)
    error = float((found.value - exact.value).norm())
    assert error <= found.error_bound + 1e-5
    violation = largest_violation(euclidean(x.numpy()), found.value.numpy(), 0.3)
    assert violation <= 1e-14
    assert found.max_violation == pytest.approx(violation, abs=1e-15)


def test_all_pairs_tight_at_once() -> None:
    # A straight line: every pair reaches its limit, far more than a tile reports.
    x = torch.linspace(0.0, 1.0, 300, dtype=torch.float64).unsqueeze(1)
    found = lipschitz_projection(x, 5.0 * x[:, 0], 1.0, tile_size=64)
    torch.testing.assert_close(found.value, x[:, 0] + 2.0, atol=1e-4, rtol=0)
    assert found.max_violation <= 1e-14


def test_float32_is_solved_in_float64_and_certified_as_returned(
    generator: torch.Generator,
) -> None:
    x = torch.randn(80, 3, generator=generator)
    y = 5.0 * torch.randn(80, 2, generator=generator)
    found = lipschitz_projection(x, y, 0.5, rtol=TIGHT)
    assert found.value.dtype == torch.float32
    exact = lipschitz_projection(x.double(), y.double(), 0.5, rtol=TIGHT)
    torch.testing.assert_close(found.value, exact.value.float(), atol=1e-6, rtol=1e-6)
    dist = euclidean(x.double().numpy())
    violation = largest_violation(dist, found.value.double().numpy(), 0.5)
    assert found.max_violation == pytest.approx(violation, rel=1e-6)
    assert 0.0 < violation < 1e-6


def test_close_neighbors_far_outputs(generator: torch.Generator) -> None:
    # Distances of 1e-13: shrinking all outputs to meet them would cost everything.
    x = normal(30, 2, generator=generator)
    x = torch.cat([x, x + 1e-13])
    y = normal(60, generator=generator)
    found = lipschitz_projection(x, y, 1.0)
    assert found.duality_gap <= 1e-6
    assert found.max_violation <= 1e-9 * float((y - y.mean()).abs().max())
    expected = projection(euclidean(x.numpy()), y.numpy(), 1.0)
    np.testing.assert_allclose(found.value.numpy(), expected, atol=1e-3)


def test_inputs_are_not_changed(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    before = x.clone(), y.clone()
    y = y.requires_grad_()
    found = lipschitz_projection(x, y, 0.6)
    assert torch.equal(x, before[0])
    assert torch.equal(y.detach(), before[1])
    assert not found.value.requires_grad


# Failure, and bad input.


def test_giving_up_says_by_how_much(problem: tuple[Tensor, Tensor]) -> None:
    x, y = problem
    expected = (
        r"lipschitz_projection stopped after 1 iterations: relative duality gap "
        r"\d\.\de-\d\d, largest violation \d\.\de[-+]\d\d, 'rtol' is 1e-06\. Raise "
        r"'max_iter' or 'rtol'"
    )
    with pytest.raises(ConvergenceError, match=f"^{expected}$"):
        lipschitz_projection(x, y, 0.6, max_iter=1)


X, Y = torch.zeros(3, 2), torch.zeros(3)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"x": X * 1j}, TypeError, "'x' must hold real numbers (got torch.complex64)"),
        ({"x": Y}, ValueError, "'x' must be 2-dimensional (got shape (3,))"),
        (
            {"x": X * math.nan},
            ValueError,
            "'x' must be finite (got nan at index (0, 0)",
        ),
        (
            {"y_hat": Y * math.nan},
            ValueError,
            "'y_hat' must be finite (got nan at index",
        ),
        (
            {"y_hat": Y * 1j},
            TypeError,
            "'y_hat' must hold real numbers (got torch.comp",
        ),
        (
            {"y_hat": X[:, :0]},
            ValueError,
            "'y_hat' must not be empty (got shape (3, 0))",
        ),
        (
            {"y_hat": X[None]},
            ValueError,
            "'y_hat' must be 1-dimensional or 2-dimensional",
        ),
        ({"y_hat": Y[:2]}, ValueError, "'y_hat' must have as many rows as 'x' (got 2"),
        (
            {"lipschitz": -1.0},
            ValueError,
            "'lipschitz' must be non-negative (got -1.0)",
        ),
        ({"lipschitz": math.nan}, ValueError, "'lipschitz' must be finite (got nan)"),
        ({"lipschitz": "2"}, TypeError, "'lipschitz' must be a number (got '2')"),
        ({"rtol": 0.0}, ValueError, "'rtol' must be positive (got 0.0)"),
        ({"max_iter": 0}, ValueError, "'max_iter' must be at least 1 (got 0)"),
        ({"tile_size": 0}, ValueError, "'tile_size' must be at least 1 (got 0)"),
        ({"distance": math.dist}, TypeError, "'distance' must be a FairDistance (got"),
    ],
)
def test_rejects_bad_input(
    change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    arguments = {"x": X, "y_hat": Y, "lipschitz": 1.0, **change}
    with pytest.raises(kind, match=f"^{re.escape(message)}"):
        lipschitz_projection(**arguments)


@pytest.mark.parametrize("columns", [(), (2,)])
def test_projection_without_features_is_the_mean(columns):
    """All samples are at distance zero from each other."""
    y = torch.arange(3 * math.prod(columns), dtype=torch.float64).view(3, *columns)
    fair = lipschitz_projection(torch.zeros(3, 0, dtype=torch.float64), y, 2.0)
    torch.testing.assert_close(fair.value, y.mean(0).expand_as(y))
    assert fair.max_violation <= 1e-12
