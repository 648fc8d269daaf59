"""What a distance removes is not in its coordinates, whoever looks for it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor

from pyg_glif._utils.complement import complement, orthonormalize
from pyg_glif.cli._similarity import _Scale
from pyg_glif.distances import FairDistance, Mahalanobis, SensitiveSubspace
from pyg_glif.metric_learning import (
    EXPLORE,
    FACE,
    LogisticSubspace,
    SensitiveSVD,
    TaskEffect,
)
from pyg_glif.tables import FairTable
from tests.oracles_graph import complement_projector

SIZE, WIDTH = 4000, 5
AXIS = torch.eye(WIDTH, dtype=torch.float64)[1:2]
# Two columns that are removed together: each combination touches both.
PLANE = torch.tensor([[1.0, 2, 0, 0, 0], [3.0, -1, 0, 0, 0]], dtype=torch.float64)
OBLIQUE = torch.tensor([[1.0, 2.0, -1.0, 0.5, 0.0]], dtype=torch.float64)
SPANS = {"axis": AXIS, "plane": PLANE, "oblique": OBLIQUE}


class Samples:
    """Features whose part outside of a span is independent of an attribute."""

    def __init__(self, span: Tensor, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        rest = torch.randn(SIZE, WIDTH, generator=generator, dtype=torch.float64)
        rest[:, 4] = rest[:, 4].round()  # discrete, where rounding shows most
        rest = rest @ torch.from_numpy(complement_projector(span.numpy()))
        self.span = span
        self.label = torch.randint(2, (SIZE,), generator=generator)
        self.x = rest + torch.where(self.label > 0, 3.0, -1.0)[:, None] * span.sum(0)
        self.y = (rest[:, 2] + rest[:, 3] > 0).long()

    def flipped(self) -> Tensor:
        """The same features with the attribute of another sample."""
        move = 1.0 - 2.0 * self.label.double()
        return self.x + 4.0 * move[:, None] * self.span.sum(0)


def _along(s: Samples) -> Tensor:
    """Moves within the span, all different."""
    steps = torch.arange(1.0, SIZE + 1, dtype=torch.float64)[:, None]
    return torch.cat([steps.sin(), steps.cos()], dim=1)[:, : len(s.span)] @ s.span


def _explore(s: Samples) -> FairDistance:
    # Differences within the span are judged similar, all others are not.
    similar = torch.arange(SIZE) % 2 == 0
    apart = s.x.roll(1, 0) @ _projector(s)
    other = torch.where(similar[:, None], s.x + _along(s), s.x + apart)
    return EXPLORE(penalty=0.1).fit(s.x, other, similar)


def _face(s: Samples) -> FairDistance:
    x, group = torch.cat([s.x, s.x + _along(s)]), torch.arange(SIZE).repeat(2)
    return FACE(num_factors=len(s.span)).fit(x, group)


def _forest(s: Samples) -> FairDistance:
    base = SensitiveSubspace(s.span)
    tree = DecisionTreeClassifier(random_state=0, max_depth=4)
    tree.fit(base.embed(s.x).numpy(), s.y)
    return TaskEffect(base, predict=lambda z: tree.predict_proba(z.numpy())).fit(
        s.x, s.y
    )


def _projector(s: Samples) -> Tensor:
    return torch.from_numpy(complement_projector(s.span.numpy()))


def _logistic(s: Samples) -> FairDistance:
    columns = tuple(s.span.any(0).nonzero()[:, 0].tolist())
    return LogisticSubspace(protected_columns=columns).fit(s.x, s.label)


REMOVERS: dict[str, Callable[[Samples], FairDistance]] = {
    "SensitiveSubspace": lambda s: SensitiveSubspace(s.span),
    "float32": lambda s: SensitiveSubspace(s.span.float()),
    "Mahalanobis": lambda s: Mahalanobis(_projector(s)),
    "LogisticSubspace": _logistic,
    "SensitiveSVD": lambda s: SensitiveSVD(len(s.span)).fit(s.span.repeat(2, 1)),
    "FACE": _face,
    "EXPLORE": _explore,
    "TaskEffect": lambda s: TaskEffect(SensitiveSubspace(s.span)).fit(s.x, s.y),
    "TaskEffect of a tree": _forest,
    "standardized": lambda s: _Scale(s.x, True).absorb(
        SensitiveSubspace(_Scale(s.x, True).directions(s.span))
    ),
}


def predicted(z: Any, label: Tensor) -> float:
    """Largest share of unseen samples whose label trees tell from coordinates."""
    z, half = np.asarray(z), len(z) // 2
    models = (
        HistGradientBoostingClassifier(max_iter=30, random_state=0),
        DecisionTreeClassifier(random_state=0),
    )
    return max(
        model.fit(z[:half], label[:half]).score(z[half:], label[half:])
        for model in models
    )


# Five standard errors of the share that guessing gets.
CHANCE = 0.5 + 5 * 0.5 / (SIZE / 2) ** 0.5


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", REMOVERS)
def test_trees_cannot_read_what_was_removed(name: str, span: str) -> None:
    if name == "LogisticSubspace" and span == "oblique":
        pytest.skip("protected columns are axes")
    samples = Samples(SPANS[span])
    distance = REMOVERS[name](samples)
    assert predicted(samples.x, samples.label) > 0.99
    x = samples.x.float() if name == "float32" else samples.x
    z = distance.embed(x)
    assert predicted(z, samples.label) < CHANCE
    flipped = samples.flipped().to(x)
    if span != "oblique" and not name.startswith(("EXPLORE", "FACE")):
        # Rounding cannot tell either: these columns have no effect at all.
        flipped[:, 2:] = x[:, 2:]
        if span == "axis":
            flipped[:, 0] = x[:, 0]
        assert torch.equal(distance.embed(flipped), z)


def test_trees_cannot_read_a_copy_that_proxies_remove() -> None:
    samples = Samples(AXIS)
    df = pd.DataFrame(samples.x.numpy()[:, [0, 2, 3]], columns=["a", "b", "c"])
    df["sex"] = np.where(samples.label > 0, "f", "m")
    df["title"] = np.where(samples.label > 0, "Ms", "Mr")

    def predict(df: pd.DataFrame) -> Any:
        score = df["a"] + df["b"] * df["c"] + (df["title"] == "Ms")
        return 1 / (1 + np.exp(-score))

    for scale in ("effect", "standard"):
        table = FairTable(["sex"], proxies=True, scale=scale)
        z = table.fit_transform(df, predict)
        assert predicted(z, samples.label) < CHANCE
        again = FairTable.from_config(table.to_config())
        assert torch.equal(again.transform(df), z)


@settings(deadline=None, max_examples=60)
@given(
    width=st.integers(1, 9),
    rank=st.integers(0, 8),
    axes=st.integers(0, 4),
    seed=st.integers(0, 2**16),
)
def test_complement_is_the_projection_up_to_a_rotation(
    width: int, rank: int, axes: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((min(rank, width), width))
    rows[:, rng.random(width) < 0.3] = 0
    rows[:axes] = np.eye(width)[rng.integers(0, width, len(rows[:axes]))]
    directions = orthonormalize(torch.from_numpy(rows), 1e-9)
    kept, read, write = complement(directions)
    eye = torch.eye(width, dtype=torch.float64)
    factor = (eye[:, kept] - read @ write).numpy()
    rank = np.linalg.matrix_rank(rows, tol=1e-9)
    assert factor.shape == (width, width - rank)
    projector = eye.numpy() - np.linalg.pinv(rows, rcond=1e-9) @ rows
    np.testing.assert_allclose(factor @ factor.T, projector, atol=1e-12)
    np.testing.assert_allclose(factor.T @ factor, np.eye(width - rank), atol=1e-12)
    # Axes that are removed have no weight, and columns that are not touched all of it.
    removed = 1 - projector.diagonal() > 1 - 1e-13
    assert not factor[removed].any()
    free = ~rows.any(axis=0)
    columns = np.isin(kept, free.nonzero()[0])
    assert (factor[free][:, columns] == np.eye(free.sum())).all()
