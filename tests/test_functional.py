import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif.functional import glif_smooth, glif_solve, laplacian_penalty
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Logit
from pyg_glif.solvers import CG, Auto, Cholesky, SolveStatus
from pyg_glif.typing import Normalization
from tests import oracles
from tests.problems import PROBLEMS, Problem, random_graph, two_components

NORMALIZATIONS: list[Normalization] = [None, "nrw", "density"]
EXACT = Auto(rtol=1e-12)
GRAPHS = st.builds(
    random_graph, st.integers(2, 25), st.floats(0, 1), st.integers(0, 99)
)
PSD = st.sampled_from([None, "density"])
LAMS = st.floats(0.0, 1e3)


def signal(problem: Problem, seed: int = 0, columns: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    size = (problem.num_nodes, columns)
    return torch.randn(size, generator=generator, dtype=torch.float64)


def smooth(
    problem: Problem, y_hat: Tensor, lam: float, normalization: Normalization = None
) -> Tensor:
    return glif_smooth(
        y_hat,
        problem.edge_index,
        problem.edge_weight,
        lam=lam,
        normalization=normalization,
        solver=EXACT,
    )


# --- values ------------------------------------------------------------------


def test_glif_smooth() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    assert glif_smooth(torch.tensor([0.0, 3.0]), edge_index).tolist() == [1.0, 2.0]
    block = torch.tensor([[0.0, 1.0], [3.0, 1.0], [7.0, 8.0]])
    out = glif_smooth(block, edge_index, torch.tensor([2.0, 2.0]), lam=0.5)
    torch.testing.assert_close(out, torch.tensor([[1.0, 1.0], [2.0, 1.0], [7.0, 8.0]]))
    solution = glif_solve(block, edge_index)
    assert solution.status is SolveStatus.CONVERGED
    assert solution.value.shape == (3, 2)
    assert solution.residual.shape == solution.error_bound.shape == (2,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_glif_smooth_returns_isolated_rows_unchanged(
    normalization: Normalization, dtype: torch.dtype
) -> None:
    problem = random_graph(300, 0.004)
    isolated = torch.from_numpy(problem.dense().sum(1) == 0)
    assert 0 < int(isolated.sum()) < 300
    y_hat = signal(problem).to(dtype)
    for solver in (CG(), CG(deflate=True), Cholesky()):
        f = glif_smooth(
            y_hat,
            problem.edge_index,
            problem.edge_weight,
            lam=0.3,
            normalization=normalization,
            solver=solver,
        )
        assert torch.equal(f[isolated], y_hat[isolated])
        assert not torch.equal(f[~isolated], y_hat[~isolated])


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("shape", [(4,), (4, 0), (4, 3), (0,), (0, 2)])
def test_glif_smooth_returns_y_hat_without_edges(
    shape: tuple[int, ...], normalization: Normalization
) -> None:
    y_hat = torch.arange(float(math.prod(shape))).view(shape)
    edge_index = torch.empty(2, 0, dtype=torch.long)
    for solver in (Auto(), CG(), Cholesky()):
        f = glif_smooth(
            y_hat, edge_index, normalization=normalization, lam=7.0, solver=solver
        )
        assert torch.equal(f, y_hat)
    assert float(laplacian_penalty(y_hat, edge_index, reduction="mean")) == 0.0


def test_glif_smooth_in_dual_coordinates() -> None:
    problem = two_components()
    y_hat = signal(problem).sigmoid()
    f = glif_smooth(
        y_hat, problem.edge_index, problem.edge_weight, link=Logit(), solver=EXACT
    )
    logits = np.log(y_hat.numpy() / (1 - y_hat.numpy()))
    exact = oracles.smooth(problem.dense(), logits, 1.0, None)
    np.testing.assert_allclose(f, 1 / (1 + np.exp(-exact)), atol=1e-10)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_prepared_operator_gives_the_same_answer(normalization: Normalization) -> None:
    problem = random_graph(60, 0.1)
    y_hat = signal(problem)
    lap = LaplacianOperator(
        problem.edge_index, problem.edge_weight, 60, normalization=normalization
    )
    for lam in (0.0, 0.05):
        expected = smooth(problem, y_hat, lam, normalization)
        ours = glif_smooth(y_hat, lap, lam=lam, solver=EXACT)
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_batch_equals_its_members(normalization: Normalization) -> None:
    parts = [random_graph(20, 0.2, 1), random_graph(30, 0.4, 2)]
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    edges = torch.cat([parts[0].edge_index, parts[1].edge_index + 20], 1)
    weight = torch.cat([part.edge_weight for part in parts])
    batch = torch.tensor([0] * 20 + [1] * 30)
    signals = [signal(part, seed) for seed, part in enumerate(parts)]
    shuffled = torch.empty_like(order)
    shuffled[order] = torch.arange(50)
    f = glif_smooth(
        torch.cat(signals)[order],
        shuffled[edges],
        weight,
        lam=0.1,
        normalization=normalization,
        batch=batch[order],
        solver=EXACT,
    )
    expected = torch.cat(
        [
            smooth(part, y, 0.1, normalization)
            for part, y in zip(parts, signals, strict=True)
        ]
    )
    torch.testing.assert_close(f[shuffled], expected, rtol=0, atol=1e-9)


# --- laws --------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(GRAPHS, st.sampled_from(NORMALIZATIONS))
def test_lam_zero_is_the_identity(
    problem: Problem, normalization: Normalization
) -> None:
    y_hat = signal(problem)
    assert torch.equal(smooth(problem, y_hat, 0.0, normalization), y_hat)


@settings(deadline=None, max_examples=30)
@given(GRAPHS, LAMS, PSD)
def test_objective_and_energy_fall(
    problem: Problem, lam: float, normalization: Normalization
) -> None:
    y_hat = signal(problem)
    f, more = (smooth(problem, y_hat, x, normalization) for x in (lam, 2 * lam))

    def energy(f: Tensor) -> float:
        return float(
            laplacian_penalty(
                f,
                problem.edge_index,
                problem.edge_weight,
                normalization=normalization,
            )
        )

    slack = 1e-9 * float(y_hat.square().sum())
    scale = lam * oracles.lam_scale(problem.dense(), normalization)
    objective = float((f - y_hat).square().sum()) + scale * energy(f)
    assert objective <= scale * energy(y_hat) + slack
    assert energy(more) <= energy(f) + slack
    assert energy(f) <= energy(y_hat) + slack


@settings(deadline=None, max_examples=30)
@given(GRAPHS, LAMS, PSD)
def test_constants_means_and_ranges_are_kept(
    problem: Problem, lam: float, normalization: Normalization
) -> None:
    y_hat = signal(problem)
    f = smooth(problem, y_hat, lam, normalization)
    one = torch.ones(problem.num_nodes, dtype=torch.float64)
    torch.testing.assert_close(smooth(problem, one, lam, normalization), one)
    torch.testing.assert_close(f.sum(0), y_hat.sum(0), rtol=0, atol=1e-8)
    assert bool((f <= y_hat.amax(0) + 1e-9).all())
    assert bool((f >= y_hat.amin(0) - 1e-9).all())


@settings(deadline=None, max_examples=20)
@given(GRAPHS, st.sampled_from(NORMALIZATIONS), st.integers(0, 99))
def test_relabelling_nodes_and_edges_relabels_the_output(
    problem: Problem, normalization: Normalization, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    name = torch.randperm(problem.num_nodes, generator=generator)
    edge = torch.randperm(problem.edge_index.size(1), generator=generator)
    renamed = Problem(
        name[problem.edge_index[:, edge]], problem.edge_weight[edge], problem.num_nodes
    )
    y_hat = signal(problem)
    moved = torch.empty_like(y_hat)
    moved[name] = y_hat
    f = smooth(problem, y_hat, 0.01, normalization)
    g = smooth(renamed, moved, 0.01, normalization)
    torch.testing.assert_close(g[name], f, rtol=0, atol=1e-9)


def test_infinite_lam_gives_component_means() -> None:
    problem = two_components()
    y_hat = signal(problem)
    # float64 leaves a relative residual of about 1e-9 at this strength.
    graph = (problem.edge_index, problem.edge_weight)
    f = glif_smooth(y_hat, *graph, lam=1e7)
    torch.testing.assert_close(f[:3], y_hat[:3].mean(0).expand(3, 2), atol=1e-5, rtol=0)
    torch.testing.assert_close(f[3:], y_hat[3:].mean(0).expand(4, 2), atol=1e-5, rtol=0)


# --- gradients ---------------------------------------------------------------


@pytest.mark.parametrize("solver", [Cholesky(rtol=1e-12), CG(rtol=1e-13)])
@pytest.mark.parametrize("normalization", NORMALIZATIONS)
@pytest.mark.parametrize("name", ["two components", "isolated", "duplicates"])
def test_gradients_match_finite_differences(
    name: str, normalization: Normalization, solver: Auto
) -> None:
    problem = PROBLEMS[name]()
    inputs = (
        signal(problem).requires_grad_(),
        problem.edge_weight.clone().requires_grad_(),
        torch.tensor(0.3, dtype=torch.float64, requires_grad=True),
    )

    def run(y_hat: Tensor, weight: Tensor, lam: Tensor) -> Tensor:
        return glif_smooth(
            y_hat,
            problem.edge_index,
            weight,
            lam=lam,
            normalization=normalization,
            solver=solver,
        )

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_gradients_exist_at_lam_zero(normalization: Normalization) -> None:
    problem = two_components()
    y_hat = signal(problem).requires_grad_()
    lam = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    out = glif_smooth(
        y_hat,
        problem.edge_index,
        problem.edge_weight,
        lam=lam,
        normalization=normalization,
    )
    out.sum().backward()
    W = problem.dense()
    K = oracles.lam_scale(W, normalization) * oracles.laplacian(W, normalization)
    assert y_hat.grad is not None
    assert lam.grad is not None
    torch.testing.assert_close(y_hat.grad, torch.ones_like(y_hat))
    expected = -float((K @ y_hat.detach().numpy()).sum())
    assert float(lam.grad) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_gradients_stay_finite_where_weights_underflow(
    normalization: Normalization,
) -> None:
    problem = PROBLEMS["underflowing"]()
    weight = problem.edge_weight.float().requires_grad_()
    y_hat = signal(problem).float().requires_grad_()
    out = glif_smooth(
        y_hat, problem.edge_index, weight, lam=0.3, normalization=normalization
    )
    out.square().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert bool(weight.grad.isfinite().all())


# --- penalty -----------------------------------------------------------------


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_laplacian_penalty_matches_dense_oracle(normalization: Normalization) -> None:
    problem = random_graph(40, 0.2)
    f = signal(problem, columns=3)
    L = oracles.laplacian(problem.dense(), normalization)
    trace = float(np.trace(f.numpy().T @ L @ f.numpy()))
    graph = (problem.edge_index, problem.edge_weight)

    def penalty(**options: object) -> float:
        return float(
            laplacian_penalty(f, *graph, normalization=normalization, **options)  # type: ignore[arg-type]
        )

    theta, sigma = 2.0, 0.5  # theta = 1 / (2 sigma^2)
    constant = 2 / (40 * sigma**2)
    if normalization is None:
        constant *= (2 * math.pi * sigma**2) ** -1.5 / 40
    consistent = penalty(reduction="consistent", theta=theta, num_dims=3)
    assert penalty() == pytest.approx(trace)
    assert penalty(reduction="mean") == pytest.approx(trace / 40)
    assert consistent == pytest.approx(constant * trace)


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_laplacian_penalty_is_twice_differentiable(
    normalization: Normalization,
) -> None:
    problem = two_components()
    inputs = (
        signal(problem).requires_grad_(),
        problem.edge_weight.clone().requires_grad_(),
    )

    def run(f: Tensor, weight: Tensor) -> Tensor:
        return laplacian_penalty(
            f, problem.edge_index, weight, normalization=normalization
        )

    assert torch.autograd.gradcheck(run, inputs)
    assert torch.autograd.gradgradcheck(run, inputs)


# --- bad input ---------------------------------------------------------------

PAIR = torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("y_hat", "options", "error", "message"),
    [
        (
            [0.0, 1.0],
            {"lam": -0.5},
            ValueError,
            "'lam' must be non-negative (got -0.5)",
        ),
        ([0.0, 1.0], {"lam": math.nan}, ValueError, "'lam' must be finite (got nan)"),
        (
            [0, 1],
            {},
            TypeError,
            "'y_hat' must be float32 or float64 (got torch.int64)",
        ),
        (
            [0.0, math.nan],
            {},
            ValueError,
            "'y_hat' must be finite (got nan at index 1, 1 such values)",
        ),
        (
            [0.0],
            {},
            ValueError,
            "'edge_index' must hold node indices from 0 to 0 (got 1)",
        ),
        (
            [0.0, 1.0],
            {"normalization": "sym"},
            ValueError,
            "'normalization' must be one of None, 'nrw', 'density' (got 'sym')",
        ),
        (
            [0.0, 1.0],
            {"edge_weight": torch.tensor([-1.0, -1.0])},
            ValueError,
            "'edge_weight' must be non-negative (got -1)",
        ),
        (
            [[[0.0]], [[1.0]]],
            {},
            ValueError,
            "'y_hat' must be 1-dimensional or 2-dimensional (got shape (2, 1, 1))",
        ),
    ],
)
def test_glif_smooth_rejects_bad_input(
    y_hat: list[float], options: dict[str, object], error: type, message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        glif_smooth(torch.tensor(y_hat), PAIR, **options)  # type: ignore[arg-type]


def test_operator_settles_the_graph() -> None:
    lap = LaplacianOperator(PAIR, normalization="density")
    y_hat = torch.zeros(2)
    with pytest.raises(ValueError, match="'edge_weight' must be None when"):
        glif_smooth(y_hat, lap, torch.ones(2))
    with pytest.raises(ValueError, match="'normalization' must be one of 'density'"):
        glif_smooth(y_hat, lap, normalization="nrw")
    with pytest.raises(ValueError, match="'y_hat' must have one row per node"):
        glif_smooth(torch.zeros(3), lap)


def test_laplacian_penalty_rejects_bad_input() -> None:
    f = torch.zeros(2)
    with pytest.raises(ValueError, match="'reduction' must be one of 'sum', 'mean'"):
        laplacian_penalty(f, PAIR, reduction="none")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'theta' must be given"):
        laplacian_penalty(f, PAIR, reduction="consistent")
    with pytest.raises(ValueError, match="'num_dims' must be given"):
        laplacian_penalty(f, PAIR, reduction="consistent", theta=1.0)
