import numpy as np
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.distances import SensitiveSubspace
from tests import oracles_graph


def test_sensitive_subspace() -> None:
    distance = SensitiveSubspace(torch.tensor([[0.0, 2.0, 0.0]]))
    assert str(distance) == "SensitiveSubspace(num_features=3, rank=1)"
    assert distance.basis.abs().tolist() == [[0.0, 1.0, 0.0]]
    x = torch.tensor([[1.0, 5.0, 2.0]])
    assert distance.embed(x).tolist() == [[1.0, 2.0]]


@settings(deadline=None, max_examples=40)
@given(
    num_features=st.integers(2, 7),
    rank=st.integers(1, 6),
    repeats=st.integers(1, 3),
    scale=st.sampled_from([1e-20, 1.0, 1e20]),
    seed=st.integers(0, 2**16),
)
def test_sensitive_subspace_matches_oracle_for_any_spanning_set(
    num_features: int, rank: int, repeats: int, scale: float, seed: int
) -> None:
    rank = min(rank, num_features - 1)
    rng = np.random.default_rng(seed)
    # Independent by construction: the identity, mixed by a rotation.
    rotation = np.linalg.qr(rng.standard_normal((num_features, num_features)))[0]
    independent = rotation[:rank]
    basis = np.concatenate([k * independent for k in range(1, repeats + 1)])
    basis[0] *= scale
    distance = SensitiveSubspace(torch.from_numpy(basis))
    assert distance.rank == rank
    orthonormal = distance.basis @ distance.basis.T
    np.testing.assert_allclose(orthonormal, np.eye(rank), atol=1e-13)
    x = rng.standard_normal((4, num_features))
    expected = x @ oracles_graph.complement_projector(independent)
    # In fewer coordinates, all inner products are those of the projection.
    z = distance.embed(torch.from_numpy(x)).numpy()
    assert z.shape == (4, num_features - rank)
    np.testing.assert_allclose(z @ z.T, expected @ expected.T, atol=1e-12)


def test_samples_that_differ_in_sensitive_directions_only_are_at_distance_zero(
    generator: torch.Generator,
) -> None:
    basis = torch.randn(3, 8, generator=generator, dtype=torch.float64)
    x = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    other = x + torch.randn(5, 3, generator=generator, dtype=torch.float64) @ basis
    distance = SensitiveSubspace(basis)
    assert distance(x, other).diagonal().max() < 1e-13


def test_sensitive_columns_are_removed_exactly(generator: torch.Generator) -> None:
    eye = torch.eye(6)
    x = 1e4 + torch.randn(5, 6, generator=generator)
    other = x.clone()
    other[:, [1, 4]] = torch.randn(5, 2, generator=generator)
    distance = SensitiveSubspace(eye[[4, 1]])
    assert torch.equal(distance(x, other).diagonal(), torch.zeros(5))
    assert torch.equal(distance.embed(x), x[:, [0, 2, 3, 5]])
    # What is an axis but for rounding is one.
    nearly = eye[:1].double() + 1e-9 * eye[1:2]
    assert torch.equal(SensitiveSubspace(nearly).embed(x), x[:, 1:])


def test_sensitive_subspace_forms_no_square_matrix() -> None:
    # A dense projector would take 20 GB here.
    num_features = 50_000
    distance = SensitiveSubspace(torch.ones(1, num_features))
    z = distance.embed(torch.ones(2, num_features))
    assert z.abs().max() < 1e-3


def test_state_dict_brings_its_rank() -> None:
    saved = SensitiveSubspace(torch.eye(4)[:3])
    fresh = SensitiveSubspace(torch.eye(4)[3:])
    fresh.load_state_dict(saved.state_dict())
    assert fresh.rank == 3
    x = torch.eye(4)
    assert torch.equal(fresh(x, x), saved(x, x))


def test_precision_follows_the_features() -> None:
    distance = SensitiveSubspace(torch.eye(2)[:1])
    assert distance.embed(torch.eye(2).double()).dtype == torch.float64
    assert distance.double().directions.dtype == torch.float64
    assert distance.embed(torch.eye(2)).dtype == torch.float32
