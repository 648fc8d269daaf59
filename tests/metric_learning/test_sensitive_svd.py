import numpy as np
import pytest
import torch

from pyg_glif.distances import SensitiveSubspace
from pyg_glif.metric_learning import SensitiveSVD
from tests import oracles_metric_learning


def _vectors(
    generator: torch.Generator, num_rows: int = 300, num_features: int = 12
) -> tuple[torch.Tensor, torch.Tensor]:
    """Three strong planted directions, and noise."""
    truth = torch.randn(3, num_features, generator=generator, dtype=torch.float64)
    code = torch.randn(num_rows, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(
        num_rows, num_features, generator=generator, dtype=torch.float64
    )
    return code @ truth + 1e-4 * noise, truth


def test_sensitive_svd(generator: torch.Generator) -> None:
    learner = SensitiveSVD(num_components=3)
    assert (
        str(learner) == "SensitiveSVD(num_components=3, center=False, chunk_size=1024)"
    )
    v, truth = _vectors(generator)
    distance = learner.fit(v)
    assert isinstance(distance, SensitiveSubspace)
    assert str(distance) == "SensitiveSubspace(num_features=12, rank=3)"
    assert oracles_metric_learning.largest_angle(distance.basis, truth) < 1e-4


@pytest.mark.parametrize("center", [False, True])
def test_sensitive_svd_matches_singular_vectors(
    center: bool, generator: torch.Generator
) -> None:
    v = torch.randn(40, 8, generator=generator, dtype=torch.float64) + 3
    distance = SensitiveSVD(num_components=4, center=center).fit(v)
    rows = v.numpy() - (v.numpy().mean(axis=0) if center else 0)
    expected = oracles_metric_learning.top_right_singular_vectors(rows, 4)
    assert oracles_metric_learning.largest_angle(distance.basis, expected) < 1e-10
    values = np.linalg.svd(rows, compute_uv=False)
    fit = distance.fit_result
    np.testing.assert_allclose(fit.variances, values**2 / 40, rtol=1e-10)
    share = (values[:4] ** 2).sum() / (values**2).sum()
    assert fit.explained_ratio == pytest.approx(share)
    assert (fit.mean is not None) == center


def test_centring_matters(generator: torch.Generator) -> None:
    v, truth = _vectors(generator)
    offset = torch.zeros(12, dtype=torch.float64)
    offset[0] = 1e3
    centred = SensitiveSVD(3, center=True).fit(v + offset)
    assert oracles_metric_learning.largest_angle(centred.basis, truth) < 1e-4
    plain = SensitiveSVD(3).fit(v + offset)
    assert oracles_metric_learning.largest_angle(plain.basis, truth) > 0.1
    assert float(plain.basis[:, 0].norm()) > 0.999


@pytest.mark.parametrize("chunk_size", [1, 7, 299, 300, 10_000])
def test_chunk_size_does_not_matter(
    chunk_size: int, generator: torch.Generator
) -> None:
    v, _ = _vectors(generator)
    one = SensitiveSVD(3, center=True).fit(v)
    other = SensitiveSVD(3, center=True, chunk_size=chunk_size).fit(v)
    x = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(other.embed(x), one.embed(x), rtol=1e-9, atol=1e-12)


def test_float32_stays_close_and_is_returned(generator: torch.Generator) -> None:
    v, _ = _vectors(generator)
    single, double = SensitiveSVD(3).fit(v.float()), SensitiveSVD(3).fit(v)
    assert single.basis.dtype == torch.float32
    assert single.fit_result.variances.dtype == torch.float64
    # Directions are rounded to float32, and the data was.
    assert oracles_metric_learning.largest_angle(single.basis, double.basis) < 1e-5


def test_gradients_of_the_vectors_are_not_followed(
    generator: torch.Generator,
) -> None:
    v = _vectors(generator)[0].requires_grad_()
    assert not SensitiveSVD(3).fit(v).basis.requires_grad


@pytest.mark.filterwarnings("ignore")  # of the peer
def test_sensitive_svd_agrees_with_infairness(generator: torch.Generator) -> None:
    peers = pytest.importorskip("inFairness.distances")
    v = _vectors(generator)[0].float()
    peer = peers.SVDSensitiveSubspaceDistance()
    np.random.seed(0)  # noqa: NPY002 - its decomposition is randomised
    peer.fit(v, n_components=3)
    x = torch.randn(6, 12, generator=generator)
    sq_dist = SensitiveSVD(3).fit(v)(x, x).square()
    torch.testing.assert_close(
        sq_dist, peer(x, x, itemwise_dist=False).squeeze(), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize(
    ("v", "message"),
    [
        (torch.zeros(0, 4), "'v' must not be empty (got shape (0, 4))"),
        (torch.ones(4), "'v' must be 2-dimensional (got shape (4,))"),
        (
            torch.tensor([[torch.nan, 1.0]]),
            "'v' must be finite (got nan at index (0, 0), 1 such values)",
        ),
        (
            torch.ones(5, 4),
            "'num_components' must be at most the rank of 'v', 1 (got 2)",
        ),
        (
            torch.zeros(5, 4),
            "'num_components' must be at most the rank of 'v', 0 (got 2)",
        ),
        (
            torch.eye(2),
            "'num_components' must be below the number of features, 2 (got 2). "
            "Every pair would be at distance 0",
        ),
    ],
)
def test_sensitive_svd_rejects_bad_vectors(v: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        SensitiveSVD(2).fit(v)
    assert str(caught.value) == message


def test_rank_is_seen_through_rounding(generator: torch.Generator) -> None:
    code = torch.randn(500, 2, generator=generator)
    v = code @ torch.randn(2, 30, generator=generator)
    assert SensitiveSVD(2).fit(v).rank == 2
    with pytest.raises(ValueError, match=r"rank of 'v', 2 \(got 3\)"):
        SensitiveSVD(3).fit(v)


def test_sensitive_svd_rejects_bad_options() -> None:
    with pytest.raises(ValueError, match="'num_components' must be at least 1"):
        SensitiveSVD(0)
    with pytest.raises(ValueError, match="'chunk_size' must be at least 1"):
        SensitiveSVD(chunk_size=0)
    with pytest.raises(TypeError, match="'v' must hold numbers"):
        SensitiveSVD().fit([["one"]])
    with pytest.raises(TypeError, match="'v' must hold real numbers"):
        SensitiveSVD().fit(torch.eye(3) * 1j)
