import numpy as np
import pytest
import torch

from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.explain import Explanation
from pyg_glif.links import Logit
from pyg_glif.solvers import CoordinateDescent
from tests import oracles_inductive as oracle
from tests.postprocessing.people import people


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_explain_is_a_row_of_the_inverse(normalization: str | None) -> None:
    group = people()
    post = group.fit(normalization=normalization, lam=0.05)
    W = oracle.fitted_weights(group.x.numpy(), 0.9, 0.5)
    R = oracle.inverse(W, 0.05, normalization)
    for i in (0, 17, 59):
        found = post.explain(i)
        row = np.zeros(60)
        row[found.index] = found.weight
        np.testing.assert_allclose(row, R[i], atol=1e-6)
        assert np.linalg.norm(row - R[i]) <= found.error_bound
        dist = np.linalg.norm((group.x[found.index] - group.x[i]).numpy(), axis=1)
        np.testing.assert_allclose(found.dist, dist, atol=1e-12)
        assert bool((found.weight.abs().diff() <= 0).all())


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_explain_new_is_the_update_after_the_inverse(normalization: str | None) -> None:
    group, lam = people(), 0.05
    post = group.fit(normalization=normalization, lam=lam)
    W = oracle.fitted_weights(group.x.numpy(), 0.9, 0.5)
    outer = oracle.weights(group.x_new.numpy(), group.x.numpy(), 0.9, 0.5)
    # Outputs of one person at a time: columns of the whole map.
    R = oracle.inverse(W, lam, normalization)
    rows = oracle.update(W, outer, np.zeros((25, 60)), R, lam, normalization)
    own = oracle.update(
        W, outer, np.ones((25, 1)), np.zeros((60, 1)), lam, normalization
    )
    for i in (0, 8, 24):
        found = post.explain_new(group.x_new[i : i + 1])
        row = np.zeros(61)
        row[found.index] = found.weight
        expected = np.append(rows[i], own[i])
        np.testing.assert_allclose(row, expected, atol=1e-6)
        assert np.linalg.norm(row - expected) <= found.error_bound + 1e-15
        assert found.error_bound < 1e-5


@pytest.mark.parametrize("normalization", [None, "density"])
def test_explanations_are_averages_that_reproduce_outputs(
    normalization: str | None,
) -> None:
    group = people()
    basis = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    post = group.fit(normalization=normalization, distance=SensitiveSubspace(basis))
    for i in range(0, 60, 7):
        found = post.explain(i)
        assert float(found.weight.min()) > 0
        torch.testing.assert_close(found.weight.sum().item(), 1.0)
        rebuilt = found.weight @ group.y[found.index]
        torch.testing.assert_close(rebuilt, post.y_fair_[i], rtol=0, atol=1e-5)
    out = post.transform(group.x_new, group.y_new)
    for i in range(0, 25, 6):
        found = post.explain_new(group.x_new[i : i + 1])
        assert float(found.weight.min()) > 0
        torch.testing.assert_close(found.weight.sum().item(), 1.0)
        values = torch.cat([group.y, group.y_new[i : i + 1]])  # -1 is the last row
        rebuilt = found.weight @ values[found.index]
        torch.testing.assert_close(rebuilt, out[i], rtol=0, atol=1e-5)
        assert found.dist[found.index == -1] == 0


def test_explanations_hold_in_dual_coordinates() -> None:
    group = people(columns=1)
    post = group.fit(link=Logit())
    found = post.explain(3)
    eta = Logit().to_dual(group.y[found.index])
    rebuilt = Logit().from_dual(found.weight @ eta)
    torch.testing.assert_close(rebuilt, post.y_fair_[3], rtol=0, atol=1e-5)


def test_explain_lone_people() -> None:
    group = people()
    post = group.fit()
    alone = post.explain(59)
    assert alone.index.tolist() == [59]
    assert alone.weight.tolist() == [1.0]
    new = post.explain_new(group.x_new[-1:])
    assert new.index.tolist() == [-1]
    assert new.weight.tolist() == [1.0]
    last = new.to_markdown(names=True).splitlines()[-1]
    assert last == "| own output | 1.0000 | 0 |"
    assert new.to_markdown().splitlines()[-1] == "| own output | 1 | 100 |  |"


def test_explain_top() -> None:
    group = people()
    post = group.fit(distance=CallableDistance(lambda a, b: torch.cdist(a, b)))
    whole, top = post.explain(0), post.explain(np.int64(0), top=3)
    assert torch.equal(whole.index[:3], top.index)
    assert torch.equal(whole.weight[:3], top.weight)
    torch.testing.assert_close(whole.dist[:3], top.dist)
    assert len(post.explain_new(group.x_new[:1], top=2).index) == 2
    assert len(top.to_markdown(names=True).splitlines()) == 5
    assert (top.neighbors, top.others, top.own) == (
        whole.neighbors,
        whole.others,
        whole.own,
    )


def test_explain_is_exact_whatever_the_solver_of_the_fit() -> None:
    group = people()
    rough = group.fit(solver=CoordinateDescent(epochs=1))
    torch.testing.assert_close(rough.explain(0).weight, group.fit().explain(0).weight)


def test_explanation_repr() -> None:
    found = Explanation(torch.tensor([1, 2]), torch.tensor([0.5, 0.25]), torch.ones(2))
    expected = "Explanation(num_samples=2, total=0.7500, error_bound=0.0e+00)"
    assert repr(found) == expected


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: p.explain(60), ValueError, "'i' must be below 60 (got 60)"),
        (lambda p: p.explain(-1), ValueError, "'i' must be at least 0 (got -1)"),
        (lambda p: p.explain(0, top=0), ValueError, "'top' must be at least 1 (got 0)"),
        (
            lambda p: p.explain_new(torch.zeros(2, 2)),
            ValueError,
            "'x_new' must have one row (got 2)",
        ),
    ],
)
def test_explain_rejects(call: object, error: type, message: str) -> None:
    post = people().fit()
    with pytest.raises(error) as caught:
        call(post)
    assert str(caught.value) == message
