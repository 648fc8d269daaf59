"""What a search will find, from a sample of pairs, before it starts."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pyg_glif._runtime import available_memory
from pyg_glif._validate import check_batch, check_features, check_scalar
from pyg_glif.distances import Euclidean, FairDistance
from pyg_glif.errors import MemoryBudgetError

#: Distances between the nodes of two index vectors, ``[A], [B] -> [A, B]``.
BlockDistance = Callable[[Tensor, Tensor], Tensor]

# Per directed edge: 16 bytes of indices, a distance, and what sorting them takes.
BYTES_PER_EDGE = 48
_BUDGET_SHARE = 0.8
_ALL_PAIRS = 2048
_EXACT_WORK = 10**9  # pairs times coordinates evaluated without a matrix product


@dataclass(frozen=True)
class PairSample:
    """Distances of sampled ordered pairs, and how many pairs they stand for."""

    dist: Tensor  # [S], within one graph
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

    def radius(self, num_edges: float) -> float:
        """The smallest radius with at least ``num_edges`` directed edges."""
        rank = math.ceil(num_edges / self.weight - 1e-9)
        if rank < 1:
            return 0.0
        return float(self.dist.kthvalue(min(rank, self.dist.numel())).values)


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
    rows, cols = order[: size[0]].to(device), order[-size[1] :].to(device)
    num_sampled, found = 0, []
    for part in rows.split(128):
        other = part.unsqueeze(1) != cols
        num_sampled += int(other.sum())
        if batch is not None:
            other &= batch[part].unsqueeze(1) == batch[cols]
        found.append(block(part, cols)[other])
    return PairSample(torch.cat(found), num_sampled, num_nodes * (num_nodes - 1))


def fits(num_edges: float, workspace: int, device: torch.device) -> bool:
    """Whether so many directed edges and the workspace fit into free memory."""
    needed = num_edges * BYTES_PER_EDGE + workspace
    return needed <= _BUDGET_SHARE * available_memory(device)


def check_memory(
    sample: PairSample, tau: float, workspace: int, budget: int | None
) -> None:
    """Raises if the edges at ``tau`` would not fit, and says which radius would."""
    if budget is None:
        budget = int(_BUDGET_SHARE * available_memory(sample.dist.device))
    expected = sample.most_edges(tau)
    needed = expected * BYTES_PER_EDGE + workspace
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


@torch.no_grad()
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
    that, where the degree found differs from the target by a few per cent.

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
    if x.size(0) < 2:
        raise ValueError(f"'x' must have at least 2 rows (got {x.size(0)})")
    if batch is not None:
        batch = check_batch(batch, x.size(0))
    size = (_ALL_PAIRS, _ALL_PAIRS) if x.size(0) <= _ALL_PAIRS else (1024, 2048)
    block = block_distance(x, Euclidean() if distance is None else distance)
    sample = sample_pairs(x.size(0), block, batch, size, generator, x.device)
    most = sample.dist.numel() * sample.weight / x.size(0)
    if target_degree > most * (1.0 + 1e-9):
        msg = f"'target_degree' must be at most {most:g} for these rows"
        raise ValueError(f"{msg} (got {target_degree:g})")
    return sample.radius(target_degree * x.size(0))


def block_distance(x: Tensor, distance: FairDistance) -> BlockDistance:
    """Fair distances between nodes, in float64 where there is an embedding."""
    if not distance.is_embedding:
        return lambda rows, cols: distance(x[rows], x[cols])
    z = distance.embed(x)
    few = min(z.size(0), _ALL_PAIRS) ** 2 * z.size(1) <= _EXACT_WORK
    mode = "donot_use_mm_for_euclid_dist" if few else "use_mm_for_euclid_dist"
    offset = z.mean(0, dtype=torch.float64)

    def block(rows: Tensor, cols: Tensor) -> Tensor:
        a, b = z[rows].double() - offset, z[cols].double() - offset
        return torch.cdist(a, b, compute_mode=mode)

    return block
