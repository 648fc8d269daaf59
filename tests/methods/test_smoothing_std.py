"""Outputs of unequal certainty, and the noise of smoothed ones, against NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import GLIFConv, GLIFPostProcessor, glif_smooth, glif_solve
from pyg_glif.links import Logit
from pyg_glif.methods import Noise, smoothing_std
from pyg_glif.solvers import CG, Auto, Cholesky, CoordinateDescent
from tests import oracles
from tests.postprocessing.people import people
from tests.problems import PROBLEMS, random_graph

SOLVERS = {
    "Auto": Auto(rtol=1e-10),
    "CG": CG(rtol=1e-10),
    "plain CG": CG(rtol=1e-10, preconditioner=None),
    "Cholesky": Cholesky(rtol=1e-10),
    "descent": CoordinateDescent(epochs=3000, rtol=1e-10),
}


def _kernel(W, lam, normalization, std):
    """(P + lam L)^-1 P from its formula."""
    strength = lam * oracles.lam_scale(W, normalization)
    P = np.diag(1.0 / std**2)
    return np.linalg.solve(P + strength * oracles.laplacian(W, normalization), P)


def _std(num, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    return np.exp(rng.uniform(-spread / 2, spread / 2, num))


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_precision_matches_the_formula(name, solver, normalization):
    if solver == "descent" and name == "path":
        pytest.skip("coordinate descent is slow on a path")
    problem = PROBLEMS[name]()
    std = _std(problem.num_nodes)
    y = np.random.default_rng(1).normal(size=(problem.num_nodes, 2))
    lam = 0.8
    found = glif_solve(
        torch.tensor(y),
        problem.edge_index,
        problem.edge_weight,
        lam=lam,
        normalization=normalization,
        solver=SOLVERS[solver],
        y_std=torch.tensor(std),
    )
    exact = _kernel(problem.dense(), lam, normalization, std) @ y
    error = np.linalg.norm(found.value.numpy() - exact, axis=0)
    assert (error <= found.error_bound.numpy() * (1 + 1e-9) + 1e-12).all()
    assert (error <= 1e-7).all()


def test_equal_precisions_scale_the_strength():
    problem = random_graph(60, 0.2)
    y = torch.randn(60, dtype=torch.float64)
    graph = (problem.edge_index, problem.edge_weight)
    exact = Cholesky(rtol=1e-13)
    found = glif_smooth(y, *graph, lam=2.0, y_std=0.5, solver=exact)
    torch.testing.assert_close(found, glif_smooth(y, *graph, lam=0.5, solver=exact))
    one = glif_smooth(y, *graph, lam=2.0, y_std=1.0, solver=exact)
    torch.testing.assert_close(one, glif_smooth(y, *graph, lam=2.0, solver=exact))


def test_an_exact_output_is_kept_and_others_follow():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    y, std = torch.tensor([0.0, 3.0]).double(), torch.tensor([1e-4, 1e4]).double()
    found = glif_smooth(y, edge_index, y_std=std)
    torch.testing.assert_close(found, torch.zeros(2).double(), atol=1e-6, rtol=0)


def test_isolated_nodes_and_no_strength_keep_outputs_exactly():
    y = torch.rand(5)
    std = torch.tensor([0.3, 1.7, 0.9, 2.2, 0.1])
    problem = PROBLEMS["isolated"]()
    graph = (problem.edge_index, problem.edge_weight)
    found = glif_smooth(y, *graph, y_std=std)
    assert torch.equal(found[[0, 2, 4]], y[[0, 2, 4]])
    assert torch.equal(glif_smooth(y, *graph, lam=0.0, y_std=std), y)


def test_precision_is_differentiable():
    problem = random_graph(9, 0.5, seed=3)
    row, col = problem.edge_index
    half = row < col
    weight = problem.edge_weight[half].clone().requires_grad_()
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(9, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    std = torch.tensor(_std(9, spread=1.0), requires_grad=True)
    lam = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)

    def run(y, weight, lam, std):
        edges = torch.stack([row[half], col[half]])
        both = torch.cat([edges, edges.flip(0)], 1)
        weights = torch.cat([weight, weight])
        return glif_smooth(
            y, both, weights, lam=lam, y_std=std, solver=Cholesky(rtol=1e-14)
        )

    assert torch.autograd.gradcheck(run, (y, weight, lam, std))
    assert torch.autograd.gradgradcheck(run, (y, weight, lam, std))


def test_layer_takes_precisions():
    problem = random_graph(30, 0.3)
    y, std = torch.rand(30, 3), torch.tensor(_std(30)).float()
    graph = (problem.edge_index, problem.edge_weight.float())
    layer = GLIFConv(lam=0.6)
    expected = glif_smooth(y, *graph, lam=0.6, y_std=std)
    torch.testing.assert_close(layer(y, *graph, y_std=std), expected)


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
@pytest.mark.parametrize("weighted", [False, True])
def test_standard_errors_are_exact_for_few_nodes(normalization, weighted):
    if weighted and normalization == "nrw":
        pytest.skip("refused")
    problem, lam = random_graph(80, 0.2), 0.3
    std = _std(80) if weighted else np.ones(80)
    noise = np.linspace(0.1, 2.0, 80)
    found = smoothing_std(
        torch.zeros(80, dtype=torch.float64),
        problem.edge_index,
        problem.edge_weight,
        lam=lam,
        normalization=normalization,
        solver=CG(rtol=1e-10),
        y_std=torch.tensor(std) if weighted else None,
        variance=torch.tensor(noise),
    )
    K = _kernel(problem.dense(), lam, normalization, std)
    exact = np.sqrt((K**2) @ noise)
    np.testing.assert_allclose(found.std, exact, rtol=1e-7)
    assert (found.low.numpy() <= exact * (1 + 1e-12)).all()
    assert (exact <= found.high.numpy() * (1 + 1e-12)).all()
    assert (found.alpha, found.num_probes) == (0.0, 0)


def test_standard_errors_are_differentiable():
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    lam = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    noise = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)

    def run(lam, noise):
        return smoothing_std(
            torch.zeros(3, dtype=torch.float64),
            edge_index,
            lam=lam,
            variance=noise,
            solver=Cholesky(rtol=1e-14),
        ).std

    assert torch.autograd.gradcheck(run, (lam, noise))


def _coverage(problem, lam, alpha, probes, repeats):
    """Share of runs in which every interval holds; largest width of an interval."""
    exact = np.sqrt((_kernel(problem.dense(), lam, None, np.ones(100)) ** 2).sum(1))
    held, widest = 0, 0.0
    for seed in range(repeats):
        noise = Noise(
            exact_up_to=0,
            num_probes=probes,
            alpha=alpha,
            generator=torch.Generator().manual_seed(seed),
        )
        found = smoothing_std(
            torch.zeros(100, dtype=torch.float64),
            problem.edge_index,
            problem.edge_weight,
            lam=lam,
            variance=noise,
            solver=Cholesky(),
        )
        inside = (found.low.numpy() <= exact) & (exact <= found.high.numpy())
        held += bool(inside.all())
        widest = max(widest, float(((found.high - found.low) / found.std).max()))
    return held / repeats, widest


def test_intervals_of_random_vectors_hold_for_all_nodes_at_once():
    problem, repeats, alpha = random_graph(100, 0.2), 200, 0.2
    share, widest = _coverage(problem, 2.0, alpha, 64, repeats)
    error = 3.0 * (alpha * (1 - alpha) / repeats) ** 0.5
    assert share >= 1 - alpha - error
    assert widest < 1.2


def test_intervals_are_no_wider_than_they_must_be():
    # One node: the union bound costs nothing, and the interval is the exact one.
    held = 0
    for seed in range(300):
        noise = Noise(
            exact_up_to=0,
            num_probes=16,
            alpha=0.3,
            generator=torch.Generator().manual_seed(seed),
        )
        found = smoothing_std(
            torch.zeros(1, dtype=torch.float64),
            torch.empty(2, 0, dtype=torch.long),
            normalization="nrw",  # for which no bounds are known beforehand
            variance=noise,
        )
        held += bool(found.low <= 1.0 <= found.high)
    assert abs(held / 300 - 0.7) < 3 * (0.3 * 0.7 / 300) ** 0.5


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**16), lam=st.floats(1e-2, 1e2))
def test_known_bounds_hold_whatever_the_probes(seed, lam):
    problem, std = random_graph(40, 0.2, seed=seed), _std(40, seed)
    noise = np.random.default_rng(seed).uniform(0.1, 2.0, 40)
    found = smoothing_std(
        torch.zeros(40, dtype=torch.float64),
        problem.edge_index,
        problem.edge_weight,
        lam=lam,
        y_std=torch.tensor(std),
        # One probe and no confidence to speak of: the bounds do the work.
        variance=Noise(
            variance=torch.tensor(noise), exact_up_to=0, num_probes=1, alpha=1e-9
        ),
    )
    exact = np.sqrt((_kernel(problem.dense(), lam, None, std) ** 2) @ noise)
    assert (found.low.numpy() <= exact * (1 + 1e-9)).all()
    assert (exact <= found.high.numpy() * (1 + 1e-9)).all()


@pytest.mark.parametrize("params", [{"tau": 0.9}, {"k": 5}])
@pytest.mark.parametrize("with_std", [False, True])
def test_std_is_the_spread_of_noisy_fits(params, with_std, generator):
    p = people(num=40, num_new=10, columns=1)
    std = torch.linspace(0.3, 2.0, 50, dtype=torch.float64)
    options = {"y_std": std[:40]} if with_std else {}
    new = {"y_std": std[40:]} if with_std else {}
    sigma = std if with_std else torch.ones(50, dtype=torch.float64)
    post = GLIFPostProcessor(lam=1.5, solver=CG(rtol=1e-10), **params)
    y = torch.cat([p.y, p.y_new])[:, 0]
    post.fit(p.x, y[:40], **options)
    info = post.transform_info(p.x_new, y[40:], with_std=True, **new)
    out, found = info.value, info.uncertainty.std
    assert torch.equal(out, post.transform(p.x_new, y[40:], **new))
    # Columns are independent: one fit with many noisy columns is many fits.
    noise = torch.randn(50, 4000, generator=generator, dtype=torch.float64)
    noisy = y.unsqueeze(1) + sigma.unsqueeze(1) * noise
    post.fit(p.x, noisy[:40], **options)
    spread = post.transform(p.x_new, noisy[40:], **new).std(1)
    np.testing.assert_allclose(found, spread, rtol=5 / (2 * 4000) ** 0.5)


def test_std_of_many_samples(monkeypatch):
    from pyg_glif.fit import fit as fit_module

    p = people(num=80)
    post = p.fit()
    info = post.transform_info(p.x_new, p.y_new, with_std=True)
    exact = info.uncertainty.std
    assert info.uncertainty.alpha == 0.0
    assert float(exact[-1]) == pytest.approx(1.0)  # isolated: its own noise
    monkeypatch.setattr(fit_module, "Noise", lambda: Noise(exact_up_to=0))
    again = p.fit()
    info = again.transform_info(p.x_new, p.y_new, with_std=True)
    found = info.uncertainty
    assert (found.num_probes, found.alpha) == (256, 0.01)
    assert bool(((found.low <= exact) & (exact <= found.high)).all())
    info = again.transform_info(p.x_new[:0], p.y_new[:0], with_std=True)
    assert info.uncertainty.std.shape == (0,)


def test_correlated_errors_break_the_standard_error(generator):
    """Independence is an assumption: errors that all share do not average out."""
    p = people(num=60, num_new=20, columns=1)
    post = p.fit(tau=1.5, lam=5.0)
    info = post.transform_info(p.x_new, p.y_new, with_std=True)
    claimed = info.uncertainty.std
    shared = torch.randn(1, 500, generator=generator, dtype=torch.float64)
    post = GLIFPostProcessor(tau=1.5, theta=0.5, lam=5.0)
    post.fit(p.x, p.y + shared)
    spread = post.transform(p.x_new, p.y_new + shared).std(1)
    tied = claimed < 0.9
    assert bool((spread[tied] > 2.0 * claimed[tied]).all())


def test_explanations_with_precisions_reproduce_outputs():
    p = people()
    std = torch.tensor(_std(len(p.x), spread=1.5))
    post = p.fit()
    post.fit(p.x, p.y, y_std=std)
    for i in (0, 5, 30):
        found = post.explain(i)
        total = found.weight @ p.y[found.index]
        torch.testing.assert_close(total, post.y_fair_[i], rtol=1e-5, atol=1e-6)
    found = post.explain_new(p.x_new[:1], y_std=0.7)
    y = torch.cat([p.y, p.y_new[:1]])
    value = post.transform(p.x_new[:1], p.y_new[:1], y_std=0.7)[0]
    torch.testing.assert_close(found.weight @ y[found.index], value, rtol=1e-5, atol=0)


def test_precisions_in_a_joint_transform():
    p = people()
    std = torch.tensor(_std(len(p.x) + len(p.x_new), spread=1.5))
    old, new = std[: len(p.x)], std[len(p.x) :]
    post = p.fit(lam=0.4)
    post.fit(p.x, p.y, y_std=old)
    found = post.transform(p.x_new, p.y_new, joint=True, y_std=new)
    from tests import oracles_inductive as oracle

    outer = oracle.weights(p.x_new.numpy(), p.x.numpy(), 0.9, 0.5)
    inner = oracle.fitted_weights(p.x_new.numpy(), 0.9, 0.5)
    P = np.diag(1.0 / new.numpy() ** 2)
    A = P + 0.4 * (np.diag(outer.sum(1) + inner.sum(1)) - inner)
    rhs = P @ p.y_new.numpy() + 0.4 * outer @ post.y_fair_.numpy()
    np.testing.assert_allclose(found, np.linalg.solve(A, rhs), rtol=1e-8)


def test_link_smooths_odds_with_precisions():
    problem = random_graph(50, 0.2)
    y, std = torch.rand(50, dtype=torch.float64), _std(50)
    found = glif_smooth(
        y,
        problem.edge_index,
        problem.edge_weight,
        link=Logit(),
        y_std=torch.tensor(std),
        solver=CG(rtol=1e-12),
    )
    K = _kernel(problem.dense(), 1.0, None, std)
    odds = K @ Logit().to_dual(y).numpy()
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-odds)), rtol=1e-9)


def test_bad_input_is_refused():
    y, edges = torch.zeros(3), torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"'y_std' must be positive \(got 0\.0\)"):
        glif_smooth(y, edges, y_std=torch.tensor([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="'y_std' must be finite"):
        glif_smooth(y, edges, y_std=torch.tensor([1.0, torch.nan, 1.0]))
    with pytest.raises(ValueError, match="'y_std' must have one row per node"):
        glif_smooth(y, edges, y_std=torch.ones(2))
    with pytest.raises(ValueError, match="'normalization' must be one of"):
        glif_smooth(y, edges, y_std=1.0, normalization="nrw")
    with pytest.raises(ValueError, match="'variance' must be non-negative"):
        smoothing_std(y, edges, variance=-1.0)
    for alpha in (0.0, 1.0):
        with pytest.raises(ValueError, match="'alpha' must be"):
            Noise(alpha=alpha)
    p = people()
    post = p.fit()
    with pytest.raises(ValueError, match="'y_std' must be None, because the fit has"):
        post.transform(p.x_new, p.y_new, y_std=1.0)
    with pytest.raises(ValueError, match="'joint' must be False with 'with_std'"):
        post.transform_info(p.x_new, p.y_new, joint=True, with_std=True)
    post.fit(p.x, p.y, y_std=1.5)
    with pytest.raises(ValueError, match="'y_std' must be given, because the fit has"):
        post.transform(p.x_new, p.y_new)
    with pytest.raises(ValueError, match="'y_std' must have one entry per row"):
        post.fit(p.x, p.y, y_std=torch.ones(3))
