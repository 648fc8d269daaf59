from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.errors import ConvergenceError, ConvergenceWarning
from pyg_glif.metric_learning import FACE, LinearFit, LogisticFit, TaskEffect

WIDTH = 6
LEFT = WIDTH - 2  # coordinates beside two ignored directions


def samples(
    seed: int, num_rows: int = 300, num_classes: int = 2
) -> tuple[Tensor, Tensor, SensitiveSubspace]:
    """Features, classes that depend on all of them, and a distance blind to two."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, WIDTH, generator=generator, dtype=torch.float64) + 1
    weight = torch.randn(WIDTH, num_classes, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_rows, num_classes, generator=generator)
    rows = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64)
    y = (x @ weight + noise).argmax(dim=1)
    y[:num_classes] = torch.arange(num_classes)  # no class is left out by chance
    return x, y, SensitiveSubspace(rows)


def fair(x: Tensor, distance: SensitiveSubspace) -> np.ndarray:
    """Fair coordinates: those of the projection, in a basis of where it lies."""
    q = distance.directions.numpy()
    z, basis = (
        x.numpy() @ (np.eye(WIDTH) - q @ q.T),
        distance.embed(torch.eye(WIDTH).double()),
    )
    out = z @ basis.numpy()
    np.testing.assert_allclose(out @ out.T, z @ z.T, atol=1e-11)
    return out


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    num_classes=st.sampled_from([2, 3, 4]),
    ridge=st.sampled_from([0.1, 1.0, 20.0]),
    weight=st.floats(0.1, 5.0),
)
def test_scores_are_those_of_scikit_learn(
    seed: int, num_classes: int, ridge: float, weight: float
) -> None:
    x, y, base = samples(seed, 120, num_classes)
    learner = TaskEffect(base, weight=weight, ridge=ridge, rtol=1e-7)
    found = learner.fit(x, y).embed(x).numpy()
    z = fair(x, base)
    peer = LogisticRegression(C=1 / ridge, tol=1e-11, max_iter=10_000).fit(z, y.numpy())
    score = z @ peer.coef_.T + peer.intercept_
    if num_classes > 2:
        log_prob = log_softmax(score, axis=1)
        score = log_prob - log_prob.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found[:, :LEFT], z, atol=1e-12)
    np.testing.assert_allclose(
        found[:, LEFT:] / weight, score, atol=2e-3 * np.abs(score).max()
    )


@pytest.mark.parametrize("columns", [1, 3])
def test_outputs_are_those_of_ridge_regression(
    columns: int, generator: torch.Generator
) -> None:
    x, _, base = samples(0)
    # In odd units, and far from the origin.
    y = torch.randn(len(x), columns, generator=generator) + x[:, :columns] * 1e3 + 1e5
    distance = TaskEffect(base, ridge=7.0, weight=0.5).fit(
        x, y if columns > 1 else y[:, 0]
    )
    z = fair(x, base)
    peer = Ridge(alpha=7.0, tol=1e-12).fit(z, y.numpy())
    found = distance.embed(x)[:, LEFT:].numpy() / 0.5
    np.testing.assert_allclose(found, peer.predict(z).reshape(-1, columns), rtol=1e-9)
    fit = distance.fit_result
    assert isinstance(fit, LinearFit)
    error = np.square(y.numpy() - found).sum()
    total = np.square(y.numpy() - y.numpy().mean(axis=0)).sum()
    assert fit.r_squared == pytest.approx(1 - error / total, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), num_classes=st.sampled_from([2, 3]))
def test_nothing_sensitive_comes_back(seed: int, num_classes: int) -> None:
    x, y, base = samples(seed, 80, num_classes)
    # The label is known from an ignored direction alone: still it cannot be predicted.
    x = x + 5.0 * y[:, None] * base.basis[0]
    distance = TaskEffect(base, weight=10.0).fit(x, y)
    generator = torch.Generator().manual_seed(seed)
    along = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    moved = x + 10 * along @ base.basis
    assert float(distance(x, moved).diagonal().max()) < 1e-10
    assert torch.equal(distance.null_space(WIDTH), base.null_space(WIDTH))
    assert bool((distance(x, x) >= base(x, x) - 1e-12).all())


def test_a_label_that_only_the_ignored_directions_tell_adds_nothing(
    generator: torch.Generator,
) -> None:
    x = torch.randn(4000, 3, generator=generator)
    base = SensitiveSubspace(torch.tensor([[1.0, 0.0, 0.0]]))
    y = x[:, 0] > 0
    distance = TaskEffect(base).fit(x, y)
    assert distance.fit_result.accuracy < 0.55
    assert float(distance.embed(x)[:, 2].std()) < 0.1
    seeing = TaskEffect().fit(x, y)
    assert seeing.fit_result.accuracy > 0.98


def test_opposite_meanings_are_separated(generator: torch.Generator) -> None:
    # Near in all but one of many features: nothing an encoder would care about.
    y = torch.arange(400) % 2
    x = torch.randn(400, 20, generator=generator)
    x[:, 0] = 0.1 * torch.randn(400, generator=generator) + 0.5 * y
    learner = TaskEffect(weight=1.0, ridge=0.1)
    distance = learner.fit(x[:200], y[:200])
    plain, task = (
        (torch.cdist(z, z), y[200:]) for z in (x[200:], distance.embed(x[200:]))
    )
    for (dist, label), low, high in ((plain, 0.3, 0.7), (task, 0.0, 0.15)):
        dist = dist + torch.diag(torch.full((200,), torch.inf))
        unlike = label[dist.argmin(dim=1)] != label
        assert low <= float(unlike.float().mean()) <= high


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (torch.tensor([0, 1, 1, 0]), LogisticFit),
        (torch.tensor([True, False, True, False]), LogisticFit),
        (torch.tensor([0.0, 1.0, 1.0, 0.0]), LogisticFit),
        (["a", "b", "c", "a"], LogisticFit),
        (np.array(["a", "b", "c", "a"], dtype=object), LogisticFit),
        (np.array([3, 5, 3, 5], dtype=np.uint8), LogisticFit),
        (np.array([[1], [0], [1], [0]]), LogisticFit),
        (torch.tensor([0.5, 1.0, 2.0, 3.0]), LinearFit),
        (np.array([[0.5, 1.0], [1.0, 2.0], [0.0, 1.0], [2.0, 2.0]]), LinearFit),
    ],
    ids=str,
)
def test_y_decides_the_task(y: Any, expected: type) -> None:
    x = torch.arange(8.0).reshape(4, 2).sin()
    assert type(TaskEffect().fit(x, y).fit_result) is expected


def test_the_task_may_be_given() -> None:
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(60)
    message = (
        "'y' must have at most 50 different values to be taken for classes (got 60). "
        'Say task="classification" or task="regression"'
    )
    with pytest.raises(ValueError, match="at most 50") as caught:
        TaskEffect().fit(x, y)
    assert str(caught.value) == message
    assert isinstance(TaskEffect(task="regression").fit(x, y).fit_result, LinearFit)
    fit = TaskEffect(task="classification").fit(x, y).fit_result
    assert len(fit.classes) == 60
    fit = TaskEffect(task="regression").fit(x, y % 2).fit_result
    assert isinstance(fit, LinearFit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arrays_and_frames_give_the_same(dtype: torch.dtype) -> None:
    pandas = pytest.importorskip("pandas")
    x, y, base = samples(1, 60)
    x = x.to(dtype)
    expected = TaskEffect(base).fit(x, y)
    assert expected.head.weight.dtype == dtype
    assert not expected.head.weight.requires_grad
    for features, target in (
        (x.numpy(), y.numpy()),
        (pandas.DataFrame(x.numpy()), pandas.Series(y.numpy())),
        (pandas.DataFrame(x.numpy()), pandas.DataFrame({"y": y.numpy()})),
        (x.numpy(), np.where(y.numpy() == 1, "yes", "no")),
    ):
        found = TaskEffect(base).fit(features, target)
        torch.testing.assert_close(found.embed(x), expected.embed(x))


@pytest.mark.parametrize("num_classes", [2, 3])
def test_any_model_may_predict(num_classes: int) -> None:
    x, y, base = samples(3, num_classes=num_classes)
    z = fair(x, base)
    model = LogisticRegression(C=0.05, tol=1e-10, max_iter=10_000).fit(z, y.numpy())
    expected = TaskEffect(base, weight=2.0, ridge=20.0).fit(x, y)
    distance = TaskEffect(base, weight=2.0, predict=model.predict_proba).fit(x, y)
    # Where probabilities are near 0 the clamp may show; not here.
    assert model.predict_proba(z).min() > 1e-6
    torch.testing.assert_close(
        distance.embed(x), expected.embed(x), atol=1e-2, rtol=1e-2
    )
    assert distance.fit_result is None
    if num_classes == 2:
        one = TaskEffect(base, predict=lambda z: model.predict_proba(z)[:, 1])
        torch.testing.assert_close(
            one.fit(x, y).embed(x), distance.with_weight(1.0).embed(x)
        )
    out = TaskEffect(base, predict=lambda z: z[:, 0] * 9, task="regression").fit(x, y)
    torch.testing.assert_close(out.embed(x)[:, -1], torch.from_numpy(9 * z[:, 0]))


def test_certain_models_stay_finite() -> None:
    x, y, base = samples(4)
    for predict, widest in (
        (lambda z: (z[:, 0] > 0).to(z), np.log((1 - 1e-6) / 1e-6)),
        (lambda z: torch.nn.functional.one_hot((z[:, 0] > 0).long(), 3).to(z), None),
    ):
        score = TaskEffect(base, predict=predict).fit(x, y).embed(x)[:, LEFT:]
        assert bool(score.isfinite().all())
        if widest:
            assert float(score.max()) == pytest.approx(widest, rel=1e-6)


def test_a_model_of_tensors_is_differentiated_through() -> None:
    x, y, base = samples(5, 10)
    distance = TaskEffect(base, predict=lambda z: z[:, 0].sigmoid()).fit(x, y)
    assert torch.autograd.gradcheck(distance.embed, (x.requires_grad_(),))
    # The log-odds of a sigmoid are its argument.
    torch.testing.assert_close(distance.embed(x)[:, -1], distance.embed(x)[:, 0])


def test_after_face_and_in_a_post_processor(generator: torch.Generator) -> None:
    x, y, _ = samples(6)
    group = torch.arange(150).repeat_interleave(2)
    base = FACE(num_factors=1).fit(x, group)
    distance = TaskEffect(base, weight=0.5).fit(x[:200], y[:200])
    post = GLIFPostProcessor(distance=distance, tau=1.5, lam=1.0)
    y_fair = post.fit_transform(x[200:], y[200:].double())
    assert y_fair.shape == (100,)


def test_failure_to_converge_is_reported() -> None:
    x, y, base = samples(7)
    message = r"TaskEffect stopped after 1 iterations on 'y': relative gradient"
    with pytest.raises(ConvergenceError, match=message):
        TaskEffect(base, max_iter=1).fit(x, y)
    with pytest.warns(ConvergenceWarning, match=message):
        distance = TaskEffect(base, max_iter=1, throw=False).fit(x, y)
    assert not distance.fit_result.converged
