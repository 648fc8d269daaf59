"""Groups that are treated equally alike, against convex programming and NumPy."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import GLIFConv, glif_smooth
from pyg_glif.laplacian import LaplacianOperator
from pyg_glif.links import Logit
from pyg_glif.methods import smooth_balanced
from pyg_glif.solvers import CG, Cholesky

_EXACT = Cholesky(rtol=1e-12)


def _problem(seed, num_groups=2, n=24, columns=1, density=0.25):
    rng = np.random.default_rng(seed)
    weight = np.triu(rng.uniform(0.1, 2.0, (n, n)) * (rng.random((n, n)) < density), 1)
    weight = weight + weight.T
    group = rng.integers(0, num_groups, n)
    y = rng.normal(size=(n, columns)) * (1.0 + 2.0 * group)[:, None]
    return weight, group, y


def _group_laplacians(weight, group):
    """Edges inside a group, and half of those that leave it."""
    out = []
    for label in np.unique(group):
        inside = (group == label).astype(float)
        part = weight * (inside[:, None] + inside[None, :]) / 2
        out.append(np.diag(part.sum(1)) - part)
    return out


def _smooth(weight, group, y, lam, **options):
    edge_index = torch.tensor(np.stack(np.nonzero(weight)))
    value = torch.tensor(weight[np.nonzero(weight)])
    return smooth_balanced(
        torch.tensor(y),
        edge_index,
        value,
        lam=lam,
        groups=torch.tensor(group),
        **{"solver": _EXACT, **options},
    )


def _energies(laplacians, group, f):
    size = np.unique(group, return_counts=True)[1]
    return np.array([np.trace(f.T @ lap @ f) for lap in laplacians]) / size


def _root(lap):
    """A matrix whose square is the Laplacian; solvers of cones fail on less."""
    value, vector = np.linalg.eigh(lap)
    return np.sqrt(value.clip(0.0))[:, None] * vector.T


@pytest.mark.parametrize("num_groups", [2, 3, 5])
@pytest.mark.parametrize("lam", [0.03, 1.0, 30.0])
def test_balance_is_the_convex_program(num_groups, lam):
    weight, group, y = _problem(num_groups, num_groups, columns=2)
    laps = _group_laplacians(weight, group)
    size = np.unique(group, return_counts=True)[1]
    f, worst = cp.Variable(y.shape), cp.Variable()
    parts = [
        cp.sum_squares(_root(lap) @ f) / m for lap, m in zip(laps, size, strict=True)
    ]
    objective = cp.sum_squares(f - y) + lam * len(y) * worst
    problem = cp.Problem(cp.Minimize(objective), [part <= worst for part in parts])
    problem.solve(solver=cp.CLARABEL)
    found = _smooth(weight, group, y, lam)
    np.testing.assert_allclose(found.value.numpy(), f.value, atol=2e-4)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**16),
    num_groups=st.integers(1, 4),
    lam=st.floats(1e-3, 1e3),
)
def test_balanced_outputs_solve_the_system_of_their_beta(seed, num_groups, lam):
    weight, group, y = _problem(seed, num_groups)
    found = _smooth(weight, group, y, lam)
    laps = _group_laplacians(weight, group)
    shares, labels = found.balance, np.unique(group)
    assert shares.group.tolist() == labels.tolist()
    beta = shares.beta.numpy()
    size = np.unique(group, return_counts=True)[1]
    np.testing.assert_allclose(beta @ size, len(y))
    system = sum(b * lap for b, lap in zip(beta, laps, strict=True))
    f = np.linalg.solve(np.eye(len(y)) + lam * system, y)
    np.testing.assert_allclose(found.value.numpy(), f, rtol=1e-7, atol=1e-9)
    # Optimality: equal where there is a share, smaller where there is none.
    energy = _energies(laps, group, f)
    np.testing.assert_allclose(shares.energy.numpy(), energy, rtol=1e-6, atol=1e-12)
    worst = energy.max()
    assert (energy[beta > 1e-6] >= worst * (1 - 2e-3) - 1e-12).all()
    gap = lam * len(y) * (worst - beta * size @ energy / len(y))
    np.testing.assert_allclose(shares.gap, gap, atol=1e-6 * max(lam * worst, 1e-6))
    assert shares.is_balanced == (shares.ratio <= 1.001)


@pytest.mark.parametrize("definition", ["members", "pairs", "guide"])
def test_definition_says_what_energies_are_divided_by(definition):
    weight, group, y = _problem(7, n=40)
    found = _smooth(weight, group, y, 10.0, definition=definition)
    f, entries = found.value.numpy(), weight > 0
    per = []
    for label, lap in enumerate(_group_laplacians(weight, group)):
        rows = group == label
        size = {
            "members": rows.sum(),
            "pairs": 0.5 * entries[rows].sum(),
            # Doubled Laplacians over the entries of rows, the diagonal among them.
            "guide": 0.5 * (entries[rows].sum() + rows.sum()),
        }[definition]
        per.append(np.trace(f.T @ lap @ f) / size)
    assert found.balance.is_balanced
    np.testing.assert_allclose(per[0], per[1], rtol=1e-3)
    np.testing.assert_allclose(found.balance.energy.numpy(), per, rtol=1e-6)


def test_density_balances_the_laplacian_that_lam_multiplies():
    weight, group, y = _problem(11, n=40)
    found = _smooth(weight, group, y, 10.0, normalization="density")
    deg = weight.sum(1) + 1.0
    scaled = deg.mean() * weight / np.sqrt(np.outer(deg, deg))
    f = found.value.numpy()
    energy = _energies(_group_laplacians(scaled, group), group, f)
    np.testing.assert_allclose(energy[0], energy[1], rtol=1e-3)
    np.testing.assert_allclose(found.balance.energy.numpy(), energy, rtol=1e-6)


def test_one_group_and_no_strength_change_nothing():
    weight, group, y = _problem(3)
    alone = _smooth(weight, 0 * group, y, 2.0)
    edges = np.stack(np.nonzero(weight))
    plain = glif_smooth(
        torch.tensor(y),
        torch.tensor(edges),
        torch.tensor(weight[tuple(edges)]),
        lam=2.0,
        solver=_EXACT,
    )
    torch.testing.assert_close(alone.value, plain)
    assert alone.balance.ratio == 1.0
    still = _smooth(weight, group, y, 0.0)
    np.testing.assert_array_equal(still.value.numpy(), y)
    assert still.balance.beta.tolist() == [1.0, 1.0]


def test_no_beta_balances_a_group_that_is_treated_alike_already():
    # Two pairs; those of group 0 agree, so that nothing can raise their energy.
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    y = torch.tensor([1.0, 1.0, 0.0, 3.0], dtype=torch.float64)
    groups = torch.tensor([0, 0, 1, 1])
    found = smooth_balanced(y, edge_index, groups=groups)
    assert found.balance.beta.tolist() == [0.0, 2.0]
    assert not found.balance.is_balanced
    assert found.balance.ratio == float("inf")
    torch.testing.assert_close(found.value, y.new_tensor([1.0, 1.0, 1.2, 1.8]))


def test_isolated_nodes_and_groups_without_edges_do_not_count():
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    y = torch.tensor([0.0, 1.0, 0.0, 3.0, 5.0], dtype=torch.float64)
    groups = torch.tensor([4, 4, 7, 7, 9])
    found = smooth_balanced(y, edge_index, lam=20.0, groups=groups)
    assert found.value[4] == 5.0
    assert found.balance.group.tolist() == [4, 7, 9]
    assert found.balance.beta[2] == 1.0
    assert found.balance.energy[2] == 0.0
    # (1 / (1 + 2 lam beta))^2 = (3 / (1 + 2 lam (2 - beta)))^2 has one solution.
    beta = (1 + 80 - 3) / (40 + 120)
    assert found.balance.beta[0].item() == pytest.approx(beta, rel=1e-4)
    assert found.balance.is_balanced


def test_outputs_alike_everywhere_are_balanced():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    found = smooth_balanced(
        torch.ones(3),
        edge_index,
        groups=torch.tensor([0, 1, 1]),
    )
    assert found.value.tolist() == [1.0, 1.0, 1.0]
    assert (found.balance.ratio, found.balance.gap) == (1.0, 0.0)


def test_batch_of_graphs_is_balanced_as_one():
    weight, group, y = _problem(5, n=12)
    other, more, z = _problem(6, n=15)
    both = np.block([[weight, np.zeros((12, 15))], [np.zeros((15, 12)), other]])
    batch = torch.tensor([0] * 12 + [1] * 15)
    labels, outputs = np.concatenate([group, more]), np.concatenate([y, z])
    found = _smooth(both, labels, outputs, 10.0, normalization="density", batch=batch)
    scaled = np.zeros_like(both)
    for part in (slice(0, 12), slice(12, 27)):
        deg = both[part, part].sum(1) + 1.0
        scaled[part, part] = deg.mean() * both[part, part] / np.sqrt(np.outer(deg, deg))
    laps = _group_laplacians(scaled, labels)
    beta = found.balance.beta.numpy()
    system = np.eye(27) + 10.0 * sum(b * lap for b, lap in zip(beta, laps, strict=True))
    f = found.value.numpy()
    np.testing.assert_allclose(f, np.linalg.solve(system, outputs), atol=1e-9)
    energy = _energies(laps, labels, f)
    np.testing.assert_allclose(energy[0], energy[1], rtol=1e-3)


def test_links_balance_dual_coordinates():
    weight, group, y = _problem(13)
    eta = np.clip(y, -4, 4)
    logit = _smooth(weight, group, 1 / (1 + np.exp(-eta)), 3.0, link=Logit())
    plain = _smooth(weight, group, eta, 3.0)
    value = torch.sigmoid(plain.value)
    torch.testing.assert_close(logit.value, value, rtol=1e-6, atol=1e-8)


def test_gradients_take_the_shares_as_given():
    weight, group, y = _problem(17, n=12)
    edges = torch.tensor(np.stack(np.nonzero(weight)))
    value = torch.tensor(weight[np.nonzero(weight)], requires_grad=True)
    outputs = torch.tensor(y, requires_grad=True)
    lam = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    probe = torch.linspace(-1, 1, 12, dtype=torch.float64).unsqueeze(1)
    found = smooth_balanced(
        outputs,
        edges,
        value,
        lam=lam,
        groups=torch.tensor(group),
        solver=_EXACT,
    )
    (probe * found.value).sum().backward()
    ends = found.balance.beta[torch.tensor(group)]
    factor = (0.5 * (ends[edges[0]] + ends[edges[1]])).detach()

    def fixed(outputs, value, lam):
        dense = torch.zeros(12, 12, dtype=torch.float64)
        dense = dense.index_put((edges[0], edges[1]), value * factor)
        system = torch.diag(dense.sum(1)) - dense
        eye = torch.eye(12, dtype=torch.float64)
        return (probe * torch.linalg.solve(eye + lam * system, outputs)).sum()

    copies = [t.detach().clone().requires_grad_() for t in (outputs, value, lam)]
    fixed(*copies).backward()
    # The energy of a pair of directions is that of their mean.
    back = {(i, j): k for k, (i, j) in enumerate(edges.T.tolist())}
    twin = torch.tensor([back[j, i] for i, j in edges.T.tolist()])
    expected = copies[1].grad
    torch.testing.assert_close(outputs.grad, copies[0].grad)
    torch.testing.assert_close(value.grad, 0.5 * (expected + expected[twin]))
    torch.testing.assert_close(lam.grad, copies[2].grad)


def test_iterative_and_single_precision_solves_agree():
    weight, group, y = _problem(19, n=60, density=0.1)
    exact = _smooth(weight, group, y, 4.0)
    rough = _smooth(weight, group, y.astype(np.float32), 4.0, solver=CG())
    assert rough.value.dtype == torch.float32
    gap = (rough.value.double() - exact.value).norm()
    assert gap <= rough.balance.gap**0.5 + 1e-4
    assert rough.balance.is_balanced


def test_balance_refuses_what_it_cannot_do():
    edge_index, y = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.0, 1.0])
    groups = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="'groups' must be given for balance=True"):
        GLIFConv(balance=True)(y, edge_index)
    with pytest.raises(ValueError, match="'y_std' must be None with balance=True"):
        GLIFConv(balance=True)(y, edge_index, groups=groups, y_std=torch.ones(4))
    with pytest.raises(ValueError, match=r"'groups' must have one entry per row"):
        smooth_balanced(y, edge_index, groups=groups[:1])
    with pytest.raises(ValueError, match="'normalization' must be"):
        smooth_balanced(y, edge_index, groups=groups, normalization="nrw")
    with pytest.raises(ValueError, match="'definition' must be"):
        smooth_balanced(y, edge_index, groups=groups, definition="thirds")


def test_reweighted_operator_is_the_weighted_laplacian():
    weight, group, _ = _problem(29, n=10)
    edges = np.stack(np.nonzero(weight))
    lap = LaplacianOperator(torch.tensor(edges), torch.tensor(weight[tuple(edges)]))
    factor = 1.0 + group[edges[0]] + group[edges[1]]
    dense = lap.reweighted(torch.tensor(factor, dtype=torch.float64)).to_dense()
    scaled = np.zeros_like(weight)
    scaled[tuple(edges)] = weight[tuple(edges)] * factor
    np.testing.assert_allclose(dense, np.diag(scaled.sum(1)) - scaled)
    with pytest.raises(ValueError, match="'normalization' must be"):
        LaplacianOperator(torch.tensor(edges), normalization="nrw").reweighted(
            torch.ones(edges.shape[1])
        )
