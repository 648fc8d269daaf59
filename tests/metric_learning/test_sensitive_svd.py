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


@pytest.mark.filterwarnings("ignore")  # of inFairness
def test_sensitive_svd_agrees_with_infairness(generator: torch.Generator) -> None:
    reference = pytest.importorskip("inFairness.distances")
    v = _vectors(generator)[0].float()
    peer = reference.SVDSensitiveSubspaceDistance()
    np.random.seed(0)  # noqa: NPY002 - its decomposition is randomised
    peer.fit(v, n_components=3)
    x = torch.randn(6, 12, generator=generator)
    sq_dist = SensitiveSVD(3).fit(v)(x, x).square()
    torch.testing.assert_close(
        sq_dist, peer(x, x, itemwise_dist=False).squeeze(), rtol=1e-3, atol=1e-4
    )


def test_rank_is_seen_through_rounding(generator: torch.Generator) -> None:
    code = torch.randn(500, 2, generator=generator)
    v = code @ torch.randn(2, 30, generator=generator)
    assert SensitiveSVD(2).fit(v).rank == 2
    with pytest.raises(ValueError, match=r"rank of 'v', 2 \(got 3\)"):
        SensitiveSVD(3).fit(v)
