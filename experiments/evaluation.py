"""Evaluation of decisions on a table, independent of the method behind them."""

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
class EvaluatedSamples:
    """Labelled samples and their similar pairs.

    Args:
        y (torch.Tensor): Labels, 0 or 1, ``[N]``.
        group (torch.Tensor): The group of each, 0 or 1, ``[N]``.
        pairs (dict): By the name of a metric, pairs of similar samples of different
            groups, ``[2, P]``.
    """

    y: Tensor
    group: Tensor
    pairs: dict[str, Tensor]

    def first(self, num_samples: int) -> "EvaluatedSamples":
        """The first samples, for methods that cannot take all."""
        pairs = {
            name: pairs[:, (pairs < num_samples).all(dim=0)]
            for name, pairs in self.pairs.items()
        }
        return EvaluatedSamples(self.y[:num_samples], self.group[:num_samples], pairs)

    def measure(
        self, outputs: Tensor, *, alone: float = math.nan, scores: bool = True
    ) -> dict[str, float]:
        """Measures of the tables; NaN where a method has no answer.

        Args:
            outputs (torch.Tensor): Log-odds of each sample in the first column, of
                its counterfactual variants in the others, ``[N, 1 + T]``. Above zero
                is a positive decision.
            alone (float): Share of isolated samples.
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
                f"unlike_{name}": disagreement(yes[:, 0], pairs)
                for name, pairs in self.pairs.items()
            },
            "acceptance_gap": float(group_gap(yes[:, 0], self.group)),
            "true_positive_gap": float(
                group_gap(yes[self.y == 1, 0], self.group[self.y == 1])
            ),
            "alone": alone,
        }


def disagreement(yes: Tensor, pairs: Tensor) -> float:  # [N], [2, P]
    """Share of the pairs whose decisions differ; NaN if there is no pair."""
    if pairs.size(1) == 0:
        return math.nan
    return float((yes[pairs[0]] != yes[pairs[1]]).double().mean())


def pairs_within(
    z: Tensor, tau: float, group: Tensor, progress: bool | None
) -> Tensor:  # -> [2, P]
    """Pairs of different groups within a radius, each once."""
    pairs = SimilarityGraph.search(z, tau, progress=progress).edge_index
    return pairs[:, _mixed(pairs, group)]


def nearest_pairs(
    z: Tensor, num_pairs: int, group: Tensor, progress: bool | None
) -> Tensor:  # -> [2, P]
    """The nearest ``num_pairs`` pairs of different groups, and their ties."""
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
    """Mask of edges between different groups, one direction of each."""
    return (pairs[0] < pairs[1]) & (group[pairs[0]] != group[pairs[1]])


def log_odds(probability: Tensor) -> Tensor:
    """Log-odds, at most about 14 to either side."""
    return torch.logit(probability.double(), eps=1e-6)
