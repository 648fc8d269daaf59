import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif.metric_learning import FACE
from tests import oracles_metric_learning


def _groups(
    generator: torch.Generator, num_groups: int = 400, num_features: int = 10
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two sensitive factors in groups of 1 to 4; relevant factors far stronger."""
    sensitive = torch.randn(2, num_features, generator=generator, dtype=torch.float64)
    relevant = torch.randn(4, num_features, generator=generator, dtype=torch.float64)
    size = torch.randint(1, 5, (num_groups,), generator=generator)
    group = torch.arange(num_groups).repeat_interleave(size)
    num_rows = len(group)
    u = torch.randn(num_rows, 2, generator=generator, dtype=torch.float64)
    v = torch.randn(num_groups, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(
        num_rows, num_features, generator=generator, dtype=torch.float64
    )
    x = u @ sensitive + 20 * (v @ relevant)[group] + 1e-3 * noise
    order = torch.randperm(num_rows, generator=generator)
    return x[order], group[order], sensitive


def test_face_recovers_planted_factors(generator: torch.Generator) -> None:
    x, group, sensitive = _groups(generator)
    learner = FACE(num_factors=2)
    distance = learner.fit(x, group)
    assert oracles_metric_learning.largest_angle(distance.basis, sensitive) < 1e-3
    # The means hide them: without groups the relevant factors are found instead.
    plain = oracles_metric_learning.top_right_singular_vectors(x - x.mean(0), 2)
    assert oracles_metric_learning.largest_angle(plain, sensitive) > 0.5
    fit = distance.fit_result
    # All but noise of size 1e-3 in the 8 other directions.
    assert 1 - fit.explained_ratio < 1e-5
    torch.testing.assert_close(
        fit.variances[2:], torch.full_like(fit.variances[2:], 1e-6), rtol=0.3, atol=0
    )


@settings(deadline=None, max_examples=40)
@given(
    labels=st.lists(st.integers(-3, 4), min_size=6, max_size=40),
    chunk_size=st.integers(1, 45),
    seed=st.integers(0, 2**16),
)
def test_face_matches_oracle_for_any_grouping(
    labels: list[int], chunk_size: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    group = np.array(labels)
    x = rng.standard_normal((len(group), 4)) + 5 * group[:, None]
    rest = oracles_metric_learning.within_group_deviations(x, group)
    num_groups = len(np.unique(group))
    values = np.linalg.svd(rest, compute_uv=False)
    learner = FACE(num_factors=1, chunk_size=chunk_size)
    if num_groups == len(group):
        return
    distance = learner.fit(torch.from_numpy(x), torch.from_numpy(group))
    fit = distance.fit_result
    freedom = len(group) - num_groups
    np.testing.assert_allclose(fit.variances.sum(), (values**2).sum() / freedom)
    np.testing.assert_allclose(fit.variances[0], values[0] ** 2 / freedom)
    counts = np.unique(group, return_counts=True)[1]
    assert fit.num_single == (counts == 1).sum()
    assert fit.num_groups == (counts > 1).sum()
    if values[0] > 1.1 * values[1]:
        expected = oracles_metric_learning.top_right_singular_vectors(rest, 1)
        assert oracles_metric_learning.largest_angle(distance.basis, expected) < 1e-8


def test_labels_and_order_do_not_matter(generator: torch.Generator) -> None:
    x, group, _ = _groups(generator)
    one = FACE(2).fit(x, group)
    names = torch.randperm(int(group.max()) + 1, generator=generator) * 7 - 1000
    order = torch.randperm(len(x), generator=generator)
    other = FACE(2).fit(x[order], names[group][order].int())
    assert oracles_metric_learning.largest_angle(other.basis, one.basis) < 1e-9
    assert other.fit_result.num_groups == one.fit_result.num_groups


def test_groups_of_one_do_not_matter(generator: torch.Generator) -> None:
    x, group, _ = _groups(generator)
    one = FACE(2).fit(x, group)
    more = torch.cat([x, 1e6 * torch.ones(1, 10, dtype=torch.float64)])
    other = FACE(2).fit(more, torch.cat([group, torch.tensor([-1])]))
    assert other.fit_result.num_single == one.fit_result.num_single + 1
    assert torch.equal(other.basis, one.basis)


def test_means_far_from_the_origin_cost_no_digits(
    generator: torch.Generator,
) -> None:
    x, group, _ = _groups(generator)
    one = FACE(2).fit(x, group)
    # Rounding the shifted features to float64 moves them by 1e-8.
    other = FACE(2, chunk_size=5).fit(x + 1e8, group)
    assert oracles_metric_learning.largest_angle(other.basis, one.basis) < 1e-7


@pytest.mark.filterwarnings("ignore")  # of inFairness
def test_face_agrees_with_infairness_on_a_list_of_groups(
    generator: torch.Generator,
) -> None:
    x, group, _ = _groups(generator, num_groups=60)
    x = x.float()
    reference = pytest.importorskip("inFairness.distances")
    peer = reference.SVDSensitiveSubspaceDistance()
    np.random.seed(0)  # noqa: NPY002 - its decomposition is randomised
    parts = [x[group == label] for label in group.unique()]
    peer.fit(parts, n_components=2, autoinfer_device=False)
    z = torch.randn(6, 10, generator=generator)
    torch.testing.assert_close(
        FACE(2).fit(x, group)(z, z).square(),
        peer(z, z, itemwise_dist=False).squeeze(),
        rtol=1e-3,
        atol=1e-4,
    )
