"""Estimates before a search, from a sample: edges, memory, the cheaper strategy."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pyg_glif._utils.runtime import available_memory
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.graph._points import Points, Strategy
from pyg_glif.graph._pruning import bound_coordinates, principal_basis

#: Distances between the nodes of two index vectors, ``[A], [B] -> [A, B]``.
BlockDistance = Callable[[Tensor, Tensor], Tensor]

# Per directed edge: 16 bytes of indices, a distance, and what sorting them takes.
_BYTES_PER_EDGE = 48
_BYTES_PER_NEAREST = 128  # where pairs are held with bounds, and both ends sorted
_BUDGET_SHARE = 0.8
_NEAREST_ROWS = 64  # points whose neighbors are sampled before a k-nearest search
_SAMPLE_TILE = 128  # rows whose distances are computed at once
# Work per pair in units of one multiply-add of a matrix product, as measured:
# comparing and scanning one entry of a block, one term of a candidate's inner
# product, and everything else that is done for a candidate.
_SCAN, _FINISH_TERM, _FINISH = 25.0, 10.0, 7000.0
_TILES_LEFT = 0.5  # share of the tile pairs that boxes leave, a cautious guess
_HOPELESS = 0.25  # share of candidates that no finer basis makes worthwhile
_SMALL = 1024  # up to here any choice is quick and everything fits
_WIDTHS = (16, 32, 64, 128)


@dataclass(frozen=True)
class PairSample:
    """Distances of sampled ordered pairs, and how many pairs they stand for."""

    dist: Tensor  # [S], within one graph
    position: Tensor  # [S], position of the pair among all of ``rows`` and ``cols``
    rows: Tensor  # [A]
    cols: Tensor  # [B]
    num_sampled: int  # pairs across graphs included
    num_pairs: int  # ordered pairs of different nodes in the data

    @property
    def weight(self) -> float:
        """Number of pairs that one sampled pair stands for."""
        return self.num_pairs / max(1, self.num_sampled)

    def most_edges(self, tau: float) -> float:
        """Upper estimate of the number of directed edges."""
        hits = int((self.dist <= tau).sum())
        if self.num_sampled >= self.num_pairs:
            return float(hits)
        likely = (hits + 3.0 * math.sqrt(hits) + 3.0) * self.weight
        return min(likely, float(self.num_pairs))

    def rank(self, num_edges: float) -> int:
        """Number of sampled pairs that stand for ``num_edges`` directed edges."""
        return min(math.ceil(num_edges / self.weight - 1e-9), self.dist.numel())

    def radius(self, num_edges: float) -> float:
        """Smallest radius with at least ``num_edges`` directed edges."""
        rank = self.rank(num_edges)
        return float(self.dist.kthvalue(rank).values) if rank > 0 else 0.0

    def pairs(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of the selected pairs of the sample."""
        position = self.position[which]
        row = position.div(self.cols.numel(), rounding_mode="floor")
        return self.rows[row], self.cols[position - row * self.cols.numel()]


def sample_pairs(
    num_nodes: int,
    block: BlockDistance,
    batch: Tensor | None,
    size: tuple[int, int],
    generator: torch.Generator | None = None,
    device: torch.device | None = None,
) -> PairSample:
    """Distances between two samples of nodes; all pairs of a small graph."""
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    order = torch.randperm(num_nodes, generator=generator)
    # From both ends, so that the two samples overlap only where nodes are few.
    rows, cols = order[: size[0]].to(device), order[-size[1] :].to(device)
    num_sampled, dist, position = 0, [], []
    for start in range(0, rows.numel(), _SAMPLE_TILE):
        part = rows[start : start + _SAMPLE_TILE]
        other = part.unsqueeze(1) != cols
        num_sampled += int(other.sum())
        if batch is not None:
            other &= batch[part].unsqueeze(1) == batch[cols]
        inside = other.view(-1).nonzero().view(-1)
        dist.append(block(part, cols).view(-1)[inside])
        position.append(inside + start * cols.numel())
    num_pairs = num_nodes * (num_nodes - 1)
    return PairSample(
        torch.cat(dist), torch.cat(position), rows, cols, num_sampled, num_pairs
    )


def check_search(points: Points, tau: float, budget: int | None) -> None:
    """Raises if the edges that a sample makes likely would not fit."""
    count, device = points.num_nodes, points.y.device
    if budget is None:
        budget = free_memory(device)
        everything = count * (count - 1) * _BYTES_PER_EDGE
        if everything + _workspace(points) <= budget:
            return  # whatever the radius
    block = points.rough_distances
    sample = sample_pairs(count, block, points.batch, (256, 4096), device=device)
    check_memory(sample, tau, _workspace(points), budget)


def check_memory(sample: PairSample, tau: float, workspace: int, budget: int) -> None:
    """Raises if the edges at ``tau`` would not fit, naming a radius that would."""
    expected = sample.most_edges(tau)
    radius = sample.radius(0.8 * max(0.0, budget - workspace) / _BYTES_PER_EDGE)
    remedy = f"About tau={radius:.4g} would fit" if radius else "No radius would fit"
    needed = expected * _BYTES_PER_EDGE + workspace
    _check_budget(f"'tau' = {tau:g}", expected, needed, budget, remedy)


def _check_budget(
    setting: str, num_edges: float, needed: float, budget: int, remedy: str
) -> None:
    """Raises if edges and workspace take more bytes than they may."""
    if needed > budget:
        gib = 2.0**30
        raise MemoryBudgetError(
            f"{setting} gives up to {num_edges:.3g} edges, which take "
            f"{needed / gib:.3g} GiB with the workspace ('memory_budget' is "
            f"{budget / gib:.3g} GiB). {remedy}"
        )


def _workspace(points: Points) -> int:
    """Bytes that a search takes beside the edges."""
    return 4 * points.num_nodes * min(points.num_features, 256) + 2**26


def free_memory(device: torch.device) -> int:
    """Default memory budget of a search, in bytes."""
    return int(_BUDGET_SHARE * available_memory(device))


class NearestSample(NamedTuple):
    """Approximate distances to the k nearest neighbors of some points."""

    rows: Tensor  # [A]
    reach: Tensor  # [A, 1], distance to the k-th nearest, in the unit of ``y``
    degree: Tensor  # [A], number of points within it, ties included


def sample_nearest(points: Points, k: int, tau: float) -> NearestSample:
    """Compares a sample of points with all points."""
    rows = sample_nodes(points)[:_NEAREST_ROWS]
    most = min(2 * k + 16, points.num_nodes)
    nearest = torch.empty(rows.numel(), 0, device=rows.device)
    for dist in _row_blocks(points, rows):
        block = dist.topk(min(most, dist.size(1)), largest=False).values
        nearest = torch.cat([nearest, block], dim=1)
    nearest = nearest.sort(1).values[:, :most]
    reach = nearest[:, min(k, most) - 1 :][:, :1].clamp(max=tau * points.scale)
    # Squares of pairs that are tied differ by the usual rounding, not by its bound.
    slack = 16.0 * torch.finfo(torch.float32).eps * points.sq_norm.max()
    limit = (reach.square() + slack).clamp_(max=torch.finfo(torch.float32).max)
    degree = (nearest.square() <= limit).sum(1)
    if bool((degree == most).any()):
        counts = [(dist.square() <= limit).sum(1) for dist in _row_blocks(points, rows)]
        degree = torch.stack(counts).sum(0)
    return NearestSample(rows, reach, degree)


def sample_nodes(points: Points) -> Tensor:
    """Fixed random sample of points."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(points.num_nodes, generator=generator)
    return order[:1280].to(points.y.device)


def check_nearest(
    points: Points, k: int, sample: NearestSample, budget: int | None
) -> None:
    """Raises if the edges that a sample makes likely would not fit."""
    count, degree = points.num_nodes, sample.degree.double()
    budget = free_memory(points.y.device) if budget is None else budget
    # Each end may bring edges of its own, in both directions.
    spread = 3.0 * float(degree.std(correction=0)) / math.sqrt(degree.numel())
    expected = min(2.0 * count * (float(degree.mean()) + spread), count * (count - 1.0))
    needed = expected * _BYTES_PER_NEAREST + _workspace(points)
    remedy = "Lower 'k', or join duplicates first"
    _check_budget(f"'k' = {k}", expected, needed, budget, remedy)


def _row_blocks(points: Points, rows: Tensor) -> Iterator[Tensor]:
    """Distances of some points to all, a block at a time.

    Distances to the point itself and to points of other graphs are infinite.
    """
    for cols in torch.arange(points.num_nodes, device=rows.device).split(4096):
        dist = torch.cdist(
            points.y[rows], points.y[cols], compute_mode="use_mm_for_euclid_dist"
        )
        dist.masked_fill_(rows.unsqueeze(1) == cols, math.inf)
        if points.batch is not None:
            across = points.batch[rows].unsqueeze(1) != points.batch[cols]
            dist.masked_fill_(across, math.inf)
        yield dist


def choose_basis(
    points: Points,
    tau: float,
    strategy: Strategy = "auto",
    nearest: NearestSample | None = None,
) -> Tensor | None:
    """Basis ``[D, M]`` of the cheaper search; :obj:`None` if that is the plain one.

    The search is for all pairs within ``tau``, or with a sample of them the nearest.
    """
    width = points.num_features
    small = points.num_nodes <= _SMALL
    if nearest is not None and points.batch is not None:
        small = int(points.batch.bincount().max()) <= _SMALL
    if strategy == "plain" or (strategy == "auto" and small):
        return None
    reach: float | Tensor = tau * points.scale
    if nearest is not None:
        reach = nearest.reach
    if strategy == "auto" and width > 2 * _WIDTHS[-1]:
        # Where nothing decays, a coarse basis shows it at a tenth of the cost.
        coarse = principal_basis(points, _WIDTHS[1], num_rows=512, num_rounds=1)
        if _candidate_shares(points, reach, coarse, [_WIDTHS[1]])[0] > _HOPELESS:
            return None
    basis = principal_basis(points, min(_WIDTHS[-1], width))
    num_directions = choose_width(points, reach, basis, strategy)
    return None if num_directions is None else basis[:, :num_directions].contiguous()


def choose_width(
    points: Points,
    reach: float | Tensor,
    basis: Tensor,
    strategy: Strategy = "auto",
) -> int | None:
    """Number of directions of the cheapest search; :obj:`None` for the plain one.

    ``reach`` is the radius in the unit of ``y``, or, for the nearest, that of some
    points.
    """
    width = points.num_features
    widths = [m for m in _WIDTHS if m < basis.size(1)] + [basis.size(1)]
    edges, *shares = _candidate_shares(points, reach, basis, [width + 1, *widths])
    tiles_left = _TILES_LEFT
    if not isinstance(reach, float) and shares[0] > _HOPELESS:
        tiles_left = 1.0  # boxes of a few coordinates will rule nothing out
    costs = [
        4.0 * width * m / points.num_nodes  # setting it up
        + tiles_left * (m + _SCAN)
        + share * (_FINISH_TERM * width + _FINISH)
        for m, share in zip(widths, shares, strict=True)
    ]
    plain = width + _SCAN + edges * _FINISH
    if strategy == "auto" and plain <= min(costs):
        return None
    return widths[costs.index(min(costs))]


def _candidate_shares(
    points: Points, reach: float | Tensor, basis: Tensor, widths: list[int]
) -> list[float]:
    """Share of a sample of pairs that each number of coordinates would leave.

    A width beyond the basis stands for all coordinates, so for the edges themselves.
    """
    nodes = sample_nodes(points)
    y = points.y[nodes]
    sampled = Points(y, y, points.sq_norm[nodes], None, 1.0, None)
    w, _, _ = bound_coordinates(sampled, basis)
    cut = min(256 if isinstance(reach, float) else len(reach), nodes.numel() // 2)
    shares = []
    for m in widths:
        rest = w[:, m:].square().sum(1, keepdim=True).sqrt()
        c = y if m > basis.size(1) else torch.cat([w[:, :m], rest], dim=1)
        # By a matrix product: good enough to count with.
        dist = torch.cdist(c[:cut], c[cut:], compute_mode="use_mm_for_euclid_dist")
        within = dist <= (reach if isinstance(reach, float) else reach[:cut])
        shares.append(float(within.float().mean()))
    return shares
