import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from pyg_glif import GLIFPostProcessor
from pyg_glif.audit import AuditData, AuditReport, Bootstrap, IntervalEstimate, audit
from pyg_glif.distances import SensitiveSubspace
from pyg_glif.graph import SimilarityGraph
from pyg_glif.links import Log, Logit, Softmax
from pyg_glif.metrics import (
    group_gap,
    group_std,
    knn_consistency,
    local_lipschitz,
    prediction_consistency,
)
from pyg_glif.solvers import CG
from tests import oracles, oracles_inductive as oracle
from tests.postprocessing.people import People, people


def report(group: People, **options: object) -> AuditReport:
    bootstrap = Bootstrap(num_samples=50, **options)
    return group.fit().audit(bootstrap=bootstrap)


def test_measures_match_their_definitions() -> None:
    group = people()
    distance = SensitiveSubspace(torch.tensor([[0.2, 1.0]], dtype=torch.float64))
    post = group.fit(distance=distance)
    found = post.audit(bootstrap=Bootstrap(num_samples=20), num_nearest=4)
    z = distance.embed(group.x).numpy()
    W = oracle.fitted_weights(z, 0.9, 0.5)
    L = oracles.laplacian(W, None)
    before, after = group.y.numpy(), post.y_fair_.numpy()
    energy = found["laplacian_energy"]
    assert energy.before.value == pytest.approx(np.trace(before.T @ L @ before))
    assert energy.after.value == pytest.approx(np.trace(after.T @ L @ after))
    known = W.sum(1) > 0
    for y, column in ((before, 0), (after, 1)):
        peers = (W @ y)[known] / W.sum(1)[known, None]
        apart = np.linalg.norm(y[known] - peers, axis=1)
        np.testing.assert_allclose(found.deviation[known, column], apart, atol=1e-12)
        assert not bool(found.deviation[~known].any())
    deviation = found["neighbor_deviation"]
    assert deviation.after.value == pytest.approx(float(apart.mean()))
    assert deviation.change.value == pytest.approx(
        deviation.after.value - deviation.before.value
    )
    edges, sq_dist = post.graph_.edge_index, post.graph_.edge_sq_dist
    ratios = local_lipschitz(post.y_fair_, edges, sq_dist)
    for level, value in zip((50, 90, 99), ratios.quantiles.tolist(), strict=True):
        measure = found[f"lipschitz_ratio_p{level}"]
        assert measure.after == IntervalEstimate(value)
    assert found["lipschitz_ratio_max"].after == IntervalEstimate(float(ratios.max))
    first, second = edges[:, edges[0] < edges[1]].numpy()
    apart = np.linalg.norm(after[first] - after[second], axis=1)
    ranked = np.argsort(-apart)[:10]
    assert [[p.first, p.second] for p in found.pairs_after] == [
        [first[at], second[at]] for at in ranked
    ]
    for pair, at in zip(found.pairs_after, ranked, strict=True):
        assert pair.difference_after == pytest.approx(apart[at])
        dist = np.linalg.norm(z[pair.first] - z[pair.second])
        assert pair.distance == pytest.approx(dist)
        assert pair.before == (tuple(before[pair.first]), tuple(before[pair.second]))
    nearest = found["nearest_consistency"]
    for y, value in ((group.y, nearest.before), (post.y_fair_, nearest.after)):
        expected = knn_consistency(group.x, y, 4, distance=distance)
        assert value.value == pytest.approx(float(expected))
    moved = np.linalg.norm(after - before, axis=1)
    np.testing.assert_allclose(found.moved, moved, atol=1e-12)
    assert found.facts["mean_movement"] == pytest.approx(moved.mean())
    assert found.facts["num_edges"] == edges.size(1) // 2
    assert found.facts["num_isolated"] == int((~known).sum())


def test_smoothing_helps_and_intervals_say_so() -> None:
    found = report(people(num=300))
    for measure in found.measures:
        change = measure.change
        if measure.better == "lower":
            assert change.value < 0
        if measure.better == "higher":
            assert change.value > 0
        if change.low is not None:
            assert change.low <= change.value <= change.high
            assert change.low * change.high > 0  # zero is not in the interval


def test_intervals_are_reproducible_and_nested() -> None:
    group = people()
    first, again = (replace(report(group), made={}) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    wide, narrow = report(group, level=0.99), report(group, level=0.5)
    for a, b in zip(wide.measures, narrow.measures, strict=True):
        if a.before.low is not None:
            assert a.before.low <= b.before.low <= b.before.high <= a.before.high
    other = report(group, generator=torch.Generator().manual_seed(7))
    assert other.to_dict()["measures"] != first.to_dict()["measures"]


def test_attributes() -> None:
    group = people(columns=1)
    sex = np.where(np.arange(60) % 2 == 0, "f", "m")
    race = torch.arange(60) % 3
    post = group.fit()
    found = post.audit(
        bootstrap=Bootstrap(num_samples=20), sensitive={"sex": sex, "race": race}
    )
    signed = group_gap(group.y[:, 0], torch.arange(60) % 2)
    assert found["gap_by_sex"].before.value == pytest.approx(float(signed))
    widest = group_gap(post.y_fair_[:, 0], race)
    assert found["gap_by_race"].after.value == pytest.approx(float(widest))
    wide = (
        people(columns=3)
        .fit()
        .audit(bootstrap=Bootstrap(num_samples=20), sensitive={"sex": sex})
    )
    gaps = group_gap(people(columns=3).y, torch.arange(60) % 2)
    assert wide["gap_by_sex"].before.value == pytest.approx(float(gaps.abs().max()))


def test_gaps_keep_the_sizes_of_groups() -> None:
    # A sample without the only member of a group would have no gap.
    x, y = torch.arange(6.0).view(-1, 1), torch.tensor([0.0, 0, 0, 0, 0, 1])
    graph = SimilarityGraph(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), 6, 1.0)
    alone = torch.tensor([0, 0, 0, 0, 0, 1])
    found = audit(AuditData(x, y, y / 2, graph=graph), sensitive={"rare": alone})
    gap = found["gap_by_rare"]
    assert (gap.before, gap.after) == (
        IntervalEstimate(1, 1, 1),
        IntervalEstimate(0.5, 0.5, 0.5),
    )
    assert gap.change == IntervalEstimate(-0.5, -0.5, -0.5)


def test_groups_of_comparable_people() -> None:
    group = people(columns=3)
    label = torch.arange(60) // 3
    label[-1] = 99  # alone
    post = group.fit()
    found = post.audit(bootstrap=Bootstrap(num_samples=20), variants=label)
    spread = found["group_std"]
    agree = found["group_agreement"]
    assert spread.before.value == pytest.approx(float(group_std(group.y, label).mean()))
    expected = prediction_consistency(post.y_fair_, label)
    assert agree.after.value == pytest.approx(float(expected))
    one = people(columns=1)
    scores = one.fit().audit(bootstrap=Bootstrap(num_samples=20), variants=label)
    assert "group_agreement" not in [m.name for m in scores.measures]
    decided = one.fit().audit(
        bootstrap=Bootstrap(num_samples=20), variants=label, threshold=0.5
    )
    expected = prediction_consistency((one.y[:, 0] > 0.5).long(), label)
    value = decided["group_agreement"].before.value
    assert value == pytest.approx(float(expected))


def test_people_furthest_from_their_peers() -> None:
    group = people(num=200)
    group.y[7] += 5.0  # a neighbour of many
    post = group.fit()
    found = post.audit(bootstrap=Bootstrap(num_samples=10), num_worst=3)
    worst = found.worst_before[0]
    assert worst.index == 7
    assert worst.deviation_after < worst.deviation_before
    assert worst.before == pytest.approx(tuple(group.y[7].tolist()))
    assert worst.after == pytest.approx(tuple(post.y_fair_[7].tolist()))
    W = oracle.fitted_weights(group.x.numpy(), 0.9, 0.5)
    peers = W[7] @ group.y.numpy() / W[7].sum()
    assert worst.neighbors_before == pytest.approx(tuple(peers))
    peers = W[7] @ post.y_fair_.numpy() / W[7].sum()
    assert worst.neighbors_after == pytest.approx(tuple(peers))
    assert worst.num_neighbors == int((post.graph_.edge_index[0] == 7).sum())
    assert worst.moved == pytest.approx(float(found.moved[7]))
    for people_, column in ((found.worst_before, 0), (found.worst_after, 1)):
        top = found.deviation[:, column].topk(3).values.tolist()
        when = ("deviation_before", "deviation_after")[column]
        assert [getattr(p, when) for p in people_] == pytest.approx(top)
    most = found.moved.topk(3).values.tolist()
    assert [p.moved for p in found.most_moved] == pytest.approx(most)


def test_a_graph_without_edges() -> None:
    group = people()
    found = (
        group.fit(tau=0.0)
        .fit(group.x[1:20], group.y[1:20])
        .audit(bootstrap=Bootstrap(num_samples=5))
    )
    assert found["laplacian_energy"].after.value == 0.0
    assert found.worst_before == ()
    assert found.pairs_after == ()
    assert "neighbor_deviation" not in [m.name for m in found.measures]
    assert found.facts["num_isolated"] == 19


def test_duplicates_treated_unlike() -> None:
    x, y = torch.zeros(3, 1), torch.tensor([0.0, 1.0, 1.0])
    edges = torch.tensor([[0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1]])
    graph = SimilarityGraph(edges, torch.zeros(6), 3, 0.0)
    data = AuditData(x, y, torch.full((3,), 0.5), graph=graph)
    found = audit(data, num_nearest=1)
    largest = found["lipschitz_ratio_max"]
    assert largest.before.value == largest.after.value == 0.0  # nobody at a distance
    assert found.certificate == {}
    assert (found.pairs_before, found.identical_after) == ((), ())
    shown = [(p.first, p.second, p.difference_before) for p in found.identical_before]
    assert shown == [(0, 1, 1.0), (0, 2, 1.0)]
    assert found.facts["num_identical"] == 3
    assert found.facts["num_identical_differing_before"] == 2
    assert found.facts["num_identical_differing_after"] == 0


def test_report_can_be_exported() -> None:
    group = people()
    post = group.fit()
    found = post.audit(
        bootstrap=Bootstrap(num_samples=10), num_worst=2, num_nearest=None
    )
    record = json.loads(json.dumps(found.to_dict()))
    names = [m["name"] for m in record["measures"]]
    assert names == [m.name for m in found.measures]
    assert "nearest_consistency" not in names
    assert len(record["samples"]["worst_before"]) == 2
    assert record["certificate"]["status"] == "CONVERGED"
    bound = float(post.solution_.error_bound.max())
    assert record["certificate"]["error_bound"] == bound
    text = found.to_markdown()
    for heading in ("# Individual fairness audit", "## Numerical error"):
        assert heading in text
    assert f"| people | {len(group.x)} |" in text
    assert repr(found) == f"AuditReport(num_samples=60, num_measures={len(names)})"
    with pytest.raises(KeyError, match="'gap' is not one of 'laplacian_energy'"):
        found["gap"]


def test_outputs_as_they_are() -> None:
    group = people()
    post = group.fit()
    options = {"sensitive": {"sex": torch.arange(60) % 2}, "num_nearest": 3}
    few = Bootstrap(num_samples=10)
    both = post.audit(variants=torch.arange(60) // 2, bootstrap=few, **options)
    graph = SimilarityGraph.search(group.x, 0.9)
    alone = audit(
        AuditData(group.x, group.y, graph=graph, lap=graph.laplacian(0.5)),
        variants=torch.arange(60) // 2,
        bootstrap=few,
        **options,
    )
    assert [m.name for m in alone.measures] == [m.name for m in both.measures]
    for one, two in zip(alone.measures, both.measures, strict=True):
        assert tuple(one.before) == pytest.approx(tuple(two.before))
        assert (one.after, one.change) == (None, None)
    first, there = both.worst_before[0], alone.worst_before[0]
    assert (there.index, there.num_neighbors) == (first.index, first.num_neighbors)
    assert there.before == first.before
    assert there.deviation_before == pytest.approx(first.deviation_before)
    assert (there.after, there.neighbors_after, there.moved) == (None, None, None)
    assert (alone.worst_after, alone.pairs_after, alone.moved) == ((), (), None)
    assert torch.equal(alone.deviation, both.deviation[:, :1])
    record = alone.to_dict()
    assert record["compares"] is False
    assert record["measures"][0]["after"] is None
    assert "mean_movement" not in record["facts"]
    text = alone.to_markdown()
    assert "| measure | better | value |" in text
    assert "after" not in text
    pytest.importorskip("matplotlib")
    assert len(alone.plot().axes) == 1


def test_graph_and_people_belong_together() -> None:
    group = people()
    graph = SimilarityGraph.search(group.x, 0.9)
    message = r"'graph' must have one node per row of 'x' \(got 60 for 25\)"
    with pytest.raises(ValueError, match=message):
        AuditData(group.x_new, group.y_new, graph=graph)


@pytest.mark.parametrize("options", [{"level": 1.0}, {"num_samples": 0}])
def test_bootstrap_rejects(options: dict[str, float]) -> None:
    (name,) = options
    with pytest.raises(ValueError, match=f"'{name}' must be"):
        Bootstrap(**options)


def test_plot() -> None:
    pytest.importorskip("matplotlib")
    figure = report(people()).plot()
    left, right = figure.axes
    assert left.get_xlabel() == "distance from peers' average"
    assert right.get_ylabel() == "people"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_worst": -1}, "'num_worst' must be at least 0 (got -1)"),
        ({"num_nearest": 60}, "'num_nearest' must be below 60 (got 60)"),
        (
            {"sensitive": {"sex": [0, 1]}},
            "'sex' must have one entry per row (got shape (2,) for 60)",
        ),
        (
            {"sensitive": {"sex": [0] * 60}},
            "'sex' must take at least two values (got [0] only)",
        ),
        (
            {"variants": list(range(60))},
            "'variants' must hold a group of at least 2 rows (got 60 groups of one)",
        ),
    ],
)
def test_audit_rejects(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        people().fit().audit(bootstrap=Bootstrap(num_samples=5), **options)
    assert str(caught.value).startswith(message)


LINKS = {"none": None, "logit": Logit(1e-6), "softmax": Softmax(eps=1e-6), "log": Log()}


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    link=st.sampled_from(sorted(LINKS)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    normalization=st.sampled_from([None, "density"]),
    lam=st.sampled_from([0.1, 3.0, 100.0]),
    rtol=st.sampled_from([1e-4, 1e-10]),
)
def test_the_correction_sets_no_identical_people_apart(
    seed: int,
    link: str,
    dtype: torch.dtype,
    normalization: Any,
    lam: float,
    rtol: float,
) -> None:
    """Duplicates with equal outputs stay equal: what differs is rounding."""
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(12, 2, generator=rng, dtype=dtype)
    copies = torch.randint(0, 12, (40,), generator=rng)
    y = 0.05 + 0.9 * torch.rand(40, generator=rng, dtype=dtype)
    same = torch.rand(40, generator=rng) < 0.8
    y[same] = y[copies][same].round(decimals=1).clamp(0.1, 0.9)
    first = {int(c): k for k, c in reversed(list(enumerate(copies.tolist())))}
    y = torch.where(same, y[[first[int(c)] for c in copies]], y)
    y[rng.initial_seed() % 40] = 0.5
    y = torch.stack([y, 1 - y], 1) if link == "softmax" else y
    post = GLIFPostProcessor(
        tau=0.4, lam=lam, normalization=normalization, link=LINKS[link],
        solver=CG(rtol=rtol),
    ).fit(x[copies], y)  # fmt: skip
    found = post.audit(
        num_nearest=None, threshold=None if y.dim() > 1 else 0.5, num_worst=99
    )
    i, j = torch.triu_indices(40, 40, 1)
    twins = copies[i] == copies[j]
    rows = y.reshape(40, -1)
    before = (rows[i] != rows[j]).any(1) & twins
    assert found.facts["num_identical"] == int(twins.sum())
    assert found.facts["num_identical_differing_before"] == int(before.sum())
    pairs = set(zip(i[before].tolist(), j[before].tolist(), strict=True))
    after = {(p.first, p.second) for p in found.identical_after}
    assert len(after) == found.facts["num_identical_differing_after"]
    assert after <= pairs
    for verdict in found.verdict:
        if verdict.name == "identical":
            assert verdict.num_after <= len(pairs)


def test_outputs_that_stay_are_neither_moved_nor_decided_anew() -> None:
    x = torch.rand(60, 2, generator=torch.Generator().manual_seed(1))
    y = torch.full((60,), 0.5)  # the decision's threshold: rounding would tip it
    post = GLIFPostProcessor(tau=0.5, lam=7.0, solver=CG(rtol=1e-3))
    found = post.fit(x, y).audit(
        sensitive={"half": torch.arange(60) % 2}, threshold=0.5, num_nearest=None
    )
    assert found.lists.most_moved == ()
    assert found.lists.pairs_after == ()
    assert float(found.moved.max()) == 0.0
    for group in found.groups["half"]:
        assert (group.num_raised, group.num_lowered) == (0, 0)
    assert all(v.num_after in (None, 0) for v in found.verdict)


def test_differences_beyond_the_error_are_still_told() -> None:
    x, before = torch.zeros(2, 1), torch.tensor([0.2, 0.4])
    graph = SimilarityGraph.search(x, tau=1.0)
    after = torch.tensor([0.3, 0.3002])
    for size, count in ((0.0, 1), (0.99e-4, 1), (1.01e-4, 0)):
        error = torch.full((2,), size, dtype=torch.float64)
        data = AuditData(x, before, after, graph=graph, error=error)
        found = audit(data, num_nearest=None)
        assert found.facts["num_identical_differing_after"] == count
        assert len(found.lists.identical_after) == count
    for error, message in (
        (torch.zeros(3), "'error' must have the shape of 'y_after'"),
        (torch.tensor([0.0, -1.0]), "'error' must be non-negative"),
    ):
        with pytest.raises(ValueError, match=message):
            AuditData(x, before, after, graph=graph, error=error)
    with pytest.raises(ValueError, match="'error' must be None without 'y_after'"):
        AuditData(x, before, graph=graph, error=torch.zeros(2))


def test_group_rates_against_counting() -> None:
    rng = np.random.default_rng(4)
    x, sex = rng.normal(size=(200, 2)), rng.choice(["f", "m"], 200)
    labels = (x[:, 0] + rng.normal(size=200) / 2 > 0).astype(int)
    before = 1 / (1 + np.exp(0.5 - x[:, 0]))
    after = 1 / (1 + np.exp(np.where(sex == "m", 0.0, 1.0) - x[:, 0]))
    x, before, after = map(torch.from_numpy, (x, before, after))
    graph = SimilarityGraph.search(x, tau=0.5)
    found = audit(
        AuditData(x, before, after, graph=graph), num_nearest=None, threshold=0.5,
        sensitive={"sex": sex},
        labels=torch.from_numpy(labels),
    )  # fmt: skip
    named = {one.name: one for one in found.verdict}
    for name, who in (
        ("selection_by_sex", np.ones(200, bool)),
        ("true_positives_by_sex", labels == 1),
    ):
        for score, told in ((before, named[name].before), (after, named[name].after)):
            rate = {s: np.mean(score.numpy()[who & (sex == s)] > 0.5) for s in "fm"}
            assert told.value == pytest.approx(rate["m"] - rate["f"])
            assert told.low <= told.value <= told.high
            for share in rate.values():
                assert f"{100 * share:.1f}%".replace("100.0%", "100%") in (
                    named[name].words
                )
        assert "the gap grows" in named[name].words
        assert found[name].before == named[name].before
    page = found.to_markdown()
    assert "True positives by sex" in page
    assert "Decisions of yes by sex" in page
    assert {t["title"] for t in found.tiles()} >= {"True positives by sex"}
    unlabeled = audit(
        AuditData(x, before, graph=graph), num_nearest=None,
        threshold=0.5, sensitive={"sex": sex},
    )  # fmt: skip
    names = [one.name for one in unlabeled.verdict]
    assert "selection_by_sex" in names
    assert "true_positives_by_sex" not in names
