import math

import pytest
import torch
from torch import Tensor

from pyg_glif.metrics import (
    Interval,
    bootstrap_interval,
    group_gap,
    lipschitz_violations,
    prediction_consistency,
)


def test_interval_of_a_mean_has_the_textbook_width(generator: torch.Generator) -> None:
    y = torch.randn(400, 2, dtype=torch.float64, generator=generator)
    found = bootstrap_interval(lambda rows: y[rows].mean(0), 400, num_samples=4000)
    torch.testing.assert_close(found.estimate, y.mean(0))
    half = 1.96 * y.std(0, correction=0) / math.sqrt(400)
    # The ends of 4000 draws are known to a few per cent.
    torch.testing.assert_close(found.high - y.mean(0), half, rtol=0.1, atol=0.0)
    torch.testing.assert_close(y.mean(0) - found.low, half, rtol=0.1, atol=0.0)


def test_a_higher_level_is_wider(generator: torch.Generator) -> None:
    y = torch.randn(50, generator=generator)

    def interval(level: float) -> Interval:
        return bootstrap_interval(lambda rows: y[rows].mean(), 50, level=level)

    narrow, wide = interval(0.5), interval(0.99)
    assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high


def test_interval_covers_as_often_as_it_says(generator: torch.Generator) -> None:
    hits = 0
    for _ in range(200):
        y = torch.randn(40, generator=generator)
        found = bootstrap_interval(
            lambda rows, y=y: y[rows].mean(),
            40,
            level=0.8,
            num_samples=200,
            generator=generator,
        )
        hits += bool(found.low <= 0 <= found.high)
    assert 0.7 <= hits / 200 <= 0.9


def test_randomness_comes_from_the_generator_only() -> None:
    y = torch.arange(30.0)

    def interval(generator: torch.Generator | None = None) -> tuple[float, ...]:
        found = bootstrap_interval(
            lambda rows: y[rows].mean(), 30, num_samples=50, generator=generator
        )
        return tuple(float(v) for v in found)

    state = torch.get_rng_state()
    assert interval() == interval()
    assert torch.equal(torch.get_rng_state(), state)
    seeded = [interval(torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert seeded[0] == seeded[1] != seeded[2]


def test_whole_clusters_are_drawn() -> None:
    cluster = torch.tensor([7, 2, 7, 2, 2, 9])
    drawn: list[tuple[Tensor, Tensor]] = []

    def record(rows: Tensor, draw: Tensor) -> Tensor:
        drawn.append((rows, draw))
        return torch.zeros(())

    bootstrap_interval(record, 6, cluster=cluster, num_samples=200)
    assert drawn[0][0].tolist() == list(range(6))
    assert drawn[0][1].tolist() == [1, 0, 1, 0, 0, 2]
    sets = {7: [0, 2], 2: [1, 3, 4], 9: [5]}
    seen = {7: 0, 2: 0, 9: 0}
    for rows, draw in drawn[1:]:
        assert draw.unique().tolist() == [0, 1, 2]
        for number in range(3):
            members = rows[draw == number].tolist()
            label = int(cluster[members[0]])
            assert members == sets[label]
            seen[label] += 1
    assert all(150 < count < 250 for count in seen.values())  # 600 draws of three


def test_a_cluster_drawn_twice_counts_twice() -> None:
    group = torch.arange(100).repeat(2)
    y = torch.zeros(200, dtype=torch.long)
    y[:30] = 1  # 30 of 100 pairs disagree
    found = bootstrap_interval(
        lambda rows, draw: prediction_consistency(y[rows], draw), 200, cluster=group
    )
    assert float(found.estimate) == pytest.approx(0.7)
    half = 1.96 * math.sqrt(0.7 * 0.3 / 100)
    assert float(found.high - found.low) == pytest.approx(2 * half, rel=0.15)


def test_strata_keep_their_sizes() -> None:
    sensitive = torch.tensor([1] * 30 + [0])  # a group of a single row
    y = torch.arange(31.0)
    sizes = set()

    def gap(rows: Tensor) -> Tensor:
        sizes.add(int(sensitive[rows].sum()))
        return group_gap(y[rows], sensitive[rows])

    found = bootstrap_interval(gap, 31, strata=sensitive, num_samples=100)
    assert sizes == {30}
    assert found.low < found.estimate < found.high


def test_ends_for_a_count_need_not_be_whole() -> None:
    hit = torch.arange(10) < 3
    found = bootstrap_interval(lambda rows: hit[rows].sum(), 10, num_samples=2)
    assert found.estimate.dtype == torch.int64
    assert found.low.dtype == torch.float64


def test_rates_by_sample_give_half_the_width_for_pairs(
    generator: torch.Generator,
) -> None:
    """What docs/metrics.md says of shares of pairs, against drawing the pairs."""
    x = torch.randn(100, 2, generator=generator)
    y = torch.randn(100, generator=generator) * torch.rand(100, generator=generator)

    def share(rows: Tensor) -> Tensor:
        return torch.tensor(lipschitz_violations(x[rows], y[rows], 0.5).share)

    pairs = bootstrap_interval(share, 100, num_samples=300)
    rate = lipschitz_violations(x, y, 0.5).by_sample / 99
    by_sample = bootstrap_interval(lambda rows: rate[rows].mean(), 100)
    assert float(by_sample.estimate) == pytest.approx(float(pairs.estimate))
    ratio = float((pairs.high - pairs.low) / (by_sample.high - by_sample.low))
    assert ratio == pytest.approx(2.0, rel=0.15)
