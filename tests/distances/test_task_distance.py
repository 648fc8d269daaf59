import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from pyg_glif import GLIFPostProcessor
from pyg_glif.distances import (
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
    TaskDistance,
)
from pyg_glif.registry import build, describe

WIDTH = 5


def blind(generator: torch.Generator, rank: int = 2) -> SensitiveSubspace:
    rows = torch.randn(rank, WIDTH, generator=generator, dtype=torch.float64)
    return SensitiveSubspace(rows)


def linear_head(
    generator: torch.Generator, num_scores: int = 2, width: int = WIDTH
) -> nn.Linear:
    head = nn.Linear(width, num_scores, dtype=torch.float64)
    for tensor in head.parameters():
        tensor.data = torch.randn(
            tensor.shape, generator=generator, dtype=torch.float64
        )
    return head


def heads(generator: torch.Generator, width: int) -> list[Any]:
    """Linear, bent, with several columns, and one of arrays."""
    return [
        linear_head(generator, width=width).requires_grad_(False),
        lambda z: z[:, 0].sin() + z[:, -1].square(),
        lambda z: torch.stack([z.prod(dim=1), z.amax(dim=1)], dim=1),
        lambda z: np.tanh(z.numpy()).sum(axis=1),
    ]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rank=st.integers(1, 4), weight=st.floats(0.0, 30.0))
def test_ignored_directions_stay_ignored(seed: int, rank: int, weight: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    base = blind(generator, rank)
    x = torch.randn(4, WIDTH, generator=generator, dtype=torch.float64)
    along = torch.randn(4, rank, generator=generator, dtype=torch.float64)
    moved = x + 3 * along @ base.basis
    for head in heads(generator, WIDTH - rank):
        distance = TaskDistance(base, head, weight=weight)
        assert float(distance(x, moved).diagonal().max()) < 1e-11 * (1 + weight)
        # Nor does it matter which of the two a third sample is compared with.
        torch.testing.assert_close(
            distance(x, x), distance(x, moved), atol=1e-6, rtol=0
        )
        assert torch.equal(distance.null_space(WIDTH), base.null_space(WIDTH))


def test_same_fair_coordinates_are_at_distance_exactly_zero(
    generator: torch.Generator,
) -> None:
    # Columns that are left out leave no rounding behind.
    base = Mahalanobis.from_factor(torch.eye(WIDTH)[:, :3])
    x = torch.randn(9, WIDTH, generator=generator)
    other = x.clone()
    other[:, 3:] = 100 * torch.randn(9, 2, generator=generator)
    assert torch.equal(base.embed(x), base.embed(other))
    distance = TaskDistance(base, lambda z: z.exp().sum(dim=1), weight=7.0)
    assert torch.equal(distance(x, other).diagonal(), torch.zeros(9))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), weight=st.floats(0.0, 10.0))
def test_distance_is_the_formula_and_never_below_the_other(
    seed: int, weight: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    base = blind(generator)
    x = torch.randn(6, WIDTH, generator=generator, dtype=torch.float64)
    for head in heads(generator, WIDTH - 2):
        dist = TaskDistance(base, head, weight=weight)(x, x)
        q = base.directions.numpy()
        z = x.numpy() @ (np.eye(WIDTH) - q @ q.T)
        score = np.asarray(head(base.embed(x))).reshape(6, -1)
        square = ((z[:, None] - z[None]) ** 2).sum(-1)
        square += weight**2 * ((score[:, None] - score[None]) ** 2).sum(-1)
        np.testing.assert_allclose(dist, np.sqrt(square), atol=1e-7)
        assert bool((dist >= base(x, x) - 1e-12).all())


def test_weight_is_the_price_of_one_score() -> None:
    distance = TaskDistance(Euclidean(), lambda z: 10 * z[:, :1], weight=0.1)
    x = torch.tensor([[0.0], [1.0]])  # ten in the score, one in the features
    assert float(distance(x, x)[0, 1]) == pytest.approx(2**0.5)
    assert distance.with_weight(0.0)(x, x)[0, 1] == 1.0
    assert distance.with_weight(2.0).head is distance.head
    assert distance.weight == 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_precision_is_that_of_the_features(
    dtype: torch.dtype, generator: torch.Generator
) -> None:
    base, x = blind(generator), torch.randn(4, WIDTH, generator=generator).to(dtype)
    for head in heads(generator, WIDTH - 2):
        z = TaskDistance(base, head).embed(x)
        assert z.dtype == dtype
        torch.testing.assert_close(z[:, : WIDTH - 2], base.embed(x))


def test_gradients_reach_features_head_and_base(generator: torch.Generator) -> None:
    factor = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    base = Mahalanobis.from_factor(factor, learnable=True)
    distance = TaskDistance(base, linear_head(generator), weight=0.5)
    x = torch.randn(3, WIDTH, generator=generator, dtype=torch.float64)

    def embed(x: Tensor, *_: Tensor) -> Tensor:
        return distance.embed(x)

    inputs = (x.requires_grad_(), *distance.parameters())
    assert len(inputs) == 4
    assert torch.autograd.gradcheck(embed, inputs)


@pytest.mark.parametrize("base", [Euclidean(), SensitiveSubspace(torch.eye(5)[:2])])
@pytest.mark.parametrize("learnable", [True, False])
def test_it_comes_back_from_a_file(
    base: FairDistance, learnable: bool, tmp_path: Path, generator: torch.Generator
) -> None:
    width = base.embed(torch.zeros(1, WIDTH)).size(1)
    head = linear_head(generator, width=width).requires_grad_(learnable)
    distance = TaskDistance(base, head, weight=0.3)
    other = build(
        "distance",
        json.loads(json.dumps(describe(distance))),
        state=copy.deepcopy(distance.state_dict()),
    )
    assert repr(other) == repr(distance)
    assert other.head.weight.requires_grad is learnable
    x = torch.randn(30, WIDTH, generator=generator)
    assert torch.equal(other.embed(x), distance.embed(x))
    post = GLIFPostProcessor(distance=distance, tau=2.0).fit(x, x[:, 0].sigmoid())
    post.save(tmp_path / "fit")
    again = GLIFPostProcessor.load(tmp_path / "fit")
    assert torch.equal(again.y_fair_, post.y_fair_)
    new = torch.randn(5, WIDTH, generator=generator)
    expected = post.transform(new, new[:, 0].sigmoid())
    assert torch.equal(again.transform(new, new[:, 0].sigmoid()), expected)


def test_functions_cannot_be_saved(tmp_path: Path, generator: torch.Generator) -> None:
    x = torch.randn(9, 2, generator=generator)
    post = GLIFPostProcessor(distance=TaskDistance(Euclidean(), torch.sin), tau=1.0)
    post.fit(x, x[:, 0])
    message = (
        r"'head' must be a 'torch.nn.Linear' to be saved \(got sin\). Fit 'TaskEffect' "
        r'without \'predict\', or use save\(path, omit=\["distance"\]\)'
    )
    with pytest.raises(TypeError, match=message):
        post.save(tmp_path / "fit")
    post.save(tmp_path / "fit", omit=["distance"])


def test_it_shows_its_parts() -> None:
    assert repr(TaskDistance(Euclidean(), torch.sin, weight=0.5)) == (
        "TaskDistance(\n  weight=0.5, head=sin\n  (distance): Euclidean()\n)"
    )
