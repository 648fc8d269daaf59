"""Similarity graphs from judgements of annotators."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_glif._utils.validation import (
    check_choice,
    check_count,
    check_indices,
    check_judgements,
    check_pairs,
)
from pyg_glif.graph.radius import both_directions
from pyg_glif.typing import Combine


def annotator_graph(
    pairs: Tensor | Sequence[Tensor | Sequence[Any]],
    num_nodes: int,
    *,
    weights: Tensor | Sequence[Tensor] | None = None,
    combine: Combine = "any",
) -> tuple[Tensor, Tensor]:
    r"""Builds a graph from pairs that annotators called similar.

    Let :math:`w^{(k)}_{ij} \in [0, 1]` be the judgement of annotator
    :math:`k = 1, \ldots, K` on the pair :math:`\{i, j\}`: zero if they did not name
    it, one if they named it without a weight. The edge weight is

    .. math::
        W_{ij} = \begin{cases}
        \max_k w^{(k)}_{ij} & \text{"any"} \\
        \max \{ w : w^{(k)}_{ij} \ge w \text{ for more than } K/2 \text{ of them} \}
        & \text{"majority"} \\
        \frac{1}{K} \sum_k w^{(k)}_{ij} & \text{"mean"}
        \end{cases}

    so without weights ``"any"`` and ``"majority"`` give zeros and ones. Pairs of
    weight zero are left out.

    Args:
        pairs (torch.Tensor or sequence): Pairs of different nodes, one row each, as
            a tensor or a list of ``(i, j)``; for several annotators a list with one
            of these for each.
        num_nodes (int): Number of nodes.
        weights (torch.Tensor or sequence, optional): A judgement between 0 and 1 for
            each pair, in the form of ``pairs``. (default: :obj:`None`)
        combine (str, optional): ``"any"``, ``"majority"`` or ``"mean"``.
            (default: :obj:`"any"`)

    Shapes:
        - **input:** pairs :math:`(P, 2)` and weights :math:`(P)` per annotator
        - **output:** edges :math:`(2, E)`, weights :math:`(E)` in float32

    Edges come in both directions, sorted by row and column, without self-loops. A
    pair that one annotator names several times, in either order, counts once, with
    the largest of its weights.

    Example:
        >>> first, second = torch.tensor([[0, 1]]), torch.tensor([[1, 0], [1, 2]])
        >>> edge_index, weight = annotator_graph([first, second], 3, combine="mean")
        >>> edge_index
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
        >>> weight
        tensor([1.0000, 1.0000, 0.5000, 0.5000])
    """
    check_count("num_nodes", num_nodes, minimum=0)
    check_choice("combine", combine, ("any", "majority", "mean"))
    annotators = check_annotators(pairs, weights)
    for name, named, _ in annotators:
        check_indices(name, named, num_nodes)
    judgements = [_merge_repeats(p, w, num_nodes) for _, p, w in annotators]
    key = torch.cat([key for key, _ in judgements])
    weight = torch.cat([weight for _, weight in judgements])
    key, weight = _combine(key, weight, len(judgements), combine)
    # No nodes have no pairs, and must not divide them.
    low, high = key // max(num_nodes, 1), key % max(num_nodes, 1)
    return both_directions([(low, high, weight)], num_nodes, weight[:0])


def check_annotators(
    pairs: object, weights: object = None
) -> list[tuple[str, Tensor, Tensor | None]]:
    """Name, pairs and weights of each annotator, from one tensor or one for each."""
    pairs = _tensor_of_pairs(pairs)
    if not isinstance(pairs, (list, tuple)):
        return [_check_annotator("", pairs, weights)]
    if not pairs:
        raise ValueError("'pairs' must hold at least one annotator (got none)")
    judgements = [None] * len(pairs) if weights is None else weights
    if not isinstance(judgements, (list, tuple)) or len(judgements) != len(pairs):
        got = (
            f"{len(judgements)}"
            if isinstance(judgements, (list, tuple))
            else "one tensor"
        )
        msg = "'weights' must have one tensor per annotator"
        raise ValueError(f"{msg} (got {got} for {len(pairs)} annotators)")
    annotators = enumerate(zip(pairs, judgements, strict=True))
    return [_check_annotator(f"[{k}]", *parts) for k, parts in annotators]


def _tensor_of_pairs(value: object) -> object:
    """A list of ``(i, j)`` as a tensor; anything else as it is."""
    if not isinstance(value, (list, tuple)) or not value:
        return value
    for pair in value:
        is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not is_pair or any(type(k) is not int for k in pair):
            return value
    return torch.tensor(value)


def _check_annotator(
    suffix: str, pairs: object, weights: object
) -> tuple[str, Tensor, Tensor | None]:
    """Pairs of one annotator and their weights, if any."""
    name = f"pairs{suffix}"
    pairs = check_pairs(name, _tensor_of_pairs(pairs))
    if weights is None:
        return name, pairs, None
    return name, pairs, check_judgements(f"weights{suffix}", weights, len(pairs))


def _merge_repeats(
    pairs: Tensor,  # [P, 2]
    weight: Tensor | None,  # [P]
    num_nodes: int,
) -> tuple[Tensor, Tensor]:  # [Q], [Q]
    """Keys and weights of the distinct pairs of one annotator."""
    # float32, as the result: 0/1 and the maximum are exact, sums are short.
    if weight is None:
        weight = torch.ones(pairs.size(0), dtype=torch.float32, device=pairs.device)
    key = pairs.amin(dim=1) * num_nodes + pairs.amax(dim=1)
    return _largest(key, weight.detach().float(), 0)


def _combine(
    key: Tensor, weight: Tensor, num_annotators: int, combine: Combine
) -> tuple[Tensor, Tensor]:
    """Keys and positive weights of the distinct pairs of all annotators."""
    if combine == "mean":
        key, inverse = torch.unique(key, return_inverse=True)
        total = weight.new_zeros(key.size(0)).scatter_add_(0, inverse, weight)
        weight = total / num_annotators
    else:
        rank = 0 if combine == "any" else num_annotators // 2
        key, weight = _largest(key, weight, rank)
    return key[weight > 0], weight[weight > 0]


def _largest(key: Tensor, weight: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Entry of rank ``rank`` by weight of each key that has so many."""
    order = weight.argsort(descending=True)
    # Stable, so that the weights of each key stay in descending order.
    order = order[key[order].argsort(stable=True)]
    key, weight = key[order], weight[order]
    distinct, count = torch.unique_consecutive(key, return_counts=True)
    position = count.cumsum(0) - count + rank
    named_enough = count > rank
    return distinct[named_enough], weight[position[named_enough]]
