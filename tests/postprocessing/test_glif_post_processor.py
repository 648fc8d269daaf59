import copy
import logging
import re

import numpy as np
import pytest
import torch

from pyg_glif import glif_solve
from pyg_glif.distances import CallableDistance, SensitiveSubspace
from pyg_glif.errors import NotFittedError, SimilarityWarning
from pyg_glif.graph import (
    SimilarityGraph,
    edge_weights,
    fair_radius_graph,
    suggest_tau,
)
from pyg_glif.graph.weights import DECAY
from pyg_glif.links import Link, Logit, Softmax
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG
from tests.postprocessing.people import people


def test_post_processor_is_the_functional_method() -> None:
    group = people(dtype=torch.float32)
    post = GLIFPostProcessor(tau=0.9, theta=0.5, lam=0.7)
    out = post.fit_transform(group.x, group.y)
    edges, sq_dist = fair_radius_graph(group.x, 0.9)
    weight = edge_weights(sq_dist, 0.5)
    expected = glif_solve(group.y, edges, weight, lam=0.7)
    assert torch.equal(out, expected.value)
    assert torch.equal(post.y_fair_, expected.value)
    assert torch.equal(post.solution_.value, expected.value)
    assert torch.equal(post.solution_.error_bound, expected.error_bound)
    assert torch.equal(post.graph_.edge_index, edges)
    assert torch.equal(post.graph_.edge_weight, weight)
    assert torch.equal(post.graph_.edge_sq_dist, sq_dist)
    assert post.graph_.num_nodes == 60
    assert post.graph_.is_edge_attr("edge_sq_dist")
    assert post.tau_ == 0.9
    assert post.n_features_in_ == 2
    degree = torch.bincount(edges[0], minlength=60)
    assert post.num_isolated_ == int((degree == 0).sum()) > 0


def test_tau_is_chosen_and_said(caplog: pytest.LogCaptureFixture) -> None:
    group = people()
    with caplog.at_level(logging.INFO, "pyg_glif"):
        post = GLIFPostProcessor(target_degree=6).fit(group.x, group.y)
    assert post.tau_ == suggest_tau(group.x, 6)
    assert caplog.messages == [f"tau = {post.tau_:.6g}, for 6 neighbours each"]
    assert post.tau is None
    caplog.clear()
    with caplog.at_level(logging.INFO, "pyg_glif"):
        post.transform(group.x_new[-1:], group.y_new[-1:])
    assert caplog.messages == ["1 of 1 have no neighbor"]


def test_tau_by_coverage(caplog: pytest.LogCaptureFixture) -> None:
    group = people()
    x = group.x.numpy()
    dist = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1)) + np.diag([np.inf] * 60)
    nearest = np.sort(dist.min(axis=1))
    with caplog.at_level(logging.INFO, "pyg_glif"):
        post = GLIFPostProcessor(coverage=0.9).fit(group.x, group.y)
    assert post.tau_ == pytest.approx(nearest[53])  # 54 of 60 have a neighbour
    assert post.num_isolated_ <= 6
    assert caplog.messages == [f"tau = {post.tau_:.6g}, for a neighbour each of 90%"]
    # One person is so far away that a radius for all of them joins everybody.
    with pytest.warns(SimilarityWarning, match="almost everybody"):
        post = GLIFPostProcessor(coverage=1.0).fit(group.x, group.y)
    assert post.num_isolated_ == 0


def test_weights_fall_to_the_same_share_in_every_unit() -> None:
    group = people()
    post = GLIFPostProcessor(tau=0.9).fit(group.x, group.y)
    assert post.theta is None
    assert post.theta_ == pytest.approx(DECAY / 0.9**2)
    weight = np.exp(-DECAY * post.graph_.edge_sq_dist.numpy() / 0.9**2)
    np.testing.assert_allclose(post.graph_.edge_weight, weight)
    other = GLIFPostProcessor(tau=900.0).fit(1000.0 * group.x, group.y)
    torch.testing.assert_close(other.y_fair_, post.y_fair_)
    assert GLIFPostProcessor(tau=0.9, theta=0.5).fit(group.x, group.y).theta_ == 0.5
    assert GLIFPostProcessor(tau=np.inf).fit(group.x, group.y).theta_ == 0.0
    assert GLIFPostProcessor(tau=0.0).fit(group.x, group.y).theta_ == 0.0


def test_one_output_or_several() -> None:
    group = people()
    wide = group.fit()
    narrow = group.fit().fit(group.x, group.y[:, 1])
    torch.testing.assert_close(narrow.y_fair_, wide.y_fair_[:, 1])
    out = narrow.transform(group.x_new, group.y_new[:, 1])
    torch.testing.assert_close(out, wide.transform(group.x_new, group.y_new)[:, 1])


@pytest.mark.parametrize("joint", [False, True])
def test_empty_batch(joint: bool) -> None:
    group = people()
    post = group.fit(link=Logit())
    info = post.transform_info(group.x_new[:0], group.y_new[:0], joint=joint)
    assert info.value.shape == (0, 3)
    assert info.num_isolated == 0


def test_precision_is_that_of_the_outputs_and_features_follow_the_fit() -> None:
    group = people(dtype=torch.float32)
    post = group.fit(solver=CG())
    single = post.transform(group.x_new, group.y_new)
    double = post.transform(group.x_new.double(), group.y_new.double())
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-6)
    half = post.transform(group.x_new, group.y_new.half())
    assert half.dtype == torch.float16
    whole = post.transform(group.x_new, torch.ones(25, 3, dtype=torch.long))
    assert whole.dtype == torch.float64
    # A fitted person sent in another precision is still found at distance zero.
    post = GLIFPostProcessor(tau=0.0).fit(group.x, group.y)
    x = people().x[:5]
    assert x.dtype == torch.float64
    info = post.transform_info(x, group.y[:5])
    assert info.num_neighbors.tolist() == [1] * 5


def test_post_processor_leaves_its_input_alone() -> None:
    group = people()
    before = copy.deepcopy(group)
    post = group.fit()
    post.transform(group.x_new, group.y_new)
    post.transform(group.x_new, group.y_new, joint=True)
    post.partial_fit(group.x_new, group.y_new)
    for name in ("x", "y", "x_new", "y_new"):
        assert torch.equal(getattr(group, name), getattr(before, name))


def test_parameters_take_effect_at_the_next_fit() -> None:
    group = people()
    post = group.fit(lam=0.7)
    before = post.transform(group.x_new, group.y_new)
    assert post.set_params(lam=7.0) is post
    assert torch.equal(post.transform(group.x_new, group.y_new), before)
    after = post.fit(group.x, group.y).transform(group.x_new, group.y_new)
    assert not torch.equal(after, before)
    with pytest.raises(ValueError, match="'lam' must be non-negative"):
        post.set_params(tau=3.0, lam=-1.0)
    assert (post.lam, post.tau) == (7.0, 0.9)
    with pytest.raises(ValueError, match="'params' must be one of 'distance', 'tau'"):
        post.set_params(radius=3.0)


def test_scikit_learn_conventions() -> None:
    base = pytest.importorskip("sklearn.base")
    distance = SensitiveSubspace(torch.tensor([[1.0, 0.0]]))
    post = GLIFPostProcessor(distance=distance, tau=0.5, solver=CG(), link=Logit())
    assert list(post.get_params()) == [
        "distance",
        "tau",
        "theta",
        "lam",
        "normalization",
        "solver",
        "link",
        "target_degree",
        "progress",
        "coverage",
        "k",
        "mutual",
    ]
    group = people(dtype=torch.float32)
    post.fit(group.x, group.y)
    twin = base.clone(post)
    assert not hasattr(twin, "y_fair_")
    assert (twin.tau, twin.solver, twin.link) == (0.5, CG(), Logit())
    assert torch.equal(twin.distance.directions, distance.directions)
    assert torch.equal(twin.fit(group.x, group.y).y_fair_, post.y_fair_)


def test_repr() -> None:
    assert repr(GLIFPostProcessor()) == "GLIFPostProcessor()"
    distance = SensitiveSubspace(torch.tensor([[1.0, 0.0]]))
    post = GLIFPostProcessor(distance=distance, lam=2.0, normalization="density")
    expected = "distance=SensitiveSubspace(num_features=2, rank=1), lam=2.0"
    assert repr(post) == f"GLIFPostProcessor({expected}, normalization='density')"
    post = GLIFPostProcessor(tau=0.5, solver=CG(rtol=1e-3), link=Logit())
    assert repr(post).startswith("GLIFPostProcessor(tau=0.5, solver=CG(")
    assert repr(post).endswith(", link=Logit(eps=None))")


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"lam": -0.5}, ValueError, "'lam' must be non-negative (got -0.5)"),
        ({"tau": -1}, ValueError, "'tau' must be non-negative (got -1.0)"),
        ({"theta": "1"}, TypeError, "'theta' must be a number (got '1')"),
        (
            {"coverage": 1.5},
            ValueError,
            "'coverage' must be between 0 and 1 (got 1.5)",
        ),
        (
            {"target_degree": 0},
            ValueError,
            "'target_degree' must be positive (got 0.0)",
        ),
        (
            {"normalization": "rw"},
            ValueError,
            "'normalization' must be one of None, 'nrw', 'density' (got 'rw')",
        ),
        (
            {"distance": torch.cdist},
            TypeError,
            "'distance' must be a FairDistance (got builtin_function_or_method)",
        ),
        ({"link": "logit"}, TypeError, "'link' must be a Link (got str)"),
        ({"solver": "cg"}, TypeError, "'solver' must be a Solver (got str)"),
    ],
)
def test_constructor_rejects(
    params: dict[str, object], error: type, message: str
) -> None:
    if params.get("distance") is torch.cdist:
        message = message.replace(
            "builtin_function_or_method", type(torch.cdist).__name__
        )
    with pytest.raises(error) as caught:
        GLIFPostProcessor(**params)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (
            [[0.0], [np.nan]],
            [0.0, 1.0],
            ValueError,
            "'x' must be finite (got nan at index (1, 0), 1 such values)",
        ),
        (
            [[0.0], [1.0]],
            [0.0, np.inf],
            ValueError,
            "'y_hat' must be finite (got inf at index 1, 1 such values)",
        ),
        (
            [[0.0], [1.0]],
            [0.0],
            ValueError,
            "'y_hat' must have as many rows as 'x' (got 1 for 2)",
        ),
        ([0.0, 1.0], [0.0], ValueError, "'x' must be 2-dimensional (got shape (2,))"),
        (
            np.empty((0, 2)),
            np.empty(0),
            ValueError,
            "'x' must not be empty (got shape (0, 2))",
        ),
        (
            [["a"], ["b"]],
            [0.0, 1.0],
            TypeError,
            "'x' must hold numbers (got <U1). Encode text, categories and dates first, "
            "or use 'pyg_glif.tables.FairTable'",
        ),
        (
            [[1j], [0]],
            [0.0, 1.0],
            TypeError,
            "'x' must hold real numbers (got complex128)",
        ),
    ],
)
def test_fit_rejects(x: object, y: object, error: type, message: str) -> None:
    with pytest.raises(error) as caught:
        GLIFPostProcessor(tau=1.0).fit(x, y)
    assert str(caught.value) == message


def test_too_few_people_for_the_target_degree() -> None:
    with pytest.raises(ValueError, match="'target_degree' must be at most 2"):
        GLIFPostProcessor().fit(np.eye(3), np.zeros(3))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((1, 3)), np.zeros((1, 3)), "'x_new' must have 2 columns (got 3)"),
        (
            np.zeros((1, 2)),
            np.zeros((1, 2)),
            "'y_hat_new' must have 3 columns (got 2)",
        ),
        (
            np.zeros((1, 2)),
            np.zeros(1),
            "'y_hat_new' must be 2-dimensional (got shape (1,))",
        ),
        (
            np.zeros((2, 2)),
            np.zeros((1, 3)),
            "'y_hat_new' must have as many rows as 'x_new' (got 1 for 2)",
        ),
        (
            np.array([[0.0, 1.0], [np.nan, 0.0]]),
            np.zeros((2, 3)),
            "'x_new' must be finite (got nan at index (1, 0), 1 such values)",
        ),
        (
            np.zeros((1, 2)),
            np.full((1, 3), np.nan),
            "'y_hat_new' must be finite (got nan at index (0, 0), 3 such values)",
        ),
    ],
)
def test_transform_rejects(x: object, y: object, message: str) -> None:
    post = people().fit()
    for joint in (False, True):
        with pytest.raises(ValueError, match=r".") as caught:
            post.transform(x, y, joint=joint)
        assert str(caught.value) == message


def test_link_rejects_before_the_search() -> None:
    def never(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    post = GLIFPostProcessor(tau=1.0, link=Logit(), distance=CallableDistance(never))
    with pytest.raises(ValueError, match="'y_hat' must be between 0 and 1"):
        post.fit(torch.zeros(3, 1), torch.tensor([0.0, 0.5, 2.0]))


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.transform([[0.0]], [0.0]),
        lambda p: p.explain(0),
        lambda p: p.explain_new([[0.0]]),
        lambda p: p.audit(),
        lambda p: p.save("nowhere"),
    ],
    ids=["transform", "explain", "explain_new", "audit", "save"],
)
def test_unfitted_use(call: object, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.id
    with pytest.raises(NotFittedError) as caught:
        call(GLIFPostProcessor())
    message = f"'GLIFPostProcessor.{name}' needs a fit. Call 'fit' first"
    assert str(caught.value) == message


@pytest.mark.filterwarnings("ignore:.* joins 100.0% of all pairs")
@pytest.mark.parametrize("tau", [1e154, 1e155, 1e200, 1.7e308, np.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_radii_whose_square_overflows(tau: float, dtype: torch.dtype) -> None:
    group = people(dtype=dtype)
    post = GLIFPostProcessor(tau=tau, theta=0.0, lam=1.0).fit(group.x, group.y)
    # Everybody is everybody's neighbour: f_i = (y_i + sum_j f_j) / (1 + n), j != i.
    y, n = group.y.double(), len(group.y)
    expected = (y + n * y.mean(0)) / (1 + n)
    torch.testing.assert_close(post.y_fair_.double(), expected, rtol=0, atol=1e-5)
    new = group.y_new.double()
    expected = (new + n * expected.mean(0)) / (1 + n)
    found = post.transform(group.x_new, group.y_new).double()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    post.transform(group.x_new, group.y_new, joint=True)
    post.partial_fit(group.x_new, group.y_new)
    assert post.num_isolated_ == 0
    assert post.graph_.edge_index.size(1) == 85 * 84


@pytest.mark.parametrize("lam", [0.0, 0.7])
@pytest.mark.parametrize("link", [Logit(eps=0.01), Softmax(eps=0.01)])
def test_people_without_neighbours_keep_their_output(link: Link, lam: float) -> None:
    group = people(dtype=torch.float32)
    y, y_new = (torch.eye(3)[part.argmax(1)] for part in (group.y, group.y_new))
    post = GLIFPostProcessor(tau=0.9, lam=lam, link=link).fit(group.x, y)
    assert torch.equal(post.y_fair_[-1], y[-1])  # nobody is near
    for joint in (False, True):
        out = post.transform(group.x_new, y_new, joint=joint)
        assert torch.equal(out[-1], y_new[-1])
    post.partial_fit(group.x_new, y_new)
    assert torch.equal(post.y_fair_[[59, 84]], torch.stack([y[-1], y_new[-1]]))


def test_a_graph_that_is_known_is_not_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = people()
    expected = GLIFPostProcessor(tau=0.9).fit(group.x, group.y)
    graph = SimilarityGraph.search(group.x, 0.9)
    monkeypatch.setattr(SimilarityGraph, "search", None)
    post = GLIFPostProcessor(tau=0.9).fit(group.x, group.y, graph)
    assert torch.equal(post.y_fair_, expected.y_fair_)
    assert torch.equal(post.graph_.edge_index, expected.graph_.edge_index)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tau": 0.8},
            "'graph' must join the 60 rows of 'x' within 0.8 (got "
            "SimilarityGraph(num_nodes=60, num_edges=0, tau=1)). Leave it out to "
            "search",
        ),
        (
            {"k": 3},
            "'graph' must be left out with 'k' (got SimilarityGraph(num_nodes=60, "
            "num_edges=0, tau=1)). It does not tell whether nearest are mutual",
        ),
    ],
)
def test_a_graph_of_another_rule_is_refused(options: dict, message: str) -> None:
    group = people()
    apart = torch.arange(60.0).unsqueeze(1) * 2
    graph = SimilarityGraph.search(apart, 1.0)
    with pytest.raises(ValueError, match=re.escape(message)):
        GLIFPostProcessor(**options).fit(group.x, group.y, graph)
