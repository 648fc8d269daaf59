import pytest
import torch
from torch import Tensor, nn

from pyg_glif.distances import (
    CallableDistance,
    Euclidean,
    FairDistance,
    Mahalanobis,
    SensitiveSubspace,
    TaskDistance,
)


def all_distances(num_features: int) -> list[FairDistance]:
    """One of each, for ``num_features`` columns, in float64."""
    eye = torch.eye(num_features, dtype=torch.float64)
    ramp = torch.arange(1.0, num_features + 1, dtype=torch.float64)
    return [
        Euclidean(),
        Mahalanobis(torch.diag(ramp) + 0.1),
        Mahalanobis.from_factor(torch.outer(ramp, ramp[:2]), learnable=True),
        SensitiveSubspace(torch.stack([eye[0] + eye[1], ramp])),
        TaskDistance(
            SensitiveSubspace(ramp[None]), _head(num_features - 1), weight=0.3
        ),
        CallableDistance(lambda x1, x2: torch.cdist(x1, x2, p=1.0)),
    ]


def _head(num_features: int) -> nn.Linear:
    """Two scores, one of which is constant."""
    head = nn.Linear(num_features, 2, dtype=torch.float64)
    with torch.no_grad():
        head.weight.zero_()[0] = torch.linspace(-1.0, 2.0, num_features)
    return head


@pytest.mark.parametrize("distance", all_distances(4), ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distance_is_a_pseudometric(
    distance: FairDistance, dtype: torch.dtype, generator: torch.Generator
) -> None:
    x = torch.randn(9, 4, generator=generator, dtype=dtype)
    dist = distance(x, x)
    assert dist.dtype == dtype
    assert torch.equal(dist.diagonal(), torch.zeros(9, dtype=dtype))
    assert torch.equal(dist, dist.T)
    detour = (dist.unsqueeze(2) + dist.unsqueeze(0)).amin(dim=1)
    assert (dist <= detour + 1e-5).all()
    torch.testing.assert_close(distance(x[:2], x[5:]), dist[:2, 5:])


@pytest.mark.parametrize("distance", all_distances(4), ids=lambda d: type(d).__name__)
def test_distance_of_no_rows_is_empty(distance: FairDistance) -> None:
    x = torch.zeros(3, 4)
    assert distance(x, x[:0]).shape == (3, 0)
    assert distance(x[:0], x).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 4, 13])
def test_duplicates_are_at_distance_zero_wherever_they_stand(
    width: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    ramp = torch.arange(1.0, width + 1, dtype=torch.float64)
    one_score = nn.Linear(width, 1, dtype=torch.float64).requires_grad_(False)
    single = [
        SensitiveSubspace(ramp[None]),
        Mahalanobis.from_factor(ramp[:, None]),
        TaskDistance(Euclidean(), one_score),
    ]
    for distance in (*single, *all_distances(width)):
        for rows in (1, 2, 3, 9, 17):
            x = torch.randn(rows, width, generator=generator, dtype=dtype)
            z = distance(x, x).detach().diagonal()
            assert torch.equal(z, z.new_zeros(rows))


@pytest.mark.parametrize("rows", [1, 2, 3, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicates_are_at_distance_zero_in_blocks_of_any_height(
    rows: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    # A product with one row may be summed in another order than one with many.
    x = torch.randn(50, 768, generator=generator, dtype=dtype)
    factor = torch.randn(768, 25, generator=generator, dtype=dtype)
    dist = Mahalanobis.from_factor(factor)(x[:rows], x)
    assert torch.equal(dist[:, :rows].diagonal(), dist.new_zeros(rows))


def test_distance_far_from_the_origin_keeps_its_digits() -> None:
    x = torch.tensor([[1e4, 1e4], [1e4 + 0.25, 1e4]])
    assert Euclidean()(x, x).tolist() == [[0.0, 0.25], [0.25, 0.0]]


def test_gradient_at_coinciding_points_is_zero() -> None:
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, 6.0]], requires_grad=True)
    (grad,) = torch.autograd.grad(Euclidean()(x, x)[0, :2].sum(), x)
    assert torch.equal(grad, torch.zeros(3, 2))


@pytest.mark.parametrize(
    "distance", all_distances(3)[:5], ids=lambda d: type(d).__name__
)
def test_gradient_of_distance_matches_finite_differences(
    distance: FairDistance, generator: torch.Generator
) -> None:
    x1, x2 = (
        torch.randn(n, 3, generator=generator, dtype=torch.float64, requires_grad=True)
        for n in (2, 4)
    )
    assert torch.autograd.gradcheck(distance, (x1, x2))


def test_embedding_gives_the_distance(generator: torch.Generator) -> None:
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    for distance in all_distances(4)[:5]:
        z = distance.embed(x)
        by_embedding = (z.unsqueeze(1) - z).square().sum(-1).sqrt()
        torch.testing.assert_close(distance(x, x), by_embedding)


def test_base_class_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        FairDistance()  # type: ignore[abstract]


def test_user_class_only_needs_embed() -> None:
    class First(FairDistance):
        def embed(self, x: Tensor) -> Tensor:
            return x[:, :1]

    distance = First()
    assert distance.is_embedding
    assert distance.num_features is None
    assert distance(torch.tensor([[1.0, 9.0]]), torch.zeros(1, 2)).item() == 1.0


@pytest.mark.parametrize(
    "distance", all_distances(4)[1:5], ids=lambda d: type(d).__name__
)
def test_distance_rejects_other_width(distance: FairDistance) -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"^'x' must have 4 columns \(got 3\)$"):
        distance.embed(x)
    with pytest.raises(ValueError, match=r"^'x1' must have 4 columns \(got 3\)$"):
        distance(x, x)
