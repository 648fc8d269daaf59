import json
import math
from functools import partial

import numpy as np
import pytest
import torch

from pyg_glif import GLIFPostProcessor
from pyg_glif.graph import SimilarityGraph
from pyg_glif.links import Logit
from pyg_glif.model_selection import TunePoint, TuneResult, tune
from pyg_glif.solvers import SolveStatus
from tests import oracles, oracles_inductive as oracle
from tests.oracles_radius import brute_force_edges

TAUS, LAMS, THETA = (0.3, 0.6, 1.2), (0.01, 0.1, 1.0, 10.0), 0.5

#: The people fitted are the people scored.
on_fitted = partial(tune, cv=None)


def problem() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noisy scores, so that smoothing helps at first and hurts in the end."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(80, 2, generator=generator, dtype=torch.float64)
    labels = (x[:, 0] > 0).long()
    noise = 0.6 * torch.randn(80, generator=generator, dtype=torch.float64)
    return x, 0.5 + 0.3 * x[:, 0] + noise, labels


def exhaustive(
    x: torch.Tensor, y: torch.Tensor, normalization: str | None
) -> dict[tuple[float, float], np.ndarray]:
    """Every solution by dense algebra."""
    out = {}
    for tau in TAUS:
        W = oracle.fitted_weights(x.numpy(), tau, THETA)
        for lam in LAMS:
            out[tau, lam] = oracles.smooth(W, y.numpy(), lam, normalization)
    return out


@pytest.mark.parametrize("normalization", [None, "density"])
@pytest.mark.parametrize("max_loss", [0.0, 0.02, 0.5])
def test_tune_picks_the_true_optimum(
    max_loss: float, normalization: str | None
) -> None:
    x, y, labels = problem()
    found = on_fitted(
        x,
        y,
        labels,
        taus=TAUS,
        lams=LAMS,
        theta=THETA,
        max_loss=max_loss,
        normalization=normalization,
    )
    W = oracle.fitted_weights(x.numpy(), max(TAUS), THETA)
    L = oracles.laplacian(W, None)
    truth = {}
    for at, f in exhaustive(x, y, normalization).items():
        accuracy = float(((f > 0.5) == labels.numpy()).mean())
        truth[at] = (accuracy, float(f @ L @ f))
    assert [(p.tau, p.lam) for p in found.points] == sorted(truth)
    for p in found.points:
        accuracy, energy = truth[p.tau, p.lam]
        assert p.score == pytest.approx(accuracy)
        assert p.unfairness == pytest.approx(energy, rel=1e-4)
    base = float(((y > 0.5) == labels).double().mean())
    assert found.baseline.score == pytest.approx(base)
    energy = float(y.numpy() @ L @ y.numpy())
    allowed = {at: v[1] for at, v in truth.items() if v[0] >= base - max_loss - 1e-9}
    expected = min(allowed, key=allowed.get, default=None)
    if expected is None or allowed[expected] >= energy:
        assert found.best == found.baseline
    else:
        assert (found.best.tau, found.best.lam) == expected
    assert found.names == ("accuracy", "Laplacian energy")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fitting_the_choice_gives_the_reported_numbers(dtype: torch.dtype) -> None:
    """Whole numbers put shells of pairs at every radius: one lost bit shows."""
    moved = 0
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        # Tenths in three columns: sums of more squares depend on their order.
        size, unit = [((200, 3), 1.0), ((120, 6), 1.0), ((120, 3), 0.1)][seed % 3]
        x = unit * torch.randint(5, size, generator=generator).to(dtype)
        y = torch.rand(len(x), generator=generator, dtype=dtype)
        labels = (x[:, 0] > x[:, 1]).long()
        y = 0.5 * y + 0.5 * labels
        taus = [2.0**0.5 * float(x.max()) / 4, 3.0**0.5 * float(x.max()) / 4]
        found = on_fitted(
            x,
            y,
            labels,
            taus=None if seed % 4 == 0 else taus,
            lams=LAMS,
            theta=1e-4,
            max_loss=0.05,
            normalization="density" if seed % 5 == 0 else None,
            link=Logit() if seed % 7 == 0 else None,
        )
        best = found.best
        moved += best.lam > 0
        post = GLIFPostProcessor(**found.settings())
        fitted = torch.as_tensor(post.fit_transform(x, y))
        accuracy = float(((fitted > 0.5).long() == labels).double().mean())
        assert best.score == accuracy
        radius = max(point.tau for point in found.points)
        edges, squares = brute_force_edges(x.double().numpy(), radius)
        W = np.zeros((len(x), len(x)))
        W[edges[0], edges[1]] = np.exp(-1e-4 * squares)
        values = fitted.double().numpy()
        energy = float(values @ oracles.laplacian(W, None) @ values)
        assert best.unfairness == pytest.approx(energy, rel=1e-5)
        lap = SimilarityGraph.search(x, radius).laplacian(1e-4)
        # A link may be undone in another precision.
        rel = 0.0 if post.link is None else 1e-6
        again = float(lap.quadratic(fitted.double()))
        assert best.unfairness == pytest.approx(again, rel=rel, abs=0.0)
    assert moved > 30  # or this tests nothing


def test_front_is_what_nobody_beats() -> None:
    x, y, labels = problem()
    found = on_fitted(x, y, labels, taus=TAUS, lams=LAMS, theta=THETA)
    every = [found.baseline, *found.points]

    def beaten(p: TunePoint) -> bool:
        return any(
            q.score >= p.score
            and q.unfairness <= p.unfairness
            and (q.score, q.unfairness) != (p.score, p.unfairness)
            for q in every
        )

    assert {id(p) for p in found.front} == {id(p) for p in every if not beaten(p)}
    assert found.best in found.front
    scores = [p.score for p in found.front]
    assert scores == sorted(scores, reverse=True)


def test_ties_go_to_the_weaker_setting() -> None:
    x, y, _ = problem()
    found = on_fitted(
        x, y, score=lambda f: 1.0, unfairness=lambda f: 2.0, taus=TAUS, lams=LAMS
    )
    assert found.best is found.baseline
    assert found.front == (found.baseline,)

    def moved(f: torch.Tensor) -> float:
        return float(torch.equal(f, y))

    found = on_fitted(x, y, score=lambda f: 1.0, unfairness=moved, taus=TAUS, lams=LAMS)
    assert (found.best.lam, found.best.tau) == (min(LAMS), min(TAUS))


def test_pairs_measure_disagreement() -> None:
    x, y, labels = problem()
    pairs = [[0, 1], [2, 3], [4, 5], [6, 7]]
    found = on_fitted(x, y, labels, pairs=pairs, taus=[0.6], lams=[0.1])
    decision = y > 0.5
    share = sum(bool(decision[i] != decision[j]) for i, j in pairs) / 4
    assert found.baseline.unfairness == share
    assert found.names[1] == "share of pairs that disagree"
    gap = on_fitted(x, y, score=lambda f: 0.0, pairs=pairs, taus=[0.6], lams=[0.1])
    expected = sum(abs(float(y[i] - y[j])) for i, j in pairs) / 4
    assert gap.baseline.unfairness == pytest.approx(expected)


def test_own_functions_and_mask() -> None:
    x, y, labels = problem()

    def closeness(f: torch.Tensor) -> float:
        return -float((f - y).abs().mean())

    def spread(f: torch.Tensor) -> torch.Tensor:
        return f.std()

    found = on_fitted(
        x, y, score=closeness, unfairness=spread, max_loss=0.1, taus=[0.6], lams=LAMS
    )
    assert found.names == ("closeness", "spread")
    assert found.best.score >= -0.1
    mask = torch.arange(80) < 5
    part = on_fitted(
        x.numpy(), y.numpy(), labels.numpy(), mask=mask, taus=[0.6], lams=[1.0]
    )
    right = ((y > 0.5) == labels)[:5].double().mean()
    assert part.baseline.score == pytest.approx(float(right))


def test_several_outputs_and_links() -> None:
    x, y, labels = problem()
    both = torch.stack([0.5 - y, y - 0.5], 1)
    one = on_fitted(x, y, labels, taus=[0.6], lams=[0.3])
    two = on_fitted(x, both, labels, taus=[0.6], lams=[0.3])
    assert two.points[0].score == one.points[0].score
    p = torch.sigmoid(y - 0.5)
    linked = on_fitted(x, p, labels, taus=[0.6], lams=[0.3], link=Logit())
    assert linked.points[0].score == one.points[0].score


def test_radii_by_degree() -> None:
    x, y, labels = problem()
    found = on_fitted(x, y, labels, lams=[0.1])
    assert len({p.tau for p in found.points}) == 4
    assert len(on_fitted(x[:3], y[:3], [0, 1, 1], lams=[0.1]).points) == 1


def test_settings_without_a_minimum_are_not_chosen() -> None:
    leaves = torch.eye(20)
    x = torch.cat([torch.zeros(1, 20), leaves])
    y = torch.linspace(0, 1, 21)
    found = on_fitted(
        x,
        y,
        score=lambda f: 0.0,
        taus=[1.0],
        lams=[0.01, 100.0],
        theta=0.0,
        normalization="nrw",
    )
    assert [p.status.name for p in found.points] == ["CONVERGED", "INDEFINITE"]
    assert math.isnan(found.points[1].score)
    assert found.best.lam in (0.0, 0.01)


def test_result() -> None:
    x, y, labels = problem()
    found = on_fitted(x, y, labels, taus=[0.6], lams=[0.1, 1.0])
    record = json.loads(json.dumps(found.to_dict()))
    assert record["best"]["lam"] == found.best.lam
    assert record["points"][0]["status"] == "CONVERGED"
    assert len(record["points"]) == 2
    lines = found.to_markdown().splitlines()
    assert lines[0] == "| tau | lam | accuracy | Laplacian energy |"
    assert len(lines) == 2 + len(found.front)
    assert sum("**" in line for line in lines) == 1
    point = TunePoint(0.5, 1.0, 0.9, 2.0, SolveStatus.CONVERGED)
    expected = "tau=0.5, lam=1, score=0.9, unfairness=2, status=CONVERGED"
    assert repr(point) == f"TunePoint({expected})"
    result = TuneResult((point,), point, point, (point,), 0.01, ("a", "b"))
    assert repr(result) == "TuneResult(num_points=1, best=(tau=0.5, lam=1))"


def test_plot() -> None:
    pytest.importorskip("matplotlib")
    x, y, labels = problem()
    figure = on_fitted(x, y, labels, taus=[0.6], lams=[0.1, 1.0]).plot()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "Laplacian energy  (← less is fairer)"
    assert axes.get_ylabel() == "accuracy  (more is better →)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"labels": None},
            ValueError,
            "'labels' must be given if 'score' is not (got None)",
        ),
        (
            {"score": len},
            ValueError,
            "'score' must not be given together with 'labels'",
        ),
        ({"max_loss": -1}, ValueError, "'max_loss' must be non-negative (got -1.0)"),
        (
            {"pairs": [[0, 99]]},
            ValueError,
            "'pairs' must hold node indices from 0 to 2 (got 99)",
        ),
        (
            {"pairs": [[0, 1]], "unfairness": len},
            ValueError,
            "'unfairness' must not be given together with 'pairs'",
        ),
        (
            {"labels": [0, 1]},
            ValueError,
            "'labels' must have one entry per row (got shape (2,) for 3)",
        ),
        (
            {"labels": [0.5, 1, 1]},
            TypeError,
            "'labels' must hold labels (got torch.float64)",
        ),
        (
            {"y_hat": [0.1, float("nan"), 0.2]},
            ValueError,
            "'y_hat' must be finite (got nan at index 1, 1 such values)",
        ),
        (
            {"labels": None, "score": lambda f: float("nan")},
            ValueError,
            "'score(...)' must be finite (got nan)",
        ),
        (
            {"mask": [0, 0, 0]},
            ValueError,
            "'mask' must select at least one row (got none)",
        ),
        ({"lams": []}, ValueError, "'lams' must hold at least one number (got none)"),
        ({"taus": []}, ValueError, "'taus' must hold at least one number (got none)"),
        ({"taus": [-1]}, ValueError, "'taus' must be non-negative (got -1.0)"),
    ],
)
def test_tune_rejects(change: dict[str, object], error: type, message: str) -> None:
    options = {
        "x": torch.zeros(3, 1),
        "y_hat": [0.1, 0.2, 0.3],
        "labels": [0, 1, 1],
        "taus": [1.0],
        **change,
    }
    with pytest.raises(error) as caught:
        on_fitted(**options)
    assert str(caught.value) == message
