"""Annotators who disagree, against convex programming."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Logit
from pyg_glif.methods import smooth_worst_case
from pyg_glif.solvers import Cholesky, CoordinateDescent
from tests import oracles

_EXACT = Cholesky(rtol=1e-12)


def worst_case(*args, **kwargs):
    """Value and energies of :func:`smooth_worst_case`."""
    solution = smooth_worst_case(*args, **kwargs)
    return solution.value, solution.disagreement


def _annotators(seed, count, n=16, share=0.3):
    """Dense weights of each annotator, and outputs."""
    rng = np.random.default_rng(seed)
    weights = []
    for scale in 3.0 ** np.arange(count):
        W = np.triu(rng.uniform(0.1, 1.0, (n, n)) * (rng.random((n, n)) < share), 1)
        weights.append(scale * (W + W.T) / 3.0 ** (count - 1))
    return weights, rng.normal(size=(n, 2))


def _graph(W):
    index = np.stack(np.nonzero(W))
    return torch.tensor(index), torch.tensor(W[tuple(index)])


def _energies(laps, f):
    # From differences, which lose no digits where outputs are nearly equal.
    apart = ((f[:, None] - f) ** 2).sum(-1)
    return np.array([-0.5 * (L * apart).sum() for L in laps])


def _objective(laps, f, y, lam):
    return ((f - y) ** 2).sum() + lam * _energies(laps, f).max()


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("lam", [0.1, 3.0])
def test_worst_case_is_the_convex_program(normalization, count, lam):
    weights, y = _annotators(count, count)
    laps = [
        oracles.lam_scale(W, normalization) * oracles.laplacian(W, normalization)
        for W in weights
    ]
    f, worst = cp.Variable(y.shape), cp.Variable()
    limits = [
        sum(cp.quad_form(f[:, c], cp.psd_wrap(L)) for c in range(2)) <= worst
        for L in laps
    ]
    program = cp.Minimize(cp.sum_squares(f - y) + lam * worst)
    cp.Problem(program, limits).solve(solver=cp.CLARABEL)
    value, found = worst_case(
        torch.tensor(y),
        [_graph(W) for W in weights],
        lam=lam,
        normalization=normalization,
        solver=_EXACT,
    )
    np.testing.assert_allclose(value, f.value, atol=1e-4)
    np.testing.assert_allclose(found.energy, _energies(laps, value.numpy()), rtol=1e-8)
    assert float(found.weight.sum()) == pytest.approx(1.0)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**16),
    count=st.integers(1, 4),
    lam=st.floats(1e-2, 1e4),
    rough=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_gap_bounds_the_error_and_the_worst_is_no_worse(seed, count, lam, rough, dtype):
    weights, y = _annotators(seed, count)
    laps = [oracles.laplacian(W, None) for W in weights]
    graphs = [_graph(W) for W in weights]
    y_hat = torch.tensor(y, dtype=dtype)
    y = y_hat.double().numpy()
    exact, best = worst_case(y_hat.double(), graphs, lam=lam, solver=_EXACT)
    # Solves that end early, and rounding to the precision of the outputs, are part of
    # the gap.
    solver = CoordinateDescent(epochs=5) if rough else _EXACT
    value, found = worst_case(y_hat, graphs, lam=lam, solver=solver)
    assert value.dtype == dtype
    value = value.double()
    apart = float(torch.linalg.vector_norm(value - exact))
    assert apart <= found.gap**0.5 + best.gap**0.5
    least = _objective(laps, exact.numpy(), y, lam)
    reached = _objective(laps, value.numpy(), y, lam)
    assert least >= reached - found.gap - 1e-14 * reached
    # Where only rounding is left, the bound says so.
    if count == 1 and not rough:
        size = torch.finfo(dtype).eps * np.linalg.norm(y) * (1 + lam * 100) ** 0.5
        assert found.gap**0.5 <= 10 * size
    # Against the average of all graphs, and against each of them alone.
    for W in (sum(weights) / count, *weights):
        other = glif_smooth(torch.tensor(y), *_graph(W), lam=lam, solver=_EXACT)
        assert least <= _objective(laps, other.numpy(), y, lam) + 1e-9


def test_average_is_beside_the_worst_case():
    weights, y = _annotators(3, 3)
    value = glif_smooth(
        torch.tensor(y), *_graph(sum(weights) / 3), lam=2.0, solver=_EXACT
    )
    laps = [oracles.laplacian(W, None) for W in weights]
    _, found = worst_case(
        torch.tensor(y), [_graph(W) for W in weights], lam=2.0, solver=_EXACT
    )
    expected = _energies(laps, value.numpy())
    np.testing.assert_allclose(found.average_energy, expected, rtol=1e-8)
    assert float(found.energy.max()) < float(found.average_energy.max())
    assert repr(found).startswith("AnnotatorEnergies(worst=")


def test_one_annotator_is_ordinary_smoothing_and_isolated_nodes_stay():
    y = torch.rand(4, dtype=torch.float64)
    edges = torch.tensor([[0, 1], [1, 0]])
    value, found = worst_case(y, [edges], lam=0.7, solver=_EXACT)
    torch.testing.assert_close(value, glif_smooth(y, edges, lam=0.7, solver=_EXACT))
    assert torch.equal(value[2:], y[2:])
    assert found.weight.tolist() == [1.0]
    alike, none = worst_case(torch.ones(4), [edges, edges.flip(0)])
    assert torch.equal(alike, torch.ones(4))
    assert none.gap < 1e-12


def test_link_and_forms_of_graphs():
    weights, _ = _annotators(5, 2)
    y = torch.rand(16, dtype=torch.float64)
    graphs = [_graph(W) for W in weights]
    value, _ = worst_case(y, graphs, link=Logit(), solver=_EXACT)
    odds, _ = worst_case(Logit().to_dual(y), graphs, solver=_EXACT)
    torch.testing.assert_close(value, odds.sigmoid())
    laps = [LaplacianOperator(*graph, num_nodes=16) for graph in graphs]
    again, _ = worst_case(y, laps, link=Logit(), solver=_EXACT)
    torch.testing.assert_close(value, again)


def test_gradient_is_that_of_the_mixture():
    weights, y = _annotators(7, 2)
    y = torch.tensor(y, requires_grad=True)
    graphs = [_graph(W) for W in weights]
    value, found = worst_case(y, graphs, lam=1.0, solver=_EXACT)
    value.square().sum().backward()
    W = sum(float(b) * W for b, W in zip(found.weight, weights, strict=True))
    K = np.linalg.inv(oracles.system(W, 1.0, None))
    expected = 2.0 * K @ (K @ y.detach().numpy())
    np.testing.assert_allclose(y.grad, expected, rtol=1e-7)


def test_bad_input_is_refused():
    y = torch.zeros(3)
    edges = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="'graphs' must have one graph at least"):
        worst_case(y, [])
    with pytest.raises(ValueError, match="'normalization' must be one of"):
        worst_case(y, [edges], normalization="nrw")
    with pytest.raises(ValueError, match="'lam' must be non-negative"):
        worst_case(y, [edges], lam=-1.0)
    with pytest.raises(ValueError, match="'y_hat' must be finite"):
        worst_case(y * torch.nan, [edges])
