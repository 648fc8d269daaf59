"""What a search will find, from a sample of pairs, before it starts."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._runtime import available_memory, without_autocast
from pyg_glif._validate import check_batch, check_features, check_num_rows, check_scalar
from pyg_glif.distances import FairDistance
from pyg_glif.errors import MemoryBudgetError
from pyg_glif.graph._decide import exact_distances
from pyg_glif.graph._points import Points, as_distance, coordinates

#: Distances between the nodes of two index vectors, ``[A], [B] -> [A, B]``.
BlockDistance = Callable[[Tensor, Tensor], Tensor]

# Per directed edge: 16 bytes of indices, a distance, and what sorting them takes.
BYTES_PER_EDGE = 48
_BYTES_PER_NEAREST = 128  # where pairs are held with bounds, and both ends sorted
_BUDGET_SHARE = 0.8
_ALL_PAIRS = 2048
_SAMPLE_TILE = 128  # rows whose distances are computed at once
_EXACT_WORK = 10**9  # pairs times coordinates evaluated without a matrix product


@dataclass(frozen=True)
class PairSample:
    """Distances of sampled ordered pairs, and how many pairs they stand for."""

    dist: Tensor  # [S], within one graph
    place: Tensor  # [S], position of the pair among all of ``rows`` and ``cols``
    rows: Tensor  # [A]
    cols: Tensor  # [B]
    num_sampled: int  # pairs across graphs included
    num_pairs: int  # ordered pairs of different nodes in the data

    @property
    def weight(self) -> float:
        """Number of pairs that one sampled pair stands for."""
        return self.num_pairs / max(1, self.num_sampled)

    def most_edges(self, tau: float) -> float:
        """A number of directed edges that is unlikely to be exceeded."""
        hits = int((self.dist <= tau).sum())
        if self.num_sampled >= self.num_pairs:
            return float(hits)
        likely = (hits + 3.0 * math.sqrt(hits) + 3.0) * self.weight
        return min(likely, float(self.num_pairs))

    def rank(self, num_edges: float) -> int:
        """How many sampled pairs stand for so many directed edges."""
        return min(math.ceil(num_edges / self.weight - 1e-9), self.dist.numel())

    def radius(self, num_edges: float) -> float:
        """The smallest radius with at least ``num_edges`` directed edges."""
        rank = self.rank(num_edges)
        return float(self.dist.kthvalue(rank).values) if rank > 0 else 0.0

    def pairs(self, which: Tensor) -> tuple[Tensor, Tensor]:
        """Nodes of some of the sampled pairs."""
        place = self.place[which]
        row = place.div(self.cols.numel(), rounding_mode="floor")
        return self.rows[row], self.cols[place - row * self.cols.numel()]


def sample_pairs(
    num_nodes: int,
    block: BlockDistance,
    batch: Tensor | None,
    size: tuple[int, int],
    generator: torch.Generator | None = None,
    device: torch.device | None = None,
) -> PairSample:
    """Distances from some nodes to some others; all pairs where they are few."""
    if generator is None:
        generator = torch.Generator().manual_seed(0)
    order = torch.randperm(num_nodes, generator=generator)
    # From both ends, so that the two samples overlap only where nodes are few.
    rows, cols = order[: size[0]].to(device), order[-size[1] :].to(device)
    num_sampled, dist, place = 0, [], []
    for start in range(0, rows.numel(), _SAMPLE_TILE):
        part = rows[start : start + _SAMPLE_TILE]
        other = part.unsqueeze(1) != cols
        num_sampled += int(other.sum())
        if batch is not None:
            other &= batch[part].unsqueeze(1) == batch[cols]
        inside = other.view(-1).nonzero().view(-1)
        dist.append(block(part, cols).view(-1)[inside])
        place.append(inside + start * cols.numel())
    num_pairs = num_nodes * (num_nodes - 1)
    return PairSample(
        torch.cat(dist), torch.cat(place), rows, cols, num_sampled, num_pairs
    )


def check_search(points: Points, tau: float, budget: int | None) -> None:
    """Raises if the edges that a sample makes likely would not fit."""
    count = points.num_nodes
    workspace = 4 * count * min(points.num_features, 256) + 2**26
    if budget is None:
        budget = free_memory(points.y.device)
        if _bytes(count * (count - 1), workspace) <= budget:
            return  # whatever the radius

    def block(rows: Tensor, cols: Tensor) -> Tensor:
        # By a matrix product: good enough to count with.
        dist = torch.cdist(
            points.y[rows], points.y[cols], compute_mode="use_mm_for_euclid_dist"
        )
        return dist.div_(points.scale)

    sample = sample_pairs(
        count, block, points.batch, (256, 4096), device=points.y.device
    )
    check_memory(sample, tau, workspace, budget)


def check_memory(sample: PairSample, tau: float, workspace: int, budget: int) -> None:
    """Raises if the edges at ``tau`` would not fit, and says which radius would."""
    expected = sample.most_edges(tau)
    needed = _bytes(expected, workspace)
    if needed <= budget:
        return
    radius = sample.radius(0.8 * max(0.0, budget - workspace) / BYTES_PER_EDGE)
    remedy = f"About tau={radius:.4g} would fit" if radius else "No radius would fit"
    gib = 2.0**30
    raise MemoryBudgetError(
        f"'tau' = {tau:g} gives up to {expected:.3g} edges, which take "
        f"{needed / gib:.3g} GiB with the workspace ('memory_budget' is "
        f"{budget / gib:.3g} GiB). {remedy}"
    )


def check_nearest(points: Points, k: int, tau: float, budget: int | None) -> None:
    """Raises if the edges that a sample of rows makes likely would not fit."""
    count = points.num_nodes
    workspace = 4 * count * min(points.num_features, 256) + 2**26
    if budget is None:
        budget = free_memory(points.y.device)
        if count * (count - 1) * _BYTES_PER_NEAREST + workspace <= budget:
            return  # whoever is tied
    rows = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    rows = rows[:_SAMPLE_TILE].to(points.y.device)
    kth = nearest_reach(points, rows, k).clamp_(max=tau * points.scale)
    # Squares of pairs that are tied differ by the usual rounding, which is a little.
    slack = 16.0 * torch.finfo(torch.float32).eps * points.sq_norm.max()
    limit = kth.square() + slack
    counts = [(dist.square() <= limit).sum(1) for dist in _row_blocks(points, rows)]
    degree = torch.stack(counts).sum(0).double()
    # Each end may bring edges of its own, in both directions.
    spread = 3.0 * float(degree.std(correction=0)) / math.sqrt(degree.numel())
    expected = min(2.0 * count * (float(degree.mean()) + spread), count * (count - 1.0))
    needed = expected * _BYTES_PER_NEAREST + workspace
    if needed > budget:
        gib = 2.0**30
        raise MemoryBudgetError(
            f"'k' = {k} gives up to {expected:.3g} edges, ties included, which take "
            f"{needed / gib:.3g} GiB with the workspace ('memory_budget' is "
            f"{budget / gib:.3g} GiB). Lower 'k', or join duplicates first"
        )


def nearest_reach(points: Points, rows: Tensor, k: int) -> Tensor:  # [A] -> [A, 1]
    """Distances of some points to their k-th nearest, in the unit of ``y``.

    Good enough to count with; of fewer than ``k``, to the last one.
    """
    near = torch.empty(rows.numel(), 0, device=rows.device)
    for dist in _row_blocks(points, rows):
        near = torch.cat([near, dist], dim=1)
        near = near.topk(min(k, near.size(1)), largest=False).values
    return near.masked_fill_(near == math.inf, 0.0).amax(1, keepdim=True)


def _row_blocks(points: Points, rows: Tensor) -> Iterator[Tensor]:
    """Distances of some points to all, a block at a time; none to themselves."""
    for cols in torch.arange(points.num_nodes, device=rows.device).split(4096):
        dist = torch.cdist(
            points.y[rows], points.y[cols], compute_mode="use_mm_for_euclid_dist"
        )
        dist.masked_fill_(rows.unsqueeze(1) == cols, math.inf)
        if points.batch is not None:
            across = points.batch[rows].unsqueeze(1) != points.batch[cols]
            dist.masked_fill_(across, math.inf)
        yield dist


def free_memory(device: torch.device) -> int:
    """Bytes that a search may take if nobody says otherwise."""
    return int(_BUDGET_SHARE * available_memory(device))


def _bytes(num_edges: float, workspace: int) -> float:
    """Bytes that directed edges and the workspace take together."""
    return num_edges * BYTES_PER_EDGE + workspace


@without_autocast()
def suggest_tau(
    x: Tensor,
    target_degree: float,
    *,
    distance: FairDistance | None = None,
    batch: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> float:
    r"""Radius at which people have ``target_degree`` comparable people on average.

    .. math::
        \tau = \min \{ t : |\{(i, j) : i \ne j, d_{ij} \le t\}|
        \ge N \cdot \mathrm{target\_degree} \}

    over all pairs up to 2,048 nodes, and over a sample of two million pairs beyond
    that, where the degree found differs from the target by a few per cent. The radius
    is the distance of a pair, and :func:`~pyg_glif.fair_radius_graph` finds that pair
    and all that are tied with it; distances that differ by float64 rounding only count
    as tied.

    Args:
        x (torch.Tensor): Features.
        target_degree (float): Wanted average number of neighbours.
        distance (FairDistance, optional): Fair distance. (default: Euclidean)
        batch (torch.Tensor, optional): Graph number of each node, in any order;
            pairs across graphs do not count. (default: :obj:`None`)
        generator (torch.Generator, optional): Source of the sample. (default: a
            fixed seed, so that the answer does not change between calls)

    Shapes:
        - **input:** features :math:`(N, F)`, batch :math:`(N)`
        - **output:** a number

    Example:
        >>> suggest_tau(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), target_degree=1)
        2.0
    """
    x = check_features("x", x)
    check_scalar("target_degree", target_degree, above=0.0)
    check_num_rows("x", x.size(0), 2)
    if batch is not None:
        batch = check_batch(batch, x.size(0)).to(x.device)
    size = (_ALL_PAIRS, _ALL_PAIRS) if x.size(0) <= _ALL_PAIRS else (1024, 2048)
    found = _Distances(x, as_distance(distance))
    sample = sample_pairs(x.size(0), found.block, batch, size, generator, x.device)
    most = sample.dist.numel() * sample.weight / x.size(0)
    if target_degree > most * (1.0 + 1e-9):
        msg = f"'target_degree' must be at most {most:g} for these rows"
        raise ValueError(f"{msg} (got {target_degree:g})")
    rank = sample.rank(target_degree * x.size(0))
    return found.kth(sample, rank) if rank > 0 else 0.0


class _Distances:
    """Fair distances between nodes, quickly for many pairs, exactly for a few."""

    def __init__(self, x: Tensor, distance: FairDistance) -> None:
        self._x, self._distance = x, distance
        if not distance.is_embedding:
            return
        self._z = z = coordinates(distance, x)
        self._direct = min(len(z), _ALL_PAIRS) ** 2 * z.size(1) <= _EXACT_WORK
        if not self._direct:  # a product of matrices must not lose digits far away
            self._centre = z.mean(0, dtype=torch.float64)
            squares = [
                (part.double() - self._centre).square_().sum(1).max()
                for part in z.split(_ALL_PAIRS)
            ]
            self._largest = float(torch.stack(squares).max())

    def block(self, rows: Tensor, cols: Tensor) -> Tensor:  # [A], [B] -> [A, B]
        """Distances of all pairs; off by rounding where there is an embedding."""
        if not self._distance.is_embedding:
            dist: Tensor = self._distance(self._x[rows], self._x[cols])
            return dist
        a, b = self._z[rows].double(), self._z[cols].double()
        if self._direct:
            return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
        a, b = a - self._centre, b - self._centre
        return torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist")

    def kth(self, sample: PairSample, rank: int) -> float:
        """The smallest radius at which ``rank`` sampled pairs are edges.

        Pairs that rounding alone tells apart from the last of them count as tied
        with it, and are edges as well.
        """
        kth = sample.dist.kthvalue(rank).values
        if not self._distance.is_embedding:
            return float(kth)
        if not math.isfinite(kth):
            msg = "'x' must have distances whose square float64 can hold"
            raise ValueError(f"{msg} (got {float(kth)}). Divide the features")
        rounding = 4.0 * (self._z.size(1) + 16) * torch.finfo(torch.float64).eps
        # The exact distance of this rank is that of a pair between these limits.
        low, high = kth * (1.0 - rounding), kth * (1.0 + rounding)
        if not self._direct:
            error = 4.0 * rounding * self._largest  # of a square
            low = (kth.square() - error).clamp_(min=0.0).sqrt_()
            high = (kth.square() + error).sqrt_()
        open_pairs = (sample.dist >= low) & (sample.dist <= high)
        exact = exact_distances(self._z, *sample.pairs(open_pairs))
        exact = exact.sort().values
        tau = exact[rank - 1 - int((sample.dist < low).sum())]
        return float(exact[exact <= tau * (1.0 + rounding)][-1])
