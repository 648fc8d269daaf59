"""People who leave: the fit is that without them, and nothing of them is left."""

import numpy as np
import pytest
import torch

from pyg_glif.distances import Mahalanobis
from pyg_glif.errors import NotFittedError
from pyg_glif.links import Logit
from pyg_glif.postprocessing import GLIFPostProcessor
from pyg_glif.solvers import CG
from tests.postprocessing.people import people

RULES = {
    "radius": {"tau": 0.9, "theta": 0.5},
    "density": {"tau": 0.9, "normalization": "density"},
    "link": {"tau": 0.9, "link": Logit()},
    "nearest": {"k": 5},
    "mutual": {"k": 5, "mutual": True, "tau": 2.0},
}
GONE = [0, 3, 17, 59]  # the last one has no neighbour


def _stay(num):
    stay = torch.ones(num, dtype=torch.bool)
    stay[GONE] = False
    return stay


@pytest.mark.parametrize("with_std", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_forgetting_is_a_fit_without_them(rule, with_std):
    p = people()
    stay = _stay(len(p.x))
    params = {"lam": 0.7, "solver": CG(rtol=1e-8), **RULES[rule]}
    std = torch.linspace(0.5, 2.0, len(p.x)) if with_std else None
    new = {"y_std": 0.8} if with_std else {}
    post = GLIFPostProcessor(**params).fit(p.x, p.y, y_std=std)
    post.transform(p.x_new, p.y_new, **new)  # builds the index
    assert post.forget(GONE) is post
    kept = None if std is None else std[stay]
    fresh = GLIFPostProcessor(**params).fit(p.x[stay], p.y[stay], y_std=kept)
    bound = post.solution_.error_bound + fresh.solution_.error_bound
    apart = post.y_fair_ - fresh.y_fair_
    if "link" in params:
        apart = Logit().to_dual(post.y_fair_) - Logit().to_dual(fresh.y_fair_)
        bound = bound + 1e-12
    assert bool((torch.linalg.vector_norm(apart, dim=0) <= bound).all())
    assert torch.equal(post.graph_.edge_index, fresh.graph_.edge_index)
    assert torch.equal(post.graph_.edge_weight, fresh.graph_.edge_weight)
    torch.testing.assert_close(
        post.transform(p.x_new, p.y_new, **new),
        fresh.transform(p.x_new, p.y_new, **new),
        rtol=1e-6,
        atol=1e-6,
    )
    assert post.num_isolated_ == fresh.num_isolated_


def test_forgetting_keeps_the_radius_and_starts_warm():
    p = people(num=400, columns=1)
    post = GLIFPostProcessor(lam=30.0, solver=CG()).fit(p.x, p.y[:, 0])
    tau, spent = post.tau_, post.solution_.num_iter
    post.forget(7)
    assert post.tau_ == tau
    assert post.solution_.num_iter < spent


def _bytes_of(row):
    return np.ascontiguousarray(row.numpy()).tobytes()


def test_nothing_of_them_is_left_in_the_file(tmp_path):
    p, path = people(), tmp_path / "fit.safetensors"
    ids = [f"person-{i:03d}" for i in range(len(p.x))]
    std = 1.0 + torch.rand(len(p.x), dtype=torch.float64)
    post = GLIFPostProcessor(tau=0.9).fit(p.x, p.y, ids=ids, y_std=std)
    post.save(path, metadata={"note": "kept"})
    traces = [
        trace
        for i in GONE
        for trace in (
            ids[i].encode(),
            _bytes_of(p.x[i]),
            _bytes_of(p.y[i]),
            _bytes_of(post.y_fair_[i]),
            _bytes_of(std[i]),
        )
    ]
    before = path.read_bytes()
    # A duplicate of row 0 is among nobody fitted, so every trace is theirs alone.
    assert all(trace in before for trace in traces)
    loaded = GLIFPostProcessor.load(path)
    loaded.forget([ids[i] for i in GONE], path=path)
    after = path.read_bytes()
    assert not any(trace in after for trace in traces)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    again = GLIFPostProcessor.load(path)
    assert again.metadata_ == {"note": "kept"}
    assert again.ids_ == tuple(one for i, one in enumerate(ids) if i not in GONE)
    assert torch.equal(again.y_fair_, loaded.y_fair_)
    assert loaded.metadata_ == {"note": "kept"}
    # Neither does the object hold them.
    held = [t for t in vars(loaded.fit_).values() if isinstance(t, torch.Tensor)]
    assert not any(_bytes_of(p.x[i]) in _bytes_of(t) for i in GONE for t in held)


def test_omitted_settings_stay_omitted(tmp_path):
    p, path = people(), tmp_path / "fit.safetensors"
    distance = Mahalanobis(torch.eye(2, dtype=torch.float64))
    post = GLIFPostProcessor(tau=0.9, distance=distance).fit(p.x, p.y)
    post.save(path, omit=["distance"])
    post.forget([1], path=path)
    with pytest.raises(ValueError, match="'distance' must be given"):
        GLIFPostProcessor.load(path)
    again = GLIFPostProcessor.load(path, distance=distance)
    assert torch.equal(again.y_fair_, post.y_fair_)


@pytest.mark.parametrize(
    "given", [["b", "d"], ("d", "b"), np.array(["b", "d"]), ["b", "d", "b"]]
)
def test_ids_in_any_form(given):
    x, y = torch.arange(4.0).unsqueeze(1), torch.arange(4.0)
    post = GLIFPostProcessor(tau=1.5).fit(x, y, ids=list("abcd"))
    assert post.forget(given).ids_ == ("a", "c")


def test_rows_are_ids_where_there_are_none():
    x, y = torch.arange(5.0).unsqueeze(1), torch.arange(5.0)
    post = GLIFPostProcessor(tau=0.5).fit(x, y)
    assert post.ids_ is None
    assert post.forget(torch.tensor([1, 4])).y_fair_.tolist() == [0.0, 2.0, 3.0]
    assert post.forget(1).y_fair_.tolist() == [0.0, 3.0]
    assert post.forget([]).y_fair_.tolist() == [0.0, 3.0]


def test_people_who_join_are_known_by_id():
    x, y = torch.arange(4.0).unsqueeze(1), torch.arange(4.0)
    post = GLIFPostProcessor(tau=1.5).fit(x[:2], y[:2], ids=[10, 20])
    post.partial_fit(x[2:], y[2:], ids=[30, 40])
    assert post.ids_ == (10, 20, 30, 40)
    whole = GLIFPostProcessor(tau=1.5).fit(x, y, ids=post.ids_)
    torch.testing.assert_close(post.y_fair_, whole.y_fair_)
    with pytest.raises(ValueError, match="'ids' must be different \\(got 10 twice\\)"):
        post.partial_fit(x[:1], y[:1], ids=[10])
    with pytest.raises(ValueError, match="'ids' must be given, because the fit has"):
        post.partial_fit(x[:1], y[:1])
    assert post.ids_ == (10, 20, 30, 40)


def test_forget_refuses():
    x, y = torch.arange(3.0).unsqueeze(1), torch.arange(3.0)
    post = GLIFPostProcessor(tau=1.5).fit(x, y, ids=["a", "b", "c"])
    with pytest.raises(ValueError, match="'ids' must be ids of the fit \\(got 'z'\\)"):
        post.forget(["a", "z"])
    with pytest.raises(ValueError, match="'ids' must leave a sample in the fit"):
        post.forget(["a", "b", "c"])
    with pytest.raises(TypeError, match="'ids' must be texts or whole numbers"):
        post.forget([1.5])
    with pytest.raises(TypeError, match="'ids' must be a sequence"):
        post.forget(None)
    assert post.ids_ == ("a", "b", "c")
    with pytest.raises(ValueError, match=r"row numbers below 3 of the fit \(got -1\)"):
        GLIFPostProcessor(tau=1.5).fit(x, y).forget([-1])
    with pytest.raises(ValueError, match="one entry per row of 'x' \\(got 2 for 3\\)"):
        GLIFPostProcessor(tau=1.5).fit(x, y, ids=["a", "b"])
    with pytest.raises(ValueError, match="'ids' must be different"):
        GLIFPostProcessor(tau=1.5).fit(x, y, ids=["a", "b", "a"])
    with pytest.raises(
        NotFittedError, match=r"'GLIFPostProcessor\.forget' needs a fit"
    ):
        GLIFPostProcessor().forget([0])


def test_a_missing_file_is_noticed_before_anybody_leaves(tmp_path):
    x, y = torch.arange(3.0).unsqueeze(1), torch.arange(3.0)
    post = GLIFPostProcessor(tau=1.5).fit(x, y)
    with pytest.raises(FileNotFoundError):
        post.forget([0], path=tmp_path / "nowhere.safetensors")
    assert len(post.y_fair_) == 3


@pytest.mark.parametrize("options", [{}, {"ids": range(60)}, {"y_std": 2.0}])
def test_ids_and_deviations_are_saved(options, tmp_path):
    p, path = people(), tmp_path / "fit.safetensors"
    post = GLIFPostProcessor(tau=0.9).fit(p.x, p.y, **options)
    post.save(path)
    again = GLIFPostProcessor.load(path)
    assert again.ids_ == post.ids_
    new = {"y_std": 1.5} if "y_std" in options else {}
    expected = post.transform(p.x_new, p.y_new, **new)
    assert torch.equal(again.transform(p.x_new, p.y_new, **new), expected)
