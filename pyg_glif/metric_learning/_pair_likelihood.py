"""The likelihood of judged pairs as a function of the metric."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif.metric_learning._base import principal_directions, row_chunks


@dataclass(frozen=True)
class JudgedPairs:
    """Judged pairs; differences are formed in float64, a chunk at a time."""

    x1: Tensor  # [P, F]
    x2: Tensor  # [P, F]
    similar: Tensor  # [P], float64
    chunk_size: int

    def delta(self, rows: slice) -> Tensor:
        """Differences of some pairs."""
        return self.x1[rows].double() - self.x2[rows].double()

    def sq_dist(self, factor: Tensor) -> Tensor:  # [F, R] -> [P]
        """Squared distances under ``factor @ factor.T``."""
        chunks = row_chunks(len(self.x1), self.chunk_size)
        parts = [(self.delta(rows) @ factor).square().sum(1) for rows in chunks]
        return torch.cat(parts)

    def moment(self, weight: Tensor | None) -> Tensor:  # [P] -> [F, F]
        """Weighted mean of the outer products of the differences."""
        num_features = self.x1.size(1)
        out = self.similar.new_zeros(num_features, num_features)
        for rows in row_chunks(len(self.x1), self.chunk_size):
            delta = self.delta(rows)
            other = delta if weight is None else delta * weight[rows, None]
            out.addmm_(delta.T, other)
        return out / len(self.x1)


def robust_whitener(pairs: JudgedPairs, num_rounds: int = 3) -> Tensor:
    """Coordinates in which typical differences are white.

    They only decide how fast the solver is. A few pairs at large distances would
    dominate the rest, so a pair counts for no more than its share, in rounds.
    """
    out = _whitener(pairs.moment(None))
    for _ in range(num_rounds):
        share = out.size(1) / pairs.sq_dist(out)
        out = _whitener(pairs.moment(share.clamp_(max=1)))
    return out


def _whitener(moment: Tensor) -> Tensor:  # [F, F] -> [F, R]
    """Columns in whose coordinates ``moment`` is the identity."""
    # To unit diagonal first, or the smaller unit would look like rounding.
    size = moment.diagonal().sqrt()
    inverse = torch.where(size > 0, 1 / size, 0.0)
    values, rows, rank = principal_directions(moment * inverse[:, None] * inverse)
    return inverse[:, None] * rows[:rank].T / values[:rank].sqrt()


class PairLikelihood:
    """The objective as a function of the metric in whitened coordinates.

    Squared distances are linear in the metric, so those of an extrapolated metric
    need no pass over the data.
    """

    def __init__(self, pairs: JudgedPairs, whitener: Tensor, penalty: float) -> None:
        self.pairs = pairs
        self.whitener = whitener  # [F, R]
        self.penalty = penalty

    def sq_dist(self, factor: Tensor) -> Tensor:  # [R, K] -> [P]
        """Squared distances of all pairs."""
        return self.pairs.sq_dist(self.whitener @ factor)

    def neg_log_likelihood(self, sq_dist: Tensor) -> float:
        """Mean over pairs; infinite where a dissimilar pair is at distance zero."""
        y = self.pairs.similar
        safe = torch.where(y < 1, sq_dist.clamp(min=0), 1.0)
        # -log(2 / (1 + exp(s))) and -log(tanh(s / 2)).
        similar = torch.nn.functional.softplus(sq_dist) - math.log(2)
        dissimilar = torch.log1p(safe.neg().exp()) - safe.neg().expm1().neg().log()
        # 0 * inf must be 0: a pair judged similar has no second term.
        dissimilar = torch.where(y < 1, (1 - y) * dissimilar, 0.0)
        return float((y * similar + dissimilar).mean())

    def objective(self, sq_dist: Tensor) -> float:
        """Mean negative log-likelihood plus penalty."""
        return self.neg_log_likelihood(sq_dist) + self.penalty * float(sq_dist.mean())

    def gradient(self, sq_dist: Tensor) -> Tensor:  # [P] -> [R, R]
        """Gradient of the objective in whitened coordinates."""
        y = self.pairs.similar
        safe = torch.where(y < 1, sq_dist, 1.0)
        # d/ds of the two terms: sigmoid(s) and -1 / sinh(s), without overflow.
        slope = y * sq_dist.sigmoid() + self.penalty
        slope += (1 - y) * 2 * safe.neg().exp() / (-2 * safe).expm1()
        out = self.whitener.T @ self.pairs.moment(slope) @ self.whitener
        return (out + out.T) / 2
