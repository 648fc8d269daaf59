from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from pyg_glif.graph import annotator_graph
from pyg_glif.typing import Combine
from tests import oracles_graph

NUM_NODES = 5
pair = st.tuples(st.integers(0, NUM_NODES - 1), st.integers(0, NUM_NODES - 1)).filter(
    lambda ij: ij[0] != ij[1]
)
# Quarters, so that float32 sums are exact.
judgement = st.tuples(pair, st.integers(0, 4).map(lambda n: Fraction(n, 4))).map(
    lambda item: (*item[0], item[1])
)
annotators = st.lists(st.lists(judgement, max_size=8), min_size=1, max_size=5)


def as_tensors(
    judgements: list[list[tuple[int, int, Fraction]]],
) -> tuple[list[Tensor], list[Tensor]]:
    pairs = [
        torch.tensor([j[:2] for j in annotator], dtype=torch.int64).view(-1, 2)
        for annotator in judgements
    ]
    return pairs, [torch.tensor([float(j[2]) for j in part]) for part in judgements]


def test_annotator_graph() -> None:
    pairs = torch.tensor([[2, 0], [1, 2], [0, 2], [2, 1]])
    edge_index, edge_weight = annotator_graph(pairs, 4)
    assert edge_index.tolist() == [[0, 1, 2, 2], [2, 2, 0, 1]]
    assert edge_index.dtype == torch.int64
    assert edge_weight.tolist() == [1.0] * 4
    assert edge_weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("combine", "expected"),
    [
        ("any", {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0}),
        ("majority", {(0, 1): 1.0}),
        ("mean", {(0, 1): 0.75, (1, 2): 0.5, (2, 3): 0.25}),
    ],
)
def test_annotators_are_combined(
    combine: Combine, expected: dict[tuple[int, int], float]
) -> None:
    votes = [
        torch.tensor([[0, 1], [1, 2]]),
        torch.tensor([[1, 0], [2, 1], [0, 1]]),
        torch.tensor([[0, 1], [3, 2]]),
        torch.empty(0, 2, dtype=torch.int64),
    ]
    edge_index, edge_weight = annotator_graph(votes, 4, combine=combine)
    upper = edge_index[0] < edge_index[1]
    keys = [(i, j) for i, j in edge_index[:, upper].T.tolist()]
    assert dict(zip(keys, edge_weight[upper].tolist(), strict=True)) == expected


@settings(deadline=None, max_examples=100)
@given(judgements=annotators, combine=st.sampled_from(["any", "majority", "mean"]))
def test_annotator_graph_matches_oracle(
    judgements: list[list[tuple[int, int, Fraction]]], combine: Combine
) -> None:
    pairs, weights = as_tensors(judgements)
    edge_index, edge_weight = annotator_graph(
        pairs, NUM_NODES, weights=weights, combine=combine
    )
    expected = oracles_graph.annotator_weights(judgements, combine)
    assert edge_index.T.tolist() == [list(key) for key in sorted(expected)]
    torch.testing.assert_close(
        edge_weight, torch.tensor([float(expected[k]) for k in sorted(expected)])
    )


@settings(deadline=None, max_examples=30)
@given(judgements=annotators, combine=st.sampled_from(["any", "majority", "mean"]))
def test_annotator_order_and_pair_order_do_not_matter(
    judgements: list[list[tuple[int, int, Fraction]]], combine: Combine
) -> None:
    pairs, _ = as_tensors(judgements)
    turned = [p.flip(0, 1) for p in reversed(pairs)]
    expected = annotator_graph(pairs, NUM_NODES, combine=combine)
    actual = annotator_graph(turned, NUM_NODES, combine=combine)
    assert all(map(torch.equal, actual, expected))


def test_one_annotator_is_a_list_of_one() -> None:
    pairs, weights = torch.tensor([[0, 1]]), torch.tensor([0.5])
    for combine in ("any", "majority", "mean"):
        single = annotator_graph(pairs, 2, weights=weights, combine=combine)
        listed = annotator_graph((pairs,), 2, weights=[weights], combine=combine)
        assert single[1].tolist() == listed[1].tolist() == [0.5, 0.5]


def test_no_pair_is_named() -> None:
    pairs = torch.empty(0, 2, dtype=torch.int64)
    for num_nodes in (0, 3):
        edge_index, edge_weight = annotator_graph([pairs, pairs], num_nodes)
        assert edge_index.shape == (2, 0)
        assert edge_index.dtype == torch.int64
        assert edge_weight.shape == (0,)


ONE = torch.tensor([[0, 1]])
RANGE = "must hold node indices from 0 to 2 (got"
PER_ANNOTATOR = "'weights' must have one tensor per annotator (got"


@pytest.mark.parametrize(
    ("pairs", "weights", "message"),
    [
        (torch.tensor([[0, 3]]), None, f"'pairs' {RANGE} 3)"),
        ([ONE, torch.tensor([[-1, 0]])], None, f"'pairs[1]' {RANGE} -1)"),
        (
            torch.tensor([[0, 1], [2, 2]]),
            None,
            "'pairs' must name two different nodes per pair (got (2, 2) at index 1)",
        ),
        (torch.zeros(2, 3).long(), None, "'pairs' must have shape [num_pairs, 2] (got"),
        (ONE.float(), None, "'pairs' must hold whole numbers (got torch.float32)"),
        ([(0, 1.5)], None, "'pairs[0]' must be a torch.Tensor (got tuple). Use"),
        ([], None, "'pairs' must hold at least one annotator (got none)"),
        (ONE, torch.tensor([-0.5]), "'weights' must be between 0 and 1 (got -0.5)"),
        ([ONE], [torch.tensor([1.5])], "'weights[0]' must be between 0 and 1 (got 1.5"),
        (ONE, torch.tensor([torch.nan]), "'weights' must be finite (got nan at index"),
        (ONE, torch.ones(2), "'weights' must have one entry per pair (got shape (2,)"),
        (ONE, torch.ones(1).long(), "'weights' must be float32 or float64 (got torch."),
        ([ONE, ONE], [torch.ones(1)], f"{PER_ANNOTATOR} 1 for 2 annotators)"),
        ([ONE, ONE], torch.ones(2), f"{PER_ANNOTATOR} one tensor for 2 annotators)"),
    ],
)
def test_annotator_graph_rejects_bad_input(
    pairs: Tensor, weights: Tensor | None, message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match="' must ") as caught:
        annotator_graph(pairs, 3, weights=weights)
    assert str(caught.value).startswith(message)


def test_annotator_graph_rejects_bad_settings() -> None:
    with pytest.raises(ValueError, match=r"^'num_nodes' must be at least 0"):
        annotator_graph(ONE, -1)
    with pytest.raises(TypeError, match=r"^'num_nodes' must be a whole number"):
        annotator_graph(ONE, 2.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^'combine' must be one of 'any', 'major"):
        annotator_graph(ONE, 3, combine="all")  # type: ignore[arg-type]


def test_annotator_graph_takes_plain_lists() -> None:
    """Lists of pairs give what tensors give, for one annotator and for several."""
    first, second = [(0, 1), (2, 1)], [[1, 0]]
    single = annotator_graph(first, 4)
    expected = annotator_graph(torch.tensor(first), 4)
    assert all(map(torch.equal, single, expected))
    both = annotator_graph([first, second], 4, combine="mean")
    tensors = [torch.tensor(first), torch.tensor(second)]
    expected = annotator_graph(tensors, 4, combine="mean")
    assert all(map(torch.equal, both, expected))
    # Two annotators with one pair each, not one annotator with two pairs of pairs.
    several = annotator_graph([[(0, 1)], [(2, 3)]], 4, combine="majority")
    assert several[0].size(1) == 0
    with pytest.raises(TypeError, match=r"'pairs\[0\]' must be a torch.Tensor"):
        annotator_graph([(0, 1), (1, 2, 3)], 4)
