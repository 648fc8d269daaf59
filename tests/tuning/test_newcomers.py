"""Every fold as newcomers: the numbers, their errors and the choice, from NumPy."""

import math
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.model_selection import GroupKFold, KFold

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import Mahalanobis
from pyg_glif.links import Logit
from pyg_glif.tuning import TunePoint, TuneResult, tune
from tests import oracles, oracles_inductive as oracle

TAUS, LAMS, THETA = (0.4, 0.8), (0.1, 1.0, 10.0), 0.5


def problem(
    size: int = 90, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noisy scores, so that smoothing helps at first and hurts in the end."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(size, 2, generator=generator, dtype=dtype)
    labels = (x[:, 0] > 0).long()
    noise = 0.15 * torch.randn(size, generator=generator, dtype=dtype)
    return x, (0.5 + 0.15 * x[:, 0] + noise).clamp(0.01, 0.99), labels


def splits(size: int = 90) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(KFold(3, shuffle=True, random_state=0).split(np.zeros(size)))


def by_formula(
    x: np.ndarray, y: np.ndarray, tau: float, lam: float, normalization: str | None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Outputs of everybody as a newcomer, and of the fitted people of every fold."""
    out, fitted = y.copy(), []
    for known, new in splits(len(x)):
        W = oracle.fitted_weights(x[known], tau, THETA)
        outer = oracle.weights(x[new], x[known], tau, THETA)
        f = oracles.smooth(W, y[known], lam, normalization)
        f = f.reshape(len(f), -1)
        y_new = y[new].reshape(len(new), -1)
        out[new] = oracle.update(W, outer, y_new, f, lam, normalization)[:, 0]
        fitted.append(f[:, 0])
    return out, fitted


@pytest.mark.parametrize("normalization", [None, "density", "nrw"])
def test_numbers_and_errors_match_formulas(normalization: str | None) -> None:
    x, y, labels = problem()
    lams = (0.05, 0.3) if normalization == "nrw" else LAMS  # where there is a minimum
    found = tune(
        x,
        y,
        labels,
        taus=TAUS,
        lams=lams,
        theta=THETA,
        normalization=normalization,
        cv=splits(),
    )
    assert found.num_folds == 3
    assert [(p.tau, p.lam) for p in found.points] == [
        (t, m) for t in TAUS for m in lams
    ]
    X, Y, truth = x.numpy(), y.numpy(), labels.numpy()
    right_before = ((Y > 0.5) == truth).astype(float)
    W = oracle.fitted_weights(X, max(TAUS), THETA)
    for point in found.points:
        f, fitted = by_formula(X, Y, point.tau, point.lam, normalization)
        right = ((f > 0.5) == truth).astype(float)
        assert point.score == pytest.approx(right.mean())
        assert point.score_se == pytest.approx(right.std(ddof=1) / math.sqrt(90))
        loss = right_before - right
        assert point.loss == pytest.approx(loss.mean())
        assert point.loss_se == pytest.approx(loss.std(ddof=1) / math.sqrt(90))
        # Everybody's gaps to the people who were fitted when they came.
        u, n = np.zeros(90), np.zeros(90)
        for (known, new), f_known in zip(splits(), fitted, strict=True):
            weight = W[np.ix_(new, known)]
            u[new] = (weight * (f[new][:, None] - f_known[None]) ** 2).sum(1)
            n[new] = weight.sum(1)
        ratio = u.sum() / n.sum()
        assert point.unfairness == pytest.approx(ratio, rel=1e-4)
        error = math.sqrt(90 / 89 * ((u - ratio * n) ** 2).sum()) / n.sum()
        assert point.unfairness_se == pytest.approx(error, rel=1e-3)
    base = found.baseline
    assert (base.lam, base.loss, base.loss_se) == (0.0, 0.0, 0.0)
    assert base.score == pytest.approx(right_before.mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fitting_the_folds_by_hand_gives_the_reported_numbers(
    dtype: torch.dtype,
) -> None:
    """With whole numbers pairs sit at every radius, and outputs at the threshold."""
    moved = 0
    for seed in range(16):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(5, (100, 3), generator=generator).to(dtype)
        labels = (x[:, 0] > x[:, 1]).long()
        noise = torch.randint(3, (100,), generator=generator)
        y = (0.25 + 0.25 * noise).to(dtype) * 0.5 + 0.375 * labels
        sizes = {"ks": [3, 6]} if seed % 3 == 0 else {"taus": [1.0, 2.0**0.5]}
        folds = list(KFold(4, shuffle=True, random_state=seed).split(x))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The choice is the model")
            found = tune(
                x,
                y,
                labels,
                **sizes,
                lams=LAMS,
                thetas=[None, 0.3],
                max_loss=0.1,
                normalization="density" if seed % 5 == 0 else None,
                link=Logit() if seed % 2 else None,
                cv=folds,
            )
        moved += found.best.lam > 0
        assert found.best in found.points or found.best is found.baseline
        newcomers = y.clone()
        post = GLIFPostProcessor(**found.settings())
        for known, new in folds:
            newcomers[new] = post.fit(x[known], y[known]).transform(x[new], y[new])
        right = ((newcomers > 0.5).long() == labels).double()
        before = ((y > 0.5).long() == labels).double()
        assert found.best.score == pytest.approx(float(right.mean()), abs=1e-15)
        difference = before - right
        assert found.best.loss == pytest.approx(float(difference.mean()), abs=1e-15)
        error = float(difference.std()) / 10
        assert found.best.loss_se == pytest.approx(error, abs=1e-15)
    assert moved > 8  # or this tests nothing


@pytest.mark.parametrize("kind", ["several", "link", "nearest"])
def test_every_point_is_what_a_post_processor_does(kind: str) -> None:
    x, y, labels = problem()
    options = {"taus": TAUS}
    if kind == "several":
        y = torch.stack([0.6 - y, y, 0.3 * y], 1)
    if kind == "link":
        options["link"] = Logit()
    if kind == "nearest":
        options = {"ks": [4, 9]}
    gathered: list[torch.Tensor] = []

    def remember(outputs: torch.Tensor) -> float:
        gathered.append(outputs.clone())
        return 1.0

    with pytest.warns(UserWarning, match="The choice is the model as it is"):
        found = tune(
            x,
            y,
            score=lambda f: 0.0,
            unfairness=remember,
            lams=LAMS,
            cv=splits(),
            **options,
        )
    assert len(gathered) == 1 + len(found.points)
    assert torch.equal(gathered[0], y)
    for point, outputs in zip(found.points, gathered[1:], strict=True):
        post = GLIFPostProcessor(**found.settings(point))
        for known, new in splits():
            expected = post.fit(x[known], y[known]).transform(x[new], y[new])
            torch.testing.assert_close(outputs[new], expected, rtol=1e-5, atol=1e-6)
