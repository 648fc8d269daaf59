"""How decisions about people in a table are judged, whatever method made them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torchmetrics.functional.classification import (
    binary_auroc,
    binary_calibration_error,
)

from pyg_glif.graph import SimilarityGraph, suggest_tau
from pyg_glif.metrics import group_gap

#: Bins of equal width of the calibration error.
NUM_BINS = 15


@dataclass(frozen=True, eq=False)
class JudgedPeople:
    """People whose truth is known, and who of them is similar to whom.

    Args:
        y (torch.Tensor): The truth, 0 or 1, ``[N]``.
        group (torch.Tensor): The group of each, 0 or 1, ``[N]``.
        pairs (dict): By the name of a metric, pairs of similar people of different
            groups, ``[2, P]``.
    """

    y: Tensor
    group: Tensor
    pairs: dict[str, Tensor]

    def first(self, num_people: int) -> "JudgedPeople":
        """Some of them, for methods that cannot take all."""
        pairs = {
            name: found[:, (found < num_people).all(dim=0)]
            for name, found in self.pairs.items()
        }
        return JudgedPeople(self.y[:num_people], self.group[:num_people], pairs)

    def measure(
        self, outputs: Tensor, *, alone: float = math.nan, scores: bool = True
    ) -> dict[str, float]:
        """What tables show; NaN where a method has no answer.

        Args:
            outputs (torch.Tensor): Log-odds of each person in the first column, and
                of the same person as somebody of another group in the others, ``[N,
                1 + T]``. Above zero is a yes.
            alone (float): Share of people whom nobody was similar to.
            scores (bool): Whether outputs are scores; if not, only their signs count.
        """
        if outputs.isnan().any():
            raise ValueError("'outputs' must be finite (got NaN)")
        own, yes = outputs[:, 0], (outputs > 0).double()
        probability = own.double().sigmoid()
        return {
            "accuracy": float((yes[:, 0] == self.y).double().mean()),
            "auc": float(binary_auroc(own, self.y)) if scores else math.nan,
            "calibration_error": (
                float(binary_calibration_error(probability, self.y, n_bins=NUM_BINS))
                if scores
                else math.nan
            ),
            "flip_consistency": float((yes == yes[:, :1]).all(dim=1).double().mean()),
            **{
                f"unlike_{name}": unlike(yes[:, 0], found)
                for name, found in self.pairs.items()
            },
            "acceptance_gap": float(group_gap(yes[:, 0], self.group)),
            "true_positive_gap": float(
                group_gap(yes[self.y == 1, 0], self.group[self.y == 1])
            ),
            "alone": alone,
        }


def unlike(yes: Tensor, pairs: Tensor) -> float:  # [N], [2, P]
    """Share of the pairs whose decisions differ; NaN if there is no pair."""
    if pairs.size(1) == 0:
        return math.nan
    return float((yes[pairs[0]] != yes[pairs[1]]).double().mean())


def pairs_within(
    z: Tensor, tau: float, group: Tensor, progress: bool | None
) -> Tensor:  # -> [2, P]
    """Pairs of people within a radius, of different groups, each once."""
    pairs = SimilarityGraph.search(z, tau, progress=progress).edge_index
    return pairs[:, _mixed(pairs, group)]


def nearest_pairs(
    z: Tensor, num_pairs: int, group: Tensor, progress: bool | None
) -> Tensor:  # -> [2, P]
    """So many pairs of people of different groups: the nearest, and their ties."""
    degree = 4.0 * max(num_pairs, 1) / len(z)
    while True:
        tau = suggest_tau(z, min(degree, len(z) - 1))
        graph = SimilarityGraph.search(z, tau, progress=progress)
        mixed = _mixed(graph.edge_index, group)
        if int(mixed.sum()) >= num_pairs or degree >= len(z) - 1:
            break
        degree *= 2
    sq_dist = graph.sq_dist[mixed]
    last = sq_dist.kthvalue(min(num_pairs, len(sq_dist))).values if num_pairs else -1
    return graph.edge_index[:, mixed][:, sq_dist <= last]


def _mixed(pairs: Tensor, group: Tensor) -> Tensor:  # [2, E] -> [E]
    """Which edges join different groups, one direction of each."""
    return (pairs[0] < pairs[1]) & (group[pairs[0]] != group[pairs[1]])


def log_odds(probability: Tensor) -> Tensor:
    """Log-odds, at most about 14 to either side."""
    return torch.logit(probability.double(), eps=1e-6)
