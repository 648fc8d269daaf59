"""Neighbours that are counted: the k nearest, of fitted people and of newcomers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.audit import Bootstrap
from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.graph import weights as graph_weights
from pyg_glif.links import Logit
from pyg_glif.postprocessing import GLIFPostProcessor
from tests import oracles_inductive as oracle
from tests.postprocessing.people import People, people

FORMS = [None, "density", "nrw"]
K, LAM = 4, 0.05
CASES = [
    {},
    {"mutual": True},
    {"tau": 0.5},
    {"tau": 0.5, "mutual": True},
    {"theta": 0.5},
    {"theta": 0.0, "tau": 0.7},
]


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))


class Dense:
    """Fitted and new people with everything as dense matrices, from the formulas."""

    def __init__(
        self,
        x: np.ndarray,
        x_new: np.ndarray,
        k: int = K,
        *,
        tau: float = np.inf,
        mutual: bool = False,
        theta: float | None = None,
    ) -> None:
        rule = mutual, theta, graph_weights.DECAY
        dist, far = distances(x, x), np.diag(np.full(len(x), np.inf))
        scale = oracle.kth_distance(dist + far, k, tau)
        self.W = oracle.nearest_weights(dist + far, scale, scale, *rule)
        cross = distances(x_new, x)
        alone = oracle.kth_distance(cross, k, tau)
        self.outer = oracle.nearest_weights(cross, alone, scale, *rule)
        # Newcomers as each other's neighbours: near among everybody.
        inner = distances(x_new, x_new) + np.diag(np.full(len(x_new), np.inf))
        both = oracle.kth_distance(np.hstack([cross, inner]), k, tau)
        self.joint_outer = oracle.nearest_weights(cross, both, scale, *rule)
        self.inner = oracle.nearest_weights(inner, both, both, *rule)


@pytest.mark.parametrize("normalization", FORMS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_fit_and_newcomers_match_dense_formulas(
    case: dict, normalization: str | None
) -> None:
    group = people()
    options = {"tau": None, "theta": None, "lam": LAM, "k": K, **case}
    post = group.fit(normalization=normalization, **options)
    dense = Dense(group.x.numpy(), group.x_new.numpy(), **case)
    f = oracle.inverse(dense.W, LAM, normalization) @ group.y.numpy()
    np.testing.assert_allclose(post.y_fair_, f, atol=1e-10)
    y_new = group.y_new.numpy()
    expected = oracle.update(dense.W, dense.outer, y_new, f, LAM, normalization)
    info = post.transform_info(group.x_new, group.y_new)
    out = info.value
    np.testing.assert_allclose(out, expected, atol=1e-10)
    np.testing.assert_array_equal(info.num_neighbors, (dense.outer > 0).sum(1))
    expected = oracle.joint(
        dense.W, dense.joint_outer, dense.inner, y_new, f, LAM, normalization
    )
    info = post.transform_info(group.x_new, group.y_new, joint=True)
    out = info.value
    np.testing.assert_allclose(out, expected, atol=1e-10)
    count = (dense.joint_outer > 0).sum(1) + (dense.inner > 0).sum(1)
    np.testing.assert_array_equal(info.num_neighbors, count)


@settings(max_examples=20, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.sampled_from([{}, {"mutual": True}, {"tau": 1.0}]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_ties_and_duplicates(seed: int, k: int, case: dict, dtype: torch.dtype) -> None:
    # Whole coordinates: nearly every distance is tied with others.
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 3, (24, 2), generator=generator).to(dtype)
    y = torch.rand(24, 1, generator=generator, dtype=torch.float64)
    post = GLIFPostProcessor(k=k, lam=LAM, **case).fit(x[:16], y[:16])
    dense = Dense(x[:16].double().numpy(), x[16:].double().numpy(), k, **case)
    joined = np.zeros((16, 16))
    joined[tuple(post.graph_.edge_index.numpy())] = 1.0
    np.testing.assert_array_equal(joined, dense.W > 0)
    f = post.y_fair_.numpy()
    expected = oracle.update(dense.W, dense.outer, y[16:].numpy(), f, LAM, None)
    np.testing.assert_allclose(post.transform(x[16:], y[16:]), expected, atol=1e-6)
    parts = dense.W, dense.joint_outer, dense.inner, y[16:].numpy(), f
    out = post.transform(x[16:], y[16:], joint=True)
    np.testing.assert_allclose(out, oracle.joint(*parts, LAM, None), atol=1e-6)


def test_black_box_distances() -> None:
    group = people()
    plain = group.fit(k=K, tau=None, theta=None)
    post = group.fit(k=K, tau=None, theta=None, distance=CallableDistance(torch.cdist))
    for joint in (False, True):
        expected = plain.transform(group.x_new, group.y_new, joint=joint)
        out = post.transform(group.x_new, group.y_new, joint=joint)
        torch.testing.assert_close(out, expected)


def test_company_and_order_are_irrelevant() -> None:
    group = people()
    post = group.fit(k=K, tau=None, theta=None)
    whole = post.transform(group.x_new, group.y_new)
    for at in (0, 7, 24):
        rows = slice(at, at + 1)
        one = post.transform(group.x_new[rows], group.y_new[rows])
        torch.testing.assert_close(one, whole[rows], rtol=0, atol=1e-12)
    joint = post.transform(group.x_new[:1], group.y_new[:1], joint=True)
    torch.testing.assert_close(joint, whole[:1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_partial_fit_equals_fit_on_everybody(case: dict) -> None:
    group = people()
    options = {"tau": None, "theta": None, "k": K, **case}
    post = group.fit(**options).partial_fit(group.x_new[:9], group.y_new[:9])
    post.partial_fit(group.x_new[9:], group.y_new[9:])
    x, y = torch.cat([group.x, group.x_new]), torch.cat([group.y, group.y_new])
    full = People(x, y, group.x_new, group.y_new).fit(**options)
    assert torch.equal(post.graph_.edge_index, full.graph_.edge_index)
    torch.testing.assert_close(post.graph_.edge_weight, full.graph_.edge_weight)
    torch.testing.assert_close(post.y_fair_, full.y_fair_, rtol=0, atol=1e-10)
    out = post.transform(group.x_new, group.y_new)
    torch.testing.assert_close(out, full.transform(group.x_new, group.y_new))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_explanations_rebuild_outputs(case: dict) -> None:
    group = people()
    post = group.fit(**{"tau": None, "theta": None, "k": K, **case})
    found = post.explain(5)
    rebuilt = found.weight @ group.y[found.index]
    torch.testing.assert_close(rebuilt, post.y_fair_[5], rtol=0, atol=1e-6)
    found = post.explain_new(group.x_new[3:4])
    assert float(found.weight.sum()) == pytest.approx(1.0)
    y = torch.cat([group.y, group.y_new[3:4]])  # index -1 is the newcomer
    rebuilt = found.weight @ y[found.index]
    out = post.transform(group.x_new[3:4], group.y_new[3:4])
    torch.testing.assert_close(rebuilt, out[0], rtol=0, atol=1e-6)


def test_audit_is_about_the_same_neighbours() -> None:
    group = people()
    post = group.fit(k=K, tau=None, theta=None)
    report = post.audit(num_nearest=None, bootstrap=Bootstrap(num_samples=10))
    dense = Dense(group.x.numpy(), group.x_new.numpy())
    for y, estimate in ((group.y, "before"), (post.y_fair_, "after")):
        L = np.diag(dense.W.sum(1)) - dense.W
        energy = float(np.trace(y.numpy().T @ L @ y.numpy()))
        found = getattr(report["laplacian_energy"], estimate).value
        assert found == pytest.approx(energy)
    assert report.facts["num_edges"] == (dense.W > 0).sum() // 2


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loaded_gives_the_same_bits(
    case: dict, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = people(dtype=dtype)
    distance = SensitiveSubspace(torch.tensor([[1.0, 3.0]], dtype=dtype))
    options = {"tau": None, "theta": None, "k": K, "distance": distance, **case}
    post = group.fit(solver=None, **options)
    post.save(tmp_path / "fit")
    # What the default is later does not change what was fitted.
    monkeypatch.setattr("pyg_glif.fit.settings.DECAY", 7.0)
    monkeypatch.setattr("pyg_glif.graph.weights.DECAY", 7.0)
    other = GLIFPostProcessor.load(tmp_path / "fit")
    assert repr(other) == repr(post)
    assert (other.tau_, other.theta_) == (post.tau_, post.theta_)
    assert torch.equal(other.y_fair_, post.y_fair_)
    assert torch.equal(other.graph_.edge_weight, post.graph_.edge_weight)
    assert torch.equal(other.similarity_.scale, post.similarity_.scale)
    for joint in (False, True):
        first = post.transform(group.x_new, group.y_new, joint=joint)
        second = other.transform(group.x_new, group.y_new, joint=joint)
        assert torch.equal(first, second)
    post.partial_fit(group.x_new, group.y_new)
    other.partial_fit(group.x_new, group.y_new)
    assert torch.equal(other.y_fair_, post.y_fair_)


def test_too_far_from_everybody_stays_alone_and_is_listed() -> None:
    group = people()
    y = group.y * 0.9 + 0.05
    for link in (None, Logit()):
        post = group.fit(k=K, tau=2.0, theta=None, link=link).fit(group.x, y)
        assert 59 in post.isolated_.tolist()
        assert post.num_isolated_ == post.isolated_.numel()
        assert torch.equal(post.y_fair_[59], y[59])
        out = post.transform(group.x_new, group.y_new)
        assert torch.equal(out[-1], group.y_new[-1])
    assert group.fit(k=K, tau=None).num_isolated_ == 0


def test_what_is_in_use() -> None:
    group = people()
    post = group.fit(k=3, tau=None, theta=None)
    assert (post.tau_, post.theta_, post.k) == (np.inf, None, 3)
    assert repr(post.similarity_).endswith("k=3)")
    post = group.fit(k=3, tau=0.5, theta=0.25)
    assert (post.tau_, post.theta_) == (0.5, 0.25)
    # The degree that a radius would be chosen for has no say.
    other = group.fit(k=3, tau=0.5, theta=0.25, target_degree=1000.0)
    assert torch.equal(other.y_fair_, post.y_fair_)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"k": 0}, ValueError, "'k' must be at least 1 (got 0)"),
        ({"k": 2.0}, TypeError, "'k' must be a whole number (got 2.0)"),
        (
            {"k": 2, "mutual": "yes"},
            ValueError,
            "'mutual' must be one of True, False (got 'yes')",
        ),
    ],
)
def test_constructor_rejects(
    params: dict[str, object], error: type, message: str
) -> None:
    with pytest.raises(error) as caught:
        GLIFPostProcessor(**params)
    assert str(caught.value) == message


def test_more_neighbours_than_people_are_refused() -> None:
    group = people()
    with pytest.raises(ValueError, match=r"^'k' must be below 60 \(got 60\)$"):
        group.fit(k=60, tau=None)
