"""Fits that treat groups equally alike, against NumPy, and those who come later."""

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.guarantees import certify, sensitivity
from pyg_glif.solvers import Cholesky

LAM, THETA, TAU = 1.0, 0.5, 0.8
SETTINGS = {"tau": TAU, "theta": THETA, "lam": LAM, "solver": Cholesky(rtol=1e-12)}


def _people(seed=2, n=40):
    rng = np.random.default_rng(seed)
    x, group = rng.normal(size=(n, 2)), rng.integers(0, 3, n)
    y = np.sin(3 * x[:, 0]) + (0.8 + 0.4 * (group == 2)) * rng.normal(size=n)
    return x, y, np.array(["a", "b", "c"])[group]


def _weights(x, other):
    """Similarities of people by their distance, nobody's with themselves."""
    sq_dist = ((x[:, None] - other) ** 2).sum(-1)
    near = (np.sqrt(sq_dist) <= TAU) & (sq_dist > 0)
    return np.where(near, np.exp(-THETA * sq_dist), 0.0)


def _laplacian(weight):
    return np.diag(weight.sum(1)) - weight


def _fit(x, y, groups, **options):
    return GLIFPostProcessor(**{**SETTINGS, **options}).fit(x, y, groups=groups)


def test_fit_solves_the_system_of_its_shares_and_balances():
    x, y, groups = _people()
    post = _fit(x, y, groups)
    assert list(post.shares_) == ["a", "b", "c"]
    beta = np.array([post.shares_[g] for g in groups])
    np.testing.assert_allclose(beta.mean(), 1.0)
    weight = _weights(x, x)
    mean = 0.5 * (beta[:, None] + beta)
    f = np.linalg.solve(np.eye(40) + LAM * _laplacian(weight * mean), y)
    np.testing.assert_allclose(post.y_fair_.numpy(), f, atol=1e-9)
    unlike = 0.5 * weight * (f[:, None] - f) ** 2  # row's half of every edge
    energy = [unlike[groups == g].sum() / (groups == g).sum() for g in post.shares_]
    assert max(energy) / min(energy) == pytest.approx(1.0, abs=1e-3)
    balance = post.solution_.balance
    assert balance.is_balanced
    np.testing.assert_allclose(balance.energy.numpy(), energy, rtol=1e-6)
    plain = GLIFPostProcessor(**SETTINGS).fit(x, y)
    assert plain.shares_ is None
    assert not torch.allclose(plain.y_fair_, post.y_fair_)


@pytest.mark.parametrize("told", [True, False])
def test_newcomers_are_one_more_coordinate(told):
    x, y, groups = _people()
    post = _fit(x, y, groups)
    new_x, new_y, new_groups = _people(1, 15)
    found = post.transform(new_x, new_y, groups=new_groups if told else None)
    theirs = np.array([post.shares_[g] for g in groups])
    own = np.array([post.shares_[g] for g in new_groups])[:, None]
    mean = 0.5 * (own + theirs) if told else theirs
    pull = LAM * mean * _weights(new_x, x)
    expected = (new_y + pull @ post.y_fair_.numpy()) / (1 + pull.sum(1))
    np.testing.assert_allclose(found, expected, atol=1e-9)
    # Together: pairs of newcomers count by both shares, or as without groups.
    inner = _weights(new_x, new_x) * (0.5 * (own + own.T) if told else 1.0)
    system = np.eye(15) + np.diag(pull.sum(1)) + LAM * _laplacian(inner)
    expected = np.linalg.solve(system, new_y + pull @ post.y_fair_.numpy())
    found = post.transform(
        new_x, new_y, joint=True, groups=new_groups if told else None
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_newcomers_of_a_density_fit_have_shares_of_its_laplacian():
    x, y, groups = _people()
    post = _fit(x, y, groups, normalization="density")
    new_x, new_y, new_groups = _people(1, 15)
    found = post.transform(new_x, new_y, groups=new_groups)
    deg = _weights(x, x).sum(1) + 1.0
    weight = _weights(new_x, x)
    scaled = weight / np.sqrt(np.outer(weight.sum(1) + 1.0, deg))
    own, theirs = (
        np.array([post.shares_[g] for g in who]) for who in (new_groups, groups)
    )
    pull = LAM * deg.mean() * 0.5 * (own[:, None] + theirs) * scaled
    expected = (new_y + pull @ post.y_fair_.numpy()) / (1 + pull.sum(1))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_saved_groups_come_back(tmp_path):
    x, y, groups = _people()
    post = _fit(x, y, groups)
    post.save(tmp_path / "fit.glif")
    again = GLIFPostProcessor.load(tmp_path / "fit.glif")
    new_x, new_y, new_groups = _people(1, 15)
    for options in ({}, {"groups": new_groups}, {"groups": new_groups, "joint": True}):
        np.testing.assert_array_equal(
            again.transform(new_x, new_y, **options),
            post.transform(new_x, new_y, **options),
        )
    assert again.shares_ == post.shares_
    ours, theirs = again.solution_.balance, post.solution_.balance
    assert repr(ours) == repr(theirs)
    assert (ours.gap, ours.num_solves) == (theirs.gap, theirs.num_solves)
    assert again.explain(3).weight.equal(post.explain(3).weight)


def test_people_who_come_and_go_are_balanced_anew():
    x, y, groups = _people()
    post = _fit(x[:30], y[:30], groups[:30])
    post.partial_fit(x[30:], y[30:], groups=groups[30:])
    whole = _fit(x, y, groups)
    torch.testing.assert_close(post.y_fair_, whole.y_fair_, rtol=0, atol=1e-4)
    post.forget(range(10))
    rest = _fit(x[10:], y[10:], groups[10:])
    torch.testing.assert_close(post.y_fair_, rest.y_fair_, rtol=0, atol=1e-4)
    # The last of a group takes its share along.
    post.forget([i for i, g in enumerate(groups[10:]) if g == "b"])
    assert list(post.shares_) == ["a", "c"]


def test_explanations_add_up_to_balanced_outputs():
    x, y, groups = _people()
    post = _fit(x, y, groups)
    told = post.explain(5)
    total = told.weight.numpy() @ y[told.index.numpy()]
    assert total == pytest.approx(float(post.y_fair_[5]), abs=1e-6)
    new_x, new_y, new_groups = _people(1, 15)
    for options in ({}, {"groups": new_groups[:1]}):
        told = post.explain_new(new_x[:1], **options)
        values = np.append(y, new_y[0])[told.index.numpy()]  # index -1 is their own
        expected = post.transform(new_x[:1], new_y[:1], **options)[0]
        assert told.weight.numpy() @ values == pytest.approx(expected, abs=1e-6)


def test_certificates_hold_for_others_of_any_group():
    x, y, groups = _people()
    post = _fit(x, y, groups)
    new_x, new_y, new_groups = _people(1, 15)
    bound = certify(post.fit_, new_x, 0.05, new_y, dy=0.0, groups=new_groups)
    mine = post.transform(new_x, new_y, groups=new_groups)
    rng, largest = np.random.default_rng(2), np.zeros(15)
    for _ in range(40):
        step = rng.normal(size=(15, 2))
        step *= 0.05 * rng.random((15, 1)) / np.linalg.norm(step, axis=1, keepdims=True)
        for label in ("a", "b", "c", None):
            others = None if label is None else [label] * 15
            found = post.transform(new_x + step, new_y, groups=others)
            largest = np.maximum(largest, np.abs(found - mine))
    assert (largest <= bound.gap.numpy() + 1e-12).all()
    assert (largest > 0).any()


def test_sensitivity_takes_shares_as_given():
    x, y, groups = _people()
    post = _fit(x, y, groups)
    found = sensitivity(post.fit_)
    assert found.leaving is None
    beta = np.array([post.shares_[g] for g in groups])
    weight = _weights(x, x) * 0.5 * (beta[:, None] + beta)
    inverse = np.linalg.inv(np.eye(40) + LAM * _laplacian(weight))
    moved = inverse.max(0)
    assert (moved <= found.own.numpy() + 1e-9).all()
    assert (np.diag(inverse) >= found.own_low.numpy() - 1e-9).all()
    assert sensitivity(GLIFPostProcessor(**SETTINGS).fit(x, y).fit_).leaving is not None


def test_audit_measures_the_graph_not_the_shares():
    x, y, groups = _people()
    post = _fit(x, y, groups)
    lap = _laplacian(_weights(x, x))
    measures = {measure.name: measure for measure in post.audit().measures}
    found, f = measures["laplacian_energy"], post.y_fair_.numpy()
    assert found.before.value == pytest.approx(y @ lap @ y)
    assert found.after.value == pytest.approx(f @ lap @ f)


def test_groups_are_refused_where_they_cannot_be():
    x, y, groups = _people()
    with pytest.raises(ValueError, match="'normalization' must be"):
        _fit(x, y, groups, normalization="nrw")
    with pytest.raises(ValueError, match="'y_std' must be None with 'groups'"):
        GLIFPostProcessor(**SETTINGS).fit(x, y, groups=groups, y_std=1.0)
    with pytest.raises(ValueError, match="'groups' must have one entry per row"):
        _fit(x, y, groups[:5])
    with pytest.raises(TypeError, match="'groups' must be texts or whole numbers"):
        _fit(x, y, [0.5] * 40)
    post = _fit(x, y, groups)
    with pytest.raises(ValueError, match="'groups' must be groups of the fit") as e:
        post.transform(x[:2], y[:2], groups=["a", "d"])
    assert str(e.value) == (
        "'groups' must be groups of the fit, 'a', 'b', 'c' (got 'd')"
    )
    with pytest.raises(ValueError, match="'groups' must be given"):
        post.partial_fit(x[:2], y[:2])
    plain = GLIFPostProcessor(**SETTINGS).fit(x, y)
    with pytest.raises(ValueError, match="'groups' must be None"):
        plain.transform(x[:2], y[:2], groups=["a", "b"])
