import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.errors import ConvergenceError
from pyg_glif.links import Log, Logit, Softmax
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG, Cholesky
from tests import oracles_inductive as oracle
from tests.postprocessing.people import People, people

FORMS = [None, "density", "nrw"]
TAU, THETA, LAM = 0.9, 0.5, 0.7


def parts(group: People) -> tuple[np.ndarray, ...]:
    """Dense weights of fitted, of new and fitted, and of new people."""
    x, x_new = group.x.numpy(), group.x_new.numpy()
    W = oracle.fitted_weights(x, TAU, THETA)
    outer = oracle.weights(x_new, x, TAU, THETA)
    return W, outer, oracle.fitted_weights(x_new, TAU, THETA)


@pytest.mark.parametrize("normalization", FORMS)
def test_update_matches_the_formula(normalization: str | None) -> None:
    group = people()
    post = group.fit(normalization=normalization, lam=0.05)
    W, outer, _ = parts(group)
    f = oracle.inverse(W, 0.05, normalization) @ group.y.numpy()
    np.testing.assert_allclose(post.y_fair_, f, atol=1e-10)
    expected = oracle.update(W, outer, group.y_new.numpy(), f, 0.05, normalization)
    out = post.transform(group.x_new, group.y_new)
    np.testing.assert_allclose(out, expected, atol=1e-10)


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("solver", [None, CG(rtol=1e-12), Cholesky()])
def test_joint_matches_a_dense_solve(normalization: str | None, solver: object) -> None:
    group = people()
    post = group.fit(normalization=normalization, lam=0.05, solver=solver)
    W, outer, inner = parts(group)
    f = post.y_fair_.numpy()
    y = group.y_new.numpy()
    expected = oracle.joint(W, outer, inner, y, f, 0.05, normalization)
    info = post.transform_info(group.x_new, group.y_new, joint=True)
    out = info.value
    np.testing.assert_allclose(out, expected, atol=1e-10)
    assert float(info.solution.error_bound.max()) < 1e-9


def test_joint_is_right_for_stiff_systems_too() -> None:
    # Solvers may take component means out of stiff systems; here rows do not sum to 0.
    group = people(num=400, num_new=300)
    post = group.fit(lam=1e3, solver=CG(rtol=1e-10))
    W, outer, inner = parts(group)
    expected = oracle.joint(
        W, outer, inner, group.y_new.numpy(), post.y_fair_.numpy(), 1e3, None
    )
    out = post.transform(group.x_new, group.y_new, joint=True)
    np.testing.assert_allclose(out, expected, atol=1e-8)


def test_joint_refuses_a_saddle() -> None:
    # The newcomers form a star: a hub at 50 and leaves that are near it alone.
    known = torch.stack([torch.zeros(20), torch.full((20,), 9.0)]).double()
    post = GLIFPostProcessor(tau=1.05, theta=0.0, normalization="nrw", lam=1000.0)
    post.fit(known, torch.zeros(2, 1, dtype=torch.float64))
    star = 50.0 + torch.cat([torch.eye(20), torch.zeros(1, 20)]).double()
    with pytest.raises(ConvergenceError, match="not positive definite"):
        post.transform(star, torch.zeros(21, 1, dtype=torch.float64), joint=True)


@pytest.mark.parametrize("joint", [False, True])
def test_people_without_neighbours_are_returned_unchanged(joint: bool) -> None:
    group = people(dtype=torch.float32)
    y, y_new = torch.softmax(group.y, 1), torch.softmax(group.y_new, 1)
    post = GLIFPostProcessor(tau=TAU, link=Softmax()).fit(group.x, y)
    info = post.transform_info(group.x_new, y_new, joint=joint)
    out = info.value
    assert torch.equal(out[-1], y_new[-1])
    assert info.num_neighbors[-1] == 0
    alone = info.num_neighbors == 0
    assert info.num_isolated == int(alone.sum()) > 0
    assert torch.equal(out[alone], y_new[alone])
    assert not torch.equal(out[~alone], y_new[~alone])
    assert torch.equal(post.y_fair_[-1], y[-1])


@pytest.mark.parametrize("link", [Logit(), Log(), Softmax("logits")])
def test_links_average_in_dual_coordinates(link: object) -> None:
    group = people()
    if not isinstance(link, Softmax):
        group = People(group.x, group.y * 0.9 + 0.05, group.x_new, group.y_new)
    post, plain = group.fit(link=link), group.fit()
    plain.fit(group.x, link.to_dual(group.y))
    expected = plain.transform(group.x_new, link.to_dual(group.y_new))
    out = post.transform(group.x_new, group.y_new)
    torch.testing.assert_close(link.to_dual(out), expected)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(FORMS))
def test_order_and_company_are_irrelevant(seed: int, normalization: str | None) -> None:
    group = people(num=30, num_new=12, seed=seed)
    basis = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    distance = SensitiveSubspace(basis)
    post = group.fit(distance=distance, normalization=normalization, lam=0.01)
    whole = post.transform(group.x_new, group.y_new)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    # Rounding of matrix products may depend on the block, nothing else does.
    shuffled = post.transform(group.x_new[order], group.y_new[order])
    torch.testing.assert_close(shuffled, whole[order], rtol=0, atol=1e-12)
    single = [
        post.transform(group.x_new[i : i + 1], group.y_new[i : i + 1])
        for i in range(12)
    ]
    torch.testing.assert_close(torch.cat(single), whole, rtol=0, atol=1e-12)


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    group = people()
    post = group.fit()
    whole = post.transform(group.x_new, group.y_new)
    monkeypatch.setattr("pyg_glif.fit.fit._BLOCK", 7)
    assert torch.equal(post.transform(group.x_new, group.y_new), whole)


def test_boundary_and_black_box_distances() -> None:
    x = torch.tensor([[0.0], [3.0]])
    post = GLIFPostProcessor(tau=1.0, theta=0.0)
    post.fit(x, torch.tensor([1.0, 3.0]))
    new, y = torch.tensor([[1.0], [1.5], [2.0]]), torch.tensor([0.0, 0.0, 0.0])
    assert post.transform(new, y).tolist() == [0.5, 0.0, 1.5]
    distance = CallableDistance(lambda a, b: torch.cdist(a, b, p=1.0))
    post.set_params(distance=distance).fit(x, torch.tensor([1.0, 3.0]))
    assert post.transform(new, y).tolist() == [0.5, 0.0, 1.5]


def test_a_duplicate_of_everybody_joins_the_fixed_point() -> None:
    # With its own fitted output a person is already where the update would put it.
    post = GLIFPostProcessor(tau=1.0, theta=0.0)
    x, y = torch.zeros(4, 1), torch.tensor([0.0, 1.0, 2.0, 5.0])
    post.fit(x, y)
    out = post.transform(torch.zeros(1, 1), torch.tensor([2.0]))
    torch.testing.assert_close(out, torch.tensor([2.0]))


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("link", [None, Logit()])
def test_partial_fit_equals_fit_on_everybody(
    normalization: str | None, link: object
) -> None:
    group = people(columns=2)
    params = {"normalization": normalization, "lam": 0.05, "link": link}
    y, y_new = group.y * 0.9 + 0.05, group.y_new * 0.9 + 0.05
    post = People(group.x, y, group.x_new, y_new).fit(**params)
    post.partial_fit(group.x_new[:10], y_new[:10])
    assert post.partial_fit(group.x_new[10:], y_new[10:]) is post
    x_all, y_all = torch.cat([group.x, group.x_new]), torch.cat([y, y_new])
    full = People(x_all, y_all, group.x_new, y_new).fit(**params)
    torch.testing.assert_close(post.y_fair_, full.y_fair_, rtol=0, atol=1e-10)
    assert torch.equal(post.graph_.edge_index, full.graph_.edge_index)
    torch.testing.assert_close(post.graph_.edge_weight, full.graph_.edge_weight)
    out = post.transform(group.x_new, y_new)
    torch.testing.assert_close(out, full.transform(group.x_new, y_new))


def test_partial_fit_starts_from_the_present_solution() -> None:
    group = people()
    post = group.fit()
    assert post.solution_.num_iter > 5
    post.partial_fit(group.x_new[-1:], group.y_new[-1:])  # knows nobody
    assert post.solution_.num_iter == 0


def test_partial_fit_keeps_the_radius_and_starts_a_fit() -> None:
    group = people()
    post = group.fit(tau=None, target_degree=4)
    tau = post.tau_
    post.partial_fit(group.x_new, group.y_new)
    assert post.tau_ == tau
    assert len(post.y_fair_) == 85
    before = post.y_fair_
    post.partial_fit(group.x_new[:0], group.y_new[:0])
    assert torch.equal(post.y_fair_, before)
    fresh = type(post)(**post.get_params()).partial_fit(group.x, group.y)
    assert fresh.tau_ == tau
