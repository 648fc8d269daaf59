"""Expected distance of new samples from the fitted ones."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pyg_glif._utils.validation import (
    check_count,
    check_num_rows,
    check_scalar,
    check_share,
)
from pyg_glif.graph import KNNIndex, SimilarityGraph
from pyg_glif.guarantees.betting import mean_bound, share_bound

if TYPE_CHECKING:
    from pyg_glif.postprocessing import GLIFPostProcessor

# Reach without a radius, in units of the 95% quantile of distances.
_REACH = 2.0


@dataclass(frozen=True)
class DriftReference:
    r"""Bounds on distances of new samples from the distribution of the fitted ones.

    Some fitted samples, drawn at random, are treated as queries to the others: is one
    isolated, and how far is its nearest neighbor? New samples have more fitted ones to
    be near to, so on average they are at most as far. The reference holds two upper
    bounds, both true with probability at least :math:`1 - \alpha/2`: for the share of
    isolated samples (Clopper and Pearson), and by betting for the mean of
    :math:`\min(d/r, 1)`, where :math:`d` is the fair distance to the nearest neighbor
    and :math:`r` is ``reach``.

    Args:
        isolated (float): Upper bound for the share of isolated new samples.
        nearest (float): Upper bound for the mean of :math:`\min(d/r, 1)`.
        reach (float): The distance :math:`r` beyond which all are equally far.
        alpha (float): Chance of an alarm, ever, if nothing has changed; the bounds use
            half of it, the tests the other half.
        num_held_out (int): Number of fitted samples that were drawn.

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.rand(500, 1, generator=torch.Generator().manual_seed(0))
        >>> post = GLIFPostProcessor(tau=0.02).fit(x, x[:, 0])
        >>> reference = DriftReference.of(post)
        >>> reference.num_held_out, round(reference.isolated, 3)
        (100, 0.043)
    """

    isolated: float
    nearest: float
    reach: float
    alpha: float = 0.05
    num_held_out: int = 0

    def __post_init__(self) -> None:
        check_scalar("alpha", self.alpha, above=0.0, below=1.0)
        check_scalar("reach", self.reach, above=0.0)
        check_share("isolated", self.isolated)
        check_share("nearest", self.nearest)
        check_count("num_held_out", self.num_held_out, minimum=0)

    @classmethod
    def of(
        cls,
        post: "GLIFPostProcessor",
        alpha: float = 0.05,
        share: float = 0.2,
        generator: torch.Generator | None = None,
    ) -> "DriftReference":
        """The reference from the fitted samples of a post-processor.

        Args:
            post (GLIFPostProcessor): A fit.
            alpha (float): Chance of a false alarm, ever. (default: :obj:`0.05`)
            share (float): Share of the fitted samples that are drawn.
                (default: :obj:`0.2`)
            generator (torch.Generator, optional): Draws them. (default: seed 0)
        """
        alpha = check_scalar("alpha", alpha, above=0.0, below=1.0)
        share = check_scalar("share", share, above=0.0, below=1.0)
        if post.mutual:
            msg = "'post' must not have mutual neighbors (got 'mutual=True')"
            raise ValueError(f"{msg}. More samples can then mean fewer neighbors")
        graph = post.similarity_
        num = graph.num_nodes
        check_num_rows("post", num, 10)
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        # In random order, however the rows were sorted: bets need independent values.
        order = torch.randperm(num, generator=generator)
        size = min(max(1, round(share * num)), num - 1)
        dist, others = _nearest(post, graph, order[:size], order[size:])
        reach = post.tau_ or 1.0  # within a radius of zero all are at one place
        if math.isinf(reach):  # chosen by the samples that were not drawn
            finite = others[torch.isfinite(others)].numpy()
            usual = float(np.quantile(finite, 0.95)) if len(finite) else 0.0
            reach = _REACH * (usual or 1.0)
        scaled = (dist / reach).clamp_(max=1.0)
        num_isolated = int(torch.isinf(dist).sum())
        return cls(
            isolated=share_bound(num_isolated, len(dist), alpha / 4.0),
            nearest=mean_bound(scaled.tolist(), alpha / 4.0),
            reach=reach,
            alpha=alpha,
            num_held_out=len(dist),
        )

    def scaled(self, dist: float) -> float:
        """A distance to the nearest neighbor as a number from 0 to 1."""
        return min(dist / self.reach, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(self.__dict__)


def _nearest(
    post: "GLIFPostProcessor",
    graph: SimilarityGraph,
    held_out: torch.Tensor,
    others: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances of held-out samples, and of the others, to the nearest other one."""
    if graph.k is None:
        row, col = graph.edge_index.cpu()
        kept = torch.zeros(graph.num_nodes, dtype=torch.bool)
        kept[others] = True
        kept, sq_dist = kept[col], graph.sq_dist.cpu().double()
        dist = torch.full((graph.num_nodes,), math.inf, dtype=torch.float64)
        dist.scatter_reduce_(0, row[kept], sq_dist[kept], "amin").sqrt_()
        return dist[held_out], dist[others]
    # All of the k nearest samples may be held out.
    x, limit = post.x_, post.tau_
    index = KNNIndex(x[others], 1, distance=post.distance, tau=limit, copy=False)
    row, _, sq_dist, _ = index.query(x[held_out])
    dist = torch.full(held_out.shape, math.inf, dtype=torch.float64)
    dist.scatter_reduce_(0, row.cpu(), sq_dist.cpu().double(), "amin").sqrt_()
    return dist, index.scale.cpu()
