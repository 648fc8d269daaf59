"""``error_bound`` against solutions in 260 digits: no exception is allowed."""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_glif import glif_smooth, glif_solve
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.fit._inductive import GroundedOperator, Ties
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.solvers import (
    CG,
    Auto,
    Cholesky,
    CoordinateDescent,
    Solution,
    Solver,
    SolveStatus,
)
from pyg_glif.solvers.implicit import smooth
from pyg_glif.typing import Normalization
from tests import oracles_exact as exact
from tests.problems import random_graph

SOLVERS: dict[str, Solver] = {
    "Auto": Auto(throw=False),
    "CG": CG(throw=False),
    "CG deflated": CG(deflate=True, throw=False),
    "CG not deflated": CG(deflate=False, max_iter=300, throw=False),
    "CG plain": CG(preconditioner=None, throw=False),
    "CG to the last digit": CG(rtol=1e-13, throw=False),
    "Cholesky": Cholesky(throw=False),
    "Cholesky to the last digit": Cholesky(rtol=1e-13, throw=False),
    "CoordinateDescent": CoordinateDescent(
        epochs=30, batch_size=3, rtol=1e-6, progress=False, throw=False
    ),
    "CoordinateDescent, epochs only": CoordinateDescent(progress=False, throw=False),
}
LAMS = (0.0, 1e-20, 1e-3, 1.0, 1e4, 1e8, 1e12, 1e14, 1e16, 1e20)


def solve(
    y: Tensor,
    edge_index: Tensor,
    weight: Tensor,
    lam: float,
    solver: Solver,
    normalization: Normalization = None,
) -> Solution:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return glif_solve(
            y,
            edge_index,
            weight,
            lam=lam,
            normalization=normalization,
            solver=solver,
        )


def assert_bound_holds(solution: Solution, columns: list[exact.Exact]) -> None:
    value = solution.value.double()
    for c, column in enumerate(columns):
        error = exact.distance(value[:, c].tolist(), column)
        assert error <= float(solution.error_bound[c]), (c, solution)


def complete_graph(size: int) -> Tensor:
    return (1 - torch.eye(size)).nonzero().t().contiguous()


def small_case(
    rng: np.random.Generator,
) -> tuple[exact.Array, Tensor, Tensor, Tensor]:
    """Weights over many magnitudes, outputs of many, in either precision."""
    size, spread = int(rng.integers(2, 8)), rng.choice([0.0, 1.0, 6.0, 20.0, 100.0])
    weight_type = torch.float32 if spread < 30 and rng.random() < 0.5 else torch.float64
    magnitude = 10.0 ** rng.uniform(-spread, 0.1 * spread, (size, size))
    W = np.tril(magnitude * (rng.random((size, size)) < 0.6), -1)
    W = torch.from_numpy(W + W.T).to(weight_type)
    y = rng.normal(size=(size, 3))
    y[:, 1], y[:, 2] = 2.0, y[:, 2] + rng.choice([0.0, 5.0, 1e6])
    outputs = torch.from_numpy(y).to(rng.choice([torch.float32, torch.float64]))
    if outputs.dtype == torch.float64:
        outputs = outputs * rng.choice([1.0, 1e-30, 1e200, 1e-200, 1e-310])
    edge_index = W.nonzero().t().contiguous()
    return W.double().numpy(), edge_index, W[tuple(edge_index)], outputs


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
@pytest.mark.parametrize("solver", SOLVERS)
def test_error_bound_holds_on_small_graphs(
    solver: str, normalization: Normalization
) -> None:
    rng = np.random.default_rng(11)
    for lam in LAMS:
        W, edge_index, weight, y = small_case(rng)
        solution = solve(y, edge_index, weight, lam, SOLVERS[solver], normalization)
        if solution.status is SolveStatus.INDEFINITE:
            assert normalization == "nrw"
            continue
        assert_bound_holds(
            solution, exact.smooth(W, y.double().numpy(), lam, normalization)
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
@pytest.mark.parametrize("solver", ["CG", "CG deflated", "Cholesky"])
def test_error_bound_holds_on_complete_graphs(
    solver: str,
    normalization: Normalization,
    dtype: torch.dtype,
    generator: torch.Generator,
) -> None:
    size = 300
    y = (torch.randn(size, 1, generator=generator) + 3.0).to(dtype)
    edge_index = complete_graph(size)
    weight = torch.full((edge_index.size(1),), 0.7, dtype=dtype)
    for lam in (1.0, 1e4, 1e14):
        solution = solve(y, edge_index, weight, lam, SOLVERS[solver], normalization)
        if solution.status is SolveStatus.INDEFINITE:
            assert normalization == "nrw"
            assert lam == 1e14
            continue
        column = exact.smooth_complete(y[:, 0].tolist(), float(weight[0]), lam)
        assert_bound_holds(solution, [column])
        if normalization is None:
            assert solution.status is SolveStatus.CONVERGED
            assert float(solution.error_bound) <= 1e-6 * float(y.norm())


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("lam", [1.0, 1e6, 1e16])
@pytest.mark.parametrize("hubs", [1, 3])
def test_error_bound_holds_on_rows_of_ten_thousand(
    hubs: int, lam: float, normalization: Normalization, generator: torch.Generator
) -> None:
    leaves = 10_000
    hub, leaf = torch.arange(hubs), torch.arange(hubs, hubs + leaves)
    forth = torch.stack([hub.repeat_interleave(leaves), leaf.repeat(hubs)])
    edge_index = torch.cat([forth, forth.flip(0)], 1)
    weight = torch.full((edge_index.size(1),), 0.7)
    y = torch.randn(hubs + leaves, 1, generator=generator) + 3.0
    solution = solve(y, edge_index, weight, lam, Auto(throw=False), normalization)
    sides = y[:hubs, 0].tolist(), y[hubs:, 0].tolist()
    column = exact.smooth_bipartite(*sides, float(weight[0]), lam, normalization)
    assert_bound_holds(solution, [column])
    assert solution.status is SolveStatus.CONVERGED
    assert float(solution.error_bound) <= 2e-6 * float(y.norm())


@pytest.mark.parametrize("solver", ["Auto", "CG", "Cholesky"])
@pytest.mark.parametrize("lam", [1e14, 1e16, 1e25])
def test_a_triangle_of_twos_stays_at_two(solver: str, lam: float) -> None:
    weight = torch.full((6,), 1.0 / 3.0, dtype=torch.float64)
    y = torch.full((3, 1), 2.0, dtype=torch.float64)
    solution = solve(y, complete_graph(3), weight, lam, SOLVERS[solver])
    torch.testing.assert_close(solution.value, y, rtol=0.0, atol=1e-15)
    assert solution.status is SolveStatus.CONVERGED


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("lam", [1e16, 1e40, 1e100])
@pytest.mark.parametrize("solver", ["Auto", "CG", "Cholesky"])
def test_no_lam_makes_a_psd_system_indefinite(
    solver: str, lam: float, normalization: Normalization
) -> None:
    """Neither in the status nor as an error of the linear algebra below."""
    weight = torch.tensor([1.0, 1e-9, 1e3, 1e-3, 7.0, 0.3], dtype=torch.float64)
    row, col = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    edge_index = torch.stack([torch.cat([row, col]), torch.cat([col, row])])
    y = torch.arange(6.0, dtype=torch.float64).unsqueeze(1)
    weight = torch.cat([weight, weight])
    solution = solve(y, edge_index, weight, lam, SOLVERS[solver], normalization)
    assert solution.status in (SolveStatus.CONVERGED, SolveStatus.STAGNATED)
    W = np.zeros((6, 6))
    W[tuple(edge_index.numpy())] = weight.numpy()
    assert_bound_holds(solution, exact.smooth(W, y.numpy(), lam, normalization))


def test_a_lam_beyond_the_range_is_refused() -> None:
    message = "'lam' times the largest degree must be at most"
    with pytest.raises(ValueError, match=message):
        glif_smooth(torch.rand(2), complete_graph(2), lam=1e200)
    weight = torch.full((2,), 1e200, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        glif_smooth(torch.rand(2), complete_graph(2), weight, lam=1e200)


def test_rounding_above_the_tolerance_is_no_convergence() -> None:
    # Without its digits beyond float64 a solution cannot meet this tolerance.
    weight = torch.full((6,), 0.3, dtype=torch.float64)
    y = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    solver = CoordinateDescent(epochs=3, rtol=1e-6, progress=False)
    with pytest.raises(ConvergenceError):
        glif_smooth(y, complete_graph(3), weight, lam=1e14, solver=solver)
    with pytest.raises(ConvergenceError, match=r"float64 allows no more"):
        glif_smooth(y, complete_graph(3), weight, lam=1e14, solver=CG(rtol=1e-19))


def test_error_bound_is_the_residual_on_ordinary_problems(
    generator: torch.Generator,
) -> None:
    problem = random_graph(3000, 0.02)
    y = torch.randn(3000, 8, generator=generator, dtype=torch.float64)
    lap = LaplacianOperator(problem.edge_index, problem.edge_weight)
    solution = glif_solve(y, lap, lam=10.0, solver=CG())
    assert bool((solution.error_bound <= 1.01 * solution.residual).all())
    assert bool((solution.error_bound > solution.residual).all())


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-170, 1e170, 1e300])
def test_scale_of_outputs_does_not_matter(
    scale: float, generator: torch.Generator
) -> None:
    problem = random_graph(150, 0.1)
    y = torch.randn(150, 2, generator=generator, dtype=torch.float64)
    y[:, 1] *= scale
    lap = LaplacianOperator(problem.edge_index, problem.edge_weight)
    for solver in (CG(rtol=1e-10), Cholesky(rtol=1e-10)):
        solution = glif_solve(y, lap, lam=3.0, solver=solver)
        if scale > 1e-320:  # below there are not digits enough to compare
            single = glif_smooth(y[:, 1:] / scale, lap, lam=3.0, solver=solver)
            again = solution.value[:, 1:] / scale
            torch.testing.assert_close(again, single, rtol=1e-8, atol=1e-9)
        assert math.isfinite(float(solution.error_bound.max()))
        assert bool((solution.error_bound > 0).all())


@pytest.mark.parametrize("solver", ["Auto", "CG", "Cholesky"])
@pytest.mark.parametrize("lam", [1.0, 1e6, 1e12, 1e16])
def test_error_bound_holds_beside_fitted_nodes(
    solver: str, lam: float, generator: torch.Generator
) -> None:
    num_new, num_known = 5, 7
    known = LaplacianOperator(complete_graph(num_known))
    outer = torch.rand(num_new, num_known, generator=generator, dtype=torch.float64)
    outer[0] = 0.0
    inner = torch.rand(num_new, num_new, generator=generator, dtype=torch.float64)
    inner = torch.triu(inner, 1) + torch.triu(inner, 1).t()
    rows, cols = outer.nonzero().t(), inner.nonzero().t()
    lap = GroundedOperator(
        known,
        Ties(rows[0], rows[1], outer[tuple(rows)], rows[0]),
        Ties(cols[0], cols[1], inner[tuple(cols)], cols[0]),
        num_new,
    )
    y = torch.randn(num_new, 2, generator=generator, dtype=torch.float64)
    rhs = y + lam * outer @ torch.rand(num_known, 2, generator=generator).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        strength = torch.tensor(lam, dtype=torch.float64)
        _, solution = smooth(lap, strength, rhs, SOLVERS[solver])
    columns = exact.smooth_grounded(inner.numpy(), outer.numpy(), rhs.numpy(), lam)
    assert_bound_holds(solution, columns)
    assert solution.status is SolveStatus.CONVERGED


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lam", [1.0, 1e14])
@pytest.mark.parametrize("solver", ["CG", "Cholesky", "CoordinateDescent"])
def test_error_bound_holds_on_cuda(solver: str, lam: float) -> None:
    W, edge_index, weight, y = small_case(np.random.default_rng(3))
    parts = (part.to("cuda") for part in (y, edge_index, weight))
    solution = solve(*parts, lam, SOLVERS[solver])
    assert solution.value.device.type == "cuda"
    assert_bound_holds(solution, exact.smooth(W, y.double().numpy(), lam, None))


def test_error_bound_of_float32_covers_the_rounding() -> None:
    y = torch.tensor([[0.1], [0.3]], dtype=torch.float64).float()
    edge_index = torch.tensor([[0, 1], [1, 0]])
    solution = glif_solve(y, edge_index, lam=1.0, solver=Cholesky(rtol=1e-12))
    W = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert_bound_holds(solution, exact.smooth(W, y.double().numpy(), 1.0, None))
    assert 1e-10 < float(solution.error_bound) < 1e-7


def test_error_bound_of_an_overflow_is_infinite() -> None:
    gone = Solution(
        torch.tensor([[1e300, 1.0]], dtype=torch.float64),
        SolveStatus.MAX_ITER,
        1,
        torch.ones(2, dtype=torch.float64),
        torch.ones(2, dtype=torch.float64),
    ).to(torch.float32)
    assert gone.error_bound.tolist()[0] == math.inf
    assert math.isfinite(gone.error_bound.tolist()[1])
