"""How far from the fitted people a newcomer may be expected to be."""

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

# Where distances have no limit of their own: so many times what 19 of 20 are below.
_REACH = 2.0


@dataclass(frozen=True)
class DriftReference:
    r"""What the fitted people say about newcomers who are like them.

    Some fitted people, drawn at random, are asked as if they were newcomers to the
    others: have they no peer, and how far is the nearest? Newcomers have more people
    to be near to, so on average they are at most as far. What is kept are two upper
    bounds that hold with probability at least :math:`1 - \alpha/2`, for the share
    without a peer (Clopper and Pearson) and for the mean of :math:`\min(d/r, 1)`, where
    :math:`d` is the fair distance to the nearest peer and :math:`r` is ``reach`` (by
    betting).

    Args:
        isolated (float): Upper bound for the share of newcomers without a peer.
        nearest (float): Upper bound for the mean of :math:`\min(d/r, 1)`.
        reach (float): The distance :math:`r` from which on all are equally far.
        alpha (float): Chance of an alarm, ever, if nothing has changed; the bounds use
            half of it, the tests the other half.
        num_asked (int): How many fitted people were asked.

    Example:
        >>> from pyg_glif import GLIFPostProcessor
        >>> x = torch.rand(500, 1, generator=torch.Generator().manual_seed(0))
        >>> post = GLIFPostProcessor(tau=0.02).fit(x, x[:, 0])
        >>> reference = DriftReference.of(post)
        >>> reference.num_asked, round(reference.isolated, 3)
        (100, 0.043)
    """

    isolated: float
    nearest: float
    reach: float
    alpha: float = 0.05
    num_asked: int = 0

    def __post_init__(self) -> None:
        check_scalar("alpha", self.alpha, above=0.0, below=1.0)
        check_scalar("reach", self.reach, above=0.0)
        check_share("isolated", self.isolated)
        check_share("nearest", self.nearest)
        check_count("num_asked", self.num_asked, minimum=0)

    @classmethod
    def of(
        cls,
        post: "GLIFPostProcessor",
        alpha: float = 0.05,
        share: float = 0.2,
        generator: torch.Generator | None = None,
    ) -> "DriftReference":
        """The reference that the fitted people of a post-processor are.

        Args:
            post (GLIFPostProcessor): A fit.
            alpha (float): Chance of a false alarm, ever. (default: :obj:`0.05`)
            share (float): Share of the fitted people who are asked.
                (default: :obj:`0.2`)
            generator (torch.Generator, optional): Draws them. (default: seed 0)
        """
        alpha = check_scalar("alpha", alpha, above=0.0, below=1.0)
        share = check_scalar("share", share, above=0.0, below=1.0)
        if post.mutual:
            msg = "'post' must not have mutual neighbors (got 'mutual=True')"
            raise ValueError(f"{msg}. More people can then mean fewer neighbors")
        graph = post.similarity_
        num = graph.num_nodes
        check_num_rows("post", num, 10)
        if generator is None:
            generator = torch.Generator().manual_seed(0)
        # In random order, however the rows were sorted: bets need independent values.
        order = torch.randperm(num, generator=generator)
        asked = min(max(1, round(share * num)), num - 1)
        dist, others = _apart(post, graph, order[:asked], order[asked:])
        reach = post.tau_ or 1.0  # within a radius of zero all are at one place
        if math.isinf(reach):  # decided by those who are not asked
            reach = _REACH * _usual(others)
        scaled = (dist / reach).clamp_(max=1.0)
        far = int(torch.isinf(dist).sum())
        return cls(
            isolated=share_bound(far, len(dist), alpha / 4.0),
            nearest=mean_bound(scaled.tolist(), alpha / 4.0),
            reach=reach,
            alpha=alpha,
            num_asked=len(dist),
        )

    def scaled(self, dist: float) -> float:
        """A distance to the nearest peer as a number from 0 to 1."""
        return min(dist / self.reach, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(self.__dict__)


def _apart(
    post: "GLIFPostProcessor",
    graph: SimilarityGraph,
    asked: torch.Tensor,
    others: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Distances of those asked, and of the others, to the nearest of the others."""
    if graph.k is None:
        row, col = graph.edge_index.cpu()
        known = torch.zeros(graph.num_nodes, dtype=torch.bool)
        known[others] = True
        known, sq_dist = known[col], graph.sq_dist.cpu().double()
        apart = torch.full((graph.num_nodes,), math.inf, dtype=torch.float64)
        apart.scatter_reduce_(0, row[known], sq_dist[known], "amin").sqrt_()
        return apart[asked], apart[others]
    # Among the k nearest of all there may be nobody who is not asked.
    x, limit = post.x_, post.tau_
    index = KNNIndex(x[others], 1, distance=post.distance, tau=limit, copy=False)
    row, _, sq_dist, _ = index.query(x[asked])
    dist = torch.full(asked.shape, math.inf, dtype=torch.float64)
    dist.scatter_reduce_(0, row.cpu(), sq_dist.cpu().double(), "amin").sqrt_()
    return dist, index.scale.cpu()


def _usual(dist: torch.Tensor) -> float:
    """What 19 of 20 finite distances are below, one if that is zero."""
    known = dist[torch.isfinite(dist)]
    found = float(np.quantile(known.numpy(), 0.95)) if len(known) else 0.0
    return found if found > 0 else 1.0
