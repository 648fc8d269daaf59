"""Every solver x normalization x problem against the dense oracle."""

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.functional import glif_smooth, glif_solve
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
from pyg_glif.typing import Normalization
from tests import oracles
from tests.problems import PROBLEMS, Problem, cliques, path, random_graph, star

SOLVERS: dict[str, Solver] = {
    "Auto": Auto(rtol=1e-9),
    "CG": CG(rtol=1e-9),
    "CG deflated": CG(rtol=1e-9, deflate=True),
    "CG plain": CG(rtol=1e-9, preconditioner=None, deflate=False),
    "Cholesky": Cholesky(rtol=1e-9),
    "CoordinateDescent": CoordinateDescent(epochs=5000, batch_size=7, rtol=1e-9),
}


def smooth(
    problem: Problem,
    y_hat: Tensor,
    lam: float,
    solver: Solver,
    normalization: Normalization = None,
) -> Solution:
    return glif_solve(
        y_hat,
        problem.edge_index,
        problem.edge_weight.to(y_hat.dtype),
        lam=lam,
        normalization=normalization,
        solver=solver,
    )


def outputs(problem: Problem, generator: torch.Generator, columns: int = 4) -> Tensor:
    """Columns of unequal difficulty: noise, a constant, zeros, a copy of the noise."""
    y = torch.randn(problem.num_nodes, columns, generator=generator).double()
    y[:, 1], y[:, 2] = 1.0, 0.0
    y[:, 3] = 1e-3 * y[:, 0]
    return y


@pytest.mark.parametrize("normalization", [None, "nrw", "density"])
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_solver_matches_dense_oracle(
    solver: str,
    name: str,
    normalization: Normalization,
    generator: torch.Generator,
) -> None:
    problem = PROBLEMS[name]()
    W, y_hat = problem.dense(), outputs(problem, generator)
    lam = 0.5
    smallest = float(np.linalg.eigvalsh(oracles.system(W, lam, normalization))[0])
    if smallest <= 0:
        with pytest.raises(ConvergenceError, match="not positive definite"):
            smooth(problem, y_hat, lam, SOLVERS[solver], normalization)
        return
    solution = smooth(problem, y_hat, lam, SOLVERS[solver], normalization)
    exact = oracles.smooth(W, y_hat.numpy(), lam, normalization)
    error = np.linalg.norm(solution.value.numpy() - exact, axis=0)
    true = (
        y_hat.numpy() - oracles.system(W, lam, normalization) @ solution.value.numpy()
    )
    assert solution.status is SolveStatus.CONVERGED
    assert bool((error <= solution.error_bound.numpy() + 1e-12).all())
    limit = 1e-9 * np.linalg.norm(y_hat.numpy(), axis=0)
    assert bool((solution.residual.numpy() <= limit).all())
    np.testing.assert_allclose(
        solution.residual, np.linalg.norm(true, axis=0), atol=1e-11
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lam", [0.0, 1e-3, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("name", ["path", "cliques", "star", "uneven degrees"])
def test_auto_certifies_every_strength(
    name: str, lam: float, dtype: torch.dtype, generator: torch.Generator
) -> None:
    problem = PROBLEMS[name]()
    y_hat = outputs(problem, generator).to(dtype)
    solution = smooth(problem, y_hat, lam, Auto())
    weight = problem.edge_weight.to(dtype).double()
    W = oracles.adjacency(problem.edge_index.numpy(), weight.numpy(), problem.num_nodes)
    exact = oracles.smooth(W, y_hat.double().numpy(), lam, None)
    error = np.linalg.norm(solution.value.double().numpy() - exact, axis=0)
    assert solution.value.dtype == dtype
    assert bool((error <= solution.error_bound.numpy() + 1e-12).all())
    norm = torch.linalg.vector_norm(y_hat.double(), dim=0)
    assert bool((solution.residual <= 1e-6 * norm).all())


@pytest.mark.parametrize("num_columns", [1, 3])
def test_auto_solves_a_path_of_ten_thousand(
    num_columns: int, generator: torch.Generator
) -> None:
    from scipy.linalg import solveh_banded

    problem = path(10_000)
    y_hat = torch.randn(10_000, num_columns, generator=generator)
    solution = smooth(problem, y_hat, 1e4, Auto())
    bands = np.full((2, 10_000), -1e4)
    bands[1] = 1 + 2e4
    bands[1, [0, -1]] = 1 + 1e4
    exact = solveh_banded(bands, y_hat.double().numpy())
    error = np.linalg.norm(solution.value.numpy() - exact, axis=0)
    assert solution.solver.startswith("CG(")
    assert bool((error <= solution.error_bound.numpy()).all())


def test_auto_survives_hubs_of_ten_thousand(generator: torch.Generator) -> None:
    problem = star(20_000)
    y_hat = torch.randn(20_001, 4, generator=generator)
    solution = smooth(problem, y_hat, 1e4, Auto())
    assert solution.status is SolveStatus.CONVERGED
    # The exact solution: all but equal to the mean.
    spread = solution.value - y_hat.mean(0)
    assert float(spread[1:].abs().max()) < 1e-3


def test_mixed_precision_matches_double_precision(generator: torch.Generator) -> None:
    problem = random_graph(3000, 0.01)
    y_hat = torch.randn(3000, 28, generator=generator)
    for lam in (1.0, 10.0, 300.0):
        mixed = smooth(problem, y_hat, lam, CG())
        double = smooth(problem, y_hat, lam, CG(rtol=1e-12))
        gap = torch.linalg.vector_norm((mixed.value - double.value).double(), dim=0)
        bound = mixed.error_bound + double.error_bound
        assert bool((gap <= bound).all())
        assert mixed.status is SolveStatus.CONVERGED


def test_wide_blocks_equal_their_columns(generator: torch.Generator) -> None:
    problem = random_graph(300, 0.05)
    y_hat = torch.randn(300, 70, generator=generator, dtype=torch.float64)
    together = smooth(problem, y_hat, 2.0, CG(rtol=1e-12)).value
    for column in (0, 31, 32, 69):
        single = smooth(problem, y_hat[:, column], 2.0, CG(rtol=1e-12)).value
        torch.testing.assert_close(together[:, column], single, rtol=0, atol=1e-10)


def test_cg_uses_a_starting_point(generator: torch.Generator) -> None:
    problem = random_graph(300, 0.05)
    y_hat = torch.randn(300, 2, generator=generator, dtype=torch.float64)
    from pyg_glif.solvers.implicit import smooth as solve

    lap = LaplacianOperator(problem.edge_index, problem.edge_weight)
    lam = torch.tensor(3.0)
    cold, report = solve(lap, lam, y_hat, CG())
    warm, again = solve(lap, lam, y_hat, CG(), x0=cold)
    assert report.num_iter > 0
    assert again.num_iter == 0
    torch.testing.assert_close(warm, cold, rtol=0, atol=1e-14)


@pytest.mark.parametrize("throw", [True, False])
def test_cg_reports_worst_column(throw: bool, generator: torch.Generator) -> None:
    problem = path(300)
    y_hat = torch.zeros(300, 3, dtype=torch.float64)
    y_hat[:, 0] = 1.0
    y_hat[:, 2] = torch.randn(300, generator=generator).double()
    solver = CG(max_iter=3, deflate=True, throw=throw)
    pattern = (
        r"CG stopped after 3 iterations: worst relative residual \S+ in column 2 of 3, "
        r"'rtol' is 1e-06\. The iteration limit was reached first\. Raise 'max_iter'"
    )
    if throw:
        with pytest.raises(ConvergenceError, match=pattern):
            smooth(problem, y_hat, 1e3, solver)
        return
    with pytest.warns(ConvergenceWarning, match=pattern):
        solution = smooth(problem, y_hat, 1e3, solver)
    assert solution.status is SolveStatus.MAX_ITER
    exact = oracles.smooth(problem.dense(), y_hat.numpy(), 1e3, None)
    error = np.linalg.norm(solution.value.numpy() - exact, axis=0)
    assert bool((error <= solution.error_bound.numpy() + 1e-12).all())


@pytest.mark.parametrize(
    "solver", [Auto(), CG(), Cholesky(), CoordinateDescent(progress=False)]
)
def test_indefinite_names_the_largest_safe_lam(
    solver: Solver, generator: torch.Generator
) -> None:
    problem = star(20)
    W = problem.dense()
    low = oracles.smallest_eigenvalue(W, "nrw") * oracles.lam_scale(W, "nrw")
    y_hat = outputs(problem, generator)
    message = (
        "I + lam L is not positive definite at lam = 10 with normalization='nrw', so "
        f"the objective has no minimum. Use 'lam' below {-1 / low:.3g} or "
        'normalization="density"'
    )
    with pytest.raises(ConvergenceError, match=re.escape(message)):
        smooth(problem, y_hat, 10.0, solver, "nrw")
    # Just below and just above the limit.
    smooth(problem, y_hat, 0.999 * -1 / low, Cholesky(), "nrw")
    with pytest.raises(ConvergenceError):
        smooth(problem, y_hat, 1.001 * -1 / low, solver, "nrw")


def test_indefinite_is_found_where_the_right_hand_side_hides_it() -> None:
    # Constant on leaves and hub alike: CG would never meet the negative direction of
    # the second star, on which the right-hand side is zero.
    edges = torch.cat([star(20).edge_index, star(20).edge_index + 21], 1)
    y_hat = torch.cat([torch.ones(21), torch.zeros(21)])
    with pytest.raises(ConvergenceError, match="not positive definite"):
        glif_smooth(y_hat, edges, lam=10.0, normalization="nrw", solver=CG())


def test_indefinite_value_is_the_saddle_or_nan(generator: torch.Generator) -> None:
    problem = star(20)
    y_hat = outputs(problem, generator)
    exact = oracles.smooth(problem.dense(), y_hat.numpy(), 10.0, "nrw")
    with pytest.warns(ConvergenceWarning):
        saddle = smooth(problem, y_hat, 10.0, Cholesky(throw=False), "nrw")
    np.testing.assert_allclose(saddle.value, exact, atol=1e-9)
    assert saddle.status is SolveStatus.INDEFINITE
    assert bool(saddle.error_bound.isinf().all())
    with pytest.warns(ConvergenceWarning):
        nothing = smooth(problem, y_hat, 10.0, CG(throw=False), "nrw")
    assert bool(nothing.value.isnan().all())


def test_auto_says_what_it_chose(generator: torch.Generator) -> None:
    small = smooth(cliques(5, 30), torch.randn(150, generator=generator), 1.0, Auto())
    assert small.solver == "Cholesky(throw=True, rtol=1e-06)"
    large = smooth(path(300), torch.randn(300, generator=generator), 1.0, Auto())
    assert large.solver.startswith("CG(")
    text = r"Solution\(status=CONVERGED, num_iter=1, residual=\S+, error_bound=\S+, "
    assert re.match(text + r"solver=Cholesky", repr(small))


def test_coordinate_descent_is_reproducible(generator: torch.Generator) -> None:
    problem = random_graph(200, 0.05)
    y_hat = torch.randn(200, 2, generator=generator)

    def run(seed: int) -> Solution:
        source = torch.Generator().manual_seed(seed)
        solver = CoordinateDescent(epochs=3, batch_size=16, generator=source)
        return smooth(problem, y_hat, 1.0, solver)

    first, second = run(1), run(1)
    assert first.status is SolveStatus.EPOCHS_DONE
    assert torch.equal(first.value, second.value)
    assert not torch.equal(first.value, run(2).value)
    assert first.num_iter == 3
    exact = oracles.smooth(problem.dense(), y_hat.double().numpy(), 1.0, None)
    error = np.linalg.norm(first.value.numpy() - exact, axis=0)
    # The weights were rounded to float32 on the way in: 1e-5 is far above that.
    assert bool((error <= first.error_bound.numpy() + 1e-5).all())


def test_coordinate_descent_makes_the_updates_of_the_paper() -> None:
    problem = random_graph(50, 0.2)
    y_hat = np.random.default_rng(1).normal(size=(50, 2))
    source = torch.Generator().manual_seed(4)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(4)).numpy()
    solver = CoordinateDescent(epochs=1, batch_size=8, generator=source)
    M, f = oracles.system(problem.dense(), 0.7, "density"), y_hat.copy()
    for start in range(0, 50, 8):
        nodes = order[start : start + 8]
        rest = M[nodes] @ f - np.diag(M)[nodes, None] * f[nodes]
        f[nodes] = (y_hat[nodes] - rest) / np.diag(M)[nodes, None]
    solution = smooth(problem, torch.from_numpy(y_hat), 0.7, solver, "density")
    np.testing.assert_allclose(solution.value, f, atol=1e-12)


def test_coordinate_descent_runs_where_there_is_no_minimum() -> None:
    """GLIF-NRW by ten epochs (section 3.2.2), at a strength beyond the safe one."""
    problem = star(20)
    y_hat = np.random.default_rng(3).normal(size=(21, 2))
    M, f = oracles.system(problem.dense(), 30.0, "nrw"), y_hat.copy()
    assert np.linalg.eigvalsh(M).min() < 0
    source = torch.Generator().manual_seed(5)
    for _ in range(10):
        order = torch.randperm(21, generator=source).numpy()
        for nodes in (order[:8], order[8:16], order[16:]):
            rest = M[nodes] @ f - np.diag(M)[nodes, None] * f[nodes]
            f[nodes] = (y_hat[nodes] - rest) / np.diag(M)[nodes, None]
    source = torch.Generator().manual_seed(5)
    solver = CoordinateDescent(batch_size=8, generator=source, throw=False)
    with pytest.warns(ConvergenceWarning, match="has no minimum"):
        solution = smooth(problem, torch.from_numpy(y_hat), 30.0, solver, "nrw")
    np.testing.assert_allclose(solution.value, f, rtol=1e-9)
    assert solution.status is SolveStatus.INDEFINITE
    assert solution.num_iter == 10
    residual = np.linalg.norm(y_hat - M @ f, axis=0)
    np.testing.assert_allclose(solution.residual, residual, rtol=1e-6)
    assert bool(solution.error_bound.isinf().all())


def test_coordinate_descent_fails_if_asked_for_too_much() -> None:
    solver = CoordinateDescent(epochs=2, rtol=1e-9)
    y_hat = torch.arange(300.0)
    with pytest.raises(ConvergenceError, match="CoordinateDescent stopped after 2"):
        smooth(path(300), y_hat, 100.0, solver)


def test_cholesky_refuses_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "pyg_glif.solvers.cholesky.available_memory", lambda device: 1000
    )
    with pytest.raises(MemoryError, match=r"component of 300 nodes .* Use 'CG\(\)'"):
        smooth(path(300), torch.zeros(300), 1.0, Cholesky())


def test_solvers_have_readable_names() -> None:
    assert str(Auto()) == "Auto(throw=True, rtol=1e-06, max_iter=None)"
    assert str(Cholesky()) == "Cholesky(throw=True, rtol=1e-06)"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CG(rtol=-1.0), "'rtol' must be non-negative (got -1.0)"),
        (lambda: CG(max_iter=0), "'max_iter' must be at least 1 (got 0)"),
        (lambda: Auto(rtol=float("nan")), "'rtol' must be finite (got nan)"),
        (lambda: CoordinateDescent(epochs=0), "'epochs' must be at least 1 (got 0)"),
    ],
)
def test_bad_options_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
